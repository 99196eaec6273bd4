"""Agents whose view is empty at the beginning of each request: `message_buffer_autoclear`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from perdure import AsyncPerdure
from perdure.core.agents import AUTOCLEAR
from perdure.core.events import StoredEvent
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.server.routed import MODEL, Routed, new_agent, routed

BASH = {"name": "Bash", "description": "Run.", "parameters": {"type": "object", "properties": {}}}


def shown(server: Routed) -> list[list[str]]:
    """What was said in each request to the model."""
    model = server.library.app.ports.models.find(MODEL)
    assert isinstance(model, ScriptedModel)
    return [texts(request) for request in model.requests]


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.kind == "message"]


async def test_each_request_begins_with_memory_only() -> None:
    """Its own calls and results stay in view; the history is listed and found; each request is built again the same."""
    edit = calls("memory_insert", label="human", new_string="likes Go")
    async with routed(says("one"), edit, says("two"), says("three")) as server:
        blocks = [{"label": "human", "value": "Ann"}]
        agent = await new_agent(server, message_buffer_autoclear=True, memory_blocks=blocks, tools=["memory_insert"])
        path = f"/v1/agents/{agent['id']}"
        for text in ("The walrus sleeps.", "b", "c"):
            await server.post(f"{path}/messages", {"input": text})

        said = shown(server)
        assert (said[0], said[1], said[3]) == (["The walrus sleeps."], ["b"], ["c"])
        assert (len(said), said[2][0], len(said[2])) == (4, "b", 3)
        model = server.library.app.ports.models.find(MODEL)
        assert isinstance(model, ScriptedModel)
        assert "likes Go" in model.requests[-1].system
        assert {message.kind for message in model.requests[-1].messages} == {"message"}
        listed = await server.get(f"{path}/messages")
        assert [one["content"] for one in listed if one["message_type"] == "user_message"] == [
            *("The walrus sleeps.", "b", "c")
        ]
        ids = (await server.get(path))["message_ids"]
        assert ids == [listed[0]["id"], listed[-2]["id"], listed[-1]["id"]]
        found = await server.post("/v1/messages/search", {"query": "walrus"})
        assert len(found) == 1
        owner = await server.library.agent(agent["id"])
        steps = (await owner.steps())[::-1]
        assert [texts(await owner.request(step.id)) for step in steps] == said

        await server.patch(path, {"message_buffer_autoclear": False})
        await server.post(f"{path}/messages", {"input": "d"})
        assert shown(server)[-1] == ["c", "three", "d"]


async def test_a_request_that_waits_for_an_answer_goes_on_with_its_view() -> None:
    """The answer continues it; only the next message begins anew."""
    async with routed(says("one"), calls("Bash", call_id="p"), says("ran"), says("three")) as server:
        agent = await new_agent(server, message_buffer_autoclear=True)
        path = f"/v1/agents/{agent['id']}/messages"
        await server.post(path, {"input": "a"})
        await server.post(path, {"input": "b", "client_tools": [BASH]})
        assert (await server.refused("POST", path, {"input": "c"}))[0] == 409
        returned = {"type": "tool", "tool_call_id": "p", "tool_return": "files", "status": "success"}
        await server.post(path, {"messages": [{"type": "approval", "approvals": [returned]}]})
        await server.post(path, {"input": "c"})

        assert shown(server) == [["a"], ["b"], ["b", "", "files"], ["c"]]


async def open_library(path: Path, model: ScriptedModel) -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(path), models={MODEL: model}, settings=Settings(model=MODEL))


class Held(ScriptedModel):
    """A model that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.requests.append(request)
        self.arrived.set()
        await asyncio.Event().wait()
        yield says("never")


async def test_a_request_that_another_process_goes_on_with_is_the_same(tmp_path: Path) -> None:
    """The view was emptied once, in the transaction that recorded the request."""
    path, first = tmp_path / "perdure.db", Held()
    async with await open_library(path, ScriptedModel()) as perdure:
        agent_id = (await perdure.create_agent("Ada", settings={AUTOCLEAR: True})).id
        await (await perdure.agent(agent_id)).send("a")
    async with await open_library(path, first) as perdure:
        accepted = await (await perdure.agent(agent_id)).submit("b", background=True)
        await first.arrived.wait()
    second = ScriptedModel()
    async with await open_library(path, second) as perdure:
        agent = await perdure.agent(agent_id)
        events = [one async for one in agent.follow(accepted.run.id)]
        steps = (await agent.steps())[::-1]

        assert isinstance(events[-1], StoredEvent) and events[-1].event.type == "run.ended"
        assert [texts(request) for request in (*first.requests, *second.requests)] == [["b"], ["b"]]
        assert [step.status for step in steps] == ["success", "abandoned", "success"]
        assert [texts(await agent.request(step.id)) for step in steps] == [["a"], ["b"], ["b"]]
