"""Runs over HTTP: listing, looking, following, stopping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from letta_client.types import ProviderTrace, Step
from letta_client.types.agents import Run
from letta_client.types.runs import UsageRetrieveResponse
from pydantic import TypeAdapter

from perdure import Model
from perdure.testing import HttpModel, ScriptedModel, calls, fails, says
from tests.server.routed import new_agent, routed
from tests.support.library import SlowSpeaker
from tests.support.openai_chats import openai_chat
from tests.support.servers import chunks_of, in_process, letta, served
from tests.support.stories import read_stream

RUNS: TypeAdapter[list[Run]] = TypeAdapter(list[Run])
STEPS: TypeAdapter[list[Step]] = TypeAdapter(list[Step])


async def test_a_run_is_told_in_the_wire_s_shape(tmp_path: Path) -> None:
    """The run, its messages, its steps and what it cost."""
    script = calls("memory_insert", label="human", new_string="Ada"), says("Noted.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        reply = await agent.send("hi")
        path = f"/v1/runs/{reply.run_id}"

        run = (await client.get(path)).json()
        Run.model_validate(run)
        assert (run["status"], run["stop_reason"], run["background"]) == ("completed", "end_turn", False)
        assert (run["agent_id"], run["conversation_id"]) == (agent.id, None)
        assert run["created_at"].endswith("Z") and run["total_duration_ns"] > 0
        steps = (await client.get(f"{path}/steps")).json()
        STEPS.validate_python(steps)
        assert [step["status"] for step in steps] == ["success", "success"]
        assert [step["completion_tokens"] for step in steps] == [2, 5]
        assert (steps[0]["model_handle"], steps[0]["provider_name"]) == ("test/scripted", "test")
        rest = (await client.get(f"{path}/steps", params={"after": steps[0]["id"]})).json()
        assert rest == steps[1:]
        usage = (await client.get(f"{path}/usage")).json()
        UsageRetrieveResponse.model_validate(usage)
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (20, 7, 27)
        messages = (await client.get(f"{path}/messages")).json()
        types = ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
        assert [message["message_type"] for message in messages] == types
        newest = (await client.get(f"{path}/messages", params={"order": "desc", "limit": 1})).json()
        assert newest == messages[-1:]
        assert (await client.get(f"{path}/messages", params={"after": messages[-1]["id"]})).json() == []
        await agent.reset()
        assert (await client.get(f"{path}/messages")).json() == messages  # the run is what it was


async def test_a_run_lists_the_types_of_messages_that_its_request_asked_for(tmp_path: Path) -> None:
    """They are in its `request_config`, and a stream that is resumed has them too; also after a restart."""
    types = ["assistant_message", "tool_return_message"]
    body = {"input": "hi", "include_return_message_types": types, "use_assistant_message": False}
    script = calls("memory_insert", label="human", new_string="Ada"), says("Noted it.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        background = {"streaming": True, "background": True, "include_pings": False}
        first = chunks_of((await client.post(f"/v1/agents/{agent.id}/messages", json=body | background)).text)
    async with in_process(tmp_path) as (client, _):
        [run] = (await client.get("/v1/runs/")).json()
        path = f"/v1/runs/{run['id']}"
        again = chunks_of((await client.post(f"{path}/stream", json={"starting_after": 0})).text)
        listed = (await client.get(f"{path}/messages")).json()

        assert run["request_config"] == {
            "use_assistant_message": False,
            "assistant_message_tool_name": "send_message",
            "assistant_message_tool_kwarg": "message",
            "include_return_message_types": types,
        }
        assert [message["message_type"] for message in listed] == types[::-1]
        assert again == first
        Run.model_validate(run)


async def test_a_run_of_a_deleted_conversation_has_no_messages(tmp_path: Path) -> None:
    """It is there itself, and so are its steps."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        other = await agent.new_conversation()
        reply = await agent.send("hi", conversation=other.id)
        path = f"/v1/runs/{reply.run_id}"
        before = (await client.get(f"{path}/messages")).json()
        await client.delete(f"/v1/conversations/{other.id}")

        assert len(before) == 2
        assert (await client.get(f"{path}/messages")).json() == []
        assert (await client.get(path)).json()["status"] == "completed"
        assert len((await client.get(f"{path}/steps")).json()) == 1


async def test_a_failed_run_says_why(tmp_path: Path) -> None:
    """In its metadata and at its step."""
    async with in_process(tmp_path, fails("no", kind="llm_timeout")) as (client, perdure):
        agent = await perdure.create_agent()
        await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "hi"})
        [run] = (await client.get("/v1/runs/")).json()
        assert (run["status"], run["stop_reason"]) == ("failed", "llm_api_error")
        assert run["metadata"]["error"] == {"type": "llm_timeout", "message": "no"}
        [step] = (await client.get(f"/v1/runs/{run['id']}/steps")).json()
        assert (step["status"], step["error_type"]) == ("failed", "llm_timeout")


async def test_a_run_that_waits_for_approval_is_cancelled(tmp_path: Path) -> None:
    """By whatever route: it says so, its calls have their results, and its stream ends once."""
    script = (calls("memory_insert", label="human", new_string="Ada"),) * 2
    async with in_process(tmp_path, *script) as (client, perdure):
        for route in ("run", "agent"):
            agent = await perdure.create_agent(route)
            await agent.require_approval("memory_insert")
            body = {"input": "hi", "streaming": True, "background": True}
            answered = await client.post(f"/v1/agents/{agent.id}/messages", json=body)
            assert answered.text.count('"requires_approval"') == 1
            [run] = (await client.get("/v1/runs/", params={"agent_id": agent.id})).json()
            path = f"/v1/runs/{run['id']}"
            if route == "run":
                cancelled = (await client.post(f"{path}/cancel")).json()
                assert (cancelled["status"], cancelled["stop_reason"]) == ("cancelled", "cancelled")
            else:
                told = (await client.post(f"/v1/agents/{agent.id}/messages/cancel", json={})).json()
                assert told == {run["id"]: "cancelled"}

            run = (await client.get(path)).json()
            assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled")
            assert (await client.get(f"/v1/agents/{agent.id}")).json()["pending_approval"] is None
            messages = (await client.get(f"{path}/messages")).json()
            assert messages[-1]["tool_return"] == "not run: the request was cancelled"
            again = chunks_of((await client.post(f"{path}/stream", json={"starting_after": 0})).text)
            reasons = [chunk["stop_reason"] for _, chunk in again if isinstance(chunk, dict) and "stop_reason" in chunk]
            assert reasons == ["cancelled"]


async def test_runs_are_listed_and_filtered(tmp_path: Path) -> None:
    """By agent, status, background, conversation; pages follow the order that is shown."""
    async with in_process(tmp_path) as (client, perdure):
        ada, bob = await perdure.create_agent("ada"), await perdure.create_agent("bob")
        other = (await ada.new_conversation()).id
        runs = [(await agent.send("hi")).run_id for agent in (ada, bob, ada)]
        runs.append((await ada.send("hi", conversation=other)).run_id)

        async def find(**query: object) -> list[int]:
            answered = await client.get("/v1/runs/", params=query)  # type: ignore[arg-type]
            assert answered.status_code == 200, answered.text
            RUNS.validate_python(answered.json())
            return [runs.index(run["id"]) for run in answered.json()]

        assert await find() == [3, 2, 1, 0]
        assert await find(order="asc", limit=2) == await find(ascending=True, limit=2) == [0, 1]
        assert await find(after=runs[2]) == [1, 0]
        assert await find(after=runs[2], order="asc") == [3]
        assert await find(before=runs[0], limit=2) == [2, 1]
        assert await find(agent_id=bob.id) == [1]
        assert await find(agent_ids=[ada.id, bob.id], statuses="completed") == [3, 2, 1, 0]
        assert await find(agent_id=ada.id, after=runs[2]) == [0]
        assert await find(agent_id=ada.id, conversation_id="default") == [2, 0]
        assert await find(conversation_id=other) == [3]
        assert await find(stop_reason="end_turn", background=False) == [3, 2, 1, 0]
        assert await find(statuses=["failed", "cancelled"]) == await find(active=True) == []
        assert await find(active=True, statuses="completed") == await find(background=True) == []
        foreign = await client.get("/v1/runs/", params={"agent_id": bob.id, "after": runs[0]})
        assert foreign.status_code == 404


async def test_an_async_message_is_a_run(tmp_path: Path) -> None:
    """It is `created` when it is accepted, goes on by itself, and can be followed; letta-client sees the same."""
    model = SlowSpeaker("slow ", "reply")
    async with served(tmp_path, model=model) as (address, perdure), letta(address) as client:
        agent = await perdure.create_agent()
        run = await client.agents.messages.create_async(agent.id, input="hi")
        assert (run.status, run.background) == ("created", True)
        await model.speaking.wait()
        assert [one.id async for one in client.runs.list(agent_id=agent.id, active=True)] == [run.id]
        for query in ("", f"?agent_id={agent.id}", "?background=true"):
            assert [one["id"] for one in await client.get(f"/v1/runs/active{query}", cast_to=list[Any])] == [run.id]
        assert await client.get("/v1/runs/active?background=false", cast_to=object) == []
        model.go.set()
        text = ""
        async for chunk in await client.runs.messages.stream(run.id):
            if chunk.message_type == "assistant_message":
                text += str(chunk.content)
        assert text == "slow reply"
        assert (await client.runs.retrieve(run.id)).status == "completed"
        assert [one.id async for one in client.runs.list(limit=1)] == [run.id]
        assert (await client.runs.usage.retrieve(run.id)).total_tokens == 12


async def test_a_run_is_cancelled(tmp_path: Path) -> None:
    """The answer is the run; an ended one stays as it is."""
    model = SlowSpeaker("never ", "said")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        run = (await client.post(f"/v1/agents/{agent.id}/messages/async", json={"input": "hi"})).json()
        await model.speaking.wait()
        assert (await client.post(f"/v1/runs/{run['id']}/cancel")).json()["id"] == run["id"]
        followed = chunks_of((await client.post(f"/v1/runs/{run['id']}/stream")).text)
        assert followed[-3][1] == {"message_type": "stop_reason", "stop_reason": "cancelled"}
        ended = (await client.post(f"/v1/runs/{run['id']}/cancel")).json()
        assert ended == (await client.get(f"/v1/runs/{run['id']}")).json()
        assert ended["status"] == "cancelled"


async def test_a_run_says_how_it_was_started() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/messages"
        begun = await server.post(f"{path}/async", {"input": "hi"})
        await read_stream(server, path, {"input": "hi", "streaming": True, "background": True, "if_busy": "wait"})
        await server.post(path, {"input": "hi"})

        types = [run["metadata"]["run_type"] for run in await server.get("/v1/runs/", order="asc")]

        assert types == [begun["metadata"]["run_type"], *["send_message"] * 2] == ["send_message_async", *types[1:]]


async def test_only_background_runs_are_streamed_again(tmp_path: Path) -> None:
    """400 for others; messages/async takes no streaming."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        run_id = (await agent.send("hi")).run_id
        refused = await client.post(f"/v1/runs/{run_id}/stream", json={})
        assert (refused.status_code, "background" in refused.json()["detail"]) == (400, True)
        both = await client.post(f"/v1/agents/{agent.id}/messages/async", json={"input": "hi", "streaming": True})
        assert both.status_code == 422


async def test_a_step_shows_what_went_over_the_wire(tmp_path: Path) -> None:
    """Address and answer; the key is masked. A step of a model without a wire has none."""
    key = "sk-very-secret-1234567890"
    async with HttpModel(otherwise=says("hello")) as model:
        chat = openai_chat(model="test", base_url=model.url, api_key=key)
        traces = []
        models: tuple[Model, ...] = (chat, ScriptedModel())
        for number, one in enumerate(models):
            async with in_process(tmp_path / str(number), model=one) as (client, perdure):
                agent = await perdure.create_agent()
                step_id = (await agent.send("hi")).messages[-1].step_id
                assert (await client.get(f"/v1/steps/{step_id}")).json()["status"] == "success"
                traces.append(await client.get(f"/v1/steps/{step_id}/trace"))
                assert step_id is not None
                assert (await agent.exchange(step_id) is None) is (traces[-1].status_code == 404)
        await chat.aclose()

    shown, missing = traces
    trace = ProviderTrace.model_validate(shown.json())
    assert str(trace.request_json["url"]).startswith(model.url)
    assert "hello" in json.dumps(trace.response_json)
    assert key not in shown.text
    assert missing.status_code == 404
