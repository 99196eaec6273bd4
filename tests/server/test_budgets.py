"""Budgets over HTTP: of a request, of an agent, and of a key."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.incoming.principals import UseLimits
from perdure.testing import calls, says
from tests.server.routed import new_agent, routed

STEP = calls("memory_insert", label="human", new_string="Ada")
STEP_TOKENS = 15
MESSAGE = {"messages": [{"role": "user", "content": "Go on and on."}]}


@pytest.mark.parametrize(
    ("budget", "steps"), [({"max_tokens": 2 * STEP_TOKENS}, 2), ({"max_tokens": 1}, 1), ({"max_steps": 3}, 3)]
)
async def test_a_request_has_a_budget_of_its_own(budget: dict[str, Any], steps: int) -> None:
    """The answer is what the run did until then, with a typed stop reason; so is the stream's end."""
    async with routed(*[STEP] * 12) as server:
        agent = await new_agent(server)
        answer = await server.http.post(f"/v1/agents/{agent['id']}/messages", json=MESSAGE | budget)
        stream = await server.http.post(f"/v1/agents/{agent['id']}/messages/stream", json=MESSAGE | budget)

        reason = "max_steps" if "max_steps" in budget else "max_tokens_exceeded"
        assert answer.status_code == 200, answer.text
        assert answer.json()["stop_reason"]["stop_reason"] == reason
        assert answer.json()["usage"]["step_count"] == steps
        assert f'"stop_reason":"{reason}"' in stream.text.replace(" ", "")


async def test_the_limits_of_an_agent_are_set_and_shown() -> None:
    """And bound its runs: between steps, and at the door with how long to wait."""
    async with routed(*[STEP] * 12) as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        limits = {"tokens_per_day": 2 * STEP_TOKENS, "cost_per_run": 0.5}
        shown = await server.http.patch(path, json={"limits": limits, "untrusted_writes": "approve"})
        first, second = [await server.http.post(f"{path}/messages", json=MESSAGE) for _ in range(2)]

        assert (shown.json()["limits"], shown.json()["untrusted_writes"]) == (limits, "approve")
        assert first.json()["stop_reason"]["stop_reason"] == "max_tokens_exceeded"
        assert (second.status_code, "30 tokens a day" in second.text) == (429, True)
        assert 0 < int(second.headers["retry-after"]) <= 86_401
        for bad in ({"tokens_per_day": 0}, {"tokens": 1}, {"cost_per_run": -1}):
            assert (await server.http.patch(path, json={"limits": bad})).status_code == 422
        assert (await server.http.patch(path, json={"limits": {}})).json().get("limits") is None
        assert (await server.http.post(f"{path}/messages", json=MESSAGE | {"max_steps": 1})).status_code == 200


@pytest.mark.uses("access")
async def test_the_limits_of_a_key_are_set_and_shown() -> None:
    """All of them, as given."""
    async with routed() as server:
        limits: dict[str, Any] = {
            **{"requests_per_minute": 60, "message_chars": 9_000, "tokens_per_day": 10_000, "cost_per_day": 1.5},
            **{"tokens_per_run": 1_000, "cost_per_run": 0.25},
        }
        made = await server.http.post("/v1/keys/", json={"name": "ann", "limits": limits})

        assert made.json()["limits"] == limits == dict(UseLimits(**limits).present)


@pytest.mark.uses("groups")
async def test_a_message_to_a_group_is_measured_once() -> None:
    """As it was sent, by the lowest limit of its agents; what the engine writes around it does not count."""
    async with routed(says("Hi."), says("Hello.")) as server:
        agents = [await new_agent(server, name) for name in ("Ann", "Bob")]
        await server.patch(f"/v1/agents/{agents[1]['id']}", {"limits": {"message_chars": 20}})
        made = await server.post("/v1/groups/", {"agent_ids": [one["id"] for one in agents], "description": "two"})
        path = f"/v1/groups/{made['id']}/messages"
        status, said = await server.refused("POST", path, {"input": "x" * 21})
        assert (status, f"limit of {agents[1]['id']} is 20" in said) == (422, True)
        assert await server.get(path) == []

        reply = await server.post(path, {"input": "x" * 20})
        assert [one["content"] for one in reply["messages"]] == ["Hi.", "Hello."]


@pytest.mark.uses("groups")
async def test_a_group_in_which_nobody_may_speak_says_when_it_may() -> None:
    """Before the message is stored; where one agent may speak, it does."""
    async with routed(*[says("Hi.")] * 3) as server:
        ann, bob = [await new_agent(server, name, limits={"tokens_per_day": 1}) for name in ("Ann", "Bob")]
        groups = [
            await server.post("/v1/groups/", {"agent_ids": ids, "description": "some"})
            for ids in ([ann["id"]], [ann["id"], bob["id"]])
        ]
        alone, both = [f"/v1/groups/{group['id']}/messages" for group in groups]
        await server.post(alone, {"input": "Hello"})
        refused = await server.http.post(alone, json={"input": "Hello again"})
        assert (refused.status_code, "1 tokens a day" in refused.text) == (429, True)
        assert 0 < int(refused.headers["retry-after"]) <= 86_401
        assert len(await server.get(alone)) == 2

        assert (await server.post(both, {"input": "Hello"}))["messages"][-1]["content"] == "Hi."
        assert (await server.http.post(both, json={"input": "Hello"})).status_code == 429


@pytest.mark.uses("schedules")
async def test_an_event_is_measured_by_its_data() -> None:
    """Not by the words of the engine that tell of it."""
    async with routed() as server:
        agent = await new_agent(server, limits={"message_chars": 20})
        path = f"/v1/agents/{agent['id']}/events"
        for data, status in (({}, 200), ({"from": "a phone"}, 200), ({"from": "a telephone"}, 422)):
            assert (await server.http.post(path, json={"kind": "login", "data": data})).status_code == status


async def test_a_batch_beyond_a_limit_says_when_there_is_room() -> None:
    """With the request's place, as for the request alone."""
    async with routed() as server:
        agents = [await new_agent(server, limits={"requests_per_minute": 1}) for _ in range(2)]
        await server.post(f"/v1/agents/{agents[1]['id']}/messages", MESSAGE)
        requests = [{"agent_id": agent["id"], **MESSAGE} for agent in agents]
        refused = await server.http.post("/v1/messages/batches", json={"requests": requests})

        assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (429, "requests.1")
        assert 0 < int(refused.headers["retry-after"]) <= 61
