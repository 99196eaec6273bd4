"""The system message of a conversation: when it is there, what it says, and when it is renewed."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.models import ModelRequest
from perdure.testing import ScriptedModel, calls, says
from tests.server.routed import MODEL, Routed, new_agent, routed

HUMAN = {"label": "human", "value": "Name: Ann"}
UNKNOWN = "agent-123e4567-e89b-42d3-a456-426614174000"


def requests(server: Routed) -> list[ModelRequest]:
    """What the model was asked."""
    model = server.library.app.ports.models.find(MODEL)
    assert isinstance(model, ScriptedModel)
    return model.requests


async def shown(server: Routed, agent: Any) -> str:
    """The text of the system message of the agent's first conversation."""
    system = (await server.get(f"/v1/agents/{agent['id']}"))["message_ids"][0]
    [message] = await server.get(f"/v1/messages/{system}")
    assert message["message_type"] == "system_message"
    return str(message["content"])


async def test_an_agent_and_each_conversation_begin_with_one() -> None:
    """With blocks, ids and date; first in view, in the lists of both, and by its id."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[HUMAN])
        made = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {})
        [default, other] = await server.get(f"/v1/agents/{agent['id']}/messages", order="asc")
        [of_default] = await server.get(f"/v1/conversations/{agent['id']}/messages")
        [of_other] = await server.get(f"/v1/conversations/{made['id']}/messages")

        assert agent["message_ids"] == [default["id"]]
        assert made["in_context_message_ids"] == [other["id"]]
        [listed] = await server.get("/v1/conversations/", agent_id=agent["id"])
        assert listed["in_context_message_ids"] == [other["id"]]
        assert (of_default, of_other) == (default, other)
        assert [default["message_type"], other["message_type"]] == ["system_message"] * 2
        for message, conversation in ((default, "default"), (other, made["id"])):
            assert await server.get(f"/v1/messages/{message['id']}") == [message]
            for part in (f"- AGENT_ID: {agent['id']}", f"- CONVERSATION_ID: {conversation}", "Name: Ann"):
                assert part in message["content"]
            assert "- System prompt last recompiled: " in message["content"]
            assert message["content"].count(" PM UTC+0000\n") + message["content"].count(" AM UTC+0000\n") == 1


async def test_the_model_is_sent_it_once_and_no_search_finds_it() -> None:
    """Clients see what the model is sent, without the marker; it is no message of a user."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": "a quokka"}], tools=[])
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        [request] = requests(server)
        text = await shown(server, agent)

        head, rule = request.system.split("\n\n<engine_messages>")
        assert text.startswith(f"{head}\n\n<memory_metadata>") and rule
        assert set(text.removeprefix(f"{head}\n\n").splitlines()) < set(request.opening.splitlines())
        assert [message.text for message in request.messages] == ["hello"]
        assert await server.post("/v1/messages/search", {"query": "quokka", "agent_id": agent["id"]}) == []
        assert await server.library.agent_of(agent["id"]).message_count() == 2


async def test_an_edit_by_a_tool_renews_it_while_the_run_keeps_its_prompt() -> None:
    """So does a change by the agent's route; a change of the block alone does not."""
    script = calls("memory_replace", label="human", old_string="Ann", new_string="Anne"), says("Done.")
    async with routed(*script) as server:
        agent = await new_agent(server, memory_blocks=[HUMAN], tools=["memory_replace"])
        before = await shown(server, agent)
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "I am Anne"})

        assert "Name: Ann\n" in before and "Name: Anne\n" in await shown(server, agent)
        first, second = requests(server)
        assert first.system == second.system
        path = f"/v1/agents/{agent['id']}/core-memory/blocks/human"
        await server.patch(path, {"value": "Name: Bea"})
        assert "Name: Bea\n" in await shown(server, agent)
        block = await server.get(path)
        await server.patch(f"/v1/blocks/{block['id']}", {"value": "Name: Cyd"})
        assert "Name: Bea\n" in await shown(server, agent)
        await server.patch(f"/v1/agents/{agent['id']}", {"system": "Be kind."})
        assert (await shown(server, agent)).startswith("Be kind.")
        await server.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/detach/{block['id']}")
        assert "Name: " not in await shown(server, agent)


async def test_it_keeps_the_blocks_of_its_renewal() -> None:
    """Each conversation's own: what others edit later, or what a route changes, comes with its next renewal."""
    script = calls("memory_replace", label="human", old_string="Ann", new_string="Anne"), says("Done.")
    async with routed(*script) as server:
        agent = await new_agent(server, memory_blocks=[HUMAN], tools=["memory_replace"])
        made = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {})
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "I am Anne"})
        block = await server.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")
        await server.patch(f"/v1/blocks/{block['id']}", {"value": "Name: Cyd"})
        await server.patch(f"/v1/blocks/{block['id']}", {"value": "Name: Dee"})
        stored = await server.library.app.ports.store.read(lambda tx: tx.system_messages.list(agent["id"]))
        [other] = await server.get(f"/v1/conversations/{made['id']}/messages")

        assert "Name: Anne\n" in await shown(server, agent)
        assert "Name: Ann\n" in other["content"]
        assert [message.text for message in stored] == ["", ""]  # rendered when they are read
        await server.post(f"/v1/conversations/{made['id']}/recompile", {})
        [other] = await server.get(f"/v1/conversations/{made['id']}/messages")
        assert "Name: Dee\n" in other["content"] and "Name: Anne\n" in await shown(server, agent)


async def test_a_reset_renews_it_under_its_id() -> None:
    """It is what is left in view."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[HUMAN])
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        block = await server.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")
        await server.patch(f"/v1/blocks/{block['id']}", {"value": "Name: Cyd"})
        await server.patch(f"/v1/agents/{agent['id']}/reset-messages")

        assert (await server.get(f"/v1/agents/{agent['id']}"))["message_ids"] == agent["message_ids"]
        assert "Name: Cyd\n" in await shown(server, agent)


@pytest.mark.parametrize("talked", [False, True])
async def test_a_prompt_is_recompiled_for_clients_and_for_the_model(talked: bool) -> None:
    """`dry_run` returns the same text and changes nothing; the next request begins with it, and is otherwise whole."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[HUMAN])
        made = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {})
        if talked:
            await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        block = await server.get(f"/v1/agents/{agent['id']}/core-memory/blocks/human")
        await server.patch(f"/v1/blocks/{block['id']}", {"value": "Name: Cyd"})
        path = f"/v1/agents/{agent['id']}/recompile"
        dry = await server.post(f"{path}?dry_run=true", None)
        unchanged = await shown(server, agent)
        done = await server.post(path, None)

        assert "Name: Cyd\n" in dry and "Name: Ann\n" in unchanged
        assert done == dry == await shown(server, agent)
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "and now?"})
        assert "Name: Cyd\n" in requests(server)[-1].system
        (time,) = (line for line in done.splitlines() if "last recompiled" in line)
        assert done.startswith(requests(server)[-1].system.partition("\n\n<engine_messages>")[0])
        assert (time in requests(server)[-1].opening) or not talked  # without a request there was no prefix to renew
        said = [message.text for message in requests(server)[-1].messages if message.role != "system"]
        assert [text for text in said if "memory_delta" not in text] == ["hello", "OK.", "and now?"][
            0 if talked else 2 :
        ]
        other = await server.post(f"/v1/conversations/{made['id']}/recompile", {})
        assert f"- CONVERSATION_ID: {made['id']}" in other
        default = await server.post("/v1/conversations/default/recompile?dry_run=true", {"agent_id": agent["id"]})
        assert "- CONVERSATION_ID: default" in default
        assert (await server.refused("POST", f"/v1/agents/{UNKNOWN}/recompile"))[0] == 404


async def test_the_time_in_a_prompt_stays_unless_a_new_one_is_wanted() -> None:
    """By `update_timestamp`; the time is that of the agent's zone."""
    async with routed() as server:
        agent = await new_agent(server, timezone="Asia/Tokyo")
        assert " JST+0900\n" in await shown(server, agent)
        before = await server.library.app.ports.store.read(lambda tx: tx.system_messages.find(agent["id"], 0))
        for update, renewed in ((False, False), (True, True)):
            await server.post(f"/v1/agents/{agent['id']}/recompile?update_timestamp={update}", None)
            after = await server.library.app.ports.store.read(lambda tx: tx.system_messages.find(agent["id"], 0))
            assert before is not None and after is not None
            assert (after.compiled_at > before.compiled_at) is renewed
