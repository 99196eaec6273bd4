"""Isolation: nothing that one organisation has changes what a transaction of another finds, does or raises.

Every verb of the store is called with every mixture of arguments of our own organisation and of another one, once while
the other is not there and once while it is. Both times must look the same, and the other's rows must stay as they were.
The arguments come from the names and types of the verb's parameters, so a new verb is covered by itself; a parameter
that `Values` does not know fails the test.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from perdure.core.errors import PerdureError, StoreError
from perdure.core.files import AgentFile
from perdure.core.ids import OrgId
from perdure.core.tx import Tx
from tests.contracts.base import Contract
from tests.contracts.isolation_values import Values
from tests.contracts.organisations import Property, fill

__all__ = ["IsolationContract", "is_protocol"]

OTHER_ORG = OrgId("org-11111111-1111-4111-8111-111111111111")

SHARED = frozenset({"upkeep.rebuild_words"})
"""Verbs whose work is one for the file: an index of words is."""

NAMES = ("us", "them")

Row = tuple[str, str]
"""(table, the row as text)."""


class _Undo(Exception):
    """Ends a transaction without leaving anything behind."""


class IsolationContract(Contract):
    async def test_another_organisation_makes_no_difference(self) -> None:
        """Not to a result, an error or a row, whichever arguments are its own."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            own = await ours.write(lambda tx: fill(self, tx))
            ids = copy(self.ids)
            foreign = await undone(theirs, lambda tx: fill(self, tx))
            self.ids = ids  # the same things again, later on
            await self.check(ours, theirs, list(calls_of(own, foreign)))

    async def test_an_organisation_without_anything_finds_nothing(self) -> None:
        """Also where a verb would fall back to something else, as for want of an agent that was used."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            ids = copy(self.ids)
            foreign = await undone(theirs, lambda tx: fill(self, tx))
            self.ids = ids
            await self.check(ours, theirs, [call for call in calls_of(foreign, foreign) if call.is_theirs])

    async def check(self, ours: Any, theirs: Any, calls: Sequence[_Call]) -> None:
        """Nothing, when all calls do the same before and after the other organisation has something."""
        alone = await outcomes_of(ours, calls)
        await theirs.write(lambda tx: fill(self, tx))
        beside = await outcomes_of(ours, calls)
        different = [name for name in alone if alone[name] != beside[name]]
        assert different == [], "\n".join(f"{name}: {_change(alone[name], beside[name])}" for name in different)

    async def test_organisations_may_use_the_same_names(self) -> None:
        """Names of agents, tools, folders and servers, and keys of requests, are each organisation's own."""
        async with self.opened() as ours, self.opened(org_id=OTHER_ORG) as theirs:
            mine, other = await ours.write(lambda tx: fill(self, tx)), await theirs.write(lambda tx: fill(self, tx))

            assert await ours.read(lambda tx: tx.agents.find_by_name("ada")) == mine.agent
            assert await theirs.read(lambda tx: tx.agents.find_by_name("ada")) == other.agent
            assert await ours.read(lambda tx: tx.tools.list()) == [mine.tool]
            assert await theirs.read(lambda tx: tx.tools.list()) == [other.tool]


async def outcomes_of(store: Any, calls: Sequence[_Call]) -> dict[str, Any]:
    """What each call does by itself, by its name."""
    before = await store.read(rows_of)
    return {call.name: await undone(store, call, before) for call in calls}


async def undone(store: Any, unit: Any, *args: Any) -> Any:
    """What the unit gives, with nothing of it written."""
    result: list[Any] = []

    def run(tx: Tx) -> None:
        result.append(unit(tx, *args))
        raise _Undo

    try:
        await store.write(run)
    except _Undo:
        return result[0]
    except StoreError as error:  # a constraint of the database
        return type(error).__name__
    raise AssertionError("the transaction was not undone")


def calls_of(own: Property, foreign: Property) -> Iterator[_Call]:
    """Every verb with every mixture of arguments."""
    sides = (Values(own), Values(foreign))
    for noun, verb, parameters in _verbs():
        owned = [one.name for one in parameters if sides[0].is_owned(noun, verb, one)]
        for mixture in itertools.product((0, 1), repeat=len(owned)):
            side = dict(zip(owned, mixture, strict=True))
            arguments = {one.name: sides[side.get(one.name, 0)].value(noun, verb, one) for one in parameters}
            label = f"{noun}.{verb}({', '.join(f'{name}={NAMES[which]}' for name, which in side.items())})"
            yield _Call(label, noun, verb, arguments)
            for which in (0, 1):
                for name, changes in sides[which].variants(noun, verb, parameters):
                    yield _Call(f"{label} with {name} of {NAMES[which]}", noun, verb, {**arguments, **changes})


def _verbs() -> Iterator[tuple[str, str, list[inspect.Parameter]]]:
    for noun in (name for name, port in vars(Tx).items() if isinstance(port, property) and name != "org_id"):
        port = get_type_hints(vars(Tx)[noun].fget)["return"]
        for verb, function in vars(port).items():
            if (
                is_protocol(port)
                and f"{noun}.{verb}" not in SHARED
                and not verb.startswith("_")
                and inspect.isfunction(function)
            ):
                yield noun, verb, list(inspect.signature(function).parameters.values())[1:]


def is_protocol(port: type) -> bool:
    """Whether it has verbs of the database; `tx.limits` is a value."""
    return getattr(port, "_is_protocol", False)


@dataclass(frozen=True)
class _Call:
    """A verb with its arguments, as a unit."""

    name: str
    noun: str
    verb: str
    arguments: Mapping[str, Any]

    @property
    def is_theirs(self) -> bool:
        """Whether every argument is the other organisation's."""
        return f"={NAMES[0]}" not in self.name and not self.name.endswith(NAMES[0])

    def __call__(self, tx: Tx, before: Counter[Row]) -> tuple[Any, Counter[str], list[Row]]:
        """The outcome, how many rows of each table it added, took away or changed, and those of the other."""
        verb = getattr(getattr(tx, self.noun), self.verb)
        bound = inspect.BoundArguments(inspect.signature(verb), dict(self.arguments))
        outcome = outcome_of(lambda: verb(*bound.args, **bound.kwargs))
        after = rows_of(tx)
        changed = [*(after - before), *(before - after)] if after != before else []
        return outcome, Counter(table for table, _ in changed), sorted(row for row in changed if OTHER_ORG in row[1])


def outcome_of(call: Any) -> Any:
    """What a call gives or raises, in a form that can be compared."""
    try:
        result = call()
        if isinstance(result, contextlib.AbstractContextManager):
            with result:
                return "entered"
        return plain(result)
    except PerdureError as error:
        return type(error).__name__


def plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # These count things of all organisations: they are no secret, and differ beside another one.
        counts = ("number", "version") if isinstance(value, AgentFile) else ("number",)
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in counts}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, Iterator, set, frozenset)):
        return value
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else [plain(one) for one in value]


def rows_of(tx: Any) -> Counter[Row]:
    """All rows of the file, but for how a full-text index keeps its words."""
    db = tx.agents._db
    return Counter((table, text) for table, text in db.rows(_all_rows(db), {}))


def _all_rows(db: Any) -> str:
    if db.clustered == "WITHOUT ROWID":
        names = [
            (name, [column[1] for column in db.rows(f"PRAGMA table_info({name})", {})])
            for (name,) in db.rows(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
                " AND name NOT LIKE '%\\_data' ESCAPE '\\' AND name NOT LIKE '%\\_idx' ESCAPE '\\'"
                " AND name NOT LIKE '%\\_config' ESCAPE '\\'",
                {},
            )
        ]
        return " UNION ALL ".join(
            f"SELECT '{name}', json_array({', '.join(f'quote({column})' for column in columns)}) FROM {name}"
            for name, columns in names
        )
    names = db.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()", {})
    return " UNION ALL ".join(f"SELECT '{name}', {name}::text FROM {name}" for (name,) in names)


def _change(alone: Any, beside: Any) -> str:
    """Where two outcomes begin to differ."""
    one, other = repr(alone), repr(beside)
    first = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    return f"{one[max(0, first - 60) : first + 100]!r} became {other[max(0, first - 60) : first + 100]!r}"
