"""Conversations over HTTP: beside each other over one memory, each with its own lists, streams and cancelling."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import letta_client
import pytest

from perdure.core.messages import ToolCall
from perdure.core.models import ModelRequest
from perdure.engine.conversations.reset import MAX_AGE, delete_unused
from perdure.testing import calls, says
from perdure.testing.clock import FakeClock
from tests.server.routed import GPT, MODEL, Routed, keys, new_agent, routed
from tests.support.servers import chunks_of

UNKNOWN = "conv-123e4567-e89b-42d3-a456-426614174000"
BASH = {"name": "Bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}


async def begin(server: Routed, agent_id: str, **body: Any) -> Any:
    return await server.post(f"/v1/conversations/?agent_id={agent_id}", body)


async def test_one_is_made_changed_and_archived() -> None:
    """With the wire's names in their order; what is not given stays, null takes it away."""
    async with routed() as server:
        agent = await new_agent(server)
        made = await begin(server, agent["id"], summary="boats", description="On boats.")
        changed = await server.patch(f"/v1/conversations/{made['id']}", {"archived": True})
        emptied = await server.patch(f"/v1/conversations/{made['id']}", {"summary": None, "archived": False})

        assert list(made)[:12] == [
            *("created_by_id", "last_updated_by_id", "created_at", "updated_at", "id", "agent_id", "summary"),
            *("in_context_message_ids", "isolated_block_ids", "model", "model_settings", "last_message_at"),
        ]
        found = await server.get(f"/v1/conversations/{made['id']}")
        assert keys(found) == keys(made)
        assert (made["summary"], made["description"], made["archived"]) == ("boats", "On boats.", False)
        assert changed["archived"] is True and changed["archived_at"] is not None
        assert (changed["summary"], changed["description"]) == ("boats", "On boats.")
        assert (emptied["summary"], emptied["description"], emptied["archived_at"]) == (None, "On boats.", None)


async def test_lists_page_through_those_that_were_made() -> None:
    """Newest first, of one agent or of all, without archived and hidden ones, nor the agent's first."""
    async with routed() as server:
        agent, other = await new_agent(server), await new_agent(server, "ben")
        made = [await begin(server, agent["id"], summary=f"number {number}") for number in range(3)]
        await begin(server, agent["id"], hidden=True)
        theirs = await begin(server, other["id"])
        await server.patch(f"/v1/conversations/{made[1]['id']}", {"archived": True})

        async def list_ids(**query: Any) -> list[Any]:
            return [one.id for one in await server.letta.conversations.list(**query)]

        one, two, three = [conversation["id"] for conversation in made]
        assert await list_ids() == [theirs["id"], three, one]
        assert await list_ids(agent_id=agent["id"], order="asc") == [one, three]
        assert await list_ids(agent_id=agent["id"], limit=1) == [three]
        assert await list_ids(agent_id=agent["id"], limit=1, after=three) == [one]
        assert await list_ids(archive_status="archived") == [two]
        assert await list_ids(agent_id=agent["id"], archive_status="all", order_by="last_message_at") == [
            three,
            two,
            one,
        ]
        assert await list_ids(summary_search="BER 2") == [three]


async def test_lists_are_sorted_by_the_last_run_that_ended() -> None:
    """Those without any come last, also over several pages, and where all agents' are asked for."""
    async with routed(*[says("hello")] * 3) as server:
        agent, other = await new_agent(server), await new_agent(server, "ben")
        one, two, three = [(await begin(server, agent["id"]))["id"] for _ in range(3)]
        theirs = (await begin(server, other["id"]))["id"]
        for line in (three, theirs, one):
            await server.post(f"/v1/conversations/{line}/messages", {"input": "hi", "streaming": False})

        async def list_ids(**query: Any) -> list[Any]:
            return [one.id for one in await server.letta.conversations.list(order_by="last_run_completion", **query)]

        assert await list_ids() == [one, theirs, three, two]
        assert await list_ids(agent_id=agent["id"], order="asc") == [two, three, one]
        assert await list_ids(agent_id=agent["id"], limit=1, after=one) == [three]
        assert await list_ids(limit=2, after=theirs) == [three, two]


async def test_messages_go_to_one_line_and_are_listed_there() -> None:
    """It streams unless it is told not to; an agent's history has all of them."""
    async with routed(says("one"), says("two"), says("three")) as server:
        agent = await new_agent(server)
        made = await begin(server, agent["id"])
        path = f"/v1/conversations/{made['id']}/messages"
        streamed = await server.http.post(path, json={"input": "a"})
        whole = await server.post(path, {"input": "b", "streaming": False})
        first = await server.post(
            "/v1/conversations/default/messages", {"input": "c", "streaming": False, "agent_id": agent["id"]}
        )

        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert "[DONE]" in streamed.text
        assert [whole["messages"][0]["content"], first["messages"][0]["content"]] == ["two", "three"]
        listed = await server.get(path, order="asc")
        assert [message["content"] for message in listed[1:]] == ["a", "one", "b", "two"]
        for name in ("default", agent["id"]):
            found = await server.get(f"/v1/conversations/{name}/messages", agent_id=agent["id"], order="asc")
            assert [message["content"] for message in found[1:]] == ["c", "three"]
        page = await server.get(path, after=listed[2]["id"], include_return_message_types="user_message")
        assert [message["content"] for message in page] == ["b"]
        assert len(await server.get(f"/v1/agents/{agent['id']}/messages")) == 8
        shown = (await server.get(f"/v1/conversations/{made['id']}"))["in_context_message_ids"]
        assert shown == [message["id"] for message in listed]


async def test_the_agent_s_first_is_changed_under_each_of_its_names() -> None:
    """`default` with the agent in query or body, the agent's id, its own id; it is still in no list."""
    async with routed() as server:
        agent = await new_agent(server)
        asked = {"agent_id": agent["id"]}
        first = (await server.get("/v1/conversations/default", **asked))["id"]
        default = "/v1/conversations/default"
        changed = [
            await server.patch(f"{default}?agent_id={agent['id']}", {"summary": "one"}),
            await server.patch(default, {"description": "two", **asked}),
            await server.patch(f"/v1/conversations/{agent['id']}", {"summary": "three"}),
            await server.patch(f"/v1/conversations/{first}", {"archived": True}),
        ]

        assert {one["id"] for one in changed} == {first}
        told = [(one["summary"], one["description"], one["archived"]) for one in changed]
        assert told == [("one", None, False), ("one", "two", False), ("three", "two", False), ("three", "two", True)]
        assert await server.get("/v1/conversations/", archive_status="all") == []
        nobody = await server.refused("PATCH", default, {"summary": "x"})
        assert nobody == (422, "agent_id: the conversation 'default' needs one")
        kept = await server.refused("DELETE", default, **asked)
        assert (kept[0], "which stays: reset it" in kept[1]) == (422, True)


async def test_calls_that_wait_are_the_line_s_own() -> None:
    """Another one goes on meanwhile; what waits is answered where it waits, or cancelled."""
    bash = calls("Bash", ToolCall("b", "Bash", "{}"), command="ls")
    async with routed(bash, says("hello"), says("seen"), bash) as server:
        agent = await new_agent(server)
        one, two = [(await begin(server, agent["id"]))["id"] for _ in range(2)]
        send = {"input": "go", "client_tools": [BASH], "streaming": False}
        asked = (await server.post(f"/v1/conversations/{one}/messages", send))["messages"][-1]
        other = await server.post(f"/v1/conversations/{two}/messages", {"input": "hi", "streaming": False})
        busy = await server.http.post(f"/v1/conversations/{one}/messages", json=send)
        returned = [
            {"type": "tool", "tool_call_id": call["tool_call_id"], "tool_return": "x", "status": "success"}
            for call in asked["tool_calls"]
        ]
        answer = {"messages": [{"type": "approval", "approvals": returned}], "streaming": False}
        wrong = await server.refused("POST", f"/v1/conversations/{two}/messages", answer)
        seen = await server.post(f"/v1/conversations/{one}/messages", answer)
        await server.post(f"/v1/conversations/{one}/messages", send)
        cancelled = await server.post(f"/v1/conversations/{one}/cancel", None)
        nothing = await server.refused("POST", f"/v1/conversations/{one}/cancel")

        assert other["messages"][-1]["content"] == "hello"
        assert (busy.status_code, busy.json()["detail"]["code"]) == (409, "PENDING_APPROVAL")
        assert wrong[0] == 400
        assert seen["messages"][-1]["content"] == "seen"
        assert list(cancelled.values()) == ["cancelled"]
        assert nothing[0] == 409


async def test_a_background_run_is_streamed_again() -> None:
    """By its id or the otid of its message; without either the newest that is under way, if there is one."""
    async with routed(says("one two")) as server:
        agent = await new_agent(server)
        line, other = [(await begin(server, agent["id"]))["id"] for _ in range(2)]
        body = {"messages": [{"role": "user", "content": "hi", "otid": "o-1"}], "background": True, "streaming": True}
        first = await server.http.post(f"/v1/conversations/{line}/messages", json=body)
        (run,) = await server.get("/v1/runs/", conversation_id=line)
        path = f"/v1/conversations/{line}/stream"
        again = await server.http.post(path, json={"run_id": run["id"], "starting_after": 0})
        by_otid = await server.http.post(path, json={"otid": "o-1"})

        assert "one two" in first.text
        assert "one two" in again.text
        assert [chunk for _, chunk in chunks_of(again.text)][1:] == [chunk for _, chunk in chunks_of(by_otid.text)][1:]
        assert await server.refused("POST", path, {}) == (400, "No active runs found for this conversation.")
        assert (await server.refused("POST", path, {"otid": "o-2"}))[0] == 400
        assert (await server.refused("POST", f"/v1/conversations/{other}/stream", {"run_id": run["id"]}))[0] == 404
        await server.delete(f"/v1/runs/{run['id']}")
        assert (await server.refused("POST", path, {"otid": "o-1"}))[0] == 404


async def test_a_deleted_one_is_gone_with_what_was_said_in_it() -> None:
    """Memory is as it was, and so are other conversations; the agent's first can't be deleted."""
    async with routed(says("a walrus"), says("a seal")) as server:
        agent = await new_agent(server)
        made = await begin(server, agent["id"])
        await server.post(f"/v1/conversations/{made['id']}/messages", {"input": "one", "streaming": False})
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "two"})
        first = (await (await server.library.agent(agent["id"])).find_conversation()).id

        assert await server.delete(f"/v1/conversations/{made['id']}") is None
        assert await server.get("/v1/conversations/") == []
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages"), ("POST", "/cancel")):
            assert (await server.refused(method, f"/v1/conversations/{made['id']}{path}"))[0] == 404
        listed = await server.get(f"/v1/agents/{agent['id']}/messages", order="asc")
        assert [message["content"] for message in listed[1:]] == ["two", "a seal"]
        assert (await server.refused("DELETE", f"/v1/conversations/{first}"))[0] == 422


async def test_an_ephemeral_one_has_a_hidden_agent_that_goes_with_it() -> None:
    """Its agent has the prompt, no blocks and no tools. A fork of it can be deleted without the agent."""
    async with routed(says("hello"), says("again")) as server:
        options = {"provider_type": "openai", "temperature": 0.5}
        body = {"model": MODEL, "system": "Be a lighthouse.", "model_settings": options, "context_window_limit": 9_000}
        made = await server.post("/v1/conversations/ephemeral", body)
        path, agent_path = f"/v1/conversations/{made['id']}", f"/v1/agents/{made['agent_id']}"
        send = {"input": "hi", "streaming": False}
        first, second = [await server.post(f"{path}/messages", send) for _ in range(2)]
        model: Any = server.library.app.ports.models.find(MODEL)
        agent = await server.get(agent_path)
        fork = await server.post(f"{path}/fork", None)

        shown = made["model"], made["model_settings"], made["context_window_limit"]
        assert shown == (MODEL, options, 9_000)
        assert [answer["messages"][0]["content"] for answer in (first, second)] == ["hello", "again"]
        assert (model.requests[-1].options.temperature, model.requests[-1].tools) == (0.5, ())
        assert "Be a lighthouse." in model.requests[-1].system
        assert (agent["hidden"], agent["tools"], agent["blocks"]) == (True, [], [])
        assert [await server.get(f"/v1/{kind}/") for kind in ("agents", "conversations")] == [[], [fork]]

        await server.delete(f"/v1/conversations/{fork['id']}")
        assert (await server.get(path))["id"] == made["id"]
        await server.delete(path)
        assert [(await server.refused("GET", gone))[0] for gone in (path, agent_path)] == [404, 404]


async def test_ephemeral_ones_are_deleted_after_a_day_without_a_message() -> None:
    """With their agents. One that was used since then, and hidden ones of other agents, stay."""
    async with routed(says("hello")) as server:
        agent = await new_agent(server, hidden=True)
        kept = await begin(server, agent["id"], hidden=True)
        body = {"model": MODEL, "system": "Be a lighthouse."}
        unused, used = [await server.post("/v1/conversations/ephemeral", body) for _ in range(2)]
        await server.post(f"/v1/conversations/{used['id']}/messages", {"input": "hi", "streaming": False})
        paths = [f"/v1/conversations/{one['id']}" for one in (unused, used, kept)]

        async def list_found(now: datetime) -> list[bool]:
            await delete_unused(replace(server.library.app.ports, clock=FakeClock(now)))
            return [(await server.http.get(path)).status_code == 200 for path in paths]

        begun = datetime.fromisoformat(unused["created_at"])
        last_used = datetime.fromisoformat((await server.get(paths[1]))["last_message_at"])
        assert begun < last_used
        assert await list_found(begun + MAX_AGE) == [True, True, True]
        assert await list_found(last_used + MAX_AGE) == [False, True, True]
        assert (await server.refused("GET", f"/v1/agents/{unused['agent_id']}"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/conversations/", {}, 422),
        ("POST", "/v1/conversations/?agent_id=agent-123e4567-e89b-42d3-a456-426614174000", {}, 404),
        ("POST", "/v1/conversations/?agent_id={agent}", {"model": "x/y"}, 404),
        ("POST", "/v1/conversations/?agent_id={agent}", {"context_window_limit": 10}, 422),
        ("POST", "/v1/conversations/?agent_id={agent}", {"isolated_block_labels": ["mood"]}, 404),
        ("POST", "/v1/conversations/?agent_id={agent}", {"isolated_block_labels": "mood"}, 422),
        ("POST", "/v1/conversations/ephemeral", {"model": MODEL}, 422),
        ("POST", "/v1/conversations/ephemeral", {"system": "x"}, 422),
        ("POST", "/v1/conversations/ephemeral", {"model": "x/y", "system": "x"}, 404),
        ("GET", "/v1/conversations/nonsense", None, 422),
        ("GET", "/v1/conversations/default", None, 422),
        ("PATCH", "/v1/conversations/default?agent_id=nobody", {"summary": "x"}, 422),
        ("PATCH", "/v1/conversations/nonsense", {"summary": "x"}, 422),
        ("GET", f"/v1/conversations/{UNKNOWN}", None, 404),
        ("GET", f"/v1/conversations/{UNKNOWN}/messages", None, 404),
        ("PATCH", f"/v1/conversations/{UNKNOWN}", {"summary": "x"}, 404),
        ("POST", f"/v1/conversations/{UNKNOWN}/messages", {"input": "x"}, 404),
        ("POST", "/v1/conversations/nonsense/messages", {"input": "x"}, 422),
        ("POST", "/v1/conversations/default/messages", {"input": "x", "agent_id": "nobody"}, 422),
        ("GET", "/v1/conversations/?order_by=mood", None, 422),
    ],
)
async def test_what_is_wrong_is_refused(method: str, path: str, body: Any, status: int) -> None:
    """With the wire's own statuses, and nothing stored."""
    async with routed() as server:
        agent = await new_agent(server)
        answer = await server.http.request(method, path.replace("{agent}", agent["id"]), json=body)
        assert (answer.status_code, "detail" in answer.json()) == (status, True)
        assert ("nonsense" in path) == ("'nonsense'" in str(answer.json()["detail"]))
        assert await server.get("/v1/conversations/") == []


async def test_another_agent_s_conversation_is_not_found_with_a_wrong_owner() -> None:
    """Where a client names both, they have to belong together."""
    async with routed() as server:
        agent, other = await new_agent(server), await new_agent(server, "ben")
        made = await begin(server, agent["id"])
        with pytest.raises(letta_client.NotFoundError):
            await server.letta.conversations.messages.list(made["id"], agent_id=other["id"])


async def test_one_has_a_model_options_and_a_window_of_its_own() -> None:
    """At creation and by a change; null gives back the agent's. Other conversations keep the agent's."""
    async with routed() as server:
        agent = await new_agent(server, model_settings={"provider_type": "openai", "temperature": 0.2})
        options = {"provider_type": "openai", "temperature": 0.9}
        made = await begin(server, agent["id"], model=GPT, model_settings=options, context_window_limit=9_000)
        path = f"/v1/conversations/{made['id']}"
        models: dict[str, Any] = {handle: server.library.app.ports.models.find(handle) for handle in (MODEL, GPT)}

        async def ask(where: str) -> ModelRequest:
            before = {handle: len(model.requests) for handle, model in models.items()}
            await server.post(f"{where}/messages", {"input": "hi", "streaming": False})
            [request] = [model.requests[-1] for handle, model in models.items() if len(model.requests) > before[handle]]
            assert isinstance(request, ModelRequest)
            return request

        def state(shape: Any) -> tuple[Any, ...]:
            return shape["model"], shape["model_settings"], shape["context_window_limit"]

        assert state(made) == state(await server.get(path)) == (GPT, options, 9_000)
        own = await ask(path)
        assert (own.model, own.options.temperature) == (GPT, 0.9)
        context = await server.get(f"/v1/agents/{agent['id']}/context", conversation_id=made["id"])
        assert context["context_window_size_max"] == 9_000
        agents = await ask(f"/v1/agents/{agent['id']}")
        assert (agents.model, agents.options.temperature) == (MODEL, 0.2)
        step = (await server.library.app.ports.store.read(lambda tx: tx.steps.list(agent["id"], conversation_seq=1)))[0]
        assert (await server.library.agent_of(agent["id"]).request(step.id)).options.temperature == 0.9

        changed = await server.patch(path, {"model": None, "model_settings": {"temperature": 0.5}})
        assert state(changed) == (None, {"temperature": 0.5}, 9_000)
        own = await ask(path)
        assert (own.model, own.options.temperature) == (MODEL, 0.5)
        emptied = await server.patch(path, {"model_settings": None, "context_window_limit": None})
        assert state(emptied) == (None, None, None)
        assert (await ask(path)).options.temperature == 0.2
        fork = await server.post(f"{path}/fork", None)
        assert state(fork) == (None, None, None)
