"""Replaying a run: its requests again, without the effects of its tools; and exporting it."""

from __future__ import annotations

import pytest

from perdure import AsyncPerdure, Conflict, ModelNotFound
from perdure.core.messages import ToolResult
from perdure.core.models import Model
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, fails, says
from tests.support.library import MODEL, SlowSpeaker

OTHER = "test/other"


async def opened(first: ScriptedModel | SlowSpeaker, other: ScriptedModel | None = None) -> AsyncPerdure:
    """A store in memory with these two models."""
    models: dict[str, Model] = {MODEL: first, OTHER: other or ScriptedModel()}
    return await AsyncPerdure.open(store=InlineStore(), models=models, settings=Settings(model=MODEL, embedding="none"))


EDIT = {"label": "human", "new_string": "Likes tea."}


async def test_a_replay_gives_recorded_results_and_changes_nothing() -> None:
    """The other model gets the result under the call's id, its own words, and another system text."""
    other = ScriptedModel(calls("memory_insert", call_id="theirs", **EDIT), says("So noted."))
    first = ScriptedModel(calls("memory_insert", call_id="ours", **EDIT), says("Noted."))
    async with await opened(first, other) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        run_id = (await agent.send("I like tea")).run_id
        before = (await agent.messages(), await agent.blocks.history("human"))
        replay = await agent.replay(run_id, model=OTHER, system="Be brief.")
        after = (await agent.messages(), await agent.blocks.history("human"))
    call, result = other.requests[1].messages[-2:]

    assert before == after
    assert [(step.old.text, step.new.text if step.new else None) for step in replay.steps] == [
        ("", ""),
        ("Noted.", "So noted."),
    ]
    assert (replay.new_model, replay.end) == (OTHER, "it answered")
    assert [request.system for request in other.requests] == ["Be brief."] * 2
    assert call.calls[0].call_id == "ours"
    assert isinstance(result.parts[0], ToolResult) and result.parts[0].call_id == "ours"
    assert first.requests[1].messages[-1].parts == result.parts


async def test_a_replay_ends_where_the_model_calls_something_else() -> None:
    """It says what was called; nothing runs."""
    other = ScriptedModel(calls("memory_insert", label="human", new_string="Likes coffee."), says("never"))
    first = ScriptedModel(calls("memory_insert", **EDIT), says("Noted."))
    async with await opened(first, other) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        run_id = (await agent.send("I like tea")).run_id
        replay = await agent.replay(run_id, model=OTHER)
        value = (await agent.blocks.get("human")).value

    assert len(replay.steps) == len(other.requests) == 1
    assert "Likes coffee." in replay.end and "no recorded result" in replay.end
    assert value == "Likes tea."


async def test_a_replay_that_fails_says_why() -> None:
    """A model's error is the end; an unknown model is refused."""
    async with await opened(ScriptedModel(says("Hello.")), ScriptedModel(fails("it is down"))) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        run_id = (await agent.send("hi")).run_id
        replay = await agent.replay(run_id, model=OTHER)
        with pytest.raises(ModelNotFound):
            await agent.replay(run_id, model="test/unknown")

    assert replay.steps[0].new is None and "it is down" in replay.end


async def test_an_export_holds_messages_steps_and_requests() -> None:
    """As JSON; the runs of an agent are listed newest first."""
    async with await opened(ScriptedModel(calls("memory_insert", **EDIT), says("Noted."))) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        first = (await agent.send("I like tea")).run_id
        second = (await agent.send("Bye")).run_id
        shape = await agent.export_run(first)
        listed = [run.id for run in await agent.runs()]
        older = [run.id for run in await agent.runs(before=second)]

    assert (listed, older) == ([second, first], [first])
    assert [message["role"] for message in shape["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert [step["index"] for step in shape["steps"]] == [0, 1]
    assert any("I like tea" in str(line) for line in shape["steps"][0]["request"])


async def test_an_export_holds_texts_with_marks_of_other_lines() -> None:
    """Such as U+2028, and a control character before U+0085."""
    said = "one\x00\x85two\u2028three\x0b\x1cfour"
    async with await opened(ScriptedModel(says(said))) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        shape = await agent.export_run((await agent.send(said)).run_id)

    assert said in str([line["parts"] for line in shape["steps"][0]["request"] if "parts" in line][-1][0]["text"])


async def test_a_fork_begins_before_a_message() -> None:
    """What came before it is copied; before the first there is nothing."""
    async with await opened(ScriptedModel()) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        await agent.send("one")
        await agent.send("two")
        asked = [message for message in await agent.messages() if message.role == "user"]
        forks = [await agent.fork_conversation(before=message.id) for message in asked]
        texts = [[row.text for row in await agent.messages(conversation=fork.id)] for fork in forks]

    assert texts == [[], ["one", "OK."]]


async def test_a_run_that_goes_on_is_not_replayed() -> None:
    """It says so."""
    slow = SlowSpeaker("a", "b")
    async with await opened(slow) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        run_id = (await agent.submit("hi")).run.id
        with pytest.raises(Conflict, match="has not ended"):
            await agent.replay(run_id)
        slow.go.set()
