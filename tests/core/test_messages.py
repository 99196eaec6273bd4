"""Message parts as JSON, and what a person would read in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import Part, Reasoning, Text, ToolCall, ToolResult, parts_from_json, parts_to_json, text_of
from tests.support.strategies import build_log, effort, parts


@effort(12, 3000)
@given(st.lists(parts(), max_size=5))
def test_parts_come_back_from_json(said: list[Part]) -> None:
    """Exactly as they were, in their order; the JSON is compact and always the same."""
    text = parts_to_json(said)

    assert parts_from_json(text) == tuple(said)
    assert parts_to_json(parts_from_json(text)) == text
    assert "\n" not in text


def test_the_json_of_parts_is_fixed() -> None:
    """Stored logs depend on it: fields in this order, absent ones left out."""
    said: list[Part] = [
        Text("hi 中"),
        Reasoning("hm"),
        Reasoning("hm", "sig"),
        ToolCall("c1", "look", "{}"),
        ToolResult("c1", "look", "found"),
        ToolResult("c1", "look", "no", "error", ("out",), ("err",)),
    ]

    assert parts_to_json(said) == (
        '[{"type":"text","text":"hi 中"},{"type":"reasoning","text":"hm"},'
        '{"type":"reasoning","text":"hm","signature":"sig"},'
        '{"type":"tool_call","call_id":"c1","name":"look","arguments":"{}"},'
        '{"type":"tool_result","call_id":"c1","name":"look","text":"found","status":"success"},'
        '{"type":"tool_result","call_id":"c1","name":"look","text":"no","status":"error",'
        '"stdout":["out"],"stderr":["err"]}]'
    )


def test_an_unknown_part_is_refused() -> None:
    """A part that a newer version wrote is not passed over."""
    with pytest.raises(ValueError, match="'hologram'"):
        parts_from_json(json.dumps([{"type": "hologram"}]))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ((), ""),
        ((Text("a"),), "a"),
        ((Text(" a\n"), Text("b")), " a\n\nb"),
        ((Reasoning("hm"), Text("a"), ToolCall("c", "look", "{}")), "a"),
        ((ToolResult("c", "look", "found"), ToolResult("d", "look", "more")), "found\nmore"),
        ((ToolCall("c", "look", "{}"),), ""),
    ],
)
def test_the_text_of_a_message_is_what_is_said(said: tuple[Part, ...], text: str) -> None:
    """Texts and results, without reasoning and calls."""
    assert text_of(said) == text


def test_a_message_knows_its_calls_and_results() -> None:
    """In their order, among whatever else it says."""
    call, result = ToolCall("c", "look", "{}"), ToolResult("c", "look", "found")
    asked, answered = build_log([[Text("I look."), call, call], [result]])

    assert (asked.text, asked.calls, asked.results) == ("I look.", (call, call), ())
    assert (answered.text, answered.calls, answered.results) == ("found", (), (result,))
