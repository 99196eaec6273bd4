"""From prefix and log to the request: legal logs only, the same bytes each time, cuts between runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.sections.assemble import MemoryCounts, View, assemble, canonical, check_legal, digest_of, tail
from perdure.core.errors import IllegalLog
from perdure.core.ids import AgentId
from perdure.core.messages import Message, Part, Text, ToolCall, ToolResult
from perdure.core.runs import Prefix, Recipe
from perdure.testing.clock import START
from tests.support.strategies import any_text, build_log, effort, parts

PREFIX = Prefix(
    agent_id=AgentId("agent-1"),
    seq=0,
    conversation_seq=0,
    reason="first",
    system="Be kind. 中 \ud800",
    tools=({"name": "look", "parameters": {"z": 1, "a": 2}},),
    created_at=START,
)
RECIPE = Recipe(prefix_seq=0, upto_message_seq=9, tail='{"type": "context_status"}', settings_revision=0)


def call(name: str) -> ToolCall:
    return ToolCall(name, "look", "{}")


def result(name: str) -> ToolResult:
    return ToolResult(name, "look", "found")


# -- legal logs --------------------------------------------------------------------------------------------------------

HELLO, A, B, RA, RB = Text("hello"), call("a"), call("b"), result("a"), result("b")


@pytest.mark.parametrize(
    "turns",
    [
        [],
        [HELLO],
        [HELLO, HELLO],
        [HELLO, A, RA],
        [HELLO, A, RA, HELLO],
        [[A, B], RA, RB],
        [[A, B], RB, RA],
        [[A, B], [RA, RB], HELLO],
        [A, RA, A, RA],  # another run may use the id again
    ],
)
def test_a_log_with_every_call_answered_is_legal(turns: list[Part | list[Part]]) -> None:
    """Each call has its one result before anything else is said, in any order."""
    check_legal(build_log(turns))


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([A], "'a' has no result"),
        ([[A, B], RA], "'b' has no result"),
        ([A, HELLO, RA], "message-1 stands between call 'a' and its result"),
        ([A, A], "stands between"),
        ([[A, B], RA, HELLO, RB], "stands between call 'b'"),
        ([RA], "not asked or answered twice"),
        ([HELLO, A, RB], "not asked or answered twice"),
        ([A, RA, RA], "not asked or answered twice"),
        ([A, [RA, RA]], "not asked or answered twice"),
        ([[A, A], RA], "two calls with the id 'a'"),
    ],
)
def test_any_other_log_is_illegal(turns: list[Part | list[Part]], message: str) -> None:
    """The error names the message or the call."""
    with pytest.raises(IllegalLog, match=message):
        check_legal(build_log(turns))


def is_legal(turns: list[list[Part]]) -> bool:
    """The reference: walk through the log as a sequence of words, what is open being a multiset."""
    waiting: list[str] = []
    for turn in turns:
        calls = [part.call_id for part in turn if isinstance(part, ToolCall)]
        results = [part.call_id for part in turn if isinstance(part, ToolResult)]
        if results:
            for name in results:
                if waiting.count(name) != 1:
                    return False
                waiting.remove(name)
        elif waiting or len(set(calls)) != len(calls):
            return False
        else:
            waiting = calls
    return not waiting


TURNS = st.lists(
    st.one_of(
        st.just([HELLO]),
        st.lists(st.sampled_from([A, B, call("c")]), min_size=1, max_size=3),
        st.lists(st.sampled_from([RA, RB, result("c")]), min_size=1, max_size=3),
    ),
    max_size=6,
)


@st.composite
def answered_turns(draw: st.DrawFn) -> list[list[Part]]:
    """Logs as the engine makes them: legal, unless the last turn was cut off or a row was lost."""
    turns: list[list[Part]] = []
    for _ in range(draw(st.integers(0, 4))):
        turns.append([HELLO])
        names: list[str] = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
        if names:
            turns.append([call(name) for name in names])
            turns += [[result(name)] for name in draw(st.permutations(names))]
    if draw(st.booleans()) and turns:
        del turns[draw(st.integers(0, len(turns) - 1))]
    return turns


@effort(12, 5000)
@given(TURNS | answered_turns())
def test_exactly_the_legal_logs_are_accepted(turns: list[list[Part]]) -> None:
    """As a small reference decides."""
    log = build_log(turns)
    if is_legal(turns):
        check_legal(log)
    else:
        with pytest.raises(IllegalLog):
            check_legal(log)


# -- view and request --------------------------------------------------------------------------------------------------


def test_a_view_grows_by_legal_rows_only() -> None:
    """The same view for nothing new; a new one for more; none at all for rows that leave a call open."""
    view = View.of(PREFIX).with_rows(build_log([HELLO]))
    rows = build_log([HELLO, A, RA])

    assert view.with_rows([]) is view
    assert view.with_rows(rows[1:]) == View.of(PREFIX).with_rows(rows)
    assert len(view.messages) == 1
    with pytest.raises(IllegalLog):
        view.with_rows(rows[1:2])
    with pytest.raises(IllegalLog):
        view.with_rows(rows[2:])


def test_a_view_follows_on_only_without_a_gap() -> None:
    """Where a number is missing stands a row that the caller does not have."""
    log = build_log([HELLO, A, RA, HELLO])
    view = View.of(PREFIX).with_rows(log[:1])

    assert View.of(PREFIX).following(log) == log
    assert view.following(log) == log[1:]
    assert view.following(log[1:]) == log[1:]
    assert view.following(log[:1]) == ()
    assert view.following(log[2:]) == ()
    assert view.following([log[1], log[3]]) == ()


@effort(12, 1000)
@given(
    st.lists(st.lists(parts().filter(lambda part: isinstance(part, Text)), min_size=1, max_size=2), max_size=4),
    any_text(),
)
def test_assembly_is_a_pure_function(turns: list[list[Part]], said_last: str) -> None:
    """The same view and recipe give the same request and the same bytes, however the view was put together."""
    log = build_log(turns)
    whole = View.of(PREFIX).with_rows(log)
    pieces = View.of(PREFIX)
    for message in log:
        pieces = pieces.with_rows([message])
    recipe = replace(RECIPE, tail=said_last)
    one, other = assemble("m", whole, recipe), assemble("m", pieces, recipe)

    assert one == other
    assert canonical(one) == canonical(other)
    assert whole.digest(said_last) == pieces.digest(said_last) == digest_of(one)


@effort(12, 1000)
@given(any_text())
def test_sent_bytes_stay_sent(said_next: str) -> None:
    """A longer view begins with the bytes of the shorter one; only what follows is new."""
    log = build_log([Text("hello"), Text(said_next)])
    short = assemble("m", View.of(PREFIX).with_rows(log[:1]), replace(RECIPE, tail=""))
    long = assemble("m", View.of(PREFIX).with_rows(log), replace(RECIPE, tail=""))

    assert canonical(long).startswith(canonical(short))


def test_the_canonical_form_is_fixed() -> None:
    """Recorded hashes depend on it: tools, system, messages, tail, one JSON line each, in UTF-8."""
    request = assemble("m", View.of(PREFIX).with_rows(build_log([Text("hi"), [Text("I look"), A], RA])), RECIPE)

    assert canonical(request).decode("utf-8", "surrogatepass").split("\n") == [
        '{"tool":{"name":"look","parameters":{"a":2,"z":1}}}',
        '{"system":"Be kind. 中 \ud800"}',
        '{"role":"user","kind":"message","parts":[{"type":"text","text":"hi"}]}',
        '{"role":"assistant","kind":"message","parts":[{"type":"text","text":"I look"},'
        '{"type":"tool_call","call_id":"a","name":"look","arguments":"{}"}]}',
        '{"role":"tool","kind":"message","parts":[{"type":"tool_result","call_id":"a","name":"look",'
        '"text":"found","status":"success"}]}',
        '{"tail":"{\\"type\\": \\"context_status\\"}"}',
        "",
    ]
    assert canonical(replace(request, tail="")).count(b"\n") == 5


def different(message: Message) -> list[Message]:
    """The message with one thing changed that a model would notice."""
    return [
        replace(message, parts=(Text("other"),)),
        replace(message, parts=(*message.parts, Text(""))),
        replace(message, role="assistant"),
        replace(message, kind="memory_delta"),
    ]


def test_different_requests_have_different_bytes() -> None:
    """Whatever a model would notice is in the canonical form; ids and times are not."""
    log = build_log([Text("hi"), Text("you")])
    request = assemble("m", View.of(PREFIX).with_rows(log), RECIPE)
    others = [
        replace(request, system="other"),
        replace(request, tools=()),
        replace(request, tail="other"),
        replace(request, messages=request.messages[::-1]),
        replace(request, messages=request.messages[:1]),
        *(replace(request, messages=(one, *request.messages[1:])) for one in different(log[0])),
    ]
    bytes_of_all = [canonical(request), *map(canonical, others)]

    assert len(set(bytes_of_all)) == len(bytes_of_all)
    unseen = replace(log[0], seq=7, tokens=99, created_at=datetime(2000, 1, 1, tzinfo=UTC))
    assert canonical(replace(request, messages=(unseen, *request.messages[1:]))) == bytes_of_all[0]


def test_the_tail_tells_date_and_counts_where_the_agent_lives() -> None:
    """One line of JSON; after midnight in Tokyo it is tomorrow already."""
    late = datetime(2026, 11, 20, 15, 5, tzinfo=UTC)

    assert tail(late, "Asia/Tokyo", MemoryCounts(messages=3, passages=4, tags=("a",)), prefix=PREFIX) == (
        '{"type": "context_status", "date": "2026-11-21", "weekday": "Saturday", "time": "00:05",'
        ' "timezone": "Asia/Tokyo", "recall_messages": 3, "archival_passages": 4}'
    )
    assert '"time": "15:05"' in tail(late, "Europe/Atlantis", MemoryCounts(), prefix=PREFIX)
