"""The window of a chat of another program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context import Window, assemble, expand, plan
from perdure.context.engines import Composition, ContextEngine, Plan, Situation, Stub
from perdure.context.engines.check import PlanRefused
from perdure.context.engines.port import StubResults
from perdure.context.engines.sliding_window import RecursiveSummary
from perdure.context.sections.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.errors import InvalidInput, IrreducibleFloor
from tests.support.strategies import effort

SYSTEM = {"role": "system", "content": "You help."}
WINDOW = 2_000
Chat = list[dict[str, Any]]


def words(text: str) -> int:
    """An estimate of tokens that is easy to follow: four characters each."""
    return -(-len(text) // 4)


def turn(number: int, chars: int, results: Sequence[int] = ()) -> Chat:
    """A question, calls with results of so many characters, and an answer."""
    said: Chat = [{"role": "user", "content": f"question {number} " + "x" * chars}]
    if results:
        calls = [
            {"id": f"c{number}-{index}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for index in range(len(results))
        ]
        said.append({"role": "assistant", "content": None, "tool_calls": calls})
        said += [
            {"role": "tool", "tool_call_id": call["id"], "content": "y" * size}
            for call, size in zip(calls, results, strict=True)
        ]
    return [*said, {"role": "assistant", "content": f"answer {number}"}]


turns = st.lists(st.tuples(st.integers(0, 2_500), st.lists(st.integers(0, 6_000), max_size=3)), min_size=1, max_size=12)
ENGINES: dict[str, ContextEngine | None] = {
    "paged": None,
    "recursive": RecursiveSummary(),
    "composed": Composition(RecursiveSummary(), StubResults(keep_results=1)),
}


def check_chat(sent: Sequence[Any]) -> None:
    """Every result follows its call, and every call has one."""
    open_calls: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls


def check_reachable(chat: Chat, window: Window) -> None:
    """Every message is in the window or behind a summary in it."""
    behind = {
        place for one in window.summaries if one.number in window.shown for place in range(one.first, one.last + 1)
    }
    assert set(range(1, window.first)) - set(window.pinned) <= behind


@effort(few=25, many=1_000)
@given(turns, st.sampled_from(sorted(ENGINES)))
def test_every_request_of_a_chat_is_legal_and_fits(said: list[tuple[int, list[int]]], engine: str) -> None:
    """With any engine, at any point at which a model is called; what is out of the window is behind a summary."""
    chat: Chat = [SYSTEM]
    window: Window | None = None
    for number, (chars, results) in enumerate(said):
        new = turn(number, chars, results)
        chat.append(new[0])
        for upto in (0, len(new) - 1):
            chat += new[1:upto]
            before = window
            try:
                window = plan(chat, window_tokens=WINDOW, before=window, engine=ENGINES[engine], count=words)
            except IrreducibleFloor:
                chat, window = [SYSTEM], None
                break
            sent = assemble(chat, window)
            check_chat(sent)
            check_reachable(chat, window)
            texts = [str(one["content"] or "") + json.dumps(one.get("tool_calls") or "") for one in sent]
            assert sum(words(text) for text in texts) <= WINDOW * 3 // 4 + MESSAGE_OVERHEAD_TOKENS * len(sent)
            if before is not None and (before.shown, before.stubs, before.first) == (
                window.shown,
                window.stubs,
                window.first,
            ):
                assert assemble(chat, before) == sent
        else:
            chat.append(new[-1])


def test_as_long_as_it_fits_nothing_changes() -> None:
    """The messages are the caller's own, so that the provider's cache stays valid."""
    chat = [SYSTEM, *turn(1, 100, [50]), *turn(2, 100)]
    window = plan(chat, window_tokens=WINDOW, count=words)

    assert all(one is other for one, other in zip(assemble(chat, window), chat, strict=True))
    assert plan([*chat, *turn(3, 10)], window_tokens=WINDOW, before=window, count=words).first == window.first == 0


def test_what_leaves_is_summarised_by_the_callers_function() -> None:
    """It is given what leaves, and how long the summary may be; what is longer is cut."""
    asked: list[tuple[str, int]] = []

    def summarise(text: str, tokens: int) -> str:
        asked.append((text, tokens))
        return "They spoke. " * 100

    chat = [SYSTEM, *(message for number in range(8) for message in turn(number, 900))]
    window = plan(chat, window_tokens=WINDOW, summarise=summarise, count=words)
    summary = assemble(chat, window)[1]

    assert "question 0" in asked[0][0]
    assert window.summaries[0].tokens <= asked[0][1]
    assert json.loads(summary["content"])["nodes"][0]["messages"] == f"msg-1..{window.first - 1}"
    assert "They spoke." in summary["content"]


def test_a_long_result_is_shown_in_part_and_opened_by_its_place() -> None:
    lines = "\n".join(f"line {number}" for number in range(2_000))
    chat = [SYSTEM, *turn(1, 10, [10])[:-1]]
    chat[-1] = {**chat[-1], "content": lines}
    window = plan(chat, window_tokens=WINDOW, count=words)
    shown = assemble(chat, window)[-1]["content"]

    assert 'context_expand("msg-3")' in shown
    assert "line 1000" not in shown
    assert "line 1000" in expand(chat[3]["content"], lines="1001")


@pytest.mark.parametrize("can_open", [True, False])
def test_a_model_is_told_to_open_handles_only_if_it_can(can_open: bool) -> None:
    """Neither in the place of what left the window, nor in a long message."""
    chat = [SYSTEM, *(message for number in range(8) for message in turn(number, 900))]
    window = plan(chat, window_tokens=WINDOW, count=words, can_open=can_open)

    assert window.shown
    assert ("context_expand" in json.dumps(assemble(chat, window))) is can_open


def test_pictures_stay_beside_a_text_that_is_cut() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    chat: Chat = [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "x" * 30_000}, picture]}]
    window = plan(chat, window_tokens=6_000, count=words)
    text, same = assemble(chat, window)[-1]["content"]

    assert same is picture
    assert len(text["text"]) < 30_000


def test_what_is_no_chat_or_no_plan_is_refused() -> None:
    class Wrong(ContextEngine):
        def assemble(self, situation: Situation) -> Plan | None:
            return Stub({99: 0}, sent=False)

    with pytest.raises(InvalidInput, match=r"messages\[1\] has the role 'robot': give one of system, developer, user"):
        plan([SYSTEM, {"role": "robot", "content": "hello"}], window_tokens=WINDOW)
    with pytest.raises(InvalidInput, match="messages are 'hello': give a list of objects"):
        plan("hello", window_tokens=WINDOW)  # type: ignore[arg-type]
    with pytest.raises(PlanRefused, match="99"):
        plan([SYSTEM, *turn(1, 10)], window_tokens=WINDOW, engine=Wrong())
    with pytest.raises(IrreducibleFloor):
        plan([{"role": "system", "content": "x" * 9_000}, *turn(1, 10)], window_tokens=WINDOW, count=words)
