"""Ids by their beginnings, as people type them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import MessageId, RunId, StepId, id_beginning, is_id
from perdure.library.parts.checks import check_text
from perdure.library.parts.part import AsyncPart
from perdure.library.runs.steps import load_with_run
from perdure.storage.tx import Tx

NAMED_MAX = 5
"""Ids that an error names."""
RUNS_MAX = 1_000
"""Runs that the beginning of a message's or step's id may lead to."""

ID_START = re.compile(
    r"(run|step|message|passage|block|fact|entity)-([0-9a-f]{4}[0-9a-f-]{0,32})(?::(\d{1,6}))?", re.ASCII
)
"""An id, or its beginning; of a block perhaps with the number of a line."""


class ShortIds(AsyncPart):
    """The ids of everything in the store, by their beginnings."""

    async def find(self, start: str, *kinds: str) -> str:
        """The whole id that begins with `start` and is of one of these kinds; a step's leads to its run. Raises:
        NotFound; InvalidInput: several begin so, or it is of another kind."""
        check_text("id", start)
        return await self._ports.store.read(_find, start.strip(), kinds)


def is_id_start(text: str) -> bool:
    """Whether a text has the form of an id, or of the beginning of one."""
    return ID_START.fullmatch(text.strip()) is not None


def resolve_id(tx: Tx, start: str) -> str:
    """The whole id of a run, step, message, passage, block, fact or entity that begins with `start`. Raises: NotFound;
    InvalidInput: several ids do, or too many are to be looked through."""
    kind, _, digits = start.partition("-")
    if is_id(kind, start):
        return start
    found = list(tx.id_starts.list(start, limit=NAMED_MAX))
    if kind in ("message", "step"):  # the ids of a run's own differ from the run's in some digits
        run_ids = tx.id_starts.list(f"run-___{digits[3:]}", limit=RUNS_MAX)
        if len(run_ids) == RUNS_MAX:
            raise InvalidInput(f"{start!r} is the beginning of many ids: give more of it")
        ids = [id_beginning(start, RunId(run_id)) for run_id in run_ids]
        if kind == "message":
            found += tx.messages.find_existing([MessageId(id_) for id_ in ids])
        for step_id in ids if kind == "step" else ():
            with suppress(NotFound):
                found.append(tx.steps.get(StepId(step_id)).id)
    found = list(dict.fromkeys(found))
    if not found:
        raise NotFound(kind, start)
    if len(found) > 1:
        named = ", ".join(sorted(found)[:NAMED_MAX])
        raise InvalidInput(f"{start!r} is the beginning of several ids: {named}; give more of it")
    return found[0]


def _find(tx: Tx, start: str, kinds: Sequence[str]) -> str:
    """Return the whole id of one of these kinds that begins with `start`; if runs are among the kinds, a step's id
    leads to its run. Raises: NotFound, InvalidInput."""
    if ID_START.fullmatch(start) is None:
        raise NotFound(kinds[0], start)
    id_ = resolve_id(tx, start)
    kind = id_.partition("-")[0]
    if kind == "step" and "run" in kinds:
        return load_with_run(tx, StepId(id_))[0].id
    if kind not in kinds:
        raise InvalidInput(f"{start!r} is the id of a {kind}: give one of a {' or '.join(kinds)}")
    return id_
