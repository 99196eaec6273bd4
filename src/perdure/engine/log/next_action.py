"""What a run does next: a pure function of its log. There is no recovery code: after a crash the function is called on
the log that the store holds.

A step is an answer whose calls all have results. It makes progress if one of its calls succeeded, and the turn had not
seen the same call with the same result before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.core.messages import SEND_MESSAGE, Message, ToolCall, ToolResult
from perdure.core.runs import Failure, Step, StopReason
from perdure.core.text.json_strings import json_object
from perdure.engine.log.run_log import STOP, OpenCall, RunLog, open_calls_in
from perdure.engine.log.tool_rules import RuleScope, RuleState, rule_state


@dataclass(frozen=True, slots=True)
class MakeRequest:
    """Record how the next model call is made.

    Args:
        abandoned: the pending step of a process that died while its model answered.
        reminder: what the model is told before the call, because its tool rules demand it.
    """

    abandoned: Step | None = None
    reminder: str | None = None


@dataclass(frozen=True, slots=True)
class CallModel:
    """Send the request of a pending step to the model."""

    step: Step


@dataclass(frozen=True, slots=True)
class CallTools:
    """Execute these calls, and store a result for each."""

    calls: tuple[OpenCall, ...]


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    reason: StopReason
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run has ended."""


Action = MakeRequest | CallModel | CallTools | EndRun | RunDone


REPAIRS = 3
"""How often in a row a model may try again after calls that can't be run, and how often the same call may fail."""

REMINDERS = 3
"""How often in a row a model is reminded of a tool that it has to call."""

OVERFLOWS = 3
"""How often in a row a run may go on after its model found the request too large: with what the server said of the size
or the window, then with an estimate that was corrected."""


def next_action(log: RunLog) -> Action:
    """Return the one thing to do now.

    A run that was asked to stop finishes first. A recorded request is sent; before another one is made, each call gets
    its result. A reply without a call, or a question to the user, ends the run. A model that keeps asking for what
    can't be run is asked for words in its place.
    """
    run, step = log.run, log.steps[-1] if log.steps else None
    if run.ended:
        return RunDone()
    if run.cancel_requested:
        return EndRun("cancelled")
    if run.options.note:
        return EndRun("end_turn")
    if step is not None and step.status == "pending":
        return CallModel(step) if step.lease_number == run.lease_number else MakeRequest(abandoned=step)
    if calls := open_calls_in(log.messages):
        # None is executed before all are answered: whoever decides sees what the model wants as a whole.
        return EndRun("requires_approval") if any(call.waits for call in calls) else CallTools(calls)
    if log.questions:
        return EndRun("end_turn")
    answer = log.last_answer
    if log.rule_scope is not None and answer is not None and (action := _rule_action(log, log.rule_scope, answer)):
        return action
    if answer is not None and _has_spoken(log, answer):
        return EndRun("end_turn")
    if step is not None and step.status == "success" and (answer is None or not answer.calls):
        return EndRun(step.stop_reason or "end_turn")
    if (
        step is not None
        and step.status == "failed"
        and not (
            0 < len(log.overflows) <= OVERFLOWS and log.overflows[-1] is step  # a smaller request may fit
        )
    ):
        return EndRun(step.stop_reason or "error", step.failure)
    if limit := _limit(log):
        return limit
    return MakeRequest(reminder=STOP if _is_stuck(log) and not log.must_speak else None)


def _has_spoken(log: RunLog, answer: Message) -> bool:
    """Whether the agent has answered by `send_message`, in a loop that otherwise goes on after calls."""
    if log.rule_scope is not None:
        state = rule_state(log.rule_scope, log.past_calls, answer=answer.seq)
        if state.goes_on or state.missing:
            return False
    results = {result.call_id: result for message in log.messages for result in message.results}
    spoken = [call for call in answer.calls if call.name == SEND_MESSAGE and not call.requests_heartbeat]
    return bool(spoken) and all(
        (result := results.get(call.call_id)) is not None and result.status == "success" for call in answer.calls
    )


def _is_stuck(log: RunLog) -> bool:
    """Whether the model keeps making calls that can't be run, or the same one that fails."""
    return log.refusals > REPAIRS or count_repeats(tool_steps(log.messages)) >= REPAIRS


def _limit(log: RunLog) -> EndRun | None:
    """Return the end of a run that has reached its limit of model calls or tokens; else None."""
    if log.steps_taken >= log.run.max_steps:
        return EndRun("max_steps")
    most = log.run.options.max_tokens
    if most is not None and (used := log.usage.total_tokens) >= most:
        message = f"the run has used {used:,} tokens, and may use {most:,}"
        return EndRun("max_tokens_exceeded", Failure(kind="max_tokens_exceeded", message=message))
    return None


def _rule_action(log: RunLog, rule_scope: RuleScope, answer: Message) -> Action | None:
    """Return what the agent's tool rules demand of a run whose calls all have a result; None: they don't decide."""
    step = log.steps[-1] if log.steps else None
    if log.run.input_waits or (step is not None and step.status != "success"):
        return None
    state = rule_state(rule_scope, log.past_calls, answer=answer.seq)
    if state.problem is not None:
        return EndRun("error", Failure(kind="tool_rules", message=state.problem))
    if answer.calls and state.exit_tool is None:
        return _heartbeat(log, answer, state) if rule_scope.loop.heartbeats else None
    if step is None or step.id != answer.step_id:
        # The answer is of the run that this one resumes: what was decided about its calls may be what ends it.
        if state.exit_tool is None:
            return None
    elif step.stop_reason not in (None, "end_turn") and not answer.calls:
        return None  # it was cut short, and says so
    if state.missing:
        return _remind(log, answer, f"call {_join_with_or(state.missing)} at least once before you are done")
    if state.exit_tool is not None:
        return EndRun("tool_rule")
    if state.refuses_answer and rule_scope.loop.heartbeats and not state.goes_on:
        if log.must_speak or not answer.text:
            return None
        return _remind(log, answer, "call a tool: what stands outside a call reaches nobody", kind="NoToolCall")
    if state.refuses_answer:
        return _remind(log, answer, f"your next step has to be a call of {_join_with_or(sorted(state.allowed))}")
    return None


def _heartbeat(log: RunLog, answer: Message, state: RuleState) -> Action | None:
    """Return what a run with a heartbeat loop does after calls that all have a result; None: its limits decide."""
    if _is_stuck(log) or _limit(log) is not None:
        return None
    if any(message.kind == "heartbeat" and message.seq > answer.seq for message in log.messages):
        return MakeRequest()  # it is in the log already, and room had to be made first
    results = [result for message in log.messages if message.seq > answer.seq for result in message.results]
    if any(result.status != "success" for result in results):
        return MakeRequest(reminder="The tool call failed, so you have control again.")
    if any(call.requests_heartbeat for call in answer.calls):
        return MakeRequest(reminder="You requested a heartbeat, so you have control again.")
    if state.goes_on:
        return MakeRequest(reminder="Your tool rules ask for another step, so you have control again.")
    if state.missing:
        return _remind(log, answer, f"call {_join_with_or(state.missing)} at least once before you are done")
    return EndRun("end_turn")


def _remind(log: RunLog, answer: Message, demand: str, *, kind: str = "ToolRuleViolated") -> Action:
    """Return the request that reminds the model of what its rules or loop demand; after `REMINDERS`, the run's end.

    Args:
        demand: what the model has to do, as a command.
        kind: the name of the error, as Letta's server words it.
    """
    if any(message.kind == "heartbeat" and message.seq > answer.seq for message in log.messages):
        return MakeRequest()  # it is in the log already, and room had to be made first
    if log.reminders >= REMINDERS:
        return EndRun(
            "no_tool_call",
            Failure(
                kind="no_tool_call",
                message=f"the model was told {log.reminders} times what it has to do, and did not do it: {demand}."
                " Look at the agent's tool rules, or take a model that can be made to call a tool",
            ),
        )
    return _limit(log) or MakeRequest(reminder=f"{kind}: {demand}.")


def _join_with_or(names: Sequence[str]) -> str:
    """Return the names joined by "or"."""
    return " or ".join(names)


ARGUMENTS_CHARS, OUTCOME_CHARS, LINE_CHARS = 60, 60, 240


@dataclass(frozen=True, slots=True)
class ToolStep:
    """The calls of one answer, each with its result."""

    pairs: tuple[tuple[ToolCall, ToolResult], ...]

    @property
    def failed(self) -> bool:
        """Whether no call succeeded."""
        return all(result.status != "success" for _, result in self.pairs)

    @property
    def calls(self) -> frozenset[tuple[str, str]]:
        """The calls as (name, arguments)."""
        return frozenset(_key(call) for call, _ in self.pairs)


def tool_steps(messages: Iterable[Message]) -> list[ToolStep]:
    """Return the steps in these messages, oldest first. Steps with a call that has no result here are left out."""
    steps: list[ToolStep] = []
    calls: dict[str, ToolCall] = {}
    pairs: list[tuple[ToolCall, ToolResult]] = []
    for message in messages:
        if message.calls:
            calls, pairs = {call.call_id: call for call in message.calls}, []
        for result in message.results:
            if (call := calls.pop(result.call_id, None)) is not None:
                pairs.append((call, result))
                if not calls:
                    steps.append(ToolStep(tuple(pairs)))
    return steps


def count_stalled(steps: Sequence[ToolStep]) -> int:
    """Return how many of the newest steps, in a row, made no progress."""
    seen: set[tuple[str, str, str]] = set()
    stalled = 0
    for step in steps:
        new = {(*_key(call), result.text) for call, result in step.pairs if result.status == "success"} - seen
        stalled = 0 if new else stalled + 1
        seen |= new
    return stalled


def count_repeats(steps: Sequence[ToolStep]) -> int:
    """Return how many of the newest steps, in a row, failed with the same calls; 0: the newest did not fail."""
    count = 0
    for step in reversed(steps):
        if not step.failed or step.calls != steps[-1].calls:
            break
        count += 1
    return count


def count_failures(steps: Sequence[ToolStep], call: ToolCall) -> int:
    """Return how often this very call failed in the newest steps that made no progress."""
    newest = steps[len(steps) - count_stalled(steps) :]
    pairs = (pair for step in newest for pair in step.pairs)
    return sum(_key(one) == _key(call) and result.status != "success" for one, result in pairs)


def step_line(step: ToolStep) -> str:
    """Return one line about a step: each call with the gist of its arguments, and its outcome."""
    line = "; ".join(f"{call.name}({_short_arguments(call)}) -> {_outcome(result)}" for call, result in step.pairs)
    return _clip(line, LINE_CHARS)


def _key(call: ToolCall) -> tuple[str, str]:
    """Return a call's name and arguments, as they compare: the order of the arguments does not matter."""
    try:
        return call.name, json.dumps(json.loads(call.own_arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.own_arguments


def _short_arguments(call: ToolCall) -> str:
    """Return a call's arguments in a few characters."""
    if (arguments := json_object(call.own_arguments)) is None:
        return _clip(call.own_arguments, ARGUMENTS_CHARS)
    values = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in arguments.values()]
    return _clip(", ".join(values), ARGUMENTS_CHARS)


def _outcome(result: ToolResult) -> str:
    """Return the result of a call in a few characters."""
    text = result.text if result.shown_text is None else result.shown_text
    words = _clip(text[: 4 * OUTCOME_CHARS], OUTCOME_CHARS) or "nothing"
    return words if result.status == "success" else f"failed: {words}"


def _clip(text: str, chars: int) -> str:
    """Return a text on one line, cut to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
