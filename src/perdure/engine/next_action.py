"""What a run does next: a pure function of its log. There is no recovery code; after a crash the same question is
asked."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.runs import Failure, Step, StopReason
from perdure.engine.run_log import OpenCall, RunLog

__all__ = ["Action", "Ask", "CallModel", "CallTools", "Done", "Finish", "next_action"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Record how the next model call is made. `abandoned` is the step of a process that died while its model
    answered."""

    abandoned: Step | None = None


@dataclass(frozen=True, slots=True)
class CallModel:
    step: Step


@dataclass(frozen=True, slots=True)
class CallTools:
    calls: tuple[OpenCall, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    reason: StopReason
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The run has ended."""


Action = Ask | CallModel | CallTools | Finish | Done


REPAIRS = 3
"""How often in a row a model may try again after calls that can't be run."""


OVERFLOWS = 1
"""How often a run may go on after its model found the request too large: once, with an estimate that was corrected."""


def _asked_again(log: RunLog) -> bool:
    """Whether the newest step failed for its request's size, and may be followed by another."""
    overflows = log.overflows
    return 0 < len(overflows) <= OVERFLOWS and overflows[-1] is log.last_step


def next_action(log: RunLog) -> Action:
    """The one thing to do now.

    A run that was asked to stop finishes first; a call without a result comes before anything that would send the log
    to a model; a reply without a call, or a question to the user, ends the run; a model that keeps asking for what
    can't be run is stopped.
    """
    run = log.run
    if run.ended:
        return Done()
    if run.cancel_requested:
        return Finish("cancelled")
    if open_calls := log.open_calls:
        return CallTools(open_calls)
    if log.questions:
        return Finish("end_turn")
    step = log.last_step
    if step is not None:
        if step.status == "pending":
            return CallModel(step) if step.lease_number == run.lease_number else Ask(abandoned=step)
        if step.status == "failed" and not _asked_again(log):
            return Finish(step.stop_reason or "error", step.failure)
        if step.status == "success" and not log.calls_of(step):
            return Finish(step.stop_reason or "end_turn")
    if log.refusals > REPAIRS:
        return Finish("invalid_tool_call", _invalid_calls(log))
    if log.steps_taken >= run.max_steps:
        return Finish("max_steps")
    return Ask()


def _invalid_calls(log: RunLog) -> Failure:
    last = log.messages[-1].results[-1]
    return Failure(
        kind="invalid_tool_call",
        message=f"the model asked {log.refusals} times in a row for calls that can't be run; the last: {last.text}",
    )
