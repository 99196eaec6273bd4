"""One request explained, and two compared: numbers that sum to what was measured, and a diff that people can read."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ModelRequest, Text, Usage
from perdure.context.request.explain import DIFF_LINES, Explanation, Prices, diff, explain, share_out
from perdure.context.sections.assemble import View, canonical
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.ids import AgentId, MessageId, StepId
from perdure.core.messages import Message, MessageKind, Role
from perdure.core.runs import Prefix, Recipe, Step

AT = datetime(2026, 11, 20, tzinfo=UTC)
AGENT = AgentId("agent-1")
TOOL = {"name": "t", "description": "a tool", "parameters": {}}
SYSTEM = "You remember.\n\n<memory_blocks>\n<human>\nAda</human>\n</memory_blocks>\n\nBe kind."
PRICES = Prices(input=1.0, cached_input=0.1, cache_write=1.25, output=4.0)


def message(seq: int, text: str, role: Role = "user", kind: MessageKind = "message", run_seq: int = 0) -> Message:
    return Message(
        id=MessageId(f"message-{seq}"),
        agent_id=AGENT,
        seq=seq,
        conversation_seq=0,
        role=role,
        kind=kind,
        parts=(Text(text),),
        run_seq=run_seq,
        tokens=20,
        created_at=AT,
        occurred_at=AT,
    )


def explained(usage: Usage, *, prices: Prices | None = PRICES, **recipe: Any) -> Explanation:
    """A request of three messages, two of them of an earlier run, with a summary in view."""
    prefix = Prefix(
        agent_id=AGENT,
        seq=3,
        conversation_seq=0,
        reason="window",
        system=SYSTEM,
        tools=(TOOL,),
        tokens=200,
        summary="what was said before",
        nodes=(0, 2),
        created_at=AT,
    )
    rows = [message(5, "hello"), message(6, "hi", "assistant"), message(7, "and now?", run_seq=1)]
    step = Step(
        id=StepId("step-1"),
        agent_id=AGENT,
        run_seq=1,
        index=0,
        status="success",
        model="a/b",
        recipe=Recipe(prefix_seq=3, upto_message_seq=7, tail="now", settings_revision=0, **recipe),
        lease_number=1,
        usage=usage,
        created_at=AT,
    )
    view = View.of(prefix).with_rows(rows)
    return explain(step, view, prices=prices, counter=ScriptTokenCounter())


def test_the_parts_sum_to_what_was_measured() -> None:
    """The cache's reads cover the request from its beginning, then come its writes, then the rest."""
    result = explained(Usage(input_tokens=150, output_tokens=50, cached_input_tokens=60, cache_write_tokens=40))

    assert [use.name for use in result.segments] == [
        *("tools", "system prompt", "memory blocks", "summary", "messages", "newest turn", "status")
    ]
    assert result.measured
    assert (result.input_tokens, result.cached_tokens, result.written_tokens, result.plain_tokens) == (150, 60, 40, 50)
    assert result.hit_rate == 0.4
    kinds = "".join(
        "c" * use.cached_tokens + "w" * use.written_tokens + "p" * use.plain_tokens for use in result.segments
    )
    assert kinds == "c" * 60 + "w" * 40 + "p" * 50
    assert (result.prefix_seq, result.prefix_reason, result.nodes) == (3, "window", ("node-0", "node-2"))
    assert result.message_count == 3


def test_the_price_is_that_of_each_kind_of_token() -> None:
    """A million tokens cost what the catalog says; the parts' prices sum to the request's."""
    result = explained(Usage(input_tokens=150, output_tokens=50, cached_input_tokens=60, cache_write_tokens=40))

    assert result.input_price == pytest.approx((60 * 0.1 + 40 * 1.25 + 50 * 1.0) / 1_000_000)
    assert result.output_price == pytest.approx(50 * 4.0 / 1_000_000)
    assert result.price == pytest.approx(PRICES.price(result.usage))


@pytest.mark.parametrize(
    ("prices", "known"), [(None, False), (replace(PRICES, cached_input=None), False), (Prices(input=1, output=1), True)]
)
def test_an_unknown_price_is_not_made_up(prices: Prices | None, known: bool) -> None:
    """A total is known if the price of every kind of token that there was is."""
    usage = Usage(input_tokens=150, output_tokens=50, cached_input_tokens=0 if known else 60)
    result = explained(usage, prices=prices)

    assert (result.price is not None) == known


def test_without_a_measurement_all_is_estimated() -> None:
    """The parts are those of the corrected estimate then; nothing is said of cache and price."""
    result = explained(Usage(), tokens=300, overcount=60)

    assert not result.measured
    assert (result.estimated_tokens, result.certified_tokens, result.input_tokens) == (300, 240, 240)
    assert (result.hit_rate, result.price) == (None, None)


def test_a_count_that_cannot_be_all_of_it_is_doubted() -> None:
    """Some servers leave out what they had cached. A cache larger than the input is taken for all of it."""
    assert explained(Usage(input_tokens=10)).doubtful
    result = explained(Usage(input_tokens=150, cached_input_tokens=400, cache_write_tokens=9))

    assert not result.doubtful
    assert (result.cached_tokens, result.written_tokens, result.plain_tokens) == (150, 0, 0)


@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 1_000_000))
def test_shares_sum_to_the_whole(amounts: list[int], total: int) -> None:
    """Each is its exact share, rounded up or down; of nothing, nothing is shared out."""
    shares = share_out(amounts, total)

    assert sum(shares) == (total if sum(amounts) else 0)
    assert all(
        abs(share - amount * total / sum(amounts)) < 1 for share, amount in zip(shares, amounts, strict=True) if share
    )


def request(*texts: str, system: str = SYSTEM, tail: str = '{"time": "10:00"}') -> ModelRequest:
    rows = tuple(message(number, text) for number, text in enumerate(texts))
    return ModelRequest(model="a/b", system=system, tools=(TOOL,), messages=rows, tail=tail)


def test_equal_requests_have_no_difference() -> None:
    """All of it is shared then."""
    result = diff(request("a"), request("a"))

    assert (result.first_line, result.place, result.text) == (None, "", ())
    assert result.shared_bytes == result.total_bytes[0] == len(canonical(request("a")))


def test_what_was_appended_is_all_that_differs() -> None:
    """The second goes on where the first ended; the status is told apart, because it always differs."""
    result = diff(request("a"), request("a", "b", tail='{"time": "10:01"}'))

    assert (result.first_line, result.place, result.lines) == (4, "message 2 (user)", (4, 5))
    assert result.shared_lines == 3
    assert [line for line in result.text if line[0] in "+-"] == [
        '+ {"role":"user","kind":"message","parts":[{"type":"text","text":"b"}]}',
        r'- {"tail":"{\"time\": \"10:00\"}"}',
        r'+ {"tail":"{\"time\": \"10:01\"}"}',
    ]


def test_shared_bytes_end_where_the_first_difference_is() -> None:
    """Also in the middle of a line; that is as far as a provider's cache could reach."""
    a, b = request("a", system="x" * 500 + "1"), request("a", system="x" * 500 + "2")
    result = diff(a, b)

    assert result.place == "the system text"
    assert canonical(a)[: result.shared_bytes] == canonical(b)[: result.shared_bytes]
    assert canonical(a)[result.shared_bytes] != canonical(b)[result.shared_bytes]


def test_a_change_in_a_long_text_is_shown_and_the_rest_is_not() -> None:
    """Of a system text only its own lines that differ; of a long line what stands around the change."""
    lines = [f"line {number}" for number in range(500)]
    new = [*lines[:200], "a new line", *lines[201:]]
    a, b = request(system="\n".join(lines)), request(system="\n".join(new))

    assert [line for line in diff(a, b).text if line[0] in "+-"] == ["- …line 200…", "+ …a new line…"]
    a, b = request("y" * 9_000 + "old" + "z" * 9_000), request("y" * 9_000 + "new" + "z" * 9_000)
    before, after = [line for line in diff(a, b).text if line[0] in "+-"]
    assert "yold" in before
    assert "ynew" in after
    assert max(map(len, (before, after))) < 300


def test_half_a_surrogate_pair_is_compared_like_any_text() -> None:
    """It has no UTF-8, but it may stand in what somebody said."""
    result = diff(request("a \ud800"), request("a \ud801"))

    assert result.first_line == 3


@pytest.mark.parametrize("kind", ["repeated", "shuffled", "within a line"])
def test_requests_that_are_hard_to_compare_take_no_longer(kind: str) -> None:
    """`difflib` takes minutes for them: repeated or moved lines cost it steps that grow with their cube."""
    count = 4_000
    texts = {
        "repeated": (["x"] * count, ["x", "y"] * (count // 2)),
        "shuffled": ([str(at) for at in range(count)], [str(at * 7 % count) for at in range(count)]),
        "within a line": (["\n".join("x" * count)], ["\n".join("xy" * (count // 2))]),
    }
    a, b = (request(*one) for one in texts[kind])
    start = time.thread_time()
    result = diff(a, b)

    assert time.thread_time() - start < 5
    assert result.text and len(result.text) <= DIFF_LINES + 1
    said = "\n".join(result.text)
    assert kind == "within a line" or ("compared one by one" in said and "more than 2,000 lines" in said)


@given(st.lists(st.text(max_size=8), max_size=6), st.lists(st.text(max_size=8), max_size=6))
def test_any_two_requests_can_be_compared(a: list[str], b: list[str]) -> None:
    """They are the same exactly if no line differs, and then there is nothing to show."""
    result = diff(request(*a), request(*b))

    assert (result.first_line is None) == (a == b) == (not result.text)
    if result.first_line is not None:
        assert result.shared_lines == result.first_line - 1
