"""The audit of summaries: what one lacks is put behind it or asked for, and what it has made up is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.window.audit import audit_summary, cut_for_missing, find_invented
from perdure.core.messages import Message, Text, ToolCall, ToolResult
from tests.support.strategies import any_text, build_log, effort, parts, sentences
from tests.support.summaries import COUNTER, build_messages, source_of

MESSAGES = build_messages(
    ("user", "Hi! I'm Ada Lovelace from Turin. I plan two weeks in Kyoto in March with a budget of 4500 EUR."),
    ("assistant", "Near the station there are the Hotel Granvia for 180 EUR a night and the Sakura Inn for 95 EUR."),
    ("user", "The Sakura Inn sounds right. Let's book it from 2026-03-04 to 2026-03-18. Sorry for being so slow."),
    ("assistant", ToolCall("c", "book_hotel", '{"hotel": "Sakura Inn", "from": "2026-03-04"}')),
    ("tool", ToolResult("c", "book_hotel", "Booked, confirmation SKR-99812, total 1330 EUR.")),
    ("assistant", "Booked: confirmation SKR-99812, total 1330 EUR, receipt in /srv/receipts/kyoto.pdf."),
    ("user", "Great! And what about the kennel for Bruno, did they answer?"),
)
LOGS = st.lists(st.one_of(parts(), st.builds(Text, sentences())), max_size=6).map(build_log)


def audited(summary: str, messages: Sequence[Message], limit: int = 1_000) -> str:
    return audit_summary(summary, source_of(messages), max_tokens=limit, counter=COUNTER).text


def test_what_a_summary_lacks_is_put_behind_it() -> None:
    """The task, decisions, open questions, paths, identifiers and numbers, with their handles."""
    text = audited("Ada wants to go to Kyoto.", MESSAGES)

    assert text.startswith("Ada wants to go to Kyoto.\n\nAlso: ")
    assert "msg-2 decided: Let's book it from 2026-03-04 to 2026-03-18." in text
    assert "msg-6 task: And what about the kennel for Bruno, did they answer?" in text
    for lacking in ("SKR-99812", "/srv/receipts/kyoto.pdf", "4500 EUR", "1330 EUR"):
        assert lacking in text


def test_a_summary_that_lacks_nothing_stays() -> None:
    """The number in another grouping and the question in other words are no lack."""
    messages = build_messages(("user", "The budget is 4,500 EUR for E-4711. What did the kennel answer?"))
    text = "Budget 4500 EUR for e-4711; open is what answer the kennel gave."

    assert audited(text, messages) == text


@effort(12, 2000)
@given(LOGS, any_text(), st.integers(0, 200))
def test_what_is_put_behind_a_summary_fits(messages: list[Message], summary: str, limit: int) -> None:
    """The summary stays whole, and with what follows it is over the limit only if it was before."""
    text = audited(summary, messages, limit)

    assert text.startswith(summary)
    assert text == summary or COUNTER.count(text) <= limit
    assert text == audited(summary, messages, limit)


@effort(12, 2000)
@given(LOGS, sentences(30), st.integers(80, 400))
def test_what_is_required_and_missing_has_room_once_the_summary_is_cut(
    messages: list[Message], summary: str, limit: int
) -> None:
    source = source_of(messages)
    text = cut_for_missing(summary, source, max_tokens=limit, counter=COUNTER)

    assert COUNTER.count(text) <= max(limit, COUNTER.count(summary))
    assert not audit_summary(text, source, max_tokens=limit, counter=COUNTER).missing


def test_a_required_item_without_room_is_missing() -> None:
    """A long summary that leaves the decision out; what is missing names its message."""
    long = "Ada wants to travel to a city in Japan with much food and many temples. " * 5
    source = source_of(MESSAGES)
    limit = COUNTER.count(long) + 5
    missing = audit_summary(long, source, max_tokens=limit, counter=COUNTER).missing
    cut = cut_for_missing(long, source, max_tokens=limit, counter=COUNTER)

    assert any(one.startswith("msg-6 task: ") for one in missing), missing
    assert "msg-6 task: " in cut
    assert COUNTER.count(cut) <= limit


@pytest.mark.parametrize(
    ("summary", "invented"),
    [
        ("She has SKR-99812 (msg-5) in /srv/receipts/kyoto.pdf [msg-2..5].", []),
        ("Her confirmation is skr99812, the receipt `kyoto.pdf`, and/or 95 EUR a night.", []),
        ("Her confirmation is SKR-99821.", ["SKR-99821"]),
        ("The receipt is in /srv/receipts/osaka.pdf.", ["/srv/receipts/osaka.pdf"]),
        ("Write to inn@sakura.example or see https://sakura.example/x.", ["inn@sakura.example", "https://sakura.example/x"]),
        ("See msg-3, msg-17, msg-5..40 and node-2.", ["msg-17", "msg-5..40", "node-2"]),
    ],
)  # fmt: skip
def test_names_and_handles_that_the_source_lacks_are_found(summary: str, invented: list[str]) -> None:
    assert list(find_invented(summary, source_of(MESSAGES))) == invented


@effort(12, 2000)
@given(LOGS)
def test_the_source_s_own_words_are_never_made_up(messages: list[Message]) -> None:
    source = source_of(messages)

    assert find_invented(source.text, source) == []
