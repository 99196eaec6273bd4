"""Extraction that is broken off at any moment, and by several processes at once: nothing doubled, nothing lost."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from perdure.core.errors import StoreFull
from perdure.features.facts.extraction.extract import extract_due
from perdure.features.facts.extraction.worker import Extractions
from perdure.testing import InlineStore
from perdure.testing.inline_store import FaultPoint, no_faults
from tests.features.facts.test_background import Scribe, opened, said

KILLS = 500 if os.environ.get("PERDURE_FAULTS") == "full" else 50
TURNS = 24


async def test_broken_off_extractions_store_each_turn_once() -> None:
    """The store fails, or the task is cancelled, before a read, before or after a commit, or in the extractor."""
    chance, kills, round_ = random.Random(22), 0, 0
    while kills < KILLS:
        round_ += 1
        scribe = Scribe()
        async with opened(scribe) as perdure:
            store = perdure.app.ports.store
            assert isinstance(store, InlineStore)
            agent = await perdure.create_agent(settings={"facts": {"batch_turns": 2}})
            perdure.app.service(Extractions).ports.waiting.wake = None
            for number in range(TURNS // 2):
                await agent.send(f"message {round_} {number}")

            async def fault(point: FaultPoint) -> None:
                if chance.random() < 0.3:
                    raise StoreFull("disk full") if chance.random() < 0.5 else asyncio.CancelledError

            store._fault = fault
            while True:
                try:
                    if chance.random() < 0.2:
                        scribe.failures.append(RuntimeError("killed in the extractor"))
                    await extract_due(perdure.app.service(Extractions).ports, (agent.id, 0), rest=True)
                    break
                except (StoreFull, RuntimeError, asyncio.CancelledError):
                    kills += 1
            store._fault = no_faults
            texts = await said(agent)

            assert sorted(texts) == sorted({*texts})
            assert len([text for text in texts if "message" in text]) == TURNS // 2
            assert (await agent.facts.counts()).episodes == TURNS


@pytest.mark.parametrize("count", [2, 5])
async def test_processes_that_extract_the_same_at_once_store_it_once(count: int) -> None:
    """All have read the batch before one stores it."""
    scribe = Scribe()
    scribe.open.clear()
    async with opened(scribe) as perdure:
        agent = await perdure.create_agent()
        perdure.app.service(Extractions).ports.waiting.wake = None
        await agent.send("I moved")
        tasks = [
            asyncio.create_task(extract_due(perdure.app.service(Extractions).ports, (agent.id, 0), rest=True))
            for _ in range(count)
        ]
        while len(scribe.batches) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        scribe.open.set()
        found = await asyncio.gather(*tasks)

        assert sorted(len(facts) for facts in found) == [*[0] * (count - 1), 2]
        assert len(await said(agent)) == 2
