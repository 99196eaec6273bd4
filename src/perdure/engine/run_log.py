"""The log of one run: everything the next action is decided from, as it stands in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from perdure.core.errors import LeaseLost, ModelOverflow
from perdure.core.events import StoredEvent
from perdure.core.messages import Message, Question, ToolCall
from perdure.core.quick import quick
from perdure.core.runs import Lease, Run, RunKey, Step, Usage
from perdure.core.tx import Tx

__all__ = ["OpenCall", "Progress", "RunLog", "load_run_log", "run_log_of"]


@quick
@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has no result yet, and the message it stands in."""

    call: ToolCall
    message: Message


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """A run, its messages and steps in order, and its started foreign calls (call id -> lease number).

    It is never changed. Every transaction of the loop gives back the log that it leaves in the store. Where that saves
    reading, it is made from the one before: under the lease nobody else writes to it, but for the run's own row, and
    that is read anew in each transaction.

    Args:
        told: the number of the run's last event; None where it was not looked up. Besides who holds the lease only a
            request to cancel tells more, and that shows in the run's row.
    """

    run: Run
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    started: Mapping[str, int]
    told: int | None = field(default=None, compare=False)

    def after(
        self,
        *,
        run: Run | None = None,
        messages: Sequence[Message] = (),
        step: Step | None = None,
        told: int | None = None,
    ) -> RunLog:
        """The log with another run row, more messages, a step that is new or in another state, and events."""
        steps = self.steps
        if step is not None:
            steps = (*(other for other in steps if other.index != step.index), step)
        return RunLog(
            run=run or self.run,
            messages=(*self.messages, *messages) if messages else self.messages,
            steps=steps,
            started=self.started,
            told=told,
        )

    @property
    def lease(self) -> Lease:
        """Raises: LeaseLost: nobody holds the run."""
        if self.run.lease_owner is None:
            raise LeaseLost(f"{self.run.id} is held by nobody")
        return Lease(self.run.lease_owner, self.run.lease_number)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """Calls without a result, in the order they were asked."""
        answered = {result.call_id for message in self.messages for result in message.results}
        return tuple(
            OpenCall(call, message)
            for message in self.messages
            for call in message.calls
            if call.call_id not in answered
        )

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the newest answer's calls ask the user, in the order of their results."""
        found: list[Question] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            found += [result.question for result in reversed(message.results) if result.question is not None]
        return tuple(reversed(found))

    @property
    def last_step(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    @property
    def steps_taken(self) -> int:
        """Model calls that count towards `max_steps`: those that a crash took away do not."""
        return sum(step.status != "abandoned" for step in self.steps)

    @property
    def usage(self) -> Usage:
        return reduce(add, [step.usage for step in self.steps]) if self.steps else Usage()

    @property
    def refusals(self) -> int:
        """How many of the newest answers asked for nothing that could be run."""
        count = 0
        for step in reversed(self.steps):
            calls = {call.call_id for call in self.calls_of(step)}
            results = [result for message in self.messages for result in message.results if result.call_id in calls]
            if not results or not all(result.refused for result in results):
                break
            count += 1
        return count

    @property
    def overflows(self) -> tuple[Step, ...]:
        """The model calls since the last answer whose request was larger than the model's window, oldest first."""
        since: list[Step] = []
        for step in self.steps:
            if step.status == "success":
                since.clear()
            elif step.failure is not None and step.failure.kind == ModelOverflow.kind:
                since.append(step)
        return tuple(since)

    def calls_of(self, step: Step) -> tuple[ToolCall, ...]:
        """The tool calls of the answer that this step brought."""
        return tuple(call for message in self.messages if message.step_id == step.id for call in message.calls)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one transaction of the loop brought: the log as it now stands, and the events to send."""

    log: RunLog
    events: Sequence[StoredEvent] = ()


def load_run_log(tx: Tx, key: RunKey) -> RunLog:
    """The log of a run. Raises: NotFound."""
    return run_log_of(tx, tx.runs.at(key))


def run_log_of(tx: Tx, run: Run) -> RunLog:
    """The log of a run whose row was read in this transaction."""
    return RunLog(
        run=run,
        messages=tuple(tx.messages.of_run(run)),
        steps=tuple(tx.steps.of_run(run.key)),
        started=tx.runs.started_calls(run.key),
    )
