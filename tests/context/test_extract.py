"""What is found without a model: verbatim, in any language, in linear time; and the summary made of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.window.extract import Extract, Item, extract, render_extract, sentences_of, spread_order
from perdure.context.window.summary import merge_texts
from perdure.core.ids import AgentId
from perdure.core.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolDecision, ToolResult
from perdure.core.nodes import SummaryNode, message_handle, parse_handle
from perdure.testing.clock import START
from tests.support.cases import for_each
from tests.support.strategies import any_text, build_log, effort, parts, sentences


class ByteCounter:
    """Two tokens for five bytes: a counter whose numbers stay as they are."""

    def count(self, text: str) -> int:
        return -(-len(text.encode("utf-8", "surrogatepass")) * 2 // 5)

    def at_least(self, text: str) -> int:
        return len(text) // 8


COUNTER = ByteCounter()

telling_text = st.one_of(
    any_text(60),
    st.lists(
        st.sampled_from(
            ["Ada Lovelace", "/srv/app.py", "4500 EUR", "E-4711", "we decided to go.", "TODO", "why?", "3.14", "我们用",
             "你好吗？", "/家/報告.txt后", "v1.2", "a@b.org", "snake_case", "\n", "\x00", "\ud800", "https://a.b/c?d=1"]
        ),
        max_size=12,
    ).map(" ".join),
)  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """Messages of all roles and parts, with texts in which there is something to find."""
    part = st.one_of(
        parts(),
        st.builds(Text, telling_text),
        st.builds(ToolResult, st.just("c"), st.just("t"), telling_text),
        st.builds(ToolCall, st.just("c"), st.just("t"), telling_text),
    )
    messages = build_log(draw(st.lists(part, max_size=8)))
    roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant"])
    return [replace(one, role=draw(roles)) if one.role == "user" else one for one in messages]


def build_messages(*turns: tuple[Role, Part | str]) -> list[Message]:
    """A conversation of (role, text or part)."""
    messages = build_log([Text(part) if isinstance(part, str) else part for _, part in turns])
    return [replace(message, role=role) for message, (role, _) in zip(messages, turns, strict=True)]


def texts(items: Sequence[Item]) -> list[str]:
    return [item.text for item in items]


def node(seq: int, text: str) -> SummaryNode:
    return SummaryNode(
        agent_id=AgentId("agent-1"),
        conversation_seq=0,
        seq=seq,
        level=0,
        from_message_seq=seq * 10,
        upto_message_seq=seq * 10 + 9,
        message_count=10,
        since=START,
        until=START,
        text=text,
        tokens=0,
        made_by="model",
        created_at=START,
    )


def sources(message: Message) -> list[str]:
    """The texts of a message in which something may be found."""
    return [
        part.arguments if isinstance(part, ToolCall) else part.text
        for part in message.parts
        if not isinstance(part, Reasoning | ToolDecision)
    ]


@effort(12, 3000)
@given(logs())
def test_what_is_found_stands_word_for_word_in_its_message(messages: list[Message]) -> None:
    """Whatever the text is, nothing raises, and no field has a text twice."""
    found = extract(messages)

    for field in fields(Extract):
        items: tuple[Item, ...] = getattr(found, field.name)
        assert len(set(texts(items))) == len(items)
        for item in items:
            assert item.text
            assert any(item.text in source for source in sources(messages[item.seq]))


@effort(12, 3000)
@given(logs(), st.integers(-1, 120))
def test_a_rendered_extract_fits_and_names_messages_of_its_range(messages: list[Message], limit: int) -> None:
    """Never over the limit; every whole line opens with the handle of a message it was given; the same each time."""
    found = extract(messages)
    text = render_extract(found, max_tokens=limit, counter=COUNTER)
    whole = render_extract(found, max_tokens=10**9, counter=COUNTER)

    assert COUNTER.count(text) <= max(0, limit)
    assert text == render_extract(extract(messages), max_tokens=limit, counter=COUNTER)
    for line in whole.split("\n") if whole else ():
        handle = parse_handle(line.split(" ")[0].rstrip(":"))
        assert handle is not None
        assert handle.kind == "messages"
        assert 0 <= handle.first <= handle.last < len(messages)


@effort(12, 2000)
@given(st.lists(sentences() | any_text(), max_size=8), st.integers(-1, 300))
def test_merged_texts_fit(summaries: list[str], limit: int) -> None:
    """Whatever the older summaries say, one text for them is never over the limit, and the same each time."""
    nodes = [node(seq, text) for seq, text in enumerate(summaries)]
    merged = merge_texts(nodes, max_tokens=limit, counter=COUNTER)

    assert COUNTER.count(merged) <= max(0, limit)
    assert merged == merge_texts(nodes, max_tokens=limit, counter=COUNTER)


@for_each(
    [
        ("identifiers", "order E-4711 of user_id and fooBar", ["E-4711", "user_id", "fooBar"]),
        ("identifiers", "see https://example.org/a?b=1&c=2.", ["https://example.org/a?b=1&c=2"]),
        ("identifiers", "写信给ada@example.org吧", ["ada@example.org"]),
        (
            "identifiers",
            "550e8400-e29b-41d4-a716-446655440000 at 3f9a1bc2",
            ["550e8400-e29b-41d4-a716-446655440000", "3f9a1bc2"],
        ),
        ("identifiers", "The well-known and/or plain words of 2026-03-04, 10kg.", []),
        ("paths", r"in /srv/app/main.py, ~/notes.md and C:\tmp\x", ["/srv/app/main.py", "~/notes.md", r"C:\tmp\x"]),
        ("paths", "文件在/home/用户/报告.txt里面", ["/home/用户/报告.txt"]),
        ("numbers", "The budget is 4,500 EUR.", ["budget is 4,500 EUR"]),
        ("numbers", "预算是4500元。", ["预算是4500元"]),
        ("numbers", "at 14:30", ["at 14:30"]),
        ("numbers", "python v3.11.2", ["python v3.11.2"]),
        ("numbers", "hash 9a8b7c6d5e", []),
        ("names", "We met Ada Lovelace and José de la Cruz today.", ["Ada Lovelace", "José de la Cruz"]),
        ("decisions", "Fine. Let's use PostgreSQL.", ["Let's use PostgreSQL."]),
        ("decisions", "好的。我们用PostgreSQL吧。", ["我们用PostgreSQL吧。"]),
        ("decisions", "Gut. Das ist entschieden.", ["Das ist entschieden."]),
        ("questions", "Thanks. What does it cost?", ["What does it cost?"]),
        ("questions", "谢谢。多少钱？", ["多少钱？"]),
        ("questions", "شكرا. كم السعر؟", ["كم السعر؟"]),
        ("statements", "Hi! I live in Turin with Dr. Chen. More.", ["I live in Turin with Dr. Chen."]),
        ("statements", "東京に住んでいます。犬がいます。", ["東京に住んでいます。"]),
    ]
)
def test_what_a_user_says_is_found(field: str, text: str, wanted: list[str]) -> None:
    """Identifiers, paths, numbers, names, decisions, questions and statements, in several languages."""
    assert texts(getattr(extract(build_messages(("user", text))), field)) == wanted


def test_a_question_is_open_until_the_agent_answers() -> None:
    """The last ones stay open, and those that were put off; what is still to do is open whoever says it."""
    found = extract(
        build_messages(
            ("user", "How old is Bruno?"),
            ("assistant", "Bruno is four. TODO: ask the vet."),
            ("user", "Where is the key?"),
            ("assistant", "I don't know, I'll check."),
            ("user", "And what about lunch?"),
        )
    )

    assert texts(found.questions) == ["TODO: ask the vet.", "Where is the key?", "And what about lunch?"]


def test_what_several_messages_have_is_worth_more() -> None:
    """An identifier of a tool's result counts little until somebody uses it."""
    found = extract(
        build_messages(
            ("tool", ToolResult("c", "t", "rows SKR-1 and SKR-2")), ("assistant", ToolCall("d", "t", '{"id": "SKR-2"}'))
        )
    )

    assert [(item.seq, item.text, item.worth) for item in found.identifiers] == [(0, "SKR-1", 0), (0, "SKR-2", 2)]


def test_engine_messages_and_reasoning_are_passed_over() -> None:
    """They were not said by anybody."""
    messages = build_messages(("user", "See E-1."), ("assistant", Reasoning("maybe E-2")))
    delta = replace(messages[0], kind="memory_delta", parts=(Text("E-3"),))

    assert texts(extract([*messages, delta]).identifiers) == ["E-1"]


def test_little_room_goes_to_both_ends_and_the_middle() -> None:
    """Of a long conversation neither the beginning nor the end takes all lines."""
    messages = build_messages(
        *(("user", f"I told you the fact number {at} of this conversation.") for at in range(300))
    )
    text = render_extract(extract(messages), max_tokens=200, counter=COUNTER)
    seqs = [int(line.split(" ")[0].removeprefix("msg-")) for line in text.split("\n")]

    assert seqs[0] == 0
    assert seqs[-1] == 299
    assert any(100 <= seq < 200 for seq in seqs)


def test_each_merged_summary_has_its_say() -> None:
    """With room for a line of each, none is left out; more lines come when there is more room."""
    nodes = [node(seq, f"First line of {seq}.\nSecond line of {seq}.") for seq in range(4)]
    tight = merge_texts(nodes, max_tokens=70, counter=COUNTER)
    wide = merge_texts(nodes, max_tokens=1_000, counter=COUNTER)

    assert [line.split(":")[0] for line in tight.split("\n") if "node-" in line] == [
        f"node-{at} ({message_handle(at * 10, at * 10 + 9)})" for at in range(4)
    ]
    assert all(f"Second line of {at}." in wide for at in range(4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "!",
        " ",
        "\n",
        "/",
        "a.",
        "1,",
        "Ab ",
        "A-",
        "字/",
        "a_",
        "x@",
        "k=1 ",
        "//:",
        "12:",
        '"k": 1, ',
        "What? ",
        "我们用1元。",
        "\ud800",
    ],
)
@pytest.mark.parametrize("part", [Text, lambda text: ToolResult("c", "t", text), lambda text: ToolCall("c", "t", text)])
def test_a_megabyte_of_anything_is_read_in_linear_time(unit: str, part: type[Text]) -> None:
    """A pattern that backtracks would take minutes; it takes a tenth of a second, and gets five for a busy machine."""
    messages = build_messages(("user", part(unit * (1_000_000 // len(unit)))))
    start = time.process_time()
    render_extract(extract(messages), max_tokens=500, counter=COUNTER)

    assert time.process_time() - start < 20


def test_a_large_result_is_found_in_at_both_ends() -> None:
    """Not everything is kept of a long list, but its first and last are."""
    text = "\n".join(f"2026-01-01 worker_{at} ran job-{at:x}-{at} for {at} ms" for at in range(20_000))
    found = texts(extract(build_messages(("tool", ToolResult("c", "t", text)))).identifiers)

    assert "worker_0" in found
    assert "worker_19999" in found
    assert len(found) < 100


@given(st.integers(0, 200))
def test_spread_is_an_order_of_all(count: int) -> None:
    assert sorted(spread_order(count)) == list(range(count))


@given(any_text())
def test_sentences_lose_nothing_but_space(text: str) -> None:
    assert "".join("".join(sentences_of(text)).split()) == "".join(text.split())
