"""History that took place elsewhere: in order, once only, found by its times, and within the window."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import ConversationBusy, ImportedMessage, InvalidInput, NotFound
from perdure.core.models import ModelRequest
from tests.support.library import SlowSpeaker, open_async, open_sync

THEN = datetime(2023, 5, 7, 9, 0, tzinfo=UTC)
NIGHT = "a walrus\0 and half a \ud83d pair"


def history(count: int, *, about: str = "trains") -> list[tuple[str, str | None, str, datetime]]:
    """A talk of two, a message a minute."""
    return [
        ("user" if n % 2 == 0 else "assistant", "Ada" if n % 2 == 0 else None, f"Message {n} about {about}.", _at(n))
        for n in range(count)
    ]


def _at(minute: int) -> datetime:
    return THEN + timedelta(minutes=minute)


def test_imported_messages_are_history_like_any_other(tmp_path: Path) -> None:
    """In their order, with speakers and times; found by words and by when they were said; the model is shown them."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        result = agent.import_messages(
            [
                ("user", "Ada", "I planted a quince tree.", THEN),
                {"role": "assistant", "content": "Lovely!", "occurred_at": "2023-05-07T11:00:30+02:00", "more": 1},
                ImportedMessage(role="system", text=NIGHT, occurred_at=_at(2), id="third"),
            ]
        )
        messages = agent.messages()

        assert (result.imported, result.skipped, result.out_of_order) == (3, 0, 0)
        assert result.conversation_id == agent.conversations()[0].id
        assert [(one.role, one.name, one.text) for one in messages] == [
            ("user", "Ada", "I planted a quince tree."),
            ("assistant", None, "Lovely!"),
            ("system", None, NIGHT),
        ]
        assert [one.occurred_at for one in messages] == [THEN, THEN + timedelta(seconds=30), _at(2)]
        assert agent.search("quince")[0].message.id == messages[0].id
        assert agent.search("quince", until=_at(-1)) == []
        assert [hit.message.text for hit in agent.search("walrus", since=_at(2))] == [NIGHT]
        step = agent.send("Hello").messages[-1].step_id
        assert step is not None
        shown = agent.request(step)
        assert isinstance(shown, ModelRequest)
        assert [one.text for one in shown.messages][:2] == [one.text for one in messages][:2]
        assert json.loads(shown.messages[2].text)["message"] == NIGHT


def test_the_same_history_is_not_imported_twice(tmp_path: Path) -> None:
    """Also in part, longer than before, and with messages that say the same at the same time; an id tells more."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        same = [("user", None, "Hm.", THEN)] * 3
        first = agent.import_messages([*same, *history(4)])
        again = agent.import_messages([*same, *history(6)])
        texts = [one.text for one in agent.messages()]

        assert (first.imported, first.skipped) == (7, 0)
        assert (again.imported, again.skipped) == (2, 7)
        assert texts == ["Hm."] * 3 + [f"Message {n} about trains." for n in range(6)]

        named: dict[str, Any] = {"role": "user", "occurred_at": THEN, "id": "m1"}
        assert agent.import_messages([{**named, "text": "as it was"}, {**named, "text": "twice"}]).imported == 1
        assert agent.import_messages([{**named, "text": "changed since"}]).skipped == 1
        other = agent.new_conversation()
        assert agent.import_messages(history(4), conversation=other.id).imported == 4


def test_history_that_was_reset_is_told_as_that(tmp_path: Path) -> None:
    """It is there, and out of view: the result says so and what helps; what is new beside it is taken."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        assert agent.import_messages(history(4)).hint == ""
        agent.reset()
        again = agent.import_messages(history(6))
        once_more = agent.import_messages(history(6))
        new = agent.import_messages(history(6), conversation=agent.new_conversation().id)

        assert (again.imported, again.skipped, again.reset) == (2, 4, 4)
        assert again.hint.startswith("4 of the skipped messages were taken out of view by a reset")
        assert (once_more.imported, once_more.skipped, once_more.reset) == (0, 6, 4)
        assert (new.imported, new.reset, new.hint) == (6, 0, "")


def test_the_order_is_that_of_the_list(tmp_path: Path) -> None:
    """Whatever the times say; how many are earlier than one before them is told."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        result = agent.import_messages(
            [("user", None, text, _at(minute)) for text, minute in (("a", 5), ("b", 9), ("c", 7), ("d", 8), ("e", 9))]
        )

        assert [one.text for one in agent.messages()] == ["a", "b", "c", "d", "e"]
        assert result.out_of_order == 2


@pytest.mark.parametrize(
    ("wrong", "error_text"),
    [
        (("user", None, "x"), "3 parts"),
        (("tool", None, "x", THEN), "'tool'"),
        (("user", None, " ", THEN), "not empty"),
        (("user", None, None, THEN), "text is missing"),
        (("user", "", "x", THEN), "name"),
        (("user", None, "x", None), "zone"),
        (("user", None, "x", "2023-05-07T09:00:00"), "without a zone"),
        (("user", None, "x", "yesterday"), "yesterday"),
        (("user", None, "x", "0001-01-01T00:00:00+14:00"), "year 1"),
        (("user", None, "x" * 1_000_001, THEN), "1,000,001"),
        ({"role": "user", "text": "x", "occurred_at": THEN, "id": 5}, "id is 5"),
        ({"text": "x", "occurred_at": THEN}, "role"),
        (5, "5"),
    ],
)
def test_a_message_that_can_t_be_used_is_named(tmp_path: Path, wrong: Any, error_text: str) -> None:
    """By its place and with what is wrong; none of the others was stored."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(InvalidInput, match=r"message 600: ") as refused:
            agent.import_messages([*history(600), wrong])

        assert error_text in str(refused.value)
        assert agent.message_count() == 0
        with pytest.raises(InvalidInput, match="list"):
            agent.import_messages("text")
        with pytest.raises(NotFound):
            agent.import_messages([], conversation=perdure.create_agent().conversations()[0].id)


async def test_nothing_comes_between_a_run_s_messages(tmp_path: Path) -> None:
    """While a run of the conversation is under way, nothing can be imported there."""
    model = SlowSpeaker("a", "b")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        accepted = await agent.submit("Hello")
        await model.speaking.wait()
        with pytest.raises(ConversationBusy):
            await agent.import_messages(history(2))
        model.go.set()
        async for _ in agent.follow(accepted.run.id):
            pass
        assert (await agent.import_messages(history(2))).imported == 2


@pytest.mark.slow
def test_a_long_history_fits_the_window(tmp_path: Path) -> None:
    """Whatever is imported, the next message is answered by one model call within the window, and what left the view
    stands behind handles; what is imported into a conversation that goes on does too."""
    window = 8_000
    with open_sync(tmp_path / "agents.db", context_window_tokens=window) as perdure:
        agent = perdure.create_agent(settings={"context_window_tokens": window})
        agent.send("Hello")
        seen: list[int] = []
        agent.import_messages(history(1_200), progress=seen.append)
        overview = agent.context()
        reply = agent.send("What did we talk about?")

        assert seen == [500, 1_000, 1_200]
        assert reply.step_count == 1
        assert [message.role for message in reply.messages] == ["user", "assistant"]
        assert overview.over_tokens == 0
        assert overview.hidden_messages > 900
        assert 1 <= len(overview.nodes) <= 8
        first = agent.search("Message 3 about trains")[0].message
        assert first.text == "Message 3 about trains."
        assert agent.context().nodes == overview.nodes
