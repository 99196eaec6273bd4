"""The check that whatever a client receives is committed at that moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.events import Event, MessageAdded, StoredEvent
from perdure.core.ids import AgentId, RunId
from perdure.core.ports import CallContext
from perdure.core.runs import Run
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import Accepted
from perdure.storage.tx import Tx
from tests.simulator.invariants import Violation
from tests.support.observer import Observer


class CommitCheck:
    """Reads the store through a connection that belongs to no process.

    Args:
        report: called with each violation.
    """

    def __init__(self, store: Observer, report: Callable[[Violation], None]) -> None:
        self._store, self.report = store, report
        self._keys: dict[tuple[AgentId, int, str], RunId] = {}

    def check_events(self, run: Run, sent: Sequence[StoredEvent]) -> None:
        """Check consecutive events that a reader received: they are stored."""
        if sent:
            stored = self._store.read_now(lambda tx: tx.events.list(run.key, after=sent[0].seq - 1, limit=len(sent)))
            if [_comparable(event) for event in stored] != [_comparable(event) for event in sent]:
                self._report(f"events of run {run.key.seq} were sent and are not stored: {sent}, but {stored}")

    def check_accepted(self, request: RunRequest, accepted: Accepted) -> None:
        """Check an accepted request: its run, its events and its idempotency key are stored."""
        self.check_events(accepted.run, accepted.events)
        key = request.idempotency_key

        def find_run(tx: Tx) -> RunId | None:
            tx.runs.get(accepted.run.id)
            match = tx.runs.find_by_key(request.agent_id, request.conversation_seq, key or "")
            return None if match is None else match[0].id

        try:
            stored = self._store.read_now(find_run)
        except NotFound:
            self._report(f"run {accepted.run.id} was acknowledged and is not stored")
            return
        if key is None or accepted.waits or (accepted.repeated and stored is None):
            return
        first = self._keys.setdefault((request.agent_id, request.conversation_seq, key), accepted.run.id)
        if {stored, first} != {accepted.run.id}:
            self._report(f"key {key!r} returned run {accepted.run.id}, before {first}, and leads to {stored}")

    def check_tool_start(self, context: CallContext) -> None:
        """Check a tool call that begins: its start is stored, so that a kill does not repeat its effects."""

        def is_started(tx: Tx) -> bool:
            return context.call_id in tx.runs.get_call_starts(tx.runs.get(context.run_id).key)

        if not self._store.read_now(is_started):
            self._report(f"call {context.call_id} of {context.run_id} runs, and is not stored as started")

    def check_previews(self, run: Run, step_ids: Collection[str]) -> None:
        """Check steps of which a reader received pieces and no `StepAbandoned`: they are stored, and not abandoned."""
        steps = self._store.read_now(lambda tx: {step.id: step.status for step in tx.steps.list_by_run(run.key)})
        if missing := [step_id for step_id in step_ids if steps.get(step_id) in (None, "abandoned")]:  # type: ignore[call-overload]
            self._report(f"readers of run {run.key.seq} received previews of {missing}, and no abandoned event")

    def check_cancelled(self, run: Run) -> None:
        """Check the run that a request to cancel returned: its state is stored."""
        now = self._store.read_now(lambda tx: tx.runs.get_by_key(run.key))
        if (run.cancel_requested and not now.cancel_requested) or (run.ended and not now.ended):
            self._report(f"run {run.key.seq} was returned as {run.status}, and is {now.status}")

    def _report(self, text: str) -> None:
        violation = Violation(text)
        self.report(violation)
        raise violation


def _comparable(stored: StoredEvent) -> Any:
    """The event without the content of its message, which may have been revised since."""
    event: Event = stored.event
    return stored.seq, (event.type, event.message_seq) if isinstance(event, MessageAdded) else event
