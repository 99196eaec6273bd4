"""What the page of a chat hears of a run: HTML of messages, and of answers while they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from perdure.core.events import Delta, DeltaKind, Event, MessageAdded, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import AgentId, MessageId, RunId, StepId
from perdure.core.messages import Message, Text
from perdure.core.runs import NO_USAGE, Failure
from perdure.testing import says
from perdure.ui.pages.chat_stream import EVERY_S, RunStream
from tests.ui.browser import dashboard

RUN, AGENT, ANSWER = RunId("run-1"), AgentId("agent-1"), MessageId("message-1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stream() -> RunStream:
    return RunStream(RUN, "Ada")


def delta(text: str, kind: DeltaKind = "text") -> Delta:
    return Delta(StepId("step-1"), ANSWER, kind, text)


def stored(event: Event) -> StoredEvent:
    return StoredEvent(agent_id=AGENT, run_seq=1, seq=1, event=event, created_at=NOW)


def answer(text: str, seq: int = 1) -> StoredEvent:
    """The event of an answer that is in the log."""
    message = Message(
        id=ANSWER,
        agent_id=AGENT,
        conversation_seq=0,
        seq=seq,
        role="assistant",
        parts=(Text(text),),
        created_at=NOW,
        occurred_at=NOW,
    )
    return stored(MessageAdded(seq, message))


def events(sent: Iterable[bytes]) -> list[tuple[str, Any]]:
    """(name, data) of server-sent events."""
    found = [re.fullmatch(r"event: (\w+)\ndata: (.*)\n\n", one.decode()) for one in sent]
    return [(one[1], json.loads(one[2])) for one in found if one is not None]


def hear(shown: RunStream, *sent: StoredEvent | Delta, now: float = 0.0) -> list[tuple[str, Any]]:
    return [event for one in sent for event in events(shown.events_of(one, now=now))]


def test_pieces_are_collected_and_rendered_as_html() -> None:
    """The first brings the element that they stand in; blocks that have ended come once."""
    shown = stream()
    assert hear(shown, delta("# Pe"), delta("ars\n\nThe *tr")) == []
    [(name, first)] = events(shown.render(now=EVERY_S))
    hear(shown, delta("ee*"))
    assert list(shown.render(now=EVERY_S)) == []
    [(_, second)] = events(shown.render(now=3 * EVERY_S))

    assert (name, first["run"], first["message"]) == ("piece", RUN, ANSWER)
    assert "Ada" in first["shell"] and "<h3>Pears</h3>" in first["ended"] and "The *tr" in first["goes_on"]
    assert second["shell"] is None and second["ended"] == "" and "<em>tree</em>" in second["goes_on"]


def test_reasoning_and_calls_are_plain_text() -> None:
    shown = stream()
    hear(shown, delta("<b>*why*", "reasoning"), delta("pay", "tool_name"), delta('{"a": 1}', "tool_arguments"))
    pieces = [data for _, data in events(shown.render(now=1))]

    assert [(piece["plain"], piece["goes_on"]) for piece in pieces] == [("<b>*why*", None), ('pay {"a": 1}', None)]


def test_a_sent_message_streams_as_what_is_said() -> None:
    """Beside a text before it; a call that can't be run says nothing."""
    shown, name = stream(), delta("send_message", "tool_name")
    hear(shown, delta("Hm."), name, delta('{"thinking": "x", "message": "*H', "tool_arguments"))
    hear(shown, delta('i*\\u00e9"}', "tool_arguments"), replace(name, index=1, refused=True))
    pieces = [data for _, data in events(shown.render(now=1))]

    assert [piece["goes_on"] or piece["plain"] for piece in pieces] == [
        *("<p>Hm.</p>\n", "<p><em>Hi</em>é</p>\n", "send_message ")
    ]
    assert ["Ada" in piece["shell"] for piece in pieces] == [True, True, False]


def test_pieces_of_a_stored_answer_are_dropped() -> None:
    """Those that wait, and those that come late."""
    shown = stream()
    hear(shown, delta("Hel"))
    [(name, data)] = hear(shown, answer("Hello."))
    hear(shown, delta("lo."))

    assert name == "message" and "Hello." in data["items"][0]["html"]
    assert shown.due_at is None and list(shown.render(now=1)) == []


def test_what_the_page_has_is_not_sent_again() -> None:
    shown = RunStream(RUN, "Ada", after=3)

    assert hear(shown, answer("old", seq=3)) == []
    assert [name for name, _ in hear(shown, answer("new", seq=4))] == ["message"]


def test_what_was_shown_of_an_answer_that_does_not_come_is_void() -> None:
    """A step that is made again, a failure, a stop."""
    for event, kinds in (
        (StepAbandoned(StepId("step-1")), ["void"]),
        (RunEnded(RUN, "error", NO_USAGE, 1, Failure(kind="llm_error", message="it is down")), ["void", "message"]),
        (RunEnded(RUN, "cancelled", NO_USAGE, 1), ["void", "message"]),
        (RunEnded(RUN, "end_turn", NO_USAGE, 1), ["void"]),
    ):
        shown = stream()
        hear(shown, delta("Hel"))
        heard = hear(shown, stored(event))
        assert [name for name, _ in heard] == kinds and shown.due_at is None
        if "message" in kinds:
            assert "Try again" in heard[-1][1]["items"][0]["html"]


async def test_a_page_that_comes_late_hears_only_what_it_lacks() -> None:
    async with dashboard(says("Good *morning*.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("hello")
        page = (await client.get(f"/agents/{agent.id}?format=json")).json()
        (run,) = await agent.runs()
        whole = (await client.get(f"/events/runs/{run.id}")).text
        rest = (await client.get(f"/events/runs/{run.id}?after={page['seq']}")).text

    assert "Good <em>morning</em>." in whole and "hello" in whole
    assert "event: message" not in rest and "event: closed" in rest and "id: " not in whole
