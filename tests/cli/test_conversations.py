"""`/conversations`, `/switch`, `/rename` and `/new NAME` in the chat, and `perdure conversation`."""

from __future__ import annotations

import json
from pathlib import Path

from perdure import Perdure
from perdure.settings import Settings
from tests.support.programs import open_chat, run_inside

SETTINGS = Settings(model="perdure/extractive", embedding="none")
CHANGES = (("rename", "1", "greetings"), ("delete", "1", "--yes"))


async def test_the_chat_switches_between_conversations() -> None:
    """By number; each has its own messages."""
    async with open_chat() as chat:
        await chat.type_lines("first", "/new the trip", "second", "/switch 0", "third", "/switch 1", "fourth")
        first, trip = await chat.agent.conversations()
        texts = [
            [message.text for message in await chat.agent.messages(conversation=line.id) if message.role == "user"]
            for line in (first, trip)
        ]

    assert trip.summary == "the trip"
    assert texts == [["first", "third"], ["second", "fourth"]]
    assert "Conversation 0: first" in chat.out.getvalue()
    assert "Conversation 1: the trip" in chat.out.getvalue()


async def test_the_list_shows_what_each_is_about_and_which_goes_on() -> None:
    """What was said first stands for a name."""
    async with open_chat(person=False, terminal=False) as chat:
        await chat.type_lines("How far is Turin?", "/new", "/conversations", "/rename the trip", "/conversations")
    lines = [line.split() for line in chat.out.getvalue().splitlines()]

    assert ["0", "How", "far", "is", "Turin?"] in [line[:5] for line in lines]
    assert ["▸", "1", "(nothing", "said", "yet)"] in lines
    assert ["▸", "1", "the", "trip"] in lines


async def test_a_conversation_that_is_not_there_leaves_the_chat_where_it_is() -> None:
    async with open_chat() as chat:
        await chat.type_lines("/switch 7", "/switch", "/switch conversation-x", "/rename", "hello")

        assert [message.text for message in await chat.agent.messages()] == ["hello", "OK."]
    assert "'7'" in chat.err.getvalue()
    assert "/switch NUMBER" in chat.err.getvalue()
    assert "/rename NAME" in chat.err.getvalue()


def test_the_command_lists_renames_and_deletes(tmp_path: Path) -> None:
    """Nobody can be asked, so a conversation is only deleted with --yes; the first stays."""
    with Perdure(tmp_path / "perdure.db", settings=SETTINGS) as store:
        agent = store.create_agent("ada")
        agent.send("My name is Ada.")
        agent.send("Hello.", conversation=agent.new_conversation().id)

    renamed = run_inside(tmp_path, "conversation", "rename", "1", "greetings", "ada")
    rows = json.loads(run_inside(tmp_path, "conversation", "list", "--json").stdout)["conversations"]
    refused = [
        run_inside(tmp_path, "conversation", "delete", *arguments)
        for arguments in (("1",), ("0", "ada", "--yes"), ("9", "--yes"))
    ]
    deleted = run_inside(tmp_path, "conversation", "delete", "1", "ada", "--yes")
    left = run_inside(tmp_path, "conversation", "list", "ada").stdout.splitlines()

    assert "greetings" in renamed.stdout
    assert [(row["number"], row["summary"]) for row in rows] == [(0, None), (1, "greetings")]
    assert [row.returncode for row in refused] == [1, 1, 1]
    assert "--yes" in refused[0].stderr
    assert deleted.returncode == 0
    assert [line.split()[:2] for line in left[1:]] == [["▸", "0"]]


def test_where_there_is_nothing_to_change_the_command_says_so(tmp_path: Path) -> None:
    """And makes nothing; a list of none is one."""
    for _ in ("no store", "no agent"):
        changes = [run_inside(tmp_path, "conversation", *arguments) for arguments in CHANGES]
        rows = run_inside(tmp_path, "conversation", "list", "--json")
        chats = [run_inside(tmp_path, "chat", "--conversation", "1", "-p", "Nowhere.")]
        chats.append(run_inside(tmp_path, "chat", "eve", "--new", "--conversation", "1", "-p", "Nowhere."))

        assert [row.returncode for row in changes] == [1, 1]
        assert all("there is no agent yet" in row.stderr for row in changes)
        assert (rows.returncode, json.loads(rows.stdout)) == (0, {"conversations": []})
        assert [row.returncode for row in chats] == [1, 2]
        with Perdure(tmp_path / "perdure.db", settings=SETTINGS) as store:
            assert store.agents() == []


def test_a_chat_goes_on_where_it_is_told_to(tmp_path: Path) -> None:
    """By default in the conversation used last, but for those that are put aside."""
    with Perdure(tmp_path / "perdure.db", settings=SETTINGS) as store:
        agent = store.create_agent("ada")
        agent.send("My name is Ada.")
        aside = agent.new_conversation()
        agent.send("Hello.", conversation=aside.id)
        agent.update_conversation(aside.id, archived=True)

    run_inside(tmp_path, "chat", "ada", "-p", "I live in Turin.")
    run_inside(tmp_path, "chat", "ada", "--conversation", "1", "-p", "I like go.")
    unknown = run_inside(tmp_path, "chat", "ada", "--conversation", "5", "-p", "Nowhere.")

    with Perdure(tmp_path / "perdure.db", settings=SETTINGS) as store:
        agent = store.agent("ada")
        texts = [[m.text for m in agent.messages(conversation=c.id) if m.role == "user"] for c in agent.conversations()]
    assert texts == [["My name is Ada.", "I live in Turin."], ["Hello.", "I like go."]]
    assert unknown.returncode == 1
