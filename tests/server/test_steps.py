"""Steps and times of runs over HTTP: lists and filters, feedback, messages, metrics, traces, deleting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from letta_client.types import Step
from letta_client.types.runs import TraceRetrieveResponse
from letta_client.types.steps import MessageListResponse, MetricRetrieveResponse
from pydantic import TypeAdapter

from perdure.testing import calls, fails, says
from tests.support.servers import in_process

STEPS: TypeAdapter[list[Step]] = TypeAdapter(list[Step])
MESSAGES: TypeAdapter[list[MessageListResponse]] = TypeAdapter(list[MessageListResponse])
TRACE: TypeAdapter[TraceRetrieveResponse] = TypeAdapter(TraceRetrieveResponse)


async def test_steps_of_all_agents_are_listed_and_filtered(tmp_path: Path) -> None:
    """Pages follow the order that is shown, and every filter holds."""
    script = calls("memory_insert", label="human", new_string="Ada"), says("a"), says("b"), fails("no")
    async with in_process(tmp_path, *script) as (client, perdure):
        ada, bob = await perdure.create_agent("ada"), await perdure.create_agent("bob")
        for agent in (ada, bob):
            await agent.send("hi")
        await client.post(f"/v1/agents/{bob.id}/messages", json={"input": "hi"})
        steps = (await client.get("/v1/steps/", params={"order": "asc"})).json()
        ids = [step["id"] for step in steps]

        async def find(**query: Any) -> list[int]:
            answered = await client.get("/v1/steps/", params=query)
            assert answered.status_code == 200, answered.text
            STEPS.validate_python(answered.json(), strict=True)
            return [ids.index(step["id"]) for step in answered.json()]

        assert await find() == [3, 2, 1, 0]
        assert await find(limit=2, after=ids[2]) == [1, 0]
        assert await find(limit=2, before=ids[0]) == [2, 1]
        assert await find(order="asc", limit=1, after=ids[0]) == [1]
        assert await find(agent_id=ada.id, order="asc") == [0, 1]
        assert await find(agent_id=bob.id, limit=1) == [3]
        assert await find(model="scripted") == [3, 2, 1, 0]
        assert await find(model="script") == await find(model="test") == []
        assert await find(start_date=steps[1]["id"] and "2000-01-01", end_date="2001-01-01") == []
        assert await find(start_date="2000-01-01") == [3, 2, 1, 0]
        trace_id = steps[0]["trace_id"]
        assert await find(trace_ids=trace_id) == [1, 0]
        assert await find(trace_ids=[trace_id, "nothing"]) == [1, 0]
        assert await find(trace_ids="nothing") == []
        assert (await client.get("/v1/steps/", params={"agent_id": bob.id, "after": ids[0]})).status_code == 404
        assert (await client.get("/v1/steps/", params={"start_date": "soon"})).status_code == 422


async def test_feedback_stays_with_its_step_and_filters(tmp_path: Path) -> None:
    """With its tags, until it is taken back."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for _ in range(3):
            await agent.send("hi")
        ids = [step["id"] for step in (await client.get("/v1/steps/")).json()]

        async def give(place: int, **body: Any) -> Any:
            answered = await client.patch(f"/v1/steps/{ids[place]}/feedback", json=body)
            assert answered.status_code == 200, answered.text
            Step.model_validate(answered.json(), strict=True)
            return answered.json()["feedback"], answered.json()["tags"]

        async def find(**query: Any) -> list[int]:
            return [ids.index(step["id"]) for step in (await client.get("/v1/steps/", params=query)).json()]

        assert await give(0, feedback="positive", tags=["kind", "kind 2"]) == ("positive", ["kind", "kind 2"])
        assert await give(1, feedback="negative") == ("negative", [])

        assert await find(feedback="positive") == [0]
        assert await find(has_feedback=True) == [0, 1] and await find(has_feedback=False) == [2]
        assert await find(tags="kind") == await find(tags=["kind", "x"]) == [0] and await find(tags="kin") == []
        assert (await client.get(f"/v1/steps/{ids[0]}")).json()["feedback"] == "positive"
        assert await give(0, feedback="negative") == ("negative", ["kind", "kind 2"])
        assert await give(0, feedback=None, tags=[]) == (None, [])
        assert await find(has_feedback=True) == [1]
        old = await client.patch(f"/v1/steps/{ids[2]}/feedback", params={"feedback": "positive"})
        assert old.json()["feedback"] == "positive", "clients before 1.0 send it as a query"
        wrong = await client.patch(f"/v1/steps/{ids[0]}/feedback", json={"feedback": "meh"})
        assert wrong.status_code == 422


async def test_a_step_has_its_messages_and_durations(tmp_path: Path) -> None:
    """The model's call with its result is one step, the answer another; the trace of the run holds both."""
    script = calls("memory_insert", label="human", new_string="Ada"), says("Noted.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        reply = await agent.send("hi")
        first, second = (
            step["id"] for step in (await client.get(f"/v1/runs/{reply.run_id}/steps", params={"order": "asc"})).json()
        )

        messages = (await client.get(f"/v1/steps/{first}/messages")).json()
        MESSAGES.validate_python(messages)
        assert [message["message_type"] for message in messages] == ["tool_call_message", "tool_return_message"]
        [newest] = (await client.get(f"/v1/steps/{first}/messages", params={"order": "desc", "limit": 1})).json()
        assert newest == messages[-1]
        after = {"after": messages[0]["id"]}
        assert (await client.get(f"/v1/steps/{first}/messages", params=after)).json() == messages[1:]
        [answer] = (await client.get(f"/v1/steps/{second}/messages")).json()
        assert answer["content"] == "Noted."
        metrics = (await client.get(f"/v1/steps/{first}/metrics")).json()
        MetricRetrieveResponse.model_validate(metrics, strict=True)
        assert metrics["id"] == first and metrics["run_id"] == reply.run_id
        assert metrics["step_ns"] == metrics["llm_request_ns"] + metrics["tool_execution_ns"]
        assert (await client.get(f"/v1/steps/{second}/metrics")).json()["tool_execution_ns"] is None
        trace = (await client.get(f"/v1/runs/{reply.run_id}/trace")).json()
        TRACE.validate_python(trace)
        root, *inner = trace
        assert [span["span_name"] for span in inner] == ["agent_step", "memory_insert", "agent_step"]
        assert root["parent_span_id"] is None and root["duration_ns"] >= metrics["step_ns"]
        assert [span["parent_span_id"] for span in inner] == [root["span_id"], inner[0]["span_id"], root["span_id"]]
        assert {span["status_code"] for span in trace} == {"OK"}
        assert (await client.get(f"/v1/runs/{reply.run_id}/trace", params={"limit": 2})).json() == trace[:2]
        run_metrics = (await client.get(f"/v1/runs/{reply.run_id}/metrics")).json()
        tools = {tool["name"]: tool["id"] for tool in (await client.get("/v1/tools/")).json()}
        assert (run_metrics["num_steps"], run_metrics["tools_used"]) == (2, [tools["memory_insert"]])
        assert run_metrics["run_ns"] == root["duration_ns"]


async def test_a_deleted_run_is_not_shown_any_more(tmp_path: Path) -> None:
    """Its messages stay; one that has not ended stays too."""
    script = says("a"), calls("memory_insert", label="human", new_string="Ada")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        await agent.require_approval("memory_insert")
        first, second = (await agent.send("hi")).run_id, (await agent.send("hi")).run_id
        [step] = (await client.get(f"/v1/runs/{first}/steps")).json()

        deleted = await client.delete(f"/v1/runs/{first}")

        assert (deleted.status_code, deleted.json()) == (200, None)
        for path in (f"runs/{first}", f"runs/{first}/messages", f"runs/{first}/trace", f"steps/{step['id']}"):
            assert (await client.get(f"/v1/{path}")).status_code == 404
        assert (await client.delete(f"/v1/runs/{first}")).status_code == 404
        assert [run["id"] for run in (await client.get("/v1/runs/")).json()] == [second]
        assert {one["run_id"] for one in (await client.get("/v1/steps/")).json()} == {second}
        history = (await client.get(f"/v1/agents/{agent.id}/messages")).json()
        assert "a" in [message.get("content") for message in history]
        waiting = await client.delete(f"/v1/runs/{second}")
        assert waiting.status_code == 409 and waiting.headers["x-should-retry"] == "false"
