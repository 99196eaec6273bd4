"""Batches of messages: accepted together, answered one run each, and told of as jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.engine.run.runner import BATCH_RUNS
from perdure.testing import ScriptedModel, calls, fails, says
from tests.server.routed import Routed, new_agent, routed
from tests.toolbox.web_site import page, serving

BATCHES = "/v1/messages/batches"
MISSING = "123e4567-e89b-42d3-a456-426614174000"
WAIT_S = 10.0


async def once(server: Routed, batch_id: str, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The batch, once it is as a condition says."""
    async with asyncio.timeout(WAIT_S):
        while True:
            batch: dict[str, Any] = await server.get(f"{BATCHES}/{batch_id}")
            if holds(batch):
                return batch
            await asyncio.sleep(0.005)


async def ended(server: Routed, batch_id: str) -> dict[str, Any]:
    return await once(server, batch_id, lambda batch: batch["completed_at"])


async def running(server: Routed, batch_id: str, count: int) -> dict[str, Any]:
    """The batch, once this many of its runs are running."""
    return await once(server, batch_id, lambda batch: batch["metadata"]["runs"].get("running") == count)


async def messages_of(server: Routed, batch: Mapping[str, Any], **params: Any) -> list[dict[str, Any]]:
    shape = await server.get(f"{BATCHES}/{batch['id']}/messages", **params)
    assert list(shape) == ["messages"]
    return list(shape["messages"])


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


class Held(ScriptedModel):
    """Says hello, but not before it is `free`."""

    def __init__(self) -> None:
        super().__init__(otherwise=says("hello"))
        self.free = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await self.free.wait()
        async for part in super().respond(request):
            yield part


async def test_every_request_of_a_batch_is_answered() -> None:
    """At once the batch is there; its runs, their messages and its job follow."""
    async with routed(*(says(f"answer {number}") for number in range(3))) as server:
        first, second = await new_agent(server, "ann"), await new_agent(server, "bob")
        parts = [
            {"agent_id": agent["id"], "input": text} for agent, text in ((first, "a"), (second, "b"), (first, "c"))
        ]
        batch = await server.post(BATCHES, {"requests": parts})
        assert (batch["job_type"], batch["status"], batch["metadata"]) == ("batch", "created", {"runs": {"created": 3}})
        done = await ended(server, batch["id"])
        assert (done["status"], done["metadata"]) == ("completed", {"runs": {"completed": 3}})
        assert done["total_duration_ns"] > 0 and done["completed_at"] == done["updated_at"]

        newest = await messages_of(server, batch)
        assert sorted(texts(newest)) == ["answer 0", "answer 1", "answer 2"]
        oldest = await messages_of(server, batch, order="asc")
        assert [one["id"] for one in oldest] == [one["id"] for one in newest][::-1]
        assert [one["role"] for one in oldest] == ["assistant"] * 3
        own = await messages_of(server, batch, agent_id=first["id"], order="asc")
        assert own == [one for one in oldest if one["agent_id"] == first["id"]] and len(own) == 2
        history = await server.get(f"/v1/agents/{first['id']}/messages", order="asc")
        assert [one["content"] for one in history if one["message_type"] == "user_message"] == ["a", "c"]

        runs = await server.get("/v1/runs/", batch_id=batch["id"])
        assert {run["id"] for run in runs} == {one["run_id"] for one in newest}
        assert {run["metadata"]["batch_id"] for run in runs} == {batch["id"]}
        assert await server.get(f"/v1/jobs/{batch['id']}") == done
        assert [job["job_type"] for job in await server.get("/v1/jobs/", order="asc")] == ["batch", "run", "run", "run"]


async def test_pages_of_batches_jobs_and_messages_are_complete() -> None:
    """In both orders, forwards and backwards: nothing twice, nothing missing."""
    async with routed(*(says("hello") for _ in range(12))) as server:
        agent = await new_agent(server)
        batches = []
        for _ in range(3):
            body = {"requests": [{"agent_id": agent["id"], "input": "a"}] * 3}
            batches.append(await ended(server, (await server.post(BATCHES, body))["id"]))
        run = await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "alone"})
        assert run["stop_reason"]["stop_reason"] == "end_turn"
        path = f"{BATCHES}/{batches[0]['id']}/messages"
        for url, count in ((BATCHES, 3), ("/v1/jobs/", 13), (path, 3)):
            for order in ("asc", "desc"):
                whole = _items(await server.get(url, order=order))
                assert len({one["id"] for one in whole}) == len(whole) == count
                paged: list[Any] = []
                while more := _items(
                    await server.get(url, order=order, limit=2, **({"after": paged[-1]["id"]} if paged else {}))
                ):
                    paged += more
                assert paged == whole
                back: list[Any] = []
                while more := _items(
                    await server.get(url, order=order, limit=2, before=back[0]["id"] if back else whole[-1]["id"])
                ):
                    back = more + back
                assert back == whole[:-1]
        assert [one["id"] for one in await server.get(BATCHES)] == [one["id"] for one in batches[::-1]]
        for url in (BATCHES, "/v1/jobs/"):
            assert (await server.refused("GET", url, after=f"job-{MISSING}"))[0] == 404
        assert (await server.refused("GET", path, after=f"message-{MISSING}"))[0] == 404


def _items(answer: Any) -> list[Any]:
    return list(answer["messages"] if isinstance(answer, dict) else answer)


@pytest.mark.parametrize(
    ("bad", "status", "detail"),
    [
        ({"agent_id": f"agent-{MISSING}", "input": "b"}, 404, f"requests.1: Agent with ID agent-{MISSING} not found"),
        ({"agent_id": "agent-1", "input": "b"}, 422, "body.requests.1.agent_id: String should match pattern"),
        ({"agent_id": None}, 422, "requests.1: body: give exactly one of `input` and `messages`"),
        ({"agent_id": None, "input": " "}, 422, "requests.1: the message is empty"),
        ({"agent_id": None, "input": "b", "streaming": True}, 422, "requests.1: a batch does not stream"),
        ({"agent_id": None, "input": "b", "override_model": "x/y"}, 404, "requests.1: NOT_FOUND: Handle x/y not found"),
        (
            {"agent_id": None, "messages": [{"type": "approval", "approve": True, "approval_request_id": "call-1"}]},
            400,
            "requests.1: Cannot process approval response: No tool call is currently awaiting approval",
        ),
        ({"agent_id": None, "input": "b", "if_busy": "reject"}, 409, "requests.1: an answer is still being"),
    ],
)
async def test_one_bad_request_refuses_the_batch(bad: dict[str, Any], status: int, detail: str) -> None:
    """With the status of that request alone, and its place; nothing is stored."""
    async with routed(says("hello")) as server:
        agent = await new_agent(server)
        parts = [{"agent_id": agent["id"], "input": "a"}, bad | {"agent_id": bad["agent_id"] or agent["id"]}]
        found, text = await server.refused("POST", BATCHES, {"requests": parts})
        assert (found, text[: len(detail)]) == (status, detail)
        assert await server.get(BATCHES) == await server.get("/v1/runs/") == []
        assert await server.library.agent_of(agent["id"]).message_count() == 0


async def test_a_batch_has_some_requests_but_not_too_many() -> None:
    async with routed(items_per_request=2) as server:
        agent = await new_agent(server)
        assert (await server.refused("POST", BATCHES, {"requests": []}))[0] == 422
        parts = [{"agent_id": agent["id"], "input": "a"}] * 3
        status, detail = await server.refused("POST", BATCHES, {"requests": parts})
        assert status == 422 and "PERDURE_ITEMS_PER_REQUEST" in detail
        status, detail = await server.refused("POST", BATCHES, {"requests": parts[:1], "callback_url": "ftp://x"})
        assert status == 422 and "callback_url" in detail


async def test_a_batch_is_refused_while_calls_of_an_agent_wait() -> None:
    """409 with what clients look for, as for a message."""
    tool = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
    async with routed(calls("look")) as server:
        agent = await new_agent(server)
        part = {"agent_id": agent["id"], "input": "a"}
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "a", "client_tools": [tool]})
        answer = await server.http.post(BATCHES, json={"requests": [part]})
        detail = answer.json()["detail"]
        assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
        assert detail["code"] == "PENDING_APPROVAL" and detail["message"].startswith("requests.0: CONFLICT:")


async def test_the_same_key_again_is_the_same_batch() -> None:
    """Other requests under it are refused, and a deleted batch leaves it free."""
    async with routed(*(says("hello") for _ in range(3))) as server:
        agent = await new_agent(server)
        body = {"requests": [{"agent_id": agent["id"], "input": "a"}]}

        async def send(body: Any) -> Any:
            return (await server.http.post(BATCHES, json=body, headers={"Idempotency-Key": "k"})).json()

        first = await send(body)
        done = await ended(server, first["id"])
        assert await send(body) == done
        assert "idempotency key 'k'" in (await send({"requests": body["requests"] * 2}))["detail"]
        assert len(await server.get("/v1/runs/")) == 1
        assert await server.delete(f"/v1/jobs/{first['id']}") == done
        again = await ended(server, (await send(body))["id"])
        assert again["metadata"] == {"runs": {"completed": 1}}
        assert len(await server.get("/v1/runs/")) == 2


async def test_a_cancelled_batch_ends() -> None:
    """Runs that wait are answered no more; a batch that has ended stays as it is, and can be deleted then only."""
    model = Held()
    async with routed(model=model) as server:
        agent = await new_agent(server)
        batch = await server.post(BATCHES, {"requests": [{"agent_id": agent["id"], "input": "a"}] * 3})
        assert (await running(server, batch["id"], 1))["status"] == "running"
        assert [job["job_type"] for job in await server.get("/v1/jobs/active", order="asc", limit=1)] == ["batch"]
        assert (await server.refused("DELETE", f"/v1/jobs/{batch['id']}"))[0] == 409
        assert (await server.patch(f"{BATCHES}/{batch['id']}/cancel"))["id"] == batch["id"]
        done = await ended(server, batch["id"])
        assert (done["status"], done["metadata"]) == ("cancelled", {"runs": {"cancelled": 3}})
        assert await server.patch(f"/v1/jobs/{batch['id']}/cancel") == done
        assert await server.get("/v1/jobs/active") == []
        assert await server.delete(f"/v1/jobs/{batch['id']}") == done
        for method, path in (("GET", ""), ("PATCH", "/cancel"), ("GET", "/messages")):
            status, detail = await server.refused(method, f"{BATCHES}/{batch['id']}{path}")
            assert (status, detail) == (404, f"Job with ID {batch['id']} not found")


async def test_a_batch_stays_when_its_agents_are_deleted() -> None:
    """Without their runs and messages."""
    async with routed(says("one"), says("two")) as server:
        agents = [await new_agent(server, name) for name in ("ann", "bob")]
        body = {"requests": [{"agent_id": agent["id"], "input": "a"} for agent in agents]}
        batch = await ended(server, (await server.post(BATCHES, body))["id"])
        await server.delete(f"/v1/agents/{agents[0]['id']}")
        left = await server.get(f"{BATCHES}/{batch['id']}")
        assert (left["status"], left["metadata"]) == ("completed", {"runs": {"completed": 1}})
        assert [one["agent_id"] for one in await messages_of(server, batch)] == [agents[1]["id"]]
        await server.delete(f"/v1/agents/{agents[1]['id']}")
        gone = await server.get(f"{BATCHES}/{batch['id']}")
        assert (gone["status"], gone["metadata"]) == ("expired", {"runs": {}})
        assert await messages_of(server, batch) == []


async def test_a_failed_run_does_not_fail_the_others() -> None:
    """The batch has failed only when no run brought an answer."""
    async with routed(fails(), says("yes"), fails()) as server:
        agent = await new_agent(server)
        part = {"agent_id": agent["id"], "input": "a"}
        mixed = await ended(server, (await server.post(BATCHES, {"requests": [part, part]}))["id"])
        assert (mixed["status"], mixed["metadata"]) == ("completed", {"runs": {"completed": 1, "failed": 1}})
        failed = await ended(server, (await server.post(BATCHES, {"requests": [part]}))["id"])
        assert failed["status"] == "failed"


async def test_the_end_of_a_batch_is_reported_once() -> None:
    """When the last run has ended, with what Letta's server says."""
    async with (
        serving({"/ended": page(b"")}) as site,
        routed(says("a"), says("b"), web_allowed_hosts="127.0.0.1") as server,
    ):
        agent = await new_agent(server)
        body = {"requests": [{"agent_id": agent["id"], "input": "a"}] * 2, "callback_url": site.url("/ended")}
        batch = await server.post(BATCHES, body)
        shape = await once(server, batch["id"], lambda batch: batch["callback_status_code"])
        assert (shape["status"], shape["callback_status_code"], shape["callback_error"]) == ("completed", 200, None)
        (report,) = (json.loads(body) for body in site.bodies)
        assert report == {
            "job_id": batch["id"],
            "status": "completed",
            "completed_at": shape["completed_at"].replace("Z", "+00:00"),
        }


async def test_a_large_batch_leaves_room_for_others() -> None:
    """Of a batch only some runs are answered at once: a message to another agent does not wait for all of them."""
    model = Held()
    async with routed(model=model) as server:
        agents = [await new_agent(server, f"a{number}") for number in range(20)]
        body = {"requests": [{"agent_id": agent["id"], "input": "a"} for agent in agents]}
        batch = await server.post(BATCHES, body)
        await running(server, batch["id"], BATCH_RUNS)
        await server.library.app.runner.recover()
        for _ in range(20):
            await asyncio.sleep(0)
        shape = await running(server, batch["id"], BATCH_RUNS)
        assert shape["metadata"] == {"runs": {"created": 20 - BATCH_RUNS, "running": BATCH_RUNS}}
        # A run that has a place may wait for the answer to this: what stands before it begins at once.
        await server.post(f"/v1/agents/{agents[-1]['id']}/messages/async", {"input": "b", "if_busy": "wait"})
        await running(server, batch["id"], BATCH_RUNS + 1)
        model.free.set()
        done = await ended(server, batch["id"])
        assert done["metadata"] == {"runs": {"completed": 20}}
