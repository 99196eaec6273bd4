"""What an agent's copy has of its conversations: their messages and settings, and the calls that wait in them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, tool
from perdure.core.conversations import Conversation
from perdure.core.errors import ApprovalPending
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import RequiresApproval
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.server.routed import new_agent, routed

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none", facts="patterns")
APPROVED: dict[str, Any] = {"tool_rules": rules_to_settings([RequiresApproval("pay")])}

done: list[str] = []


@tool
async def pay(n: int = 0) -> str:
    """Pay."""
    done.append(f"pay{n}")
    return f"paid {n}"


@tool
async def look(n: int = 0) -> str:
    """Look."""
    done.append(f"look{n}")
    return "seen"


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield


@contextlib.asynccontextmanager
async def opened(*script: Any) -> AsyncIterator[tuple[AsyncPerdure, ScriptedModel]]:
    model = ScriptedModel(*script, otherwise=says("OK."))
    models = {MODEL: model, "test/other": ScriptedModel(otherwise=says("Other."))}
    store = InlineStore()
    async with await AsyncPerdure.open(store=store, models=models, tools=[pay, look], settings=SETTINGS) as perdure:
        yield perdure, model


@pytest.fixture
async def perdure() -> AsyncIterator[AsyncPerdure]:
    async with opened() as (perdure, _):
        yield perdure


async def copy_of(
    perdure: AsyncPerdure, agent: AsyncAgent, change: Any = lambda document: None, **options: Any
) -> tuple[AsyncAgent, Import]:
    document = json.loads(await export_text(perdure, agent.id))
    change(document)
    work = Import(perdure, read_agent_file(json.dumps(document).encode()), ImportOptions(**options))
    (agent_id,) = await work.run()
    return await perdure.agent(agent_id), work


def _shown(line: Conversation) -> tuple[Any, ...]:
    return line.summary, line.settings, line.archived_at is not None


async def _said(agent: AsyncAgent) -> list[tuple[Any, ...]]:
    """Each conversation with what was said in it."""
    return [
        (*_shown(line), [(one.role, one.text) for one in await agent.messages(conversation=line.id)])
        for line in await agent.conversations()
    ]


async def test_a_copy_has_all_conversations(perdure: AsyncPerdure) -> None:
    """With their messages, names, own models and order; the facts of all of them are read already."""
    agent = await perdure.create_agent("ada", human="Likes tea.")
    await agent.send("I live in Oslo.")
    for number, text in enumerate(("I like figs.", "I work at Norvik.", "I have gout.")):
        line = await agent.new_conversation(summary=f"talk {number}", isolated_blocks=["human"] * (number == 1))
        await agent.send(text, conversation=line.id)
        if number == 0:
            changes: Any = {"model": "test/other", "options": {"temperature": 0.3}, "description": "of figs"}
            await agent.change_conversation(line.id, changes)
        if number == 1:
            (own,) = await agent.isolated_blocks(line.id)
            await perdure.blocks.edit(own.id, {"value": "Likes coffee."})
        if number == 2:
            await agent.change_conversation(line.id, {"archived": True})
    await agent.facts.extract()
    one, _ = await copy_of(perdure, agent)
    other, _ = await copy_of(perdure, one)

    assert await _said(one) == await _said(other) == await _said(agent)
    lines = await one.conversations()
    assert [block.value for block in await one.isolated_blocks(lines[2].id)] == ["Likes coffee."]
    assert (await one.blocks.get("human")).value == "Likes tea."
    assert (await one.send("Hi.", conversation=lines[1].id)).text == "Other."
    known = sorted(hit.fact.text for hit in await agent.facts.list())
    assert await one.facts.extract() == []
    assert sorted(hit.fact.text for hit in await one.facts.list()) == known


async def test_facts_hang_on_the_messages_of_their_conversation(perdure: AsyncPerdure) -> None:
    """Where one is edited in the copy, what it said is said no more."""
    agent = await perdure.create_agent("ada")
    await agent.send("I live in Oslo.")
    line = await agent.new_conversation()
    await agent.send("I like figs.", conversation=line.id)
    await agent.facts.extract()
    copy, _ = await copy_of(perdure, agent)
    second = (await copy.conversations())[1]
    said = next(one for one in await copy.messages(conversation=second.id) if one.text == "I like figs.")
    await copy.update_message(said.id, "I like tea.")
    await copy.facts.extract()

    assert sorted(hit.fact.text for hit in await copy.facts.list()) == ["User likes tea.", "User lives in Oslo."]


@pytest.mark.parametrize("place", [0, 1])
async def test_a_call_that_waits_is_answered_in_the_copy(place: int) -> None:
    """Also beside a call that needs nobody, in any conversation, in a copy of a copy; the agent waits on."""
    async with opened(calls("pay", ToolCall("", "look", "{}"), n=1)) as (perdure, model):
        agent = await perdure.create_agent("ada", tools=("pay", "look"), settings=APPROVED)
        await agent.new_conversation(summary="other")
        line = (await agent.conversations())[place]
        await agent.send("go", conversation=line.id)
        first, work = await copy_of(perdure, agent)
        copy, _ = await copy_of(perdure, first)
        own = (await copy.conversations())[place]
        (pending,) = await copy.pending(conversation=own.id)
        with pytest.raises(ApprovalPending):
            await copy.send("and?", conversation=own.id)
        reply = await copy.approve(conversation=own.id)

        assert work.warnings == []
        assert (pending.name, pending.arguments) == ("pay", {"n": 1})
        assert reply is not None and (reply.text, reply.stop_reason) == ("OK.", "end_turn")
        assert sorted(done) == ["look0", "pay1"]
        assert [one.name for one in await agent.pending(conversation=line.id)] == ["pay"]
        asked = [result.text for message in model.requests[-1].messages for result in message.results]
        assert sorted(asked) == ["paid 1", "seen"]
        assert await copy.pending(conversation=own.id) == ()
        assert (await copy.send("and now?", conversation=own.id)).text == "OK."


async def test_a_denied_call_of_a_copy_is_not_run() -> None:
    """Of two that wait one is denied in the agent, the other in the copy."""
    async with opened(calls("pay", ToolCall("", "pay", '{"n": 2}'), n=1)) as (perdure, model):
        agent = await perdure.create_agent("ada", tools=("pay",), settings=APPROVED)
        await agent.send("go")
        one, two = await agent.pending()
        await agent.answer([ToolDecision(one.call_id, False, "too much")])
        copy, _ = await copy_of(perdure, agent)
        (waiting,) = await copy.pending()
        reply = await copy.deny(reason="no")

        assert waiting.call_id == two.call_id
        assert reply is not None and reply.text == "OK."
        texts = [result.text for message in model.requests[-1].messages for result in message.results]
        assert [text.partition("reason: ")[2] for text in texts] == ["too much", "no"]
        assert done == []


async def test_a_file_opens_no_call_that_needs_approval_here() -> None:
    """Whatever it says of what a call waits for."""

    def change(document: Any) -> None:
        opened = document["metadata"]["perdure"]["agents"]["agent-0"]["conversations"][0]["open_calls"]
        for one in [*opened.values()][:1]:
            one.update(awaits=None, tool_digest=None)

    async with opened(calls("pay", ToolCall("", "pay", '{"n": 2}'), n=1)) as (perdure, _):
        agent = await perdure.create_agent("ada", tools=("pay",), settings=APPROVED)
        await agent.send("go")
        copy, _ = await copy_of(perdure, agent, change)

        assert len(await copy.pending()) == 2


@pytest.mark.parametrize("how", ["behind", "none waits", "other calls", "no messages"])
async def test_a_call_that_waits_no_more_gets_a_result(how: str) -> None:
    """Where somebody has changed the file, no conversation waits for an answer that nobody can give."""

    def change(document: Any) -> None:
        agent = document["agents"][0]
        own = document["metadata"]["perdure"]["agents"]["agent-0"]["conversations"][0]
        if how == "behind":
            agent["messages"].append({**agent["messages"][1], "id": "message-9"})
        elif how == "none waits":
            for one in own["open_calls"].values():
                one["awaits"] = None
        elif how == "other calls":
            own["open_calls"] = dict(zip("x", own["open_calls"].values(), strict=True))

    async with opened(calls("pay", n=1)) as (perdure, _):
        agent = await perdure.create_agent("ada", tools=("pay",), settings=APPROVED)
        await agent.send("go")
        copy, _ = await copy_of(perdure, agent, change, without_messages=how == "no messages")

        assert await copy.pending() == ()
        assert (await copy.send("and?")).text == "OK."
        assert done == []


async def test_a_model_that_is_not_here_is_said(perdure: AsyncPerdure) -> None:
    agent = await perdure.create_agent("ada")
    line = await agent.new_conversation(summary="of figs")
    await agent.change_conversation(line.id, {"model": "test/other"})

    def change(document: Any) -> None:
        document["metadata"]["perdure"]["agents"]["agent-0"]["conversations"][1]["model"] = "nobody/x"

    copy, work = await copy_of(perdure, agent, change)

    assert (await copy.conversations())[1].settings == {}
    assert [warning for warning in work.warnings if "'of figs' has the agent's model" in warning]


async def test_a_call_that_waits_is_shown_and_answered_over_http() -> None:
    """The copy's agent, lists of messages and runs say that it waits, as those of the agent do."""
    async with routed(calls("pay", n=1), says("Paid."), tools=[pay]) as server:
        made = await new_agent(server, tools=["pay"], tool_rules=[{"type": "requires_approval", "tool_name": "pay"}])
        await server.post(f"/v1/agents/{made['id']}/messages", {"input": "go"})
        file = (await server.letta.agents.export_file(made["id"])).encode()
        (agent_id,) = (await server.letta.agents.import_file(file=("ada.af", file))).agent_ids
        shown: Any = await server.get(f"/v1/agents/{agent_id}", include="agent.pending_approval")
        listed = [one["message_type"] for one in await server.get(f"/v1/agents/{agent_id}/messages", order="asc")]
        (run,) = await server.get("/v1/runs/", agent_id=agent_id)
        decision = {"type": "approval", "approve": True, "approval_request_id": shown["pending_approval"]["id"]}
        answered = await server.post(f"/v1/agents/{agent_id}/messages", {"messages": [decision]})

    assert "approval_request_message" in listed
    assert (run["status"], run["stop_reason"]) == ("completed", "requires_approval")
    assert answered["messages"][-1]["content"] == "Paid."
    assert done == ["pay1"]
