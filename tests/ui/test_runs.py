"""The page of runs: filters as links, a run that waits, how long runs took and what they cost; and one run's time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure import AsyncAgent, ModelReply, RunFailed, Text, Usage
from perdure.core.errors import ModelRequestRefused
from perdure.testing import calls, says
from tests.ui.browser import dashboard, tags_of, text_of
from tests.ui.demo import send_money


async def _fill(agent: AsyncAgent) -> None:
    """One run that answers, one that fails, one that waits."""
    await agent.require_approval("send_money")
    await agent.send("Good morning")
    with pytest.raises(RunFailed):
        await agent.send("Good night")
    await agent.send("Pay Bruni")


SCRIPT = (says("Good morning."), ModelRequestRefused("no"), calls("send_money", to="Bruni", amount=1), says("Hi."))


async def test_runs_are_filtered_by_links_of_what_there_is() -> None:
    async with dashboard(*SCRIPT, tools=[send_money]) as (client, library):
        agent, other = await library.create_agent("Ada"), await library.create_agent("Bob")
        await _fill(agent)
        await other.send("hello")
        page = await client.get("/runs")
        links = {values["href"] for tag, values in tags_of(page.text) if tag == "a" and "?" in str(values.get("href"))}
        found, today = {}, _today()
        for query in (
            *("status=waiting", "status=failed", "status=completed", f"agent={agent.id}", f"agent={other.id}"),
            *("model=test/scripted", "model=unknown", f"day={today}", "day=2001-01-01", "error=llm_api_error"),
        ):
            twin = (await client.get(f"/runs?{query}&format=json")).json()
            found[query.replace(agent.id, "ada").replace(other.id, "bob")] = len(twin["runs"])
        wrong = [
            (await client.get(f"/runs?{query}")).status_code for query in ("status=x", "error=x", "day=x", "day=9")
        ]

    assert found == {
        **{"status=waiting": 1, "status=failed": 1, "status=completed": 3, "agent=ada": 3, "agent=bob": 1},
        **{"model=test/scripted": 4, "model=unknown": 0, f"day={today}": 4, "day=2001-01-01": 0},
        "error=llm_api_error": 1,
    }
    assert {"?status=waiting", f"?agent={agent.id}", "?error=llm_api_error"} <= links
    assert wrong == [422] * 4


async def test_a_run_that_stopped_at_a_call_is_waiting_until_it_is_answered() -> None:
    script = (calls("send_money", to="Bruni", amount=1), says("Paid."))
    async with dashboard(*script, tools=[send_money]) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.require_approval("send_money")
        run_id = (await agent.send("Pay Bruni")).run_id
        before = (await client.get("/runs?format=json")).json()["runs"]
        (call,) = await agent.pending()
        await agent.approve(call.call_id)
        after = (await client.get("/runs?format=json")).json()["runs"]

    assert {run["id"]: run["status"] for run in before} == {run_id: "waiting"}
    assert "waiting" not in {run["status"] for run in after}


async def test_times_and_costs_are_shown_of_runs_with_a_price() -> None:
    """Percentiles of the time, and bars by agent and day."""
    reply = ModelReply(parts=(Text("hi"),), usage=Usage(input_tokens=1_000, output_tokens=100))
    async with dashboard(*[reply] * 4, model="openai/gpt-4.1-mini") as (client, library):
        agent = await library.create_agent("Ada", model="openai/gpt-4.1-mini")
        few = text_of((await client.get("/runs")).text)
        for _ in range(4):
            await agent.send("hi")
        page = await client.get("/runs")
        twin = (await client.get("/runs?format=json")).json()
        today = _today()

    assert "Half took at most" not in few
    assert twin["latency"]["runs"] == 4 and twin["latency"]["p50"] <= twin["latency"]["p95"]
    by_agent, by_day = twin["cost_bars"]
    assert [bar["name"] for bar in by_agent["bars"]] == ["Ada"] and by_agent["bars"][0]["width"] == 1_000
    assert [bar["name"] for bar in by_day["bars"]] == [today]
    assert "95 % took at most" in text_of(page.text) and "Cost by agent" in text_of(page.text)


@pytest.mark.uses("origins")
async def test_a_runs_waterfall_leads_to_its_requests_and_results() -> None:
    async with dashboard(calls("send_money", to="Bruni", amount=1), says("Paid."), tools=[send_money]) as (client, lib):
        agent = await lib.create_agent("Ada")
        run_id = (await agent.send("Pay Bruni")).run_id
        page = await client.get(f"/runs/{run_id}")
        spans = (await client.get(f"/runs/{run_id}?format=json")).json()["spans"]
        ids = {values.get("id") for _, values in tags_of(page.text)}

        assert [span["kind"] for span in spans] == ["run", "model", "tool", "model"]
        assert spans[2]["name"] == "send_money" and spans[2]["href"].removeprefix("#") in ids
        for span in spans[1::2]:
            assert f'href="{span["href"]}"' in page.text
            assert "what the model saw" in text_of((await client.get(f"/runs/{run_id}{span['href']}")).text)


def _today() -> str:
    """The day of what is stored now: not that of the tests' start, which may lie before midnight."""
    return datetime.now(UTC).date().isoformat()
