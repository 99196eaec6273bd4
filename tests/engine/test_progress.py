"""Whether steps get somewhere: decided from the messages of a turn alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Part, Role, ToolCall, ToolResult, ToolStatus
from perdure.engine.log.next_action import count_repeats, count_stalled, step_line, tool_steps

NOW = datetime(2026, 11, 20, tzinfo=UTC)
Made = tuple[str, str, str, ToolStatus]
"""A call: name, arguments, result, status."""


def turn(steps: Sequence[Sequence[Made]]) -> list[Message]:
    """The messages of these steps: an answer with the calls, then a message for each result."""
    messages: list[Message] = []

    def add(role: Role, *parts: Part) -> None:
        messages.append(
            Message(
                id=MessageId(f"message-{len(messages)}"),
                agent_id=AgentId("agent-1"),
                seq=len(messages),
                conversation_seq=0,
                role=role,
                parts=parts,
                created_at=NOW,
                occurred_at=NOW,
            )
        )

    for number, step in enumerate(steps):
        calls = [ToolCall(f"{number}-{place}", made[0], made[1]) for place, made in enumerate(step)]
        add("assistant", *calls)
        for call, made in zip(calls, step, strict=True):
            add("tool", ToolResult(call.call_id, call.name, made[2], made[3]))
    return messages


def stalled(*steps: Sequence[Made]) -> int:
    return count_stalled(tool_steps(turn(steps)))


def ok(arguments: str, text: str = "a") -> list[Made]:
    return [("look", arguments, text, "success")]


def failed(arguments: str = "{}") -> list[Made]:
    return [("look", arguments, "no", "error")]


def test_a_success_that_is_new_is_progress() -> None:
    """Another call, or the same call with another result; not the same once more, in any order of its arguments."""
    assert stalled(ok('{"a": 1}'), ok('{"a": 2}')) == 0
    assert stalled(ok("{}", "1"), ok("{}", "2")) == 0
    assert stalled(ok('{"a": 1, "b": 2}'), ok('{"b": 2, "a": 1}')) == 1
    assert stalled(ok("{}"), failed(), ok("{}")) == 2
    assert stalled(ok("{}"), [*failed(), *ok('{"new": 1}')]) == 0


def test_the_same_failing_calls_are_repeats() -> None:
    """Only in a row, up to the newest step."""

    def repeats(*steps: Sequence[Made]) -> int:
        return count_repeats(tool_steps(turn(steps)))

    assert repeats(failed(), failed(), failed()) == 3
    assert repeats(failed(), failed(), failed('{"other": 1}')) == 1
    assert repeats(failed(), ok("{}")) == 0
    assert repeats() == 0


STATUSES: tuple[ToolStatus, ...] = ("success", "error")
MADE = st.tuples(
    st.sampled_from(["look", "pay"]),
    st.sampled_from(["{}", '{"a": 1}', "no JSON"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(STATUSES),
)
STEPS = st.lists(st.lists(MADE, min_size=1, max_size=3), max_size=12)


@given(STEPS)
def test_what_was_done_already_never_counts_as_progress(steps: list[list[Made]]) -> None:
    """A turn that is done once more adds all its steps to those without progress, and what is new ends them."""
    before = stalled(*steps)

    assert before <= len(steps)
    assert stalled(*steps, *steps) == before + len(steps)
    assert stalled(*steps, ok('{"never": "seen"}')) == 0


def test_a_step_without_all_its_results_is_none_yet() -> None:
    """What is still running tells nothing."""
    messages = turn([ok("{}"), [*ok('{"a": 1}'), *ok('{"b": 1}')]])

    assert len(tool_steps(messages)) == 2
    assert len(tool_steps(messages[:-1])) == 1


def test_a_line_holds_the_gist() -> None:
    """Tool, arguments, outcome; failures say so; nothing is long."""
    steps: list[list[Made]] = [
        [("look", '{"query": "bees", "limit": 3}', "Bees\ndance.", "success")],
        [("pay", "{}", "no money", "error"), ("pay", '{"n": 1}', "", "success")],
        [("look", '{"text": "' + "x" * 900 + '"}', "y" * 900, "success")],
    ]
    good, bad, long = map(step_line, tool_steps(turn(steps)))

    assert good == "look(bees, 3) -> Bees dance."
    assert bad == "pay() -> failed: no money; pay(1) -> nothing"
    assert len(long) < 140
