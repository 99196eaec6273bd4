"""The signal that something changed: cheap while nothing does, and never late for what does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.testing import says
from perdure.ui.pages import changes
from tests.ui.browser import dashboard


async def test_open_pages_read_the_store_only_after_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks without a commit read the mark alone; a change of a block comes with the next look."""
    monkeypatch.setattr(changes, "EVERY_S", 0.0)
    async with dashboard(says("Hello.")) as (_, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        before = await changes._load(library, agent.id)
        looks, loads, enough = 0, 0, asyncio.Event()
        mark, load = library.services.upkeep.mark, changes._load

        async def count_mark() -> str:
            nonlocal looks
            looks += 1
            if looks == 20:
                enough.set()
            return await mark()

        async def count_load(*args: Any) -> changes.State:
            nonlocal loads
            loads += 1
            return await load(*args)

        monkeypatch.setattr(library.services.upkeep, "mark", count_mark)
        monkeypatch.setattr(changes, "_load", count_load)
        until = asyncio.get_running_loop().time() + 60
        change = asyncio.create_task(changes._changed(library, agent.id, before, until=until))
        async with asyncio.timeout(10):
            await enough.wait()
            idle = loads
            await agent.blocks.update("human", "Likes coffee.")
            after = await change

    assert idle == 0
    assert after.memory != before.memory and after.runs == before.runs
