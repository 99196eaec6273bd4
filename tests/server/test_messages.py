"""Saying something over HTTP, and reading the history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import NotFoundError
from letta_client.types.agents import LettaResponse, Message
from pydantic import TypeAdapter

from perdure import AsyncPerdure
from perdure.core.messages import ToolCall
from perdure.testing import FakeClock, ScriptedModel, calls, fails, says, thinks
from tests.server.routed import MODEL, connected, new_agent, routed
from tests.support.library import SlowSpeaker
from tests.support.servers import in_process, letta, served

MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])
UNKNOWN = "agent-123e4567-e89b-42d3-a456-426614174000"


async def history(client: httpx.AsyncClient, agent_id: str, **query: Any) -> list[dict[str, Any]]:
    answered = await client.get(f"/v1/agents/{agent_id}/messages", params=query)
    assert answered.status_code == 200, answered.text
    MESSAGES.validate_python(answered.json())
    return list(answered.json())


async def test_a_reply_has_the_wire_s_shape(tmp_path: Path) -> None:
    """Reasoning, call, return and text in order, without the user's own words; one id, several otids."""
    script = thinks("well", calls("memory_insert", label="human", new_string="Ada")), says("Noted.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "I am Ada"})

        assert answered.status_code == 200
        LettaResponse.model_validate(answered.json())
        reply = answered.json()
        assert list(reply) == ["messages", "stop_reason", "usage", "logprobs", "turns"]
        types = [message["message_type"] for message in reply["messages"]]
        assert types == ["reasoning_message", "tool_call_message", "tool_return_message", "assistant_message"]
        thought, call, returned, said = reply["messages"]
        assert thought["id"] == call["id"] != returned["id"]
        assert thought["otid"] != call["otid"]
        assert call["tool_calls"] == [call["tool_call"]]
        assert returned["tool_returns"][0]["tool_return"] == returned["tool_return"]
        assert (returned["name"], returned["status"]) == ("memory_insert", "success")
        assert said["content"] == "Noted."
        assert said["date"].endswith("+00:00") and "." not in said["date"]
        assert list(said)[:10] == [
            *("id", "date", "name", "message_type", "otid"),
            *("sender_id", "step_id", "is_err", "seq_id", "run_id"),
        ]
        assert reply["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
        assert (reply["usage"]["step_count"], reply["usage"]["total_tokens"]) == (2, 27)
        newest, _ = (await client.get("/v1/steps/", params={"agent_id": agent.id})).json()
        assert reply["usage"]["context_tokens"] == newest["total_tokens"] < 27


async def test_messages_keep_what_they_came_with(tmp_path: Path) -> None:
    """Role, parts, name, otid and sender; the types that are asked for are the only ones."""
    async with in_process(tmp_path, thinks("hm", says("Yes?"))) as (client, perdure):
        agent = await perdure.create_agent()
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        said = [
            {"role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": parts, "name": "ann", "otid": "o-1", "sender_id": "s-1"},
        ]
        answered = await client.post(
            f"/v1/agents/{agent.id}/messages",
            json={"messages": said, "include_return_message_types": ["assistant_message"], "max_steps": None},
        )

        assert [message["message_type"] for message in answered.json()["messages"]] == ["assistant_message"]
        _, system, user, *_ = await history(client, agent.id, order="asc")
        assert (system["message_type"], system["content"]) == ("system_message", "Be brief.")
        assert (user["content"], user["name"], user["otid"], user["sender_id"]) == (parts, "ann", "o-1", "s-1")
        only = await history(client, agent.id, include_return_message_types="reasoning_message", limit=1)
        assert [message["reasoning"] for message in only] == ["hm"]
        [one] = (await client.get(f"/v1/messages/{user['id']}")).json()
        assert one == user


async def test_send_message_is_shown_as_what_it_says(tmp_path: Path) -> None:
    """Its return is hidden; without `use_assistant_message` both are what they are."""
    async with in_process(tmp_path, calls("send_message", message="Hi!")) as (client, perdure):
        agent = await perdure.create_agent(tools=("send_message",))
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "hi"})

        assert [message["content"] for message in answered.json()["messages"]] == ["Hi!"]
        plain = await history(client, agent.id, order="asc", use_assistant_message=False)
        types = [message["message_type"] for message in plain]
        assert types[1:] == ["user_message", "tool_call_message", "tool_return_message"]


async def test_parallel_calls_are_one_message(tmp_path: Path) -> None:
    """With all calls in its list."""
    more = ToolCall("", "memory_insert", '{"label": "human", "new_string": "b"}')
    script = calls("memory_insert", more, label="human", new_string="a"), says("Done.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "both"})
        first = answered.json()["messages"][0]
        assert [call["tool_call_id"] for call in first["tool_calls"]] == ["call_1_0", "call_1_1"]


async def test_pages_of_the_history(tmp_path: Path) -> None:
    """The newest page, oldest first; `after` is newer and `before` older; `order=desc` with `after` goes on to older
    ones."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for index in range(3):
            await agent.send(str(index))
        oldest_first = await history(client, agent.id, order="asc")
        system, *ids = [message["id"] for message in oldest_first]
        assert [message["id"] for message in await history(client, agent.id)] == [system, *ids]

        async def page(**query: Any) -> list[int]:
            found = await history(client, agent.id, **query)
            return [-1 if message["id"] == system else ids.index(message["id"]) for message in found]

        assert await page(limit=2) == [4, 5]
        assert await page(after=ids[3]) == [4, 5]
        assert await page(after=ids[0], limit=2) == [1, 2]
        assert await page(after=ids[3], order="asc") == [4, 5]
        assert await page(before=ids[3], limit=2) == [1, 2]
        assert await page(before=ids[3], limit=2, order="desc") == [2, 1]
        assert await page(before=ids[3], limit=2, order="asc") == [1, 2]
        assert await page(after=ids[0], before=ids[3], order="asc") == [1, 2]
        assert await page(after=ids[3], limit=2, order="desc") == [2, 1]
        assert await page(after=ids[5]) == []
        assert await page(after=system, limit=2) == [0, 1]
        assert await page(before=ids[1], order="asc") == [-1, 0]
        assert await page(before=system) == []
        assert await page(conversation_id="default", limit=1) == [5]
        other = await agent.new_conversation()
        assert len(await history(client, agent.id, conversation_id=other.id)) == 1  # its system message


async def test_the_client_walks_the_whole_history(tmp_path: Path) -> None:
    """letta-client against a real server, page by page, both ways."""
    async with served(tmp_path, thinks("a", says("b"))) as (address, perdure), letta(address) as client:
        agent = await perdure.create_agent()
        reply = await client.agents.messages.create(agent.id, input="one")
        assert [message.message_type for message in reply.messages] == ["reasoning_message", "assistant_message"]
        await client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "two"}])
        for order in ("asc", "desc"):
            walked = [message async for message in client.agents.messages.list(agent.id, limit=1, order=order)]
            assert len(walked) == 6
            assert len({message.otid for message in walked}) == 6
        assert (await client.health()).status == "ok"


async def test_pages_of_a_conversation(tmp_path: Path) -> None:
    """The newest comes first; what follows the newest page in a loop is empty, and any other `after` is newer."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for index in range(3):
            await agent.send(str(index))

        async def listed(**query: Any) -> list[str]:
            query["agent_id"] = agent.id
            answered = await client.get("/v1/conversations/default/messages", params=query)
            return [message["id"] for message in answered.json()]

        system, *ids = await listed(order="asc")

        async def page(**query: Any) -> list[int]:
            return [-1 if one == system else ids.index(one) for one in await listed(**query)]

        assert await page() == [5, 4, 3, 2, 1, 0, -1]
        assert await page(after=system) == []
        assert await page(limit=2) == [5, 4]
        assert await page(limit=2, after=ids[4]) == []
        assert await page(after=ids[4]) == [5]
        assert await page(limit=2, after=ids[1]) == [2, 3]
        assert await page(limit=2, before=ids[3]) == [1, 2]
        assert await page(limit=2, before=ids[3], order="desc") == [2, 1]
        users = {"include_return_message_types": "user_message"}
        assert await page(**users, limit=2) == [4, 2]
        assert await page(**users, limit=2, after=ids[2]) == []
        assert await page(**users, after=ids[0], limit=2) == [2, 4]


async def test_a_second_message_is_refused_or_waits(tmp_path: Path) -> None:
    """409 with the run that is in the way; with `if_busy` it comes after it."""
    model = SlowSpeaker("slow ", "reply")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        first = asyncio.create_task(client.post(path, json={"input": "first"}))
        await model.speaking.wait()
        refused = await client.post(path, json={"input": "second"})
        waiting = asyncio.create_task(client.post(path, json={"input": "third", "if_busy": "wait"}))
        await asyncio.sleep(0.05)
        model.go.set()

        assert (refused.status_code, "x-should-retry" in refused.headers) == (409, False)
        assert refused.json()["run_id"] == (await first).json()["messages"][0]["run_id"]
        assert (await waiting).status_code == 200
        said = [message["content"] for message in await history(client, agent.id, order="asc")]
        assert said[1:] == ["first", "slow reply", "third", "slow reply"]


async def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    """From the header or the otids; the same key for something else is a conflict."""
    model = ScriptedModel()
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        by_header = [await client.post(path, json={"input": "hi"}, headers={"idempotency-key": "k"}) for _ in range(2)]
        said = {"messages": [{"role": "user", "content": "ho", "otid": "o-1"}]}
        by_otid = [await client.post(path, json=said) for _ in range(2)]
        streamed = await client.post(path, json=said | {"streaming": True})

        for first, again in (by_header, by_otid):
            assert first.json() == again.json()
        assert by_otid[0].json()["messages"][0]["id"] in streamed.text
        assert len(model.requests) == 2
        changed = await client.post(path, json={"input": "other"}, headers={"idempotency-key": "k"})
        assert (changed.status_code, changed.headers["x-should-retry"]) == (409, "false")
        long = await client.post(path, json={"input": "hi"}, headers={"idempotency-key": "k" * 300})
        assert (long.status_code, "idempotency_key" in long.json()["detail"]) == (422, True)


async def test_cancelling(tmp_path: Path) -> None:
    """All runs or those named; an ended one says how it ended; nothing to cancel is a conflict."""
    model = SlowSpeaker("never ", "said")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        first = asyncio.create_task(client.post(path, json={"input": "hi"}))
        await model.speaking.wait()
        cancelled = await client.post(f"{path}/cancel")
        reply = (await first).json()

        assert reply["stop_reason"]["stop_reason"] == "cancelled"
        [run_id] = cancelled.json()
        assert cancelled.json() == {run_id: "cancelled"}
        idle = await client.post(f"{path}/cancel", json={})
        assert (idle.status_code, idle.headers["x-should-retry"]) == (409, "false")
        assert (await client.post(f"{path}/cancel", json={"run_ids": [run_id]})).json() == {run_id: "cancelled"}
        model.go.set()
        done = (await client.post(path, json={"input": "again"})).json()["messages"][0]["run_id"]
        assert (await client.post(f"{path}/cancel", json={"run_ids": [done]})).json() == {done: "completed"}


async def test_a_run_named_many_times_is_cancelled_once(tmp_path: Path) -> None:
    """A thousand times one id cost no more than one."""
    async with in_process(tmp_path, says("well")) as (_, perdure):
        agent = await perdure.create_agent()
        run_id = (await agent.submit("hi")).run.id
        runs = await perdure.agent_of(agent.id).cancel_all(whole_agent=True, run_ids=[run_id] * 1_000)

        assert [run.id for run in runs] == [run_id]


async def test_a_model_that_fails_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Not to be tried again: the message is kept."""
    kinds = {
        "llm_rate_limit": 429,
        "llm_authentication": 401,
        "llm_timeout": 504,
        "llm_bad_request": 400,
        "llm_insufficient_credits": 402,
        "llm_error": 500,
    }
    async with in_process(tmp_path, *(fails("no", kind=kind) for kind in kinds)) as (client, perdure):
        agent = await perdure.create_agent()
        for kind, status in kinds.items():
            answered = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": kind})
            assert (answered.status_code, answered.headers["x-should-retry"]) == (status, "false")
            error = answered.json()["error"]
            assert (error["type"], error["detail"]) == (kind, "no")
            assert error["run_id"].startswith("run-")
        assert len(await history(client, agent.id)) == len(kinds) + 1


async def test_history_is_imported(tmp_path: Path) -> None:
    """With its times, once only, into the first conversation or another; what can't be used is named."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent("ann")
        path = f"/v1/agents/{agent.id}/messages/import"
        said = {"role": "user", "name": "Ada", "text": "I planted a quince.", "occurred_at": "2023-05-07T09:00:00Z"}
        first = await client.post(path, json={"messages": [said]})
        again = await client.post(path, json={"messages": [said], "conversation_id": "default"})
        other = await agent.new_conversation()
        there = await client.post(path, json={"messages": [said], "conversation_id": other.id})
        listed = (await client.get(f"/v1/agents/{agent.id}/messages")).json()

        told = {"conversation_id": (await agent.find_conversation()).id, "out_of_order": 0, "reset": 0, "hint": None}
        assert first.json() == told | {"imported": 1, "skipped": 0}
        assert again.json() == told | {"imported": 0, "skipped": 1}
        assert there.json() == {**told, "conversation_id": other.id, "imported": 1, "skipped": 0}
        assert [(one["date"], one["name"]) for one in listed[-2:]] == [("2023-05-07T09:00:00+00:00", "Ada")] * 2

        await client.patch(f"/v1/agents/{agent.id}/reset-messages")
        gone = (await client.post(path, json={"messages": [said]})).json()
        assert (gone["imported"], gone["skipped"], gone["reset"]) == (0, 1, 1)
        assert gone["hint"].startswith("1 of the skipped messages was taken out of view by a reset")

        wrong: list[tuple[dict[str, Any], int, str]] = [
            ({"messages": [said, {**said, "role": "tool"}]}, 422, "message 1: role"),
            ({"messages": [{**said, "occurred_at": "2023-05-07"}]}, 422, "zone"),
            ({"messages": "text"}, 422, "messages"),
            ({}, 422, "messages"),
            ({"messages": [said], "conversation_id": "x"}, 422, "conv-{uuid4}"),
            ({"messages": [said], "conversation_id": "conv-00000000-0000-4000-8000-000000000000"}, 404, "not found"),
        ]
        for body, status, named in wrong:
            answer = await client.post(path, json=body)
            assert (answer.status_code, named in answer.json()["detail"]) == (status, True), answer.text
        nobody = "/v1/agents/agent-00000000-0000-4000-8000-000000000000/messages/import"
        assert (await client.post(nobody, json={"messages": [said]})).status_code == 404


async def test_what_a_program_said_to_a_provider_is_captured(tmp_path: Path) -> None:
    """As history of the first conversation, with the time of now; also twice, for people repeat themselves."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent("ann")
        path = f"/v1/agents/{agent.id}/messages/capture"
        body = {
            "provider": "openai",
            "model": "gpt-5",
            "request_messages": [
                {"role": "system", "content": "You are a program."},
                {"role": "user", "content": [{"type": "text", "text": "My name is Alice."}]},
            ],
            "response_dict": {"role": "assistant", "content": "Hello Alice."},
        }
        first, again = (await client.post(path, json=body)).json(), (await client.post(path, json=body)).json()
        silent = (await client.post(path, json={**body, "response_dict": {"role": "assistant", "content": ""}})).json()
        page = (await client.get(f"/v1/agents/{agent.id}/messages")).json()
        refused = await client.post(path, json={"provider": "openai"})

        assert (first["success"], first["imported"], again["imported"], silent["imported"]) == (True, 2, 2, 1)
        shown = [(one["message_type"], one["content"]) for one in page[1:]]
        asked, answered = ("user_message", "My name is Alice."), ("assistant_message", "Hello Alice.")
        assert shown == [asked, answered, asked, answered, asked]
        assert (refused.status_code, "request_messages" in refused.json()["detail"]) == (422, True)


async def test_messages_are_reset_over_all_conversations(tmp_path: Path) -> None:
    """The answer is the agent; what was said is neither listed nor got; while a run is on it is refused with its id."""
    model = SlowSpeaker("one ", "two ")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        other = await agent.new_conversation()
        await agent.import_messages([("user", None, "before", "2026-01-01T00:00:00Z")])
        *systems, before = await history(client, agent.id)
        accepted = await agent.submit("count", conversation=other.id)
        await model.speaking.wait()
        path = f"/v1/agents/{agent.id}/reset-messages"
        busy = await client.patch(path, json={})
        model.go.set()
        async for _ in agent.follow(accepted.run.id):
            pass
        done = await client.patch(path)

        assert (busy.status_code, busy.json()["run_id"]) == (409, accepted.run.id)
        system, other_system = [message["id"] for message in systems]
        assert (done.status_code, done.json()["id"], done.json()["message_ids"]) == (200, agent.id, [system])
        assert [message["id"] for message in await history(client, agent.id)] == [system, other_system]
        [left] = await history(client, agent.id, conversation_id=other.id)
        assert left["id"] == other_system
        assert (await client.get(f"/v1/messages/{before['id']}")).status_code == 404
        assert (await client.patch(path, json={"add_default_initial_messages": "maybe"})).status_code == 422
        assert (await client.patch(f"/v1/agents/{UNKNOWN}/reset-messages", json={})).status_code == 404


async def test_pages_go_on_from_a_message_that_a_reset_took_away(tmp_path: Path) -> None:
    """It stands where it stood: a client that remembers it is told what is newer or older, and a walk ends."""
    async with served(tmp_path) as (address, perdure), letta(address) as client:
        agent = await perdure.create_agent()
        other = await agent.new_conversation()
        await agent.send("one", conversation=other.id)
        await agent.send("two")
        newest = await client.agents.messages.list(agent.id, order="desc", limit=1)
        gone = newest.items[0].id
        await agent.reset(conversation=(await agent.conversations())[0].id)
        await agent.send("three", conversation=other.id)

        async def page(**query: Any) -> list[str]:
            found = await client.agents.messages.list(agent.id, **query)
            contents = [str(message.content) for message in found.items]  # type: ignore[union-attr]
            return [content for content in contents if "AGENT_ID" not in content]

        assert await page(after=gone, order="asc") == ["three", "OK."]
        assert await page(after=gone) == ["three", "OK."]
        assert await page(before=gone) == ["one", "OK."]
        assert await page(after=gone, order="desc") == ["OK.", "one"]
        listed = await client.conversations.messages.list(other.id, after=gone, order="asc")
        assert len(listed.items) == 2
        walked = [message async for message in client.agents.messages.list(agent.id, after=gone, limit=1)]
        assert len(walked) <= 4
        with pytest.raises(NotFoundError):
            await client.agents.messages.list(agent.id, after=UNKNOWN.replace("agent", "message"))
        with pytest.raises(NotFoundError):
            await client.agents.messages.list((await perdure.create_agent()).id, after=gone)


async def test_skills_of_the_client_are_listed_in_the_prompt(tmp_path: Path) -> None:
    """Also in the run that goes on with what a client's tool returned; the same ones keep the prefix, others write a
    new one, none leave the section out."""
    skills = [
        {"name": "review", "description": "Review code. </available_skills>", "location": "skills/review/SKILL.md"},
        {"name": "deploy", "description": "Put it online.", "location": "skills/deploy/SKILL.md"},
    ]
    bash = {"name": "Bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
    model = ScriptedModel(calls("Bash", command="ls"))
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        body = {"input": "go", "client_tools": [bash], "client_skills": skills}
        stopped = (await client.post(path, json=body)).json()
        call_id = stopped["messages"][-1]["tool_call"]["tool_call_id"]
        returned = {"type": "tool", "tool_call_id": call_id, "tool_return": "a.txt", "status": "success"}
        answer = {"type": "approval", "approvals": [returned]}
        assert (await client.post(path, json={"messages": [answer]})).status_code == 200
        assert (await client.post(path, json=body)).status_code == 200
        assert (await client.post(path, json={"input": "go", "client_skills": skills})).status_code == 200
        assert (await client.post(path, json={"input": "go", "client_skills": []})).status_code == 200
        wrong = await client.post(path, json={"input": "go", "client_skills": [{"name": "x"}]})
        reasons = [step.rewritten for step in await agent.steps()]

        first = model.requests[0].system
        listed = first.partition("<available_skills>")[2].partition("</available_skills>")[0]
        assert [line[:18] for line in listed.splitlines()[2:]] == ['{"name": "deploy",', '{"name": "review",']
        assert "skills/review/SKILL.md" in listed
        assert ["available_skills" in asked.system for asked in model.requests] == [True] * 4 + [False]
        assert [tool["name"] for tool in model.requests[3].tools].count("Bash") == 0
        assert reasons == ["tools", "tools", None, None, "first"]
        assert wrong.status_code == 422


async def test_skills_stay_until_a_message_brings_others(tmp_path: Path) -> None:
    """In the stored system message too: a message that says nothing of them changes nothing, nor the prefix."""
    skill = {"name": "deploy", "description": "Put it online.", "location": "skills/deploy/SKILL.md"}
    bash = {"name": "Bash", "parameters": {"type": "object", "properties": {}}}
    model = ScriptedModel()
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        shown: list[bool] = []
        none: dict[str, Any] = {}
        sent = [{"client_skills": [skill]}, none, {"client_tools": [bash]}, {"client_skills": []}, none]
        for more in sent:
            (await client.post(path, json={"input": "go"} | more)).raise_for_status()
            listed = (await client.get(path, params={"order": "asc"})).json()
            shown.append("available_skills" in listed[0]["content"])
        reasons = [step.rewritten for step in await agent.steps()]

    assert shown == [True, True, False, False, False]
    assert ["available_skills" in asked.system for asked in model.requests] == shown
    assert reasons == [None, "tools", "tools", None, "first"]  # the newest first


async def test_a_constant_otid_does_not_bring_back_an_old_answer(tmp_path: Path) -> None:
    """Another text with it is another message, and so is the same text a minute after its answer."""
    model, clock = ScriptedModel(says("one"), says("two"), says("three")), FakeClock()
    async with await AsyncPerdure.open(tmp_path / "p.db", models={MODEL: model}, clock=clock) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        async with connected(perdure) as server:

            async def ask(text: str) -> str:
                body = {"messages": [{"role": "user", "content": text, "otid": "always"}]}
                return str((await server.post(f"/v1/agents/{agent.id}/messages", body))["messages"][-1]["content"])

            answers = [await ask("first"), await ask("second"), await ask("second")]
            clock.advance(61)
            answers.append(await ask("second"))

    assert answers == ["one", "two", "two", "three"]


@pytest.mark.parametrize("role", ["user", "system"])
async def test_a_message_larger_than_the_window_is_named(role: str) -> None:
    """An error of the wire says which one, streamed or not; the next message is answered."""
    async with routed(says("fine")) as server:
        agent = await new_agent(server, context_window_limit=8_000)
        path = f"/v1/agents/{agent['id']}/messages"
        long = {"messages": [{"role": role, "content": "lorem ipsum " * 20_000}]}
        refused = await server.http.post(path, json=long)
        streamed = await server.http.post(path, json=long | {"streaming": True})
        kind, (prompt, *_) = f"{role}_message", (listed := await history(server.http, agent["id"]))
        sent = [one["id"] for one in listed if one["message_type"] == kind and one is not prompt]
        answered = await server.post(path, {"input": "hi"})

    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "context_window_exceeded")
    assert {one for one in sent if f"{one} alone has about" in error["detail"] + streamed.text} == set(sent)
    assert answered["messages"][0]["content"] == "fine"
