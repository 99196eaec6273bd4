"""What a run does next: a pure function of its log. There is no recovery code; after a crash the same question is
asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.runs import Failure, Step, StopReason
from perdure.engine.run.log import OpenCall, RunLog


@dataclass(frozen=True, slots=True)
class MakeRequest:
    """Record how the next model call is made. `abandoned` is the step of a process that died while its model
    answered; `reminder` what the model is told before, because it has not done it yet."""

    abandoned: Step | None = None
    reminder: str | None = None


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


Action = MakeRequest | CallModel | CallTools | Finish | Done


REPAIRS = 3
"""How often in a row a model may try again after calls that can't be run."""


REMINDERS = 3
"""How often in a row a model is reminded of a tool that it has to call."""


OVERFLOWS = 1
"""How often a run may go on after its model found the request too large: once, with an estimate that was corrected."""


def _may_retry(log: RunLog) -> bool:
    """Whether the newest step failed because its request was too large, and the run may try a smaller request."""
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
    if log.open_calls:
        ready = log.ready_calls
        return CallTools(ready) if ready else Finish("requires_approval")
    if log.questions:
        return Finish("end_turn")
    if log.rule_scope is not None and (action := _rule_action(log)) is not None:
        return action
    step = log.last_step
    if step is not None:
        if step.status == "pending":
            return CallModel(step) if step.lease_number == run.lease_number else MakeRequest(abandoned=step)
        if step.status == "failed" and not _may_retry(log):
            return Finish(step.stop_reason or "error", step.failure)
        if step.status == "success" and not log.calls_of(step):
            return Finish(step.stop_reason or "end_turn")
    if log.refusals > REPAIRS:
        return Finish("invalid_tool_call", _invalid_calls(log))
    if log.steps_taken >= run.max_steps:
        return Finish("max_steps")
    return MakeRequest()


def _rule_action(log: RunLog) -> Action | None:
    """What the agent's tool rules make of a run that has no open call; None: nothing of their own."""
    now, answer, step = log.rule_state(), log.last_answer, log.last_step
    if now is None or answer is None or (step is not None and step.status != "success") or log.run.input_waits:
        return None
    if now.stuck is not None:
        return Finish("error", Failure(kind="tool_rules", message=now.stuck))
    if answer.calls and now.exited is None:
        return None
    if step is None or step.id != answer.step_id:
        # The answer is of the run that this one resumes: what was decided about its calls may be what ends it.
        if now.exited is None:
            return None
    elif step.stop_reason not in (None, "end_turn") and not answer.calls:
        return None  # it was cut short, and says so
    if now.missing:
        return _remind(log, f"call {_either(now.missing)} at least once before you are done")
    if now.exited is not None:
        return Finish("tool_rule")
    if now.demanded:
        return _remind(log, f"your next step has to be a call of {_either(sorted(now.allowed))}")
    return None


def _remind(log: RunLog, what: str) -> Action:
    answer = log.last_answer
    if answer is not None and any(one.kind == "heartbeat" and one.seq > answer.seq for one in log.messages):
        return MakeRequest()  # it was told already, and room had to be made first
    if log.reminders >= REMINDERS:
        return Finish(
            "no_tool_call",
            Failure(
                kind="no_tool_call",
                message=f"the model was told {log.reminders} times what its tool rules ask for, and did not do it:"
                f" {what}. Look at the rules, or take a model that can be made to call a tool",
            ),
        )
    if log.steps_taken >= log.run.max_steps:
        return Finish("max_steps")
    return MakeRequest(reminder=f"ToolRuleViolated: {what}.")


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _invalid_calls(log: RunLog) -> Failure:
    last = log.messages[-1].results[-1]
    return Failure(
        kind="invalid_tool_call",
        message=f"the model asked {log.refusals} times in a row for calls that can't be run; the last: {last.text}",
    )
