"""A message that is edited while a companion reads it: nothing is written by its old text, and the new one is read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

SETTINGS = Settings(embedding="none", facts="off", companion_retry_s=0.05, companion_steps=3)
OLD, NEW = "xylocarp", "calabash"


class Repeats:
    """A model whose companion writes down the words that it reads, once in each pass, after some turns of the loop."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self.asked: asyncio.Event | None = None
        self.answers: asyncio.Event | None = None

    async def respond(self, request: Any) -> Any:
        said = [word for word in (OLD, NEW) if word in request.messages[-1].text]
        script = ScriptedModel(otherwise=says("OK."))
        if "You are a background agent" in request.system:
            if self.asked is not None and self.answers is not None:
                self.asked.set()
                await self.answers.wait()
            for _ in range(self._turns):
                await asyncio.sleep(0)
            is_done = request.messages[-1].role == "tool"
            finish = calls("memory_finish_edits", reason="Done.")
            script = ScriptedModel(
                finish if is_done else calls("memory_insert", label="human", new_string=" ".join(said))
            )
        async for piece in script.respond(request):
            yield piece


@pytest.mark.slow
@pytest.mark.parametrize("reading", [0, 20])
async def test_a_pass_writes_nothing_down_that_was_edited_while_it_read(reading: int, tmp_path: Path) -> None:
    """At whichever of its steps: what is written behind the edit comes from the new text, which is read at once."""
    for step in range(0, 100, 5):
        store = InlineStore(tmp_path / f"{step}.db")
        models = {"test/m": Repeats(reading)}
        async with await AsyncPerdure.open(store=store, models=models, settings=SETTINGS) as perdure:
            store._fault = lambda point: asyncio.sleep(0)
            agent = await perdure.create_agent("ann", model="test/m", human="likes tea", sleeptime=True)
            await agent.send(f"The word is {OLD}.")
            message = next(one for one in await agent.messages() if one.role == "user")
            woken = asyncio.create_task(agent.companion.wake())
            for _ in range(step):
                await asyncio.sleep(0)
            await agent.update_message(message.id, f"The word is {NEW}.")
            at_edit = (await agent.blocks.get("human")).value  # what it wrote until then stays
            await woken
            async with asyncio.timeout(10):
                while (last := (await agent.companion.passes(limit=1))[0]).outcome in (None, "edited"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            after = (await agent.blocks.get("human")).value

            assert last.outcome == "finished"
            assert (OLD in after) is (OLD in at_edit), step
            assert NEW in after or OLD in after, step


async def test_a_pass_begins_anew_when_a_message_is_edited_that_its_model_reads(tmp_path: Path) -> None:
    """A person's edit ends the pass, whose answer is dropped, and another one reads the new text at once."""
    model = Repeats(0)
    model.asked, model.answers = asyncio.Event(), asyncio.Event()
    store = InlineStore(tmp_path / "store.db")
    async with await AsyncPerdure.open(store=store, models={"test/m": model}, settings=SETTINGS) as perdure:
        agent = await perdure.create_agent("ann", model="test/m", human="likes tea", sleeptime=True)
        await agent.send(f"The word is {OLD}.")
        message = next(one for one in await agent.messages() if one.role == "user")
        woken = asyncio.create_task(agent.companion.wake())
        await model.asked.wait()
        await agent.update_message(message.id, f"The word is {NEW}.")
        model.answers.set()
        await woken
        async with asyncio.timeout(10):
            while [one.outcome for one in await agent.companion.passes()] != ["finished", "edited"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        block = await agent.blocks.get("human")

        assert OLD not in block.value and NEW in block.value
