"""`/metrics`, and who may read it."""

from __future__ import annotations

import logging

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.server.config import ServerConfig
from perdure.testing import calls, says
from tests.server.routed import BASE, Routed, new_agent, routed

KEY = "a key that nobody guesses"


async def scraped(server: Routed) -> dict[tuple[str, ...], float]:
    """(Name, values of labels in the order of their names) -> value of each sample."""
    answer = await server.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name.removeprefix("perdure_"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def test_a_message_is_counted_by_all_that_it_took() -> None:
    """The request by its route, the run, its steps, its model calls with tokens, its tool."""
    script = (calls("memory_insert", label="human", new_string="Ada"), says("Hello"))
    async with routed(*script) as server:
        agent = await new_agent(server, include_base_tools=True, memory_blocks=[{"label": "human", "value": ""}])
        await server.post(f"/v1/agents/{agent['id']}/messages", {"messages": [{"role": "user", "content": "I am Ada"}]})
        await server.refused("GET", "/v1/agents/agent-none")
        await server.refused("GET", "/v1/nothing")
        samples = await scraped(server)

    assert samples["http_requests_total", "POST", "/v1/agents/{agent_id}/messages", "200"] == 1
    assert samples["http_request_seconds_count", "POST", "/v1/agents/{agent_id}/messages"] == 1
    assert samples["http_requests_total", "GET", "none", "404"] == 1
    assert samples["runs_total", "end_turn"] == 1
    assert samples["steps_total",] == 2
    assert samples["model_calls_total", "test/scripted", "success", "own", "reply"] == 2
    assert samples["tool_calls_total", "memory", "success"] == 1
    assert samples["queue_length", "runs_queued"] == 0
    assert samples["runs_driven",] == 0


async def test_no_label_holds_an_id_or_a_name_of_a_user() -> None:
    """Not of agents, tools, models or paths that clients make up, nor of methods."""
    async with routed(calls("my_secret_tool"), says("Hello")) as server:
        agent = await new_agent(server, "my-secret-agent")
        await server.post(f"/v1/agents/{agent['id']}/messages", {"messages": [{"role": "user", "content": "hi"}]})
        await server.http.get("/v1/my-secret-path")
        await server.http.request("MYSECRET", "/v1/agents/")
        text = (await server.http.get("/metrics")).text

    assert agent["id"] not in text
    assert "secret" not in text.lower()


async def test_metrics_need_the_key() -> None:
    """Also from this machine, unless the setting says otherwise."""
    async with routed(config=ServerConfig(api_key=KEY)) as server:
        transport = httpx.ASGITransport(app=server.app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as stranger:
            refused = await stranger.get("/metrics")
        allowed = await server.http.get("/metrics")

    assert (refused.status_code, allowed.status_code) == (401, 200)


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.7", {}, 401),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.7"}, 401),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.7"}, 401),
        ("127.0.0.1", {"host": "rebound.example"}, 403),
    ],
)
async def test_loopback_opens_metrics_to_this_machine_alone(client: str, headers: dict[str, str], status: int) -> None:
    """Not to other machines, nor to whom a proxy on this machine speaks for; nothing else is open."""
    async with routed(config=ServerConfig(api_key=KEY, metrics="loopback")) as server:
        transport = httpx.ASGITransport(app=server.app, client=(client, 5))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as stranger:
            answer = await stranger.get("/metrics", headers=headers)
            other = await stranger.get("/v1/agents/")

    assert (answer.status_code, other.status_code) == (status, 401)


async def test_metrics_can_be_off() -> None:
    """Then there is no such path."""
    async with routed(config=ServerConfig(metrics="off")) as server:
        assert (await server.http.get("/metrics")).status_code == 404


async def test_warnings_are_counted_by_who_wrote_them() -> None:
    """By file and level, however the log is set."""
    async with routed() as server:
        with server.app.state.metrics.counted_log():
            logging.getLogger("perdure.engine.workers.embedding").warning("no %s", "Ada")
        samples = await scraped(server)

    assert samples["problems_total", "warning", "engine.workers.embedding"] == 1
