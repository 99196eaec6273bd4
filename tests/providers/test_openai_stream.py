"""Answers, streamed in every way that servers stream them, become one reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import (
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefused,
    ModelReplyEmpty,
    ModelReplyInvalid,
    ModelStreamCut,
)
from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelReply
from perdure.core.runs import Usage
from perdure.providers.openai_chat.faults import RequestTarget, error_in_answer
from perdure.providers.openai_chat.stream import AnswerReader
from tests.support.strategies import any_text, effort

ASKED = RequestTarget("test", "http://localhost/v1/chat/completions")


def reader() -> AnswerReader:
    return AnswerReader(ASKED.who, lambda error: error_in_answer(error, ASKED))


def read(*pieces: bytes) -> tuple[list[Any], ModelReply]:
    """Deltas and reply of an answer that comes in these pieces."""
    answer = reader()
    deltas = [delta for piece in pieces for delta in answer.feed(piece)] + answer.end()
    return deltas, answer.reply()


def sse(*chunks: Mapping[str, Any] | str, done: bool = True, line_end: str = "\n") -> bytes:
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    texts += ["[DONE]"] if done else []
    return "".join(f"data: {text}{line_end}{line_end}" for text in texts).encode()


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calls(*fragments: Mapping[str, Any]) -> Sequence[Part]:
    """The parts of an answer whose tool calls come in these fragments, one a chunk."""
    stream = sse(*(chunk(tool_calls=[fragment]) for fragment in fragments), chunk("tool_calls"))
    return read(stream)[1].parts


def fragment(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    shape = {"index": index, "id": call_id, "type": "function", "function": function}
    return {key: value for key, value in shape.items() if value is not None}


def whole(finish: str = "stop", **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": None} | message, "finish_reason": finish}
    return json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice]}).encode()


RICH = sse(
    chunk(role="assistant", content=""),
    chunk(reasoning_content="Дума"),
    chunk(content="Grüße 🧭 "),
    chunk(content="字é"),
    chunk(tool_calls=[fragment(0, "c1", "look", "")]),
    chunk(tool_calls=[fragment(0, None, None, '{"at": "字')]),
    chunk(tool_calls=[fragment(0, None, None, '"}')]),
    chunk(tool_calls=[fragment(1, "c2", "see", "{}")]),
    chunk("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    line_end="\r\n",
)


def test_an_answer_is_put_together_from_its_pieces() -> None:
    """Reasoning, text, calls; deltas in the order in which they came, each call with its number and id."""
    deltas, reply = read(RICH)

    assert reply.parts == (
        Reasoning("Дума"),
        Text("Grüße 🧭 字é"),
        ToolCall("c1", "look", '{"at": "字"}'),
        ToolCall("c2", "see", "{}"),
    )
    assert reply.usage == Usage(input_tokens=9, output_tokens=4)
    assert [(delta.kind, delta.text, delta.index, delta.call_id) for delta in deltas][3:] == [
        ("tool_name", "look", 0, "c1"),
        ("tool_arguments", '{"at": "字', 0, "c1"),
        ("tool_arguments", '"}', 0, "c1"),
        ("tool_name", "see", 1, "c2"),
        ("tool_arguments", "{}", 1, "c2"),
    ]


@given(cuts=st.lists(st.integers(0, len(RICH)), max_size=30))
@effort(12, 3000)
def test_where_the_network_cuts_does_not_matter(cuts: list[int]) -> None:
    """Between the bytes of a character, between CR and LF, in the middle of a field's name."""
    places = [0, *sorted(cuts), len(RICH)]
    pieces = [RICH[start:end] for start, end in pairwise(places)]

    assert read(*pieces) == read(RICH)


@given(cut=st.integers(0, len(RICH)))
@effort(12, 2000)
def test_a_stream_that_stops_is_cut_or_whole_never_something_else(cut: int) -> None:
    """A reply that is given is the whole one, but for the token counts that come after it."""
    try:
        _, reply = read(RICH[:cut])
    except ModelStreamCut:
        assert cut <= RICH.index(b'"finish_reason": "tool_calls"') + 40
    else:
        assert reply.parts == read(RICH)[1].parts


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_comments_other_fields_and_empty_events_are_passed_over(line_end: str) -> None:
    """They keep connections alive."""
    noise = f": OPENROUTER PROCESSING{line_end}{line_end}event: message{line_end}id: 1{line_end}retry: 5{line_end}"
    stream = noise.encode() + sse(chunk(content="hi"), chunk("stop"), line_end=line_end)

    assert read(stream)[1].parts == (Text("hi"),)


def test_the_last_event_may_lack_its_empty_line() -> None:
    """Some servers just close the connection behind it."""
    assert read(sse(chunk(content="hi"), chunk("stop"), done=False).rstrip())[1].parts == (Text("hi"),)


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        pytest.param(
            [fragment(None, "a", "look", '{"x":'), fragment(None, None, None, "1}"), fragment(None, "b", "see", "{}")],
            [("look", '{"x":1}'), ("see", "{}")],
            id="index missing",
        ),
        pytest.param(
            [fragment(None, None, "look", '{"x":1}'), fragment(None, None, "see", "{}")],
            [("look", '{"x":1}'), ("see", "{}")],
            id="index and id missing",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":'), fragment(0, "a", "look", "1}")],
            [("look", '{"x":1}')],
            id="id and name repeated",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":'), fragment(0, "b", None, "1}")],
            [("look", '{"x":1}')],
            id="new id a chunk",
        ),
        pytest.param(
            [fragment(0, "a", None, '{"x"'), fragment(0, None, None, ":1}"), fragment(0, None, "look", "")],
            [("look", '{"x":1}')],
            id="name late",
        ),
        pytest.param(
            [fragment(0, "a", "lo", ""), fragment(0, None, "ok", '{"x":1}')], [("look", '{"x":1}')], id="name in pieces"
        ),
        pytest.param(
            [fragment(0, "a", "look", {"x": 1}), fragment(1, "b", "see", {})],
            [("look", '{"x":1}'), ("see", "{}")],
            id="arguments as objects",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":1}'), fragment(0, "b", "see", "{}")],
            [("look", '{"x":1}'), ("see", "{}")],
            id="every index 0",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":1}'), fragment(0, "a", "look", '{"x":2}')],
            [("look", '{"x":1}'), ("look", '{"x":2}')],
            id="every index 0 and every id equal",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":1}'), fragment(1, "a", "look", '{"x":2}')],
            [("look", '{"x":1}'), ("look", '{"x":2}')],
            id="ids equal",
        ),
        pytest.param(
            [
                fragment(0, "a", "look", '{"x":'),
                fragment(1, "b", "see", '{"y":'),
                fragment(0, None, None, "1}"),
                fragment(1, None, None, "2}"),
            ],
            [("look", '{"x":1}'), ("see", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            [fragment(0, "a", "look", '{"x":'), fragment(1, None, None, "1}")],
            [("look", '{"x":1}')],
            id="index counts on",
        ),
        pytest.param([fragment(0, "a", "look", 5)], [("look", "5")], id="arguments of another type"),
        pytest.param([fragment(0, "a", "look", None)], [("look", "")], id="no arguments"),
    ],
)
def test_tool_calls_are_put_together_however_they_are_cut(
    fragments: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    """Names and arguments, in order."""
    parts = calls(*fragments)

    assert [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)] == expected


def test_calls_without_ids_get_different_ones() -> None:
    """So that each has its own result."""
    first, second = calls(fragment(0, None, "look", "{}"), fragment(1, "", "see", "{}"))

    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert first.call_id
    assert first.call_id != second.call_id


def test_a_call_without_a_name_is_a_call() -> None:
    """Its result tells the model what it lacks."""
    assert calls(fragment(0, "a", None, "{}")) == (ToolCall("a", "", "{}"),)


def test_the_deltas_say_what_the_reply_says() -> None:
    """Arguments that come before the name wait for it."""
    deltas, reply = read(
        sse(
            chunk(tool_calls=[fragment(0, "a", None, '{"x"')]),
            chunk(tool_calls=[fragment(0, None, "look", ":1}")]),
            chunk("tool_calls"),
        )
    )

    assert [(delta.kind, delta.text) for delta in deltas] == [
        ("tool_name", "look"),
        ("tool_arguments", '{"x"'),
        ("tool_arguments", ":1}"),
    ]
    assert reply.parts == (ToolCall("a", "look", '{"x":1}'),)


def test_the_older_apis_single_call_is_a_call() -> None:
    """Streamed or not."""
    function = {"name": "look", "arguments": "{}"}

    for answer in (sse(chunk(function_call=function), chunk("function_call")), whole(function_call=function)):
        (call,) = read(answer)[1].parts
        assert isinstance(call, ToolCall)
        assert (call.name, call.arguments) == ("look", "{}")


def test_one_object_is_read_like_a_stream() -> None:
    """Also when a stream was asked for; calls that share an id stay apart."""
    answer = whole(
        "tool_calls",
        reasoning="hm",
        content="hi",
        tool_calls=[fragment(None, "a", "look", '{"x":1}'), fragment(None, "a", "look", {"x": 2})],
    )
    deltas, reply = read(b"\n \n", answer[:20], answer[20:])

    assert reply.parts == (
        Reasoning("hm"),
        Text("hi"),
        ToolCall("a", "look", '{"x":1}'),
        ToolCall("a", "look", '{"x":2}'),
    )
    assert [delta.kind for delta in deltas][:2] == ["reasoning", "text"]


def test_content_in_parts_is_text_and_reasoning() -> None:
    """Mistral's reasoning models send it so."""
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]

    assert read(whole(content=content))[1].parts == (Reasoning("hm"), Text("hi"))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input_tokens=10, output_tokens=5, cached_input_tokens=4, cache_write_tokens=2, reasoning_tokens=3),
        ),
        ({"prompt_tokens": 1, "cache_creation_input_tokens": 2}, Usage(input_tokens=1, cache_write_tokens=2)),
        ({"prompt_tokens": 8, "prompt_cache_hit_tokens": 6}, Usage(input_tokens=8, cached_input_tokens=6)),
        ({"prompt_tokens": None, "completion_tokens": "7", "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens": -1, "completion_tokens": 2.0}, Usage(output_tokens=2)),
    ],
)
def test_token_counts_are_read_under_every_name(usage: dict[str, Any], expected: Usage) -> None:
    """What is not told, or is no count, is 0."""
    answer = sse(chunk(content="hi"), chunk("stop"), {"choices": [], "usage": usage})

    assert read(answer)[1].usage == expected


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "eos", "STOP"])
def test_an_answer_that_ends_well_ends_the_turn(finish: str) -> None:
    """Whatever the server calls it."""
    assert read(sse(chunk(content="hi"), chunk(finish)))[1].stop_reason == "end_turn"


def test_an_answer_that_grew_too_long_says_so() -> None:
    """Its text is kept; a call that it broke off is not, because it would do something else than was meant."""
    for arguments in ("", '{"x":', '{"x": 1'):
        answer = sse(chunk(content="hi"), chunk(tool_calls=[fragment(0, "a", "look", arguments)]), chunk("length"))
        reply = read(answer)[1]
        assert reply.stop_reason == "max_tokens_exceeded"
        assert reply.parts == (Text("hi"),)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(b"", ModelStreamCut, id="nothing"),
        pytest.param(sse(chunk(content="hi"), done=False), ModelStreamCut, id="no end"),
        pytest.param(sse(chunk(content="hi"), done=False) + b'data: {"choi', ModelStreamCut, id="cut in an event"),
        pytest.param(whole(content="hi")[:-5], ModelStreamCut, id="cut in an object"),
        pytest.param(sse(chunk("stop")), ModelReplyEmpty, id="empty"),
        pytest.param(sse(chunk(content=" \n"), chunk("stop")), ModelReplyEmpty, id="white space"),
        pytest.param(sse(chunk(reasoning="hm"), chunk("stop")), ModelReplyEmpty, id="only reasoning"),
        pytest.param(b'{"choices": []}', ModelReplyEmpty, id="no choices"),
        pytest.param(sse('{"choices": [', chunk("stop")), ModelReplyInvalid, id="malformed chunk"),
        pytest.param(sse("[1]"), ModelReplyInvalid, id="no object"),
        pytest.param(b'{"ok": true}', ModelReplyInvalid, id="another API"),
        pytest.param(b'{"a": 1}\n{"b": 2}', ModelReplyInvalid, id="lines of JSON"),
        pytest.param(b"<html><body>Log in</body></html>", ModelReplyInvalid, id="a web page"),
        pytest.param(sse(chunk(refusal="I can"), chunk(refusal="'t"), chunk("stop")), ModelRefused, id="refusal"),
        pytest.param(whole(refusal="I can't"), ModelRefused, id="refusal, not streamed"),
        pytest.param(sse(chunk(content="hi"), chunk("content_filter")), ModelRefused, id="filter"),
        pytest.param(sse(chunk(content="hi"), chunk("abort")), ModelStreamCut, id="given up"),
        pytest.param(sse({"error": {"message": "slow down", "code": 429}}), ModelRateLimited, id="error chunk"),
        pytest.param(sse({"error": "the runner died"}), ModelOverloaded, id="error text"),
        pytest.param(b'{"error": {"type": "rate_limit_error"}}', ModelRateLimited, id="error object"),
        pytest.param(
            sse({"object": "error", "message": "busy", "code": 503}), ModelOverloaded, id="an error that is the chunk"
        ),
    ],
)
def test_what_is_no_answer_is_a_typed_error(answer: bytes, error: type[ModelError]) -> None:
    """Named after the model and its address."""
    with pytest.raises(error) as caught:
        read(answer)

    assert type(caught.value) is error
    assert "'test' at http://localhost/v1/chat/completions" in str(caught.value)


def test_halves_of_a_character_that_come_in_two_chunks_are_joined() -> None:
    """Each half is escaped on its own, which JSON allows."""
    answer = sse('{"choices":[{"delta":{"content":"\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00"}}]}')

    assert read(answer)[1].parts == (Text("😀"),)


_NAMES = ["choices", "delta", "message", "content", "tool_calls", "index", "id", "function", "name", "arguments"]
_NAMES += ["finish_reason", "usage", "prompt_tokens", "error", "refusal", "reasoning", "function_call", "detail"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | any_text(6) | st.sampled_from(["stop", "length", "{}", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=5),
    max_leaves=20,
)
DELTAS = st.fixed_dictionaries({}, optional=dict.fromkeys(["content", "tool_calls", "function_call"], JSON_VALUES))
CHUNKS = st.one_of(
    JSON_VALUES,
    st.builds(lambda delta, finish: {"choices": [{"delta": delta, "finish_reason": finish}]}, DELTAS, JSON_VALUES),
)


@given(chunks=st.lists(CHUNKS, max_size=6), streamed=st.booleans())
@effort(12, 3000)
def test_any_json_is_a_reply_or_a_typed_error(chunks: list[Any], streamed: bool) -> None:
    """Fields of every type, anywhere."""
    texts = [json.dumps(chunk) for chunk in chunks]
    try:
        _, reply = read(sse(*texts) if streamed else "".join(texts).encode())
    except ModelError:
        return

    assert reply.parts or reply.stop_reason == "max_tokens_exceeded"


def test_progress_of_llama_cpp_is_read() -> None:
    """With what is left at the speed so far; a report that makes no sense is passed over."""

    def chunk(report: object) -> bytes:
        shape = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}], "prompt_progress": report}
        return b"data: %b\n\n" % json.dumps(shape).encode()

    reports = [
        {"total": 2_273, "cache": 200, "processed": read, "time_ms": ms} for read, ms in ((200, 0), (1_024, 60_000))
    ]
    end = b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    deltas, reply = read(*map(chunk, [*reports, {"total": "?"}, 7]), end)

    assert [one.text for one in deltas] == [
        "reading 200 of 2,273 tokens",
        "reading 1,024 of 2,273 tokens, about 91 s",
        "Hi",
    ]
    assert reply.parts == (Text("Hi"),)
