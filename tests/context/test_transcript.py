"""A transcript can be read back: of each message its text, or how much of it is missing, or that it was left out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.context.window.extract import render_most, spread_order
from perdure.context.window.summary import transcript
from perdure.core.messages import Message, Part, Text, ToolCall, ToolResult
from perdure.core.nodes import message_handle, parse_handle
from tests.support.strategies import build_log, effort


class CharacterCounter:
    """A token for each character: what fits is known to the character."""

    def count(self, text: str) -> int:
        return len(text)

    def at_least(self, text: str) -> int:
        return len(text)


COUNTER = CharacterCounter()
SHARES = st.floats(0.02, 0.25) | st.floats(0, 1.1)
"""Of what all takes: of long texts little has to go before whole messages do."""
_ENTRY = re.compile(r"\[msg-(\d+) (user|assistant|tool) \d{4}-\d\d-\d\d \d\d:\d\d\] (.*)")
_GAP = re.compile(r"\[(msg-[\d.]+) left out\]")
_CUT = re.compile(r"(.*?) ?\[… ([\d,]+) characters left out …\] ?(.*)")
_CALLED, _ANSWERED = "called look with ", "look answered: "


@dataclass(frozen=True)
class Shown:
    """One message in a transcript: its text as it stands there, with a new line for the characters that are said to be
    missing; `role` is "call" for an assistant's call."""

    seq: int
    role: str
    text: str
    missing: int = 0


def numbered(chars: int) -> str:
    """Words that say where in a text they stand, so that no part of it could be another."""
    return "".join(f"{at:04}." for at in range(-(-chars // 5)))[:chars]


@st.composite
def logs(draw: st.DrawFn, min_size: int = 1) -> list[Message]:
    """Messages of one part, short and long, of all roles; some without words, which a transcript passes over."""
    chars = st.integers(1, 60) | st.integers(60, 1_200)

    def part(kind: str, text: str) -> Part:
        match kind:
            case "call":
                return ToolCall("c", "look", text)
            case "result":
                return ToolResult("c", "look", text)
        return Text(" " if kind == "nothing" else text)

    kinds = draw(
        st.lists(
            st.sampled_from(["said", "said", "answered", "call", "result", "result", "nothing"]),
            min_size=min_size,
            max_size=12,
        )
    )
    assume({*kinds} != {"nothing"})
    made = build_log([part(kind, numbered(draw(chars))) for kind in kinds])
    return [
        replace(message, role="assistant") if kind == "answered" else message
        for kind, message in zip(kinds, made, strict=True)
    ]


def text_of_part(message: Message) -> str:
    """What a transcript has of a message when there is room."""
    match message.parts[0]:
        case Text(text=text) | ToolResult(text=text):
            return text.strip()
        case ToolCall(arguments=arguments):
            return arguments
    return ""


def read(text: str) -> Iterator[Shown | range]:
    """Its lines in order: messages, and the numbers of those that were left out."""
    for line in text.splitlines():
        if gap := _GAP.fullmatch(line):
            handle = parse_handle(gap[1])
            assert handle is not None
            yield range(handle.first, handle.last + 1)
        else:
            entry = _ENTRY.fullmatch(line)
            assert entry is not None, line
            said = entry[3].removeprefix(_CALLED).removeprefix(_ANSWERED)
            role = "call" if entry[3].startswith(_CALLED) else entry[2]
            if cut := _CUT.fullmatch(said):
                yield Shown(int(entry[1]), role, f"{cut[1]}\n{cut[3]}", int(cut[2].replace(",", "")))
            else:
                yield Shown(int(entry[1]), role, said)


def check(text: str, messages: Sequence[Message]) -> list[Shown]:
    """What is shown, when every message with words is, or is said to be left out, in order, and what is shown is so."""
    words = {message.seq: text_of_part(message) for message in messages if text_of_part(message)}
    told: list[int] = []
    shown: list[Shown] = []
    between = True
    for one in read(text):
        if isinstance(one, range):
            assert between, "two gaps in a row"
            assert {one[0], one[-1]} <= words.keys()
            told += [seq for seq in one if seq in words]
            between = False
        else:
            head, _, tail = one.text.partition("\n")
            if one.missing:
                assert len(head) + one.missing + len(tail) == len(words[one.seq])
                assert words[one.seq].startswith(head)
                assert words[one.seq].endswith(tail)
                assert -2 < 2 * len(head) - 3 * len(tail) < 3, "three fifths of what is shown are its beginning"
            else:
                assert one.text == words[one.seq]
            told.append(one.seq)
            shown.append(one)
            between = True
    assert told == list(words)
    return shown


def whole(messages: Sequence[Message]) -> str:
    return transcript(messages, max_tokens=10**9, counter=COUNTER)


@effort(12, 2000)
@given(logs(), SHARES)
def test_each_message_is_shown_or_said_to_be_left_out(messages: list[Message], share: float) -> None:
    """In order, once each, and a cut text says how many of its characters are missing. Where nothing fits, it is said
    of all at once."""
    limit = max(40, int(share * len(whole(messages))))
    text = transcript(messages, max_tokens=limit, counter=COUNTER)

    if text == f"[{message_handle(messages[0].seq, messages[-1].seq)} left out]":
        return
    assert len(text) <= limit
    check(text, messages)


@effort(12, 2000)
@given(logs(min_size=3), SHARES)
def test_users_are_heard_last(messages: list[Message], share: float) -> None:
    """What they said is cut only when results and calls have shrunk to a few words, and left out only when nothing
    else is there; of what is left out of each, the first and the last go last."""
    shown = check_fitting(messages, share)
    words = {message.seq: message.role for message in messages if text_of_part(message)}
    users, others = ([seq for seq, role in words.items() if (role == "user") == of] for of in (True, False))
    there = {one.seq for one in shown}
    if any(one.missing for one in shown if one.role == "user"):
        assert all(len(one.text) <= 41 for one in shown if one.missing and one.role in ("call", "tool"))
    if there & {*others}:
        assert there >= {*users}
    if len(there) < len(words):
        assert all(len(one.text) <= 142 for one in shown)
    for some in (users, others):
        kept = sorted(there & {*some})
        assert kept[:1] == some[: len(kept[:1])]
        assert len(kept) < 2 or kept[-1] == some[-1]


def check_fitting(messages: Sequence[Message], share: float) -> list[Shown]:
    text = transcript(messages, max_tokens=max(1, int(share * len(whole(messages)))), counter=COUNTER)
    assume(_ENTRY.search(text))
    return check(text, messages)


@effort(12, 1000)
@given(logs(), st.floats(0.01, 1))
def test_what_fits_to_the_token_is_shown(messages: list[Message], share: float) -> None:
    """Whatever a limit gave is given again by a limit of exactly its tokens, and all is shown at the tokens of all."""
    some = transcript(messages, max_tokens=max(1, int(share * len(whole(messages)))), counter=COUNTER)

    assert transcript(messages, max_tokens=len(whole(messages)), counter=COUNTER) == whole(messages)
    assert transcript(messages, max_tokens=len(some), counter=COUNTER) == some


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(19, "[msg-0..2 left out]"), (18, "msg-0..2"), (8, "msg-0..2"), (7, "…"), (1, "…"), (0, ".")],
)
def test_where_no_message_fits_their_handle_is_there(limit: int, expected: str) -> None:
    """It names the first and the last, for whoever wants to open them; at last it is a mark only."""
    messages = build_log([Text("walrus " * 9)] * 3)

    assert transcript(messages, max_tokens=limit, counter=COUNTER) == expected


def test_one_message_is_shown_where_one_fits() -> None:
    """The first of the user's, with the name of what it calls in a bound length."""
    messages = build_log(
        [ToolCall("c", "look" * 40, "{}"), Text("the walrus " * 3), ToolResult("c", "look", "no " * 9)]
    )
    one = f"[msg-0 left out]\n{whole(messages[1:2])}\n[msg-2 left out]"

    assert transcript(messages, max_tokens=len(one), counter=COUNTER) == one
    assert transcript(messages, max_tokens=len(one) - 1, counter=COUNTER) == "[msg-0..2 left out]"
    assert f" called {'look' * 15} with {{}}\n" in whole(messages)


def test_where_nothing_was_said_the_handle_is_there() -> None:
    """Of all, also of those at the ends."""
    assert transcript(build_log([Text(" ")] * 3), max_tokens=99, counter=COUNTER) == "[msg-0..2: no words]"


def test_words_that_count_from_a_day_have_its_date() -> None:
    """So a summary of several days can keep it; what a tool answered stays as it is."""
    said = replace(build_log([Text("We met yesterday.")])[0], occurred_at=datetime(2023, 5, 8, 9, tzinfo=UTC))
    answered = replace(build_log([Text("?"), ToolResult("call-1", "look", "since yesterday: 3")])[1], seq=1)

    shown = whole([said, answered])

    assert shown.startswith("[msg-0 user 2023-05-08 09:00] We met yesterday [7 May 2023].\n")
    assert shown.endswith("since yesterday: 3")


@effort(12, 1000)
@given(st.integers(0, 300), st.integers(1, 300))
def test_every_beginning_of_a_spread_is_spread(count: int, taken: int) -> None:
    """Both ends, then always the middle of a widest gap: of any two gaps one is at most about twice the other."""
    order = spread_order(count)

    assert sorted(order) == list(range(count))
    assert order[:2] == [0, count - 1][: min(count, 2)]
    kept = sorted(order[: max(2, taken)])
    gaps = [after - before for before, after in itertools.pairwise(kept)]
    if gaps and max(gaps) > 1:
        assert max(gaps) <= 2 * min(gaps) + 2


@effort(12, 1000)
@given(st.integers(0, 60), st.integers(0, 300))
def test_the_most_that_fits_is_found(count: int, limit: int) -> None:
    """Neither one less nor one more, and never more than there are."""
    found = render_most(count, lambda taken: "walrus" * taken, limit, COUNTER)

    assert found == "walrus" * min(count, limit // 6)
