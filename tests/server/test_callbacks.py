"""`callback_url` of messages/async: the end of the run is reported to it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from letta_client.types.agents import Run

from perdure.core.errors import SecretUnreadable
from perdure.core.runs import Callback
from perdure.domain.secrets import open_callback, seal_callback
from perdure.testing import InlineStore, says
from tests.server.routed import Routed, new_agent, routed
from tests.toolbox.web_site import page, serving

WAIT_S = 10.0


async def told(server: Routed, run_id: str) -> dict[str, Any]:
    """The run, once its report was sent or given up."""
    async with asyncio.timeout(WAIT_S):
        while True:
            run: dict[str, Any] = await server.get(f"/v1/runs/{run_id}")
            if run["callback_status_code"] or run["callback_error"]:
                Run.model_validate(run)
                return run
            await asyncio.sleep(0.01)


async def test_the_end_of_a_run_is_reported() -> None:
    """As JSON, once; the run then says when, and what the answer was."""
    async with serving({"/ended": page(b"", status="202 Accepted")}) as site, routed(says("hello")) as server:
        agent, url = await new_agent(server), site.url("/ended")
        messages = server.letta.agents.messages
        run = await messages.create_async(agent["id"], input="hi", callback_url=url)
        assert (run.callback_url, run.callback_sent_at) == (url, None)
        ended = await told(server, run.id)
        assert (ended["callback_url"], ended["callback_status_code"], ended["callback_error"]) == (url, 202, None)
        assert ended["callback_sent_at"] >= ended["completed_at"]
        (head,), (body,) = site.requests, site.bodies
        assert head.startswith("POST /ended ") and "content-type: application/json" in head.lower()
        report = json.loads(body)
        assert (report["run_id"], report["agent_id"], report["status"]) == (run.id, agent["id"], "completed")


async def test_a_report_does_not_reach_this_machine() -> None:
    """The web guard stands before it: the run says why, and the receiver gets nothing."""
    async with serving({"/": page(b"")}) as site, routed(says("hello"), mcp_private="off") as server:
        agent = await new_agent(server)
        body = {"input": "hi", "callback_url": site.url("/", host="localhost")}
        run = await server.post(f"/v1/agents/{agent['id']}/messages/async", body)
        ended = await told(server, run["id"])
        assert (ended["callback_status_code"], site.requests) == (None, [])
        assert "localhost" in ended["callback_error"]


async def test_a_callback_url_that_is_none_is_refused() -> None:
    """Nothing is stored then; and only a run that nobody waits for has one."""
    async with routed(says("hello")) as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/messages"
        for url, problem in (("ftp://x/", "http://"), ("x", "http://"), (f"http://x/{'y' * 2_000}", "2,000")):
            status, detail = await server.refused("POST", f"{path}/async", {"input": "hi", "callback_url": url})
            assert status == 422 and problem in detail, detail
        status, detail = await server.refused("POST", path, {"input": "hi", "callback_url": "https://example.com/"})
        assert status == 422 and "messages/async" in detail
        assert await server.get("/v1/runs/") == []


@pytest.mark.uses("schedules")
async def test_the_query_of_a_callback_is_sent_and_not_shown() -> None:
    """It often holds a key: the receiver gets it; runs, jobs, schedules and errors have a mask in its place."""
    async with (
        serving({"/ended": page(b"", status="202 Accepted")}) as site,
        routed(says("hello"), says("hello")) as server,
    ):
        agent, url = await new_agent(server), f"{site.url('/ended')}?key=hidden-in-a-query"
        path, messages = f"/v1/agents/{agent['id']}", [{"role": "user", "content": "hi"}]
        run = await server.post(f"{path}/messages/async", {"input": "hi", "callback_url": url})
        part = {"agent_id": agent["id"], "messages": messages}
        batch = await server.post("/v1/messages/batches", {"requests": [part], "callback_url": url})
        when = {"type": "recurring", "cron_expression": "0 9 * * *"}
        await server.post(f"{path}/schedule", {"messages": messages, "schedule": when, "callback_url": url})
        ended = await told(server, run["id"])
        paths = ("/v1/runs/", "/v1/jobs/", f"/v1/messages/batches/{batch['id']}", f"{path}/schedule", f"{path}/runs")
        shown = [run, batch, ended, *[(await server.http.get(path)).text for path in paths]]
        masked = f"{site.url('/ended')}?***"
        refused = [
            await server.refused("POST", f"{path}/messages/async", {"input": "hi", "callback_url": other})
            for other in (masked, "http://ann:hidden-in-a-query@x/", "ftp://x/?key=hidden-in-a-query")
        ]

        assert ended["callback_url"] == masked
        assert site.requests[0].startswith("POST /ended?key=hidden-in-a-query ")
        assert masked in str(shown[-2]) and "hidden-in-a-query" not in str(shown)
        assert [status for status, _ in refused] == [422] * 3
        assert "write its query out" in refused[0][1]
        assert "hidden-in-a-query" not in refused[2][1]


CANARY = "canary4f7d2e91bc08"
SECRET_PARTS = [f"?token={CANARY}", f"/services/T0/{CANARY}", f"/{CANARY}/x?a=1", f";v={CANARY}", f"?a=1&b={CANARY}#c"]


@pytest.mark.uses("schedules")
@pytest.mark.parametrize("part", SECRET_PARTS)
async def test_a_key_in_a_callbacks_address_is_encrypted(part: str) -> None:
    """The receiver is reached by the whole address; the store has the key nowhere in plain, and shows it nowhere."""
    store = InlineStore()
    async with (
        serving({f"/{part}".partition("?")[0].replace("//", "/").partition("#")[0]: page(b"")}) as site,
        routed(says("one"), says("two"), store=store) as server,
    ):
        agent, url = await new_agent(server), site.url("").rstrip("/") + ("/" if part[0] in "?;" else "") + part
        path, messages = f"/v1/agents/{agent['id']}", [{"role": "user", "content": "hi"}]
        run = await server.post(f"{path}/messages/async", {"input": "hi", "callback_url": url})
        ended = await told(server, run["id"])
        batch = {"requests": [{"agent_id": agent["id"], "messages": messages}], "callback_url": url}
        shown = [run, ended, await server.post("/v1/messages/batches", batch)]
        when = {"type": "one-time", "scheduled_at": 4_000_000_000_000}
        made = await server.post(f"{path}/schedule", {"messages": messages, "schedule": when, "callback_url": url})
        (schedule,) = (await server.get(f"{path}/schedule"))["scheduled_messages"]
        dump = "\n".join(store._connection.iterdump())
        stored = await server.library.schedules.get(made["id"])
        assert stored.callback is not None
        opened = open_callback(stored.callback, server.library.app.ports.cipher)

    assert ended["callback_status_code"] == 200 and CANARY in site.requests[0]
    assert ended["callback_url"] == schedule["message"]["callback_url"] == stored.callback.url
    assert ended["callback_url"].endswith("?***")
    assert CANARY not in f"{dump} {shown} {schedule} {stored}"
    assert opened.url == url


async def test_the_key_of_a_callback_is_of_no_use_at_another_address() -> None:
    """Whoever can write to the store can't have it sent elsewhere."""
    async with routed() as server:
        cipher = server.library.app.ports.cipher
        sealed = seal_callback(Callback(url="https://a.example/?key=x"), cipher)
        with pytest.raises(SecretUnreadable):
            open_callback(replace(sealed, url="https://b.example/?***"), cipher)
