"""Isolation: nothing that one organisation has changes what a transaction of another finds, does or raises.

Every verb of the store is called with every mixture of arguments of our own organisation and of another one, once while
the other is not there and once while it is. Both times must look the same, and the other's rows must stay as they were.
The arguments come from the names and types of the verb's parameters, so a new verb is covered by itself; a parameter
that `Values` does not know fails the test.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import pkgutil
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest

from perdure.core.errors import AlreadyExists, PerdureError, StoreError, TooMany
from perdure.core.features import find_features
from perdure.core.ids import OrgId
from perdure.core.secrets import ORGANISATION
from perdure.features.files.values import AgentFile
from perdure.storage.stores.sqlite import SqliteDatabase
from perdure.storage.tables.table import Table
from perdure.storage.tx import Tx
from perdure.testing.clock import SequentialIds
from tests.contracts.base import AT, Contract, raises
from tests.contracts.isolation_values import Values
from tests.contracts.organisations import Property, fill

OTHER_ORG = OrgId("org-11111111-1111-4111-8111-111111111111")
EARLIER_ORG = OrgId("org-00000000-0000-4000-0000-000000000000")
"""Whose things are older than ours, with lower numbers and ids; the other's are younger. Pages are ordered by both."""

SHARED = frozenset({"upkeep.rebuild_words", "upkeep.merge_words", "upkeep.drop_vector_cache"})
"""Verbs whose work is one for the file: an index of words is, and the cache of vectors."""

OTHERS = (OTHER_ORG, EARLIER_ORG)
NAMES = ("us", "them", "earlier")

Row = tuple[str, str]
"""(table, the row as text)."""


class _Undo(Exception):
    """Ends a transaction without leaving anything behind."""


class IsolationContract(Contract):
    @pytest.mark.slow
    async def test_another_organisation_makes_no_difference(self) -> None:
        """Not to a result, an error or a row, whichever arguments are its own."""
        async with (
            self.open_store() as ours,
            self.open_store(org_id=OTHER_ORG) as theirs,
            self.open_store(org_id=EARLIER_ORG) as earlier,
        ):
            own = await ours.write(self.fill_from(1))
            # The same things again are there later on.
            foreign = await undone(theirs, self.fill_from(2))
            older = await undone(earlier, self.fill_from(0))
            await self.check(ours, [earlier, ours, theirs], list(calls_of(own, foreign, older)))

    async def test_an_organisation_without_anything_finds_nothing(self) -> None:
        """Also where a verb would fall back to something else, as for want of an agent that was used."""
        async with self.open_store() as ours, self.open_store(org_id=OTHER_ORG) as theirs:
            foreign = await undone(theirs, self.fill_from(0))
            await self.check(ours, [theirs], [call for call in calls_of(foreign, foreign) if call.is_theirs])

    def fill_from(self, place: int) -> Callable[[Tx], Property]:
        """A unit that fills the store, with ids and numbers above those of a lower place."""

        def unit(tx: Any) -> Property:
            self.ids = SequentialIds(salt=place)
            tx.agents._db.run("UPDATE counters SET value = :first WHERE name = 'number'", {"first": 1_000 * place})
            return fill(self, tx)

        return unit

    async def check(self, ours: Any, stores: Sequence[Any], calls: Sequence[_Call]) -> None:
        """Nothing, when all calls do the same before and after the others have something; `stores`: by their place."""
        alone = await outcomes_of(ours, calls)
        for place, store in enumerate(stores):
            if store is not ours:
                await store.write(self.fill_from(place))
        beside = await outcomes_of(ours, calls)
        different = [name for name in alone if alone[name] != beside[name]]
        assert different == [], "\n".join(f"{name}: {_change(alone[name], beside[name])}" for name in different)

    async def test_a_full_organisation_leaves_room_in_others(self) -> None:
        """How many secrets there may be is counted for each organisation by itself."""
        async with self.open_store() as ours, self.open_store(org_id=OTHER_ORG) as theirs:

            def put_all(tx: Tx) -> None:
                for number in range(tx.limits.secrets_per_owner):
                    tx.secrets.put(ORGANISATION, f"S{number}", b"sealed", at=AT)

            await theirs.write(put_all)
            with raises(TooMany):
                await theirs.write(lambda tx: tx.secrets.put(ORGANISATION, "TOKEN", b"sealed", at=AT))

            assert (
                await ours.write(lambda tx: tx.secrets.put(ORGANISATION, "TOKEN", b"sealed", at=AT))
            ).name == "TOKEN"

    async def test_organisations_may_use_the_same_names(self) -> None:
        """Names of agents, tools, folders and servers, and keys of requests, are each organisation's own."""
        async with self.open_store() as ours, self.open_store(org_id=OTHER_ORG) as theirs:
            mine, other = await ours.write(lambda tx: fill(self, tx)), await theirs.write(lambda tx: fill(self, tx))

            assert await ours.read(lambda tx: tx.agents.find_by_name("ada")) == mine.agent
            assert await theirs.read(lambda tx: tx.agents.find_by_name("ada")) == other.agent
            assert await ours.read(lambda tx: tx.tools.list()) == [mine.tool]
            assert await theirs.read(lambda tx: tx.tools.list()) == [other.tool]


async def outcomes_of(store: Any, calls: Sequence[_Call]) -> dict[str, Any]:
    """What each call does by itself, by its name."""
    before = await store.read(rows_of)
    return dict(zip((call.name for call in calls), await each_undone(store, calls, before), strict=True))


async def undone(store: Any, unit: Any, *args: Any) -> Any:
    """What the unit gives, with nothing of it written."""
    return (await each_undone(store, [unit], *args))[0]


async def each_undone(store: Any, units: Sequence[Any], *args: Any) -> list[Any]:
    """What each unit gives, with nothing of any written.

    No unit finds what another one did. Those that only read share a transaction, which ends behind the first that
    writes or fails: most of them read, and a transaction each would take longer than all else.
    """
    results: list[Any] = []

    def run(tx: Tx) -> None:
        written = writes_of(tx)
        while len(results) < len(units):
            result = units[len(results)](tx, *args)
            has_written = writes_of(tx) != written
            results.append(result)
            if has_written:
                break
        raise _Undo

    while len(results) < len(units):
        try:
            await store.write(run)
        except _Undo:
            continue
        except (StoreError, AlreadyExists) as error:  # a constraint of the database
            results.append(type(error).__name__)
            continue
        raise AssertionError("the transaction was not undone")
    return results


def calls_of(own: Property, *foreign: Property) -> Iterator[_Call]:
    """Every verb with every mixture of arguments."""
    sides = [Values(one) for one in (own, *foreign)]
    for noun, verb, parameters in _verbs():
        owned = [one.name for one in parameters if sides[0].is_owned(noun, verb, one)]
        for mixture in itertools.product((0, 1), repeat=len(owned)):
            side = dict(zip(owned, mixture, strict=True))
            arguments = {one.name: sides[side.get(one.name, 0)].value(noun, verb, one) for one in parameters}
            label = f"{noun}.{verb}({', '.join(f'{name}={NAMES[which]}' for name, which in side.items())})"
            yield _Call(label, noun, verb, arguments)
            for which, values in enumerate(sides):
                for name, changes in values.variants(noun, verb, parameters):
                    yield _Call(f"{label} with {name} of {NAMES[which]}", noun, verb, {**arguments, **changes})


def _verbs() -> Iterator[tuple[str, str, list[inspect.Parameter]]]:
    for noun, verb, function in verbs():
        if f"{noun}.{verb}" not in SHARED and inspect.isfunction(function):
            yield noun, verb, list(signature_of(function).parameters.values())[1:]


_WINDOW = {"above": None, "below": None, "newest_first": False, "limit": 100}


def signature_of(verb: Any) -> inspect.Signature:
    """The signature of a verb, with the members of a window of numbers as its own parameters."""
    own = inspect.signature(verb)
    parameters = list(own.parameters.values())
    if parameters and "NumberWindow" in str(parameters[-1].annotation):
        parameters[-1:] = (
            inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=_WINDOW[one]) for one in _WINDOW
        )
    return own.replace(parameters=parameters)


def _feature_tables() -> Iterator[tuple[str, type[Table]]]:
    """(noun, class) of each table of a feature."""
    for feature in find_features():
        for module in pkgutil.walk_packages([str(feature.folder)], f"{feature.package}."):
            if re.search(r"tables(\.|$)", module.name):
                for kind in vars(importlib.import_module(module.name)).values():
                    if isinstance(kind, type) and issubclass(kind, Table) and kind.__module__ == module.name:
                        yield noun_of(kind.__name__), kind


def noun_of(name: str) -> str:
    """The noun of a class: `GroupTurns` are `group_turns`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


FEATURE_TABLES = dict(_feature_tables())


def table_of(tx: Tx, noun: str) -> Any:
    """The verbs of a noun."""
    return tx.of(FEATURE_TABLES[noun]) if noun in FEATURE_TABLES else getattr(tx, noun)


def verbs() -> Iterator[tuple[str, str, Any]]:
    """(noun, verb, function or property) of all that a transaction can do."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        nouns = {name: type(one) for name, one in vars(Tx(SqliteDatabase(connection))).items()} | FEATURE_TABLES
    for noun in sorted(nouns.keys() - {"org_id", "limits", "_db", "_of_features"}):
        own = {name: one for of in reversed(nouns[noun].__mro__[:-1]) for name, one in vars(of).items()}
        for verb, function in own.items():
            if not verb.startswith("_"):
                yield noun, verb, function


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
        written = writes_of(tx)
        verb = getattr(table_of(tx, self.noun), self.verb)
        bound = inspect.BoundArguments(signature_of(verb), dict(self.arguments))
        outcome = outcome_of(lambda: verb(*bound.args, **bound.kwargs))
        changed: list[Row] = []
        if writes_of(tx) != written:  # most verbs read; all rows are many
            tables = written_tables(tx)
            after = rows_of(tx, tables)
            earlier = Counter({row: count for row, count in before.items() if tables is None or row[0] in tables})
            changed = [*(after - earlier), *(earlier - after)]
        return (
            outcome,
            Counter(table for table, _ in changed),
            sorted(row for row in changed if any(org in row[1] for org in OTHERS)),
        )


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


def rows_of(tx: Any, tables: Collection[str] | None = None) -> Counter[Row]:
    """All rows of the file, or those of these tables, but for how a full-text index keeps its words."""
    db = tx.agents._db
    rows = [f"SELECT '{table}', {row} FROM {table}" for table, row in _rows_as_text(db, tables).items()]
    return Counter((table, text) for table, text in db.rows(" UNION ALL ".join(rows), {})) if rows else Counter()


_TABLES = """
    SELECT name, sql FROM sqlite_master
    WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE '%\\_data' ESCAPE '\\'
        AND name NOT LIKE '%\\_idx' ESCAPE '\\' AND name NOT LIKE '%\\_config' ESCAPE '\\'
"""

_columns: dict[tuple[Any, ...], Mapping[str, str]] = {}
"""By the tables: asking for the columns of a hundred takes as long as reading their rows."""


def _rows_as_text(db: Any, of: Collection[str] | None) -> Mapping[str, str]:
    """The expression for a row as text, by table: of these, or of all."""
    if not _is_file(db):
        if of is None:
            of = [
                name for (name,) in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()", {})
            ]
        return {name: f"{name}::text" for name in of}
    tables = tuple(db.rows(_TABLES, {}))
    if tables not in _columns:
        columns = {name: db.rows(f"PRAGMA table_info({name})", {}) for name, _ in tables}
        _columns[tables] = {
            name: f"json_array({', '.join(f'quote({column[1]})' for column in of_table)})"
            for name, of_table in columns.items()
        }
    return _columns[tables]


def _is_file(db: Any) -> bool:
    """Whether it is SQLite's."""
    return bool(db.clustered == "WITHOUT ROWID")


def written_tables(tx: Any) -> Collection[str] | None:
    """The tables whose rows the transaction has added, changed or taken away; None where SQLite does not tell."""
    db = tx.agents._db
    if _is_file(db):
        return None
    # The view of these numbers joins what else is known of the tables, which takes ten times as long.
    written = " + ".join(f"pg_stat_get_xact_tuples_{verb}(oid)" for verb in ("inserted", "updated", "deleted"))
    sql = f"SELECT relname FROM pg_class WHERE relnamespace = CAST(current_schema() AS regnamespace) AND {written} > 0"
    return {name for (name,) in db.rows(f"{sql} AND relkind = 'r'", {})}


def writes_of(tx: Any) -> object:
    """A value that stays equal for as long as the transaction writes nothing."""
    db = tx.agents._db
    if _is_file(db):
        return db.rows("SELECT total_changes()", {})
    return db.has_written and object()  # the server could tell it too, in a round trip behind each of all the calls


def _change(alone: Any, beside: Any) -> str:
    """Where two outcomes begin to differ."""
    one, other = repr(alone), repr(beside)
    first = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    return f"{one[max(0, first - 60) : first + 100]!r} became {other[max(0, first - 60) : first + 100]!r}"
