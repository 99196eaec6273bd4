"""Budgets over HTTP: of a request, of an agent, and of a key."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.access.values import Limits
from perdure.testing import calls
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


async def test_the_limits_of_a_key_are_set_and_shown() -> None:
    """All of them, as given."""
    async with routed() as server:
        limits: dict[str, Any] = {
            **{"requests_per_minute": 60, "message_chars": 9_000, "tokens_per_day": 10_000, "cost_per_day": 1.5},
            **{"tokens_per_run": 1_000, "cost_per_run": 0.25},
        }
        made = await server.http.post("/v1/keys/", json={"name": "ann", "limits": limits})

        assert made.json()["limits"] == limits == dict(Limits(**limits).some)
