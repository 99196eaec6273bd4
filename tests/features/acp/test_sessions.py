"""Sessions: listed, loaded, forked, closed, with their folder, title, model and commands; and calls left waiting."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import acp
import pytest
from acp import schema

from perdure import tool
from perdure.core.ids import ConversationId
from perdure.testing import ScriptedModel, calls, says
from tests.features.acp.editors import PIXEL, connected, until
from tests.support.library import SlowSpeaker, open_async


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


async def test_sessions_are_listed_newest_first_with_folder_and_title(tmp_path: Path) -> None:
    """A folder selects those that were begun there; the chat of the terminal comes last, archived ones not at all."""
    async with connected(tmp_path / "a.db") as desk:
        await desk.agent.send("from a terminal")
        first, second, third = [await desk.begin(cwd) for cwd in ("/home/a", "/home/b", "/home/b")]
        for session in (first, second, third):
            await desk.say(session, f"about {session}")
        await desk.agent.update_conversation(ConversationId(third), archived=True)
        listed = (await desk.connection.list_sessions()).sessions
        there = (await desk.connection.list_sessions(cwd="/home/a/")).sessions

        assert [one.session_id for one in listed][:2] == [second, first]
        assert [(one.cwd, one.title) for one in listed[:2]] == [
            ("/home/b", f"about {second}"),
            ("/home/a", f"about {first}"),
        ]
        assert listed[2].cwd == str(Path.home())
        assert len(listed) == 3
        assert [one.session_id for one in there] == [first]


async def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    """Each session stands on one of them."""
    async with connected(tmp_path / "a.db") as desk:
        begun = [await desk.begin() for _ in range(60)]
        first = await desk.connection.list_sessions()
        second = await desk.connection.list_sessions(cursor=first.next_cursor)

        assert len(first.sessions) == 50
        assert second.next_cursor is None
        assert {one.session_id for one in (*first.sessions, *second.sessions)} == {*begun}


async def test_a_call_that_was_left_waiting_is_asked_about_after_a_reload(tmp_path: Path) -> None:
    """Before the next message, which is then answered too; its result is shown in its place."""
    path = tmp_path / "a.db"
    async with connected(path, calls("pay", n=1), tools=[pay], asks="pay", choices=[None]) as desk:
        session = await desk.begin()
        left = asyncio.create_task(desk.say(session, "pay one"))
        await desk.editor.asked.wait()
    with pytest.raises(ConnectionError):
        await left
    script = (says("Paid it."), says("Hello again."))
    async with connected(path, *script, tools=[pay], choices=["allow_once"]) as desk:
        await desk.connection.load_session(cwd="/", session_id=session, mcp_servers=[])
        before = desk.editor.calls()

        assert before == [("pay", "pending")]
        assert await desk.say(session, "hello") == "end_turn"
        assert desk.editor.calls()[-1] == ("pay", "completed")
        assert {one.tool_call_id for one in desk.editor.of(schema.ToolCallProgress)} == {
            desk.editor.of(schema.ToolCallStart)[0].tool_call_id
        }
        assert desk.editor.texts(session) == "Paid it.Hello again."


async def test_an_editor_that_dies_in_an_answer_loses_nothing(tmp_path: Path) -> None:
    """The message is stored, and the next process answers it."""
    path, model = tmp_path / "a.db", SlowSpeaker("half ", "whole")
    async with connected(path, model=model) as desk:
        session = await desk.begin()
        left = asyncio.create_task(desk.say(session, "hello?"))
        await desk.editor.shown.wait()
        desk.writer.transport.abort()
    with pytest.raises(ConnectionError):
        await left
    async with await open_async(path, says("Here it is.")) as perdure:
        agent = await perdure.last_agent()
        assert agent is not None
        (run,) = await agent.runs(conversation=ConversationId(session))
        async for _ in agent.follow(run.id):
            pass
        texts = [message.text for message in await agent.messages(conversation=ConversationId(session))]

        assert texts == ["hello?", "Here it is."]


async def test_resumed_a_session_is_not_shown_again(tmp_path: Path) -> None:
    """It has its history all the same."""
    model = ScriptedModel()
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        await desk.say(session, "I am Ada.")
        await desk.connection.close_session(session_id=session)
        desk.editor.updates.clear()
        with pytest.raises(acp.RequestError, match="begin or load one first"):
            await desk.say(session, "closed")
        await desk.connection.resume_session(cwd="/", session_id=session)

        assert await desk.say(session, "who?") == "end_turn"
        assert desk.editor.texts(session) == "OK."
        assert "I am Ada." in [message.text for message in model.requests[-1].messages]


async def test_closing_a_session_ends_its_answer(tmp_path: Path) -> None:
    """With `cancelled`."""
    async with connected(tmp_path / "a.db", model=SlowSpeaker("a", "b")) as desk:
        session = await desk.begin()
        speaking = asyncio.create_task(desk.say(session, "hello"))
        await desk.editor.shown.wait()
        await desk.connection.close_session(session_id=session)

        assert await speaking == "cancelled"


async def test_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    """With what was said before, under the title of the first."""
    model = ScriptedModel()
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        await desk.say(session, "I am Ada.")
        fork = (await desk.connection.fork_session(cwd="/home/fork", session_id=session)).session_id
        await desk.say(fork, "in the fork")
        await desk.say(session, "in the first")

        texts = [message.text for message in model.requests[-1].messages]
        assert "I am Ada." in [message.text for message in model.requests[-2].messages]
        assert "in the fork" not in texts
        listed = {one.session_id: one for one in (await desk.connection.list_sessions()).sessions}
        assert (listed[fork].cwd, listed[fork].title) == ("/home/fork", "I am Ada.")


async def test_commands_of_the_chat_are_offered_and_run(tmp_path: Path) -> None:
    """No model is asked; a path at the start of a message is no command."""
    model = ScriptedModel()
    async with connected(tmp_path / "a.db", model=model) as desk:
        await desk.agent.blocks.update("human", "Name: Ada")
        session = await desk.begin()
        await until(lambda: bool(desk.editor.of(schema.AvailableCommandsUpdate)))
        (offered,) = desk.editor.of(schema.AvailableCommandsUpdate)

        assert {"memory", "search", "remember"} <= {one.name for one in offered.available_commands}
        assert await desk.say(session, "/memory human") == "end_turn"
        assert "Name: Ada" in desk.editor.texts(session)
        assert model.requests == []
        with pytest.raises(acp.RequestError, match="/search TEXT"):
            await desk.say(session, "/search")
        await desk.say(session, "/tmp/a.txt is empty")
        assert len(model.requests) == 1


async def test_a_command_may_end_with_a_new_line(tmp_path: Path) -> None:
    """Or begin behind one, as an editor sends what a person typed; an image makes a message of it, which has no use in
    a command."""
    model = ScriptedModel(says("A pixel."))
    async with connected(tmp_path / "a.db", model=model) as desk:
        await desk.agent.blocks.update("human", "Name: Ada")
        session = await desk.begin()
        for text in ("/memory\n", " /memory  ", "\n/memory\n human \n"):
            shown = len(desk.editor.texts(session))

            assert await desk.say(session, text) == "end_turn"
            assert "Name: Ada" in desk.editor.texts(session)[shown:], text
        assert model.requests == []
        image = acp.image_block(base64.b64encode(PIXEL).decode(), "image/png")
        await desk.connection.prompt(session_id=session, prompt=[acp.text_block("/memory"), image])
        assert len(model.requests) == 1


async def test_a_long_folder_is_kept_whole(tmp_path: Path) -> None:
    """One that is longer than any is refused, and begins no conversation."""
    folder = "/home/" + "/".join(["folder"] * 500)
    async with connected(tmp_path / "a.db") as desk:
        session = await desk.begin(folder)
        with pytest.raises(acp.RequestError, match="cwd has 30,001 characters") as error:
            await desk.begin("/" + "x" * 30_000)
        with pytest.raises(acp.RequestError, match="cwd has 30,001 characters"):
            await desk.connection.fork_session(cwd="/" + "x" * 30_000, session_id=session)

        assert error.value.code == -32602
        (listed,) = (await desk.connection.list_sessions(cwd=folder)).sessions
        assert (listed.session_id, listed.cwd) == (session, folder)
        assert len((await desk.connection.list_sessions()).sessions) == 1


async def test_mcp_servers_of_the_editor_are_named_as_not_connected(tmp_path: Path) -> None:
    """The session begins without them."""
    async with connected(tmp_path / "a.db") as desk:
        server = schema.McpServerStdio(name="files", command="/bin/false", args=[], env=[])
        await desk.connection.new_session(cwd="/", mcp_servers=[server])

        assert desk.notes == [
            "the editor's MCP servers are not connected (files): `perdure mcp add` gives an agent one"
        ]
