"""The context page: the window as cells, the price of each part, what leaves next, and the raw request."""

from __future__ import annotations

import json

import pytest

from perdure.context.engines import ContextEngine
from perdure.testing import says
from tests.ui.browser import dashboard, text_of


async def test_the_cells_show_the_window_by_part() -> None:
    async with dashboard(says("Hello.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("Hello")
        twin = (await client.get(f"/agents/{agent.id}/context?format=json")).json()

    names = [cell["name"] for cell in twin["grid"]]
    filled = [part["name"] for part in twin["context"]["parts"] if part["tokens"]]
    assert len(names) == 200 and len({(cell["x"], cell["y"]) for cell in twin["grid"]}) == 200
    assert list(dict.fromkeys(names)) == [*filled, "kept for the answer", "free"]
    free = twin["context"]["free"] / twin["context"]["window"]
    assert abs(names.count("free") / 200 - free) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["paged", "sliding_window", "recursive_summary", "message_buffer"])
async def test_the_oldest_messages_leave_next(engine: str) -> None:
    """They are those that the next compaction of the agent's engine takes, but for what came since."""
    script = [says("An answer of some words. " * 40)] * 30
    async with dashboard(*script, context_window_tokens=24_000) as (client, library):
        settings = {"context_engine": engine, "summaries": {"background": False}}
        agent = await library.create_agent("Ada", settings=settings)
        where = f"/agents/{agent.id}/context?format=json"
        leaving: list[str] = []
        for number in range(30):
            twin = (await client.get(where)).json()
            if twin["context"]["hidden_messages"]:
                break
            leaving = [message["id"] for message in twin["leaving"]]
            await agent.send(f"Question {number}. " * 40)
        messages = [message.id for message in await agent.messages(limit=100)]

    hidden = messages[: twin["context"]["hidden_messages"]]
    assert len(leaving) >= 4
    assert abs(len(hidden) - len(leaving)) <= 2
    shorter = min(len(hidden), len(leaving))
    assert leaving[:shorter] == hidden[:shorter]


async def test_requests_that_cost_nothing_have_no_plot_of_it() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", model="perdure/extractive")
        for text in ("one", "two", "three"):
            await agent.send(text)
        plots = (await client.get(f"/agents/{agent.id}/context?format=json")).json()["plots"]

    assert [plot["caption"] for plot in plots] == ["Tokens of each request", "Seconds of each request"]


async def test_an_engine_of_somebody_else_is_not_asked_what_leaves() -> None:
    """A page calls none of its code."""
    async with dashboard(says("Hello."), context_engines={"own": ContextEngine}) as (client, library):
        agent = await library.create_agent("Ada", settings={"context_engine": "own"})
        await agent.send("Hello")
        page = text_of((await client.get(f"/agents/{agent.id}/context")).text)
        twin = (await client.get(f"/agents/{agent.id}/context?format=json")).json()

    assert twin["leaving"] is None
    assert "The agent's own context engine decides that before a request." in page


async def test_the_raw_request_is_its_canonical_form() -> None:
    async with dashboard(says("Hello.")) as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        await agent.send("Hello there")
        where = f"/agents/{agent.id}/context"
        raw = (await client.get(f"{where}?raw=1&format=json")).json()["raw"]
        assert "Hello there" in text_of((await client.get(f"{where}?raw=1")).text)
        assert "Hello there" not in (await client.get(f"{where}?format=json")).json()

    lines = [json.loads(line) for line in raw.splitlines()]
    assert "Likes tea." in json.dumps(lines) and "Hello there" in json.dumps(lines)


async def test_the_next_request_is_compared_with_a_past_one_and_certified() -> None:
    async with dashboard(says("Hello.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("Hello there")
        step = (await agent.steps())[0]
        where = f"/agents/{agent.id}/context"
        twin = (await client.get(f"{where}?from={step.id}&to=next&format=json")).json()
        page = text_of((await client.get(f"{where}?from={step.id}&to=next")).text)

    assert any(line.startswith("+") and "Hello." in line for line in twin["difference"]["text"].splitlines())
    assert "What is new in the next request" in page and "Certificate: it fits" in page
    sums = twin["certificate"]
    assert sums["fits"] and sums["tokens"] == twin["context"]["used"] <= sums["budget"]
    assert sums["estimated"] - sums["overcount"] == sums["tokens"]
