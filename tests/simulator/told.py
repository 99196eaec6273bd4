"""What clients were told, compared with what is committed at that moment: nothing is told before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.events import Event, MessageAdded, StoredEvent
from perdure.core.ids import AgentId, RunId
from perdure.core.ports import CallContext
from perdure.core.runs import Run
from perdure.engine.run.accept import Accepted, Request
from perdure.storage.tx import Tx
from perdure.testing.inline_store import InlineStore
from tests.simulator.invariants import Violation

__all__ = ["Told"]


class Told:
    """Looks into the store with a connection that belongs to no process.

    Args:
        found: called with each violation.
    """

    def __init__(self, store: InlineStore, found: Callable[[Violation], None]) -> None:
        self._store, self.found = store, found
        self._keys: dict[tuple[AgentId, int, str], RunId] = {}

    def events(self, run: Run, sent: Sequence[StoredEvent]) -> None:
        """A reader got these events, which follow each other."""
        if sent:
            there = self._store.read_now(lambda tx: tx.events.list(run.key, after=sent[0].seq - 1, limit=len(sent)))
            if [_plain(one) for one in there] != [_plain(one) for one in sent]:
                self._report(f"events of run {run.key.seq} were told that are not stored: {sent}, but {there}")

    def accepted(self, request: Request, accepted: Accepted) -> None:
        """A caller was told that a request is accepted, and as which run."""
        self.events(accepted.run, accepted.events)
        key = request.idempotency_key

        def run_of(tx: Tx) -> RunId | None:
            tx.runs.get(accepted.run.id)
            found = tx.runs.find_by_key(request.agent_id, request.conversation_seq, key or "")
            return None if found is None else found[0].id

        try:
            found = self._store.read_now(run_of)
        except NotFound:
            self._report(f"run {accepted.run.id} was acknowledged and is not stored")
            return
        if key is None or accepted.waits or (accepted.repeated and found is None):
            return
        known = self._keys.setdefault((request.agent_id, request.conversation_seq, key), accepted.run.id)
        if {found, known} != {accepted.run.id}:
            self._report(f"key {key!r} was told to be run {accepted.run.id}, before {known}, and leads to {found}")

    def begins(self, context: CallContext) -> None:
        """A tool is run that may have effects: that it was started is stored, so that a kill does not repeat it."""

        def started(tx: Tx) -> bool:
            return context.call_id in tx.runs.started_calls(tx.runs.get(context.run_id).key)

        if not self._store.read_now(started):
            self._report(f"call {context.call_id} of {context.run_id} runs, and is not stored as started")

    def previews(self, run: Run, step_ids: Collection[str]) -> None:
        """A reader saw pieces of what these steps say, and was not told that they are abandoned."""
        steps = self._store.read_now(lambda tx: {step.id: step.status for step in tx.steps.of_run(run.key)})
        if gone := [one for one in step_ids if steps.get(one) in (None, "abandoned")]:  # type: ignore[call-overload]
            self._report(f"readers of run {run.key.seq} saw previews of {gone}, and nobody told them it is void")

    def cancelled(self, run: Run) -> None:
        """A caller was told what became of a request to cancel."""
        now = self._store.read_now(lambda tx: tx.runs.at(run.key))
        if (run.cancel_requested and not now.cancel_requested) or (run.ended and not now.ended):
            self._report(f"run {run.key.seq} was told to be {run.status}, and is {now.status}")

    def _report(self, text: str) -> None:
        violation = Violation(text)
        self.found(violation)
        raise violation


def _plain(sent: StoredEvent) -> Any:
    """A message is told as it was stored, and may have been revised since."""
    event: Event = sent.event
    return sent.seq, (event.type, event.message_seq) if isinstance(event, MessageAdded) else event
