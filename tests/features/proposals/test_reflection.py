"""A companion that reflects: it reads what failed, proposes changes, and can apply none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, Conflict, InvalidInput, Settings
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.testing import InlineStore, ScriptedModel, calls, says

WHY = {"reason": "Orders without an address.", "evidence": "ship: A-1 has no address"}
PROPOSES = calls("propose_change", label="policy", new_value="Ask for the address first.", **WHY)
DONE = calls("memory_finish_edits", reason="One cause.")


def ship(order: str) -> str:
    """Ship an order."""
    if order == "good":
        return "shipped"
    raise ValueError(f"{order} has no address")


class Two:
    """A model that answers the agent from one script, and its companion from another."""

    def __init__(self, main: list[Any], *companion: Any) -> None:
        self.main = ScriptedModel(*main, otherwise=says("OK."))
        self.companion = ScriptedModel(*companion, otherwise=DONE)

    def respond(self, request: Any) -> Any:
        return (self.companion if "You reflect on how" in request.system else self.main).respond(request)


@asynccontextmanager
async def opened(model: Two) -> AsyncIterator[tuple[AsyncPerdure, AsyncAgent]]:
    """A store with an agent whose companion reflects, and which has an empty protected block."""
    settings = replace(Settings(), model="test/m", embedding="none", facts="off")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={"test/m": model}, tools=[ship], settings=settings
    ) as store:
        agent = await store.create_agent("shop", tools=["ship"])
        await agent.blocks.create("policy", "Be kind.")
        await agent.proposals.protect("policy")
        await agent.companion.enable(kind="reflection")
        yield store, agent


async def test_it_reads_what_failed_and_proposes() -> None:
    """Equal failures are counted; its proposals are its agent's; the block stays as it is."""
    model = Two([*[calls("ship", order="A-1")] * 2, says("No."), calls("ship", order="B"), says("No.")], PROPOSES, DONE)
    async with opened(model) as (_, agent):
        await agent.send("Ship A-1.")
        await agent.send("Ship B.")
        done = await agent.companion.wake()
        (one,) = await agent.proposals.list()
        info = await agent.companion.get()
        read = model.companion.requests[0].messages[-1].text

        assert done is not None and (done.outcome, done.edits) == ("finished", ())
        assert (
            'ship with {"order": "A-1"}: Error executing function ship: ValueError: A-1 has no address (2 times)'
            in read
        )
        assert 'ship with {"order": "B"}' in read and "Ship A-1." in read
        assert "of which you can propose changes: persona, human, policy" in read
        assert "tidy" not in model.companion.requests[0].system and "Be kind." in model.companion.requests[0].system
        assert {tool["name"] for tool in model.companion.requests[0].tools} - CONTEXT_TOOL_SPECS.keys() == {
            "memory_finish_edits",
            "propose_change",
        }
        assert (one.agent_id, one.proposer_id) == (agent.id, info.companion.id)
        assert (await agent.blocks.get("policy")).value == "Be kind."
        await agent.proposals.approve(one.number)
        assert (await agent.blocks.get("policy")).value == "Ask for the address first."


async def test_nothing_is_asked_of_a_model_where_nothing_failed() -> None:
    """What was said counts as read then; a failure that comes later wakes it."""
    model = Two([calls("ship", order="good"), says("Done."), calls("ship", order="A-1"), says("No.")])
    async with opened(model) as (_, agent):
        await agent.send("Ship the good one.")
        first = await agent.companion.wake()
        await agent.send("Ship A-1.")
        second = await agent.companion.wake()
        third = await agent.companion.wake()

        assert (first, third) == (None, None) and second is not None
        assert len(model.companion.requests) == 1
        assert "good one" not in model.companion.requests[0].messages[-1].text


async def test_it_can_not_edit_even_if_it_tries() -> None:
    """The tools that edit are not there: neither for the protected block nor for any other."""
    tries = [calls("memory_insert", label=label, new_string="x") for label in ("policy", "human")]
    model = Two([calls("ship", order="A-1"), says("No.")], *tries, DONE)
    async with opened(model) as (_, agent):
        before = await agent.blocks.list()
        await agent.send("Ship A-1.")
        await agent.companion.wake()

        assert await agent.blocks.list() == before
        assert "there is no tool 'memory_insert'" in model.companion.requests[1].messages[-1].results[0].text


async def test_an_agent_has_one_companion() -> None:
    """One that edits is not turned into one that reflects; the other way round it stays as it is."""
    async with opened(Two([])) as (store, agent):
        same = await agent.companion.enable()
        other = await store.create_agent("other", sleeptime=True)
        with pytest.raises(Conflict, match="has a companion that edits its memory"):
            await other.companion.enable(kind="reflection")
        with pytest.raises(InvalidInput, match="kind"):
            await other.companion.enable(kind="x")  # type: ignore[arg-type]

        assert same.kind == "reflection"
        assert (await other.companion.get()).kind == "sleeptime"
