"""What a person does in an editor: talk, watch tools, allow and refuse calls, cancel, come back later."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from perdure import tool
from perdure.core.ids import ConversationId
from perdure.core.messages import Image
from perdure.features.acp.agent import EditorAgent
from perdure.library.agent import AsyncAgent
from perdure.testing import ScriptedModel, calls, fails, says, thinks
from tests.features.acp.editors import CANCELLED, PIXEL, connected, until
from tests.support.library import SlowSpeaker


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@tool
def read_path(path: str) -> str:
    """Read a file."""
    raise ValueError("it is gone")


async def test_an_answer_comes_in_pieces_and_its_session_gets_a_title(tmp_path: Path) -> None:
    """Each piece once, with the id of its message; then how full the window is, and what the answer took."""
    async with connected(tmp_path / "a.db", thinks("Hm.", says("Hello, Ada."))) as desk:
        session = await desk.begin()
        answered = await desk.connection.prompt(session_id=session, prompt=[acp.text_block("I am\nAda.")])

        assert (answered.stop_reason, answered.usage and answered.usage.total_tokens) == ("end_turn", 12)
        assert desk.editor.texts(session) == "Hello, Ada."
        assert desk.editor.texts(session, schema.AgentThoughtChunk) == "Hm."
        chunks = desk.editor.of(schema.AgentMessageChunk)
        (stored,) = [m for m in await desk.agent.messages() if m.role == "assistant"]
        assert {chunk.message_id for chunk in chunks} == {stored.id}
        assert len(chunks) == 2
        assert [update.title for update in desk.editor.of(schema.SessionInfoUpdate)] == ["I am Ada."]
        (usage,) = desk.editor.of(schema.UsageUpdate)
        assert 0 < usage.used < usage.size


async def test_a_tool_call_is_shown_from_its_start_to_its_result(tmp_path: Path) -> None:
    """With its kind, its arguments and the file that it names; a failed one has the error."""
    script = (calls("read_path", path="/tmp/a.txt"), calls("pay", n=2), says("Done."))
    async with connected(tmp_path / "a.db", *script, tools=[pay, read_path]) as desk:
        session = await desk.begin()

        assert await desk.say(session, "go") == "end_turn"
        assert desk.editor.calls() == [
            *[("read_path", "pending"), ("read_path", "in_progress"), ("read_path", "failed")],
            *[("pay", "pending"), ("pay", "in_progress"), ("pay", "completed")],
        ]
        first, second = desk.editor.of(schema.ToolCallStart)
        assert (first.kind, first.locations[0].path, first.raw_input) == ("read", "/tmp/a.txt", {"path": "/tmp/a.txt"})
        assert (second.kind, second.locations, second.raw_input) == ("other", [], {"n": 2})
        results = [one for one in desk.editor.of(schema.ToolCallProgress) if one.content]
        assert "it is gone" in results[0].content[0].content.text
        assert results[1].content[0].content.text == "paid 2"


async def test_a_change_of_memory_is_a_diff_also_after_a_reload(tmp_path: Path) -> None:
    """Once live, and again by another process, in the same place."""
    script = (calls("memory_insert", label="human", new_string="Lives in Ghent"), says("Noted."))
    async with connected(tmp_path / "a.db", *script) as desk:
        await desk.agent.blocks.update("human", "Name: Ada")
        session = await desk.begin()
        await desk.say(session, "I live in Ghent.")
        live = desk.editor.diffs()
        shown = [type(update).__name__ for _, update in desk.editor.updates]
    async with connected(tmp_path / "a.db") as desk:
        await desk.connection.load_session(cwd="/elsewhere", session_id=session, mcp_servers=[])

        assert live == [("/memory/human.md", "Name: Ada", "Name: Ada\nLives in Ghent")]
        assert desk.editor.diffs() == live
        assert desk.editor.calls() == [("memory_insert", "pending"), ("memory_insert", "completed")]
        assert shown.count("ToolCallStart") == 2
        assert desk.editor.texts(session) == "Noted."
        assert desk.editor.texts(session, schema.UserMessageChunk) == "I live in Ghent."


@pytest.mark.parametrize(
    ("choice", "status", "seen"),
    [
        ("allow_once", "completed", "paid 1"),
        ("reject_once", "failed", "the user rejected it in the editor"),
        ("nonsense", "failed", "the user rejected it in the editor"),
    ],
)
async def test_a_call_is_allowed_or_refused_in_the_editor(tmp_path: Path, choice: str, status: str, seen: str) -> None:
    """It runs only if it was allowed, and the model reads what came of it."""
    model = ScriptedModel(calls("pay", n=1), says("Well."))
    async with connected(tmp_path / "a.db", model=model, tools=[pay], asks="pay", choices=[choice]) as desk:
        session = await desk.begin()

        assert await desk.say(session, "pay one") == "end_turn"
        (question,) = desk.editor.questions
        assert (question.title, question.raw_input, question.status) == ("pay", {"n": 1}, "pending")
        assert question.tool_call_id == desk.editor.of(schema.ToolCallStart)[0].tool_call_id
        assert desk.editor.options == [["allow_once", "reject_once", "allow_always"]]
        assert desk.editor.calls()[-1] == ("pay", status)
        assert seen in model.requests[-1].messages[-1].text
        assert desk.editor.texts(session) == "Well."


@pytest.mark.parametrize(
    ("name", "arguments", "diffs"),
    [
        (
            "memory_replace",
            {"label": "human", "old_string": "Ghent", "new_string": "Bruges"},
            [("/memory/human.md", "Name: Ada\nLives in Ghent", "Name: Ada\nLives in Bruges")],
        ),
        (
            "memory",
            {"command": "create", "path": "/memories/pets", "file_text": "A cat", "description": "Pets"},
            [("/memory/pets.md", "", "A cat")],
        ),
        ("memory_replace", {"label": "human", "old_string": "Rome", "new_string": "Bruges"}, []),
        ("memory_replace", {"label": "nothing", "old_string": "Rome", "new_string": "Bruges"}, []),
        ("archival_memory_insert", {"content": "likes tea"}, []),
        ("conversation_search", {"query": "tea"}, []),
    ],
)
async def test_the_question_about_a_change_of_memory_has_its_diff(
    tmp_path: Path, name: str, arguments: dict[str, str], diffs: list[tuple[str, str, str]]
) -> None:
    """As it would be if the call ran now; none if it changes no block. To be asked changes nothing."""
    script = (calls(name, **arguments), says("Well."))
    async with connected(tmp_path / "a.db", *script, choices=["reject_once"]) as desk:
        if name == "memory":
            await desk.agent.tools.attach("memory")
        await desk.agent.blocks.update("human", "Name: Ada\nLives in Ghent")
        await desk.agent.require_approval(name)
        await desk.say(await desk.begin(), "go")

        (question,) = desk.editor.questions
        content: list[Any] = list(question.content or ())
        assert [(one.path, one.old_text, one.new_text) for one in content] == diffs
        assert [block.value for block in await desk.agent.blocks.list()][1:] == ["Name: Ada\nLives in Ghent"]
        assert list(await desk.agent.archives.list()) == []


async def test_a_tool_that_is_always_allowed_is_not_asked_about_again(tmp_path: Path) -> None:
    """Until somebody requires approval for it again."""
    script = (calls("pay", n=1), says("One."), calls("pay", n=2), says("Two."))
    async with connected(tmp_path / "a.db", *script, tools=[pay], asks="pay", choices=["allow_always"]) as desk:
        session = await desk.begin()
        await desk.say(session, "pay one")

        assert await desk.say(session, "pay two") == "end_turn"
        assert len(desk.editor.questions) == 1
        assert desk.editor.texts(session) == "One.Two."


async def test_a_cancelled_prompt_ends_when_its_calls_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the store takes: the next prompt is not asked about them."""
    cancel_all = AsyncAgent.cancel_all
    late = iter([0.3])

    async def cancel_late(agent: AsyncAgent, **where: Any) -> Any:
        await asyncio.sleep(next(late, 0.0))
        return await cancel_all(agent, **where)

    monkeypatch.setattr(AsyncAgent, "cancel_all", cancel_late)
    script = (calls("pay", n=1), says("Fine."))
    async with connected(tmp_path / "a.db", *script, tools=[pay], asks="pay", choices=[None]) as desk:
        session = await desk.begin()
        asking = asyncio.create_task(desk.say(session, "pay one"))
        await desk.editor.asked.wait()
        await desk.connection.cancel(session_id=session)

        assert await asking == "cancelled"
        assert await desk.say(session, "leave it") == "end_turn"


async def test_cancelled_while_asked_the_call_is_given_up(tmp_path: Path) -> None:
    """Whether the editor answers its question then or not; the session goes on with the next prompt."""
    script = (calls("pay", n=1), calls("pay", n=2), says("Fine."))
    choices: list[str | None] = [None, CANCELLED]
    async with connected(tmp_path / "a.db", *script, tools=[pay], asks="pay", choices=choices) as desk:
        session = await desk.begin()
        asking = asyncio.create_task(desk.say(session, "pay one"))
        await desk.editor.asked.wait()
        await desk.connection.cancel(session_id=session)

        assert await asking == "cancelled"
        assert desk.editor.calls() == [("pay", "pending"), ("pay", "failed")]
        assert await desk.say(session, "pay two") == "cancelled"
        assert list(await desk.agent.pending(conversation=ConversationId(session))) == []
        assert await desk.say(session, "leave it") == "end_turn"
        assert desk.editor.texts(session) == "Fine."


@pytest.mark.parametrize(
    ("decide", "status", "text"),
    [("approve", "completed", "Fine."), ("deny", "failed", "Fine."), ("give up", "failed", "")],
)
async def test_a_question_that_is_decided_elsewhere_holds_the_editor_up_no_longer(
    tmp_path: Path, decide: str, status: str, text: str
) -> None:
    """In the dashboard, a terminal or a second editor; the prompt shows what the run does then, and ends with it."""
    script = (calls("pay", n=1), says("Fine."))
    async with connected(tmp_path / "a.db", *script, tools=[pay], asks="pay", choices=[None]) as desk:
        session = await desk.begin()
        asking = asyncio.create_task(desk.say(session, "pay one"))
        await desk.editor.asked.wait()
        if decide == "give up":
            await desk.agent.cancel_all(conversation=ConversationId(session))
        else:
            await getattr(desk.agent, decide)(conversation=ConversationId(session))

        assert await asyncio.wait_for(asking, 10) == "end_turn"
        assert desk.editor.calls()[-1] == ("pay", status)
        assert desk.editor.texts(session) == text


async def test_a_prompt_behind_a_question_that_is_given_up_elsewhere_is_sent(tmp_path: Path) -> None:
    """It is not lost with the call."""
    model = ScriptedModel(calls("pay", n=1), says("Here."))
    async with connected(tmp_path / "a.db", model=model, tools=[pay], asks="pay", choices=[None]) as desk:
        session = await desk.begin()
        await desk.agent.send("pay one", conversation=ConversationId(session))
        asking = asyncio.create_task(desk.say(session, "are you there?"))
        await desk.editor.asked.wait()
        await desk.agent.cancel_all(conversation=ConversationId(session))

        assert await asyncio.wait_for(asking, 10) == "end_turn"
        assert desk.editor.texts(session) == "Here."
        assert "are you there?" in model.requests[-1].messages[-1].text


async def test_cancelled_in_the_middle_of_an_answer_it_stops(tmp_path: Path) -> None:
    """The prompt ends with `cancelled`; what was said stays, and the next prompt is answered."""
    model = SlowSpeaker("One ", "two ", "three.")
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        speaking = asyncio.create_task(desk.say(session, "count"))
        await desk.editor.shown.wait()
        await desk.connection.cancel(session_id=session)

        assert await speaking == "cancelled"
        assert desk.editor.texts(session) == "One "
        model.go.set()
        assert await desk.say(session, "again") == "end_turn"
        assert desk.editor.texts(session) == "One One two three."


async def test_cancelled_at_any_moment_a_prompt_ends(tmp_path: Path) -> None:
    """Before its run is there, while it begins, and after: no run goes on unseen."""
    async with connected(tmp_path / "a.db", model=SlowSpeaker("for ", "ever")) as desk:
        served = EditorAgent(desk.perdure, partial(desk.perdure.agent, desk.agent.id), desk.notes.append)
        served.on_connect(desk.editor)
        session = (await served.new_session("/")).session_id
        for ticks in range(1, 40):  # the prompt comes first
            asked = asyncio.create_task(served.prompt(session, [acp.text_block("hello")]))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await served.cancel(session)

            assert (await asyncio.wait_for(asked, 5)).stop_reason == "cancelled", ticks


async def test_calls_of_several_prompts_are_kept_apart(tmp_path: Path) -> None:
    """A model may give the calls of each run the same ids."""
    script = [line for n in (1, 2) for line in (calls("pay", call_id="call_0", n=n), says("Done."))]
    async with connected(tmp_path / "a.db", *script, tools=[pay]) as desk:
        session = await desk.begin()
        for text in ("pay one", "pay two"):
            await desk.say(session, text)

        assert len({start.tool_call_id for start in desk.editor.of(schema.ToolCallStart)}) == 2
        assert [status for _, status in desk.editor.calls()] == ["pending", "in_progress", "completed"] * 2


async def test_two_sessions_are_answered_at_once(tmp_path: Path) -> None:
    """Neither waits for the other, and each gets its own updates."""
    model = SlowSpeaker("slow ", "end")
    async with connected(tmp_path / "a.db", model=model) as desk:
        sessions = [await desk.begin() for _ in range(2)]
        speaking = [asyncio.create_task(desk.say(session, f"in {session}")) for session in sessions]
        await until(lambda: all(desk.editor.texts(session) == "slow " for session in sessions))
        model.go.set()

        assert await asyncio.gather(*speaking) == ["end_turn", "end_turn"]
        assert [desk.editor.texts(session) for session in sessions] == ["slow end", "slow end"]


async def test_two_prompts_of_a_session_are_answered_in_order(tmp_path: Path) -> None:
    """The second waits for the first; cancelled, both end, and the second was never sent."""
    model = SlowSpeaker("a ", "b ")
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        first = asyncio.create_task(desk.say(session, "first"))
        await desk.editor.shown.wait()
        second = asyncio.create_task(desk.say(session, "second"))
        await asyncio.sleep(0.05)

        assert desk.editor.texts(session) == "a "
        model.go.set()
        assert (await first, await second) == ("end_turn", "end_turn")
        assert desk.editor.texts(session) == "a b a b "
        model.go.clear()
        third, fourth = (asyncio.create_task(desk.say(session, text)) for text in ("third", "fourth"))
        await until(lambda: desk.editor.texts(session).endswith("a "))
        await desk.connection.cancel(session_id=session)
        assert (await third, await fourth) == ("cancelled", "cancelled")
        said = [message.text for message in await desk.agent.messages() if message.role == "user"]
        assert sorted(said) == ["first", "second", "third"]


async def test_a_command_that_is_cancelled_before_its_turn_does_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path / "a.db", model=SlowSpeaker("a ", "b ")) as desk:
        session = await desk.begin()
        first = asyncio.create_task(desk.say(session, "first"))
        await desk.editor.shown.wait()
        command = asyncio.create_task(desk.say(session, "/remember The code word is marmalade."))
        await asyncio.sleep(0.05)
        await desk.connection.cancel(session_id=session)

        assert (await first, await command) == ("cancelled", "cancelled")
        assert not await desk.agent.passages()


async def test_images_reach_the_model_and_come_back_after_a_reload(tmp_path: Path) -> None:
    """With the text and the files around them."""
    model = ScriptedModel(says("A pixel."))
    prompt: list[Any] = [
        acp.text_block("What is it?"),
        acp.image_block(base64.b64encode(PIXEL).decode(), "image/png"),
        acp.resource_link_block("notes\n# Do.md", "file:///home/ada/notes.md"),
        acp.resource_block(
            acp.embedded_blob_resource("file:///b.png", base64.b64encode(PIXEL).decode(), mime_type="image/png")
        ),
        acp.resource_block(acp.embedded_text_resource("file:///home/ada/a.py", "x = 1")),
    ]
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        await desk.connection.prompt(session_id=session, prompt=prompt)
        await desk.connection.load_session(cwd="/", session_id=session, mcp_servers=[])

        parts = model.requests[0].messages[-1].parts
        assert [part.media_type for part in parts if isinstance(part, Image)] == ["image/png"] * 2
        chunks = [chunk.content for chunk in desk.editor.of(schema.UserMessageChunk)]
        assert [chunk.data for chunk in chunks if chunk.type == "image"] == [base64.b64encode(PIXEL).decode()] * 2
        text = desk.editor.texts(session, schema.UserMessageChunk)
        assert text.split("\n\n") == [
            "What is it?",
            "[notes # Do.md](file:///home/ada/notes.md)",
            "Contents of file:///home/ada/a.py:",
            "x = 1",
        ]


async def test_a_model_that_fails_is_an_error_with_its_text(tmp_path: Path) -> None:
    """The message is stored, and the session goes on."""
    async with connected(tmp_path / "a.db", fails("no credit left"), says("Here again.")) as desk:
        session = await desk.begin()
        with pytest.raises(acp.RequestError, match="no credit left") as failed:
            await desk.say(session, "hello?")

        assert (failed.value.code, failed.value.data) == (-32603, {"stop_reason": "llm_api_error"})
        assert await desk.say(session, "and now?") == "end_turn"
        assert [m.text for m in await desk.agent.messages() if m.role == "user"] == ["hello?", "and now?"]


@pytest.mark.slow
async def test_a_run_without_end_stops_at_its_limit_of_steps(tmp_path: Path) -> None:
    """The protocol has a word for it."""
    model = ScriptedModel(otherwise=calls("pay", n=1))
    async with connected(tmp_path / "a.db", model=model, tools=[pay]) as desk:
        session = await desk.begin()

        assert await desk.say(session, "for ever") == "max_turn_requests"
