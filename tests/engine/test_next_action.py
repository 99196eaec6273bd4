"""What a run does next, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from perdure.core.messages import Message, Part, Text, ToolCall, ToolResult
from perdure.core.runs import Failure, Recipe, Run, RunKey, Step, StepStatus
from perdure.engine.log.next_action import CallModel, CallTools, EndRun, MakeRequest, RunDone, next_action
from perdure.engine.log.run_log import STOP, OpenCall, RunLog
from perdure.testing.clock import START

AGENT = AgentId("agent-1")
RUN = Run(
    id=RunId("run-1"),
    key=RunKey(AGENT, 0),
    conversation_seq=0,
    conversation_id=ConversationId("conv-1"),
    status="running",
    lease_owner="me",
    lease_number=2,
    max_steps=3,
    created_at=START,
)
RECIPE = Recipe(prefix_seq=0, upto_message_seq=0, tail="", settings_revision=0)


def step(index: int, status: StepStatus = "success", *, lease: int = 2) -> Step:
    return Step(
        id=StepId(f"step-{index}"),
        agent_id=AGENT,
        run_seq=0,
        index=index,
        status=status,
        model="m",
        recipe=RECIPE,
        lease_number=lease,
        created_at=START,
    )


def message(seq: int, *parts: Part, of: Step | None = None) -> Message:
    tool = any(isinstance(part, ToolResult) for part in parts)
    return Message(
        id=MessageId(f"message-{seq}"),
        agent_id=AGENT,
        seq=seq,
        conversation_seq=0,
        role="tool" if tool else "assistant" if of else "user",
        parts=parts,
        step_id=of.id if of else None,
        created_at=START,
        occurred_at=START,
    )


def log(run: Run = RUN, *, messages: tuple[Message, ...] = (), steps: tuple[Step, ...] = ()) -> RunLog:
    return RunLog(run=run, messages=(message(0, Text("hi")), *messages), steps=steps, started={})


CALL = ToolCall("call_1", "look", "{}")
RESULT = ToolResult("call_1", "look", "seen")


def test_a_new_run_asks_the_model() -> None:
    """Nothing has been done yet."""
    assert next_action(log()) == MakeRequest()


def test_a_recorded_call_of_this_process_is_made() -> None:
    """The step is pending under the lease that is held now."""
    assert next_action(log(steps=(step(0, "pending"),))) == CallModel(step(0, "pending"))


def test_a_call_that_a_dead_process_had_under_way_is_asked_again() -> None:
    """The step is pending under an older lease, so its answer is lost."""
    lost = step(0, "pending", lease=1)

    assert next_action(log(steps=(lost,))) == MakeRequest(abandoned=lost)


def test_an_abandoned_step_does_not_count_towards_the_limit() -> None:
    """A crash must not use up the steps of a run."""
    abandoned = tuple(step(index, "abandoned") for index in range(5))

    assert next_action(log(steps=abandoned)) == MakeRequest()


def test_calls_without_a_result_come_before_the_next_model_call() -> None:
    """A log with an open call can't be sent."""
    asked = message(1, CALL, of=step(0))

    assert next_action(log(messages=(asked,), steps=(step(0),))) == CallTools((OpenCall(CALL, asked),))


def test_after_all_results_the_model_is_asked_again() -> None:
    """The model has not said its last word."""
    done = (message(1, CALL, of=step(0)), message(2, RESULT, of=step(0)))

    assert next_action(log(messages=done, steps=(step(0),))) == MakeRequest()


def test_a_reply_without_a_call_ends_the_run() -> None:
    """Whatever stop reason the model gave is the run's."""
    said = message(1, Text("hello"), of=step(0))
    cut = replace(step(0), stop_reason="max_tokens_exceeded")

    assert next_action(log(messages=(said,), steps=(step(0),))) == EndRun("end_turn")
    assert next_action(log(messages=(said,), steps=(cut,))) == EndRun("max_tokens_exceeded")


def test_the_last_allowed_step_s_calls_are_still_answered() -> None:
    """The limit stops model calls; it never leaves a call without its result."""
    steps = tuple(step(index) for index in range(3))
    asked = message(1, CALL, of=steps[2])

    assert isinstance(next_action(log(messages=(asked,), steps=steps)), CallTools)
    assert next_action(log(messages=(asked, message(2, RESULT, of=steps[2])), steps=steps)) == EndRun("max_steps")


def test_a_failed_step_ends_the_run_with_its_failure() -> None:
    """The reason is the step's."""
    failure = Failure(kind="llm_rate_limit", message="too many")
    failed = replace(step(0, "failed"), stop_reason="llm_api_error", failure=failure)

    assert next_action(log(steps=(failed,))) == EndRun("llm_api_error", failure)


def build_refusal(index: int) -> tuple[Message, Message]:
    """An answer whose only call could not be run, and its result."""
    call = ToolCall(f"call_{index}", "look", "{" * (index + 1))
    result = ToolResult(call.call_id, "look", "no JSON", "error", refused=True)
    return message(2 * index + 1, call, of=step(index)), message(2 * index + 2, result, of=step(index))


def test_a_model_may_repair_its_calls_a_few_times() -> None:
    """Then it is asked for words; one call that could be run begins the count anew."""
    run = replace(RUN, max_steps=50)
    three = tuple(said for index in range(3) for said in build_refusal(index))
    four = (*three, *build_refusal(3))
    good = (message(7, ToolCall("x", "look", "{}"), of=step(3)), message(8, ToolResult("x", "look", "ok"), of=step(3)))

    assert next_action(log(run, messages=three, steps=tuple(map(step, range(3))))) == MakeRequest()
    assert next_action(log(run, messages=(*three, *good), steps=tuple(map(step, range(4))))) == MakeRequest()
    assert next_action(log(run, messages=four, steps=tuple(map(step, range(4))))) == MakeRequest(reminder=STOP)


def test_the_same_call_may_fail_three_times() -> None:
    """Also one that could be run; another call in between begins the count anew."""
    run = replace(RUN, max_steps=50)

    def failing(index: int, arguments: str = "{}") -> tuple[Message, Message]:
        call = ToolCall(f"call_{index}", "look", arguments)
        result = ToolResult(call.call_id, "look", "no such thing", "error")
        return message(2 * index + 1, call, of=step(index)), message(2 * index + 2, result, of=step(index))

    steps = tuple(map(step, range(3)))
    same = (*failing(0), *failing(1), *failing(2))
    other = (*failing(0), *failing(1, '{"at": 1}'), *failing(2))

    assert next_action(log(run, messages=same, steps=steps)) == MakeRequest(reminder=STOP)
    assert next_action(log(run, messages=other, steps=steps)) == MakeRequest()


def test_a_run_ends_with_the_words_that_it_asked_for() -> None:
    """Whatever came before; a crash meanwhile changes nothing."""
    run = replace(RUN, max_steps=50)
    refused = tuple(said for index in range(4) for said in build_refusal(index))
    notice = replace(message(9, Text(f'{{"type": "heartbeat", "reason": "{STOP}"}}')), role="system", kind="heartbeat")
    steps = tuple(map(step, range(5)))
    words = message(10, Text("I can't."), of=steps[4])
    lost = step(4, "pending", lease=1)

    assert next_action(log(run, messages=(*refused, notice, words), steps=steps)) == EndRun("end_turn")
    assert next_action(log(run, messages=(*refused, notice), steps=(*steps[:4], lost))) == MakeRequest(abandoned=lost)
    assert next_action(log(run, messages=(*refused, notice), steps=steps[:4])) == MakeRequest()


@pytest.mark.parametrize("steps", [(), (step(0, "pending"),), (step(0),)])
def test_a_run_that_was_asked_to_stop_stops_before_anything_else(steps: tuple[Step, ...]) -> None:
    """Also with calls open: finishing gives them their results."""
    asked = (message(1, CALL, of=steps[0]),) if steps else ()

    assert next_action(log(replace(RUN, cancel_requested=True), messages=asked, steps=steps)) == EndRun("cancelled")


def test_an_ended_run_is_done() -> None:
    """Asking again changes nothing."""
    assert next_action(log(replace(RUN, status="completed", cancel_requested=True))) == RunDone()
