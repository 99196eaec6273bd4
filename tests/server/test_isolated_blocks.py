"""Conversations with blocks of their own in place of their agent's."""

from __future__ import annotations

from typing import Any

from perdure.domain.environment import load_inputs
from perdure.testing import calls, says
from tests.server.routed import MODEL, Routed, new_agent, routed

BLOCKS = [{"label": "persona", "value": "A guide"}, {"label": "human", "value": "Name: Ann"}]
SOURCE = '''def sign(agent_state: "AgentState") -> str:
    """Sign the human block."""
    agent_state.memory.update_block_value("human", "signed")
    return "done"
'''


async def add_agent(server: Routed, **fields: Any) -> Any:
    return await new_agent(server, memory_blocks=BLOCKS, tools=["core_memory_append", "memory"], **fields)


async def begin(server: Routed, agent_id: str, *labels: str) -> Any:
    return await server.post(f"/v1/conversations/?agent_id={agent_id}", {"isolated_block_labels": labels})


async def ask(server: Routed, conversation_id: str, text: str = "hi") -> Any:
    """Send a message; the last request of its run."""
    await server.post(f"/v1/conversations/{conversation_id}/messages", {"input": text, "streaming": False})
    model: Any = server.library.app.ports.models.find(MODEL)
    return model.requests[-1]


async def values(server: Routed, agent_id: str) -> dict[str, str]:
    return {one["label"]: one["value"] for one in await server.get(f"/v1/agents/{agent_id}/core-memory/blocks")}


async def test_its_runs_see_and_edit_copies() -> None:
    """The agent's own blocks, and what other conversations see of them, stay as they are."""
    append = calls("core_memory_append", label="human", content="Likes tea")
    async with routed(append, says("ok"), says("ok"), says("ok")) as server:
        agent = await add_agent(server)
        made = await begin(server, agent["id"], "human", "human")
        other = await begin(server, agent["id"])
        [copy_id] = made["isolated_block_ids"]
        assert other["isolated_block_ids"] == []
        assert copy_id not in [block["id"] for block in agent["memory"]["blocks"]]

        await ask(server, made["id"], "I like tea")
        copy = await server.get(f"/v1/blocks/{copy_id}")
        assert (copy["label"], copy["value"]) == ("human", "Name: Ann\nLikes tea")
        assert await values(server, agent["id"]) == {"persona": "A guide", "human": "Name: Ann"}
        assert (await server.get(f"/v1/conversations/{made['id']}"))["isolated_block_ids"] == [copy_id]
        for conversation, likes in ((made, True), (other, False)):
            listed = await server.get(f"/v1/conversations/{conversation['id']}/messages", order="asc")
            seen = [*listed[:1], *[await server.post(f"/v1/conversations/{conversation['id']}/recompile", {})]]
            context = await server.get(f"/v1/agents/{agent['id']}/context", conversation_id=conversation["id"])
            shown = [seen[0]["content"], seen[1], context["core_memory"]]
            assert [("Likes tea" in text) for text in shown] == [likes] * 3
            assert all(text.count("Name: Ann") == 1 and text.count("A guide") == 1 for text in shown)
            request = await ask(server, conversation["id"])
            assert ("Likes tea" in request.system) is likes

        await server.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/human", {"value": "Name: Ben"})
        await server.patch(f"/v1/agents/{agent['id']}/core-memory/blocks/persona", {"value": "A pilot"})
        text = await server.post(f"/v1/conversations/{made['id']}/recompile", {})
        assert [name in text for name in ("Ann", "Ben", "A guide", "A pilot")] == [True, False, False, True]


async def test_the_memory_tool_works_on_the_copies() -> None:
    """A label that a run removes is gone in its conversation only, and what it creates there again is its own."""
    view = calls("memory", command="view")
    script = [
        *(calls("memory", command="delete", path="/memories/human"), view, says("ok")),
        *(calls("memory", command="create", path="/memories/human", file_text="new"), view, says("ok")),
        *(calls("memory", command="rename", old_path="/memories/human", new_path="/memories/persona"), says("ok")),
        *(calls("memory", command="rename", old_path="/memories/human", new_path="/memories/who"), view, says("ok")),
    ]
    async with routed(*script) as server:
        agent = await add_agent(server)
        made = await begin(server, agent["id"], "human")

        async def results(text: str) -> list[str]:
            answer = await server.post(f"/v1/conversations/{made['id']}/messages", {"input": text, "streaming": False})
            found = [one for one in answer["messages"] if one["message_type"] == "tool_return_message"]
            return [one["tool_return"] for one in found]

        assert "/memories/human" not in (await results("forget"))[-1]
        assert (await server.refused("GET", f"/v1/blocks/{made['isolated_block_ids'][0]}"))[0] == 404
        assert "/memories/human (3 of" in (await results("begin"))[-1]
        assert "persona" in (await results("clash"))[0]
        listed = (await results("rename"))[-1]
        assert ["/memories/who (3 of" in listed, "/memories/human" in listed] == [True, False]
        [own] = (await server.get(f"/v1/conversations/{made['id']}"))["isolated_block_ids"]
        assert (await server.get(f"/v1/blocks/{own}"))["label"] == "who"
        assert await values(server, agent["id"]) == {"persona": "A guide", "human": "Name: Ann"}
        assert len(await server.get("/v1/blocks/")) == len(BLOCKS) + 1


async def test_a_fork_has_copies_of_them_and_a_delete_removes_them() -> None:
    """Whatever happens to the one, the other keeps its own; with the agent all of them go."""
    append = calls("core_memory_append", label="human", content="Likes tea")
    more = calls("core_memory_append", label="human", content="Likes ice")
    async with routed(append, says("ok"), more, says("ok"), says("ok")) as server:
        agent = await add_agent(server)
        made = await begin(server, agent["id"], "human")
        await ask(server, made["id"])
        fork = await server.post(f"/v1/conversations/{made['id']}/fork", None)
        await ask(server, fork["id"])

        [own], [copy] = made["isolated_block_ids"], fork["isolated_block_ids"]
        assert (await server.get(f"/v1/blocks/{own}"))["value"] == "Name: Ann\nLikes tea"
        assert (await server.get(f"/v1/blocks/{copy}"))["value"] == "Name: Ann\nLikes tea\nLikes ice"
        request = await ask(server, made["id"])
        assert not any("memory_delta" in message.text for message in request.messages)

        await server.delete(f"/v1/conversations/{made['id']}")
        assert (await server.refused("GET", f"/v1/blocks/{own}"))[0] == 404
        assert (await server.get(f"/v1/blocks/{copy}"))["label"] == "human"
        await server.delete(f"/v1/agents/{agent['id']}")
        assert (await server.refused("GET", f"/v1/blocks/{copy}"))[0] == 404
        left = await server.get("/v1/blocks/")
        assert sorted(block["label"] for block in left) == ["human", "persona"]


async def test_an_unknown_label_is_refused() -> None:
    """With the labels that there are, and no conversation is made."""
    async with routed() as server:
        agent = await add_agent(server)
        status, detail = await server.refused(
            "POST", "/v1/conversations/", {"isolated_block_labels": ["human", "mood"]}, agent_id=agent["id"]
        )
        assert (status, "mood" in detail, "human" in detail, "persona" in detail) == (404, True, True, True)
        assert await server.get("/v1/conversations/") == []
        assert len(await server.get("/v1/blocks/")) == len(BLOCKS)


async def test_recall_in_a_conversation_finds_its_own() -> None:
    """And not the agent's of the same label."""
    async with routed() as server:
        agent = await add_agent(server)
        made = await begin(server, agent["id"], "human")
        await server.patch(f"/v1/blocks/{made['isolated_block_ids'][0]}", {"value": "Name: Zoe"})
        body = {"query": "Name", "budget_tokens": 500}
        here = await server.post(f"/v1/agents/{agent['id']}/recall", {**body, "conversation_id": made["id"]})
        anywhere = await server.post(f"/v1/agents/{agent['id']}/recall", body)
        assert ["Zoe" in here["text"], "Ann" in here["text"]] == [True, False]
        assert ["Zoe" in anywhere["text"], "Ann" in anywhere["text"]] == [False, True]


async def test_custom_tools_are_given_them() -> None:
    """`agent_state` of a call in the conversation has its own blocks."""
    async with routed() as server:
        tool = await server.post("/v1/tools/", {"source_code": SOURCE})
        agent = await add_agent(server)
        made = await begin(server, agent["id"], "human")
        app = server.library.app

        async def shown(conversation_id: Any) -> list[str]:
            cipher = app.ports.cipher
            inputs = await app.store.read(load_inputs, tool["id"], agent["id"], conversation_id, cipher=cipher)
            return [block.id for block in inputs.blocks]

        persona, human = [block["id"] for block in agent["memory"]["blocks"]]
        assert await shown(None) == [persona, human]
        assert await shown(made["id"]) == [persona, *made["isolated_block_ids"]]
