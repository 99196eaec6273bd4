"""`kill -9` around a reset: all conversations of the agent begin anew, or none does; and the next process carries out
what the dead one left."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import AnswerInvalid
from perdure.core.messages import ToolDecision
from perdure.core.tools.rules import RequiresApproval
from perdure.core.vectors import IndexFault
from perdure.storage.tx import Tx
from tests.faults.children import Child, Line, Place, open_store
from tests.support.kill_target import MODEL

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 60 if FULL else 3
DELAY_S = 0.02
"""The reset is stored within about this."""

pytestmark = pytest.mark.faults


async def _talked(place: Place) -> tuple[Line, int]:
    """An agent of two conversations, in one of which a call waits; and how many messages it has."""
    async with await open_store(place) as perdure:
        agent = await perdure.create_agent(model=MODEL, tools=("guarded", "note"))
        await agent.rules.set([RequiresApproval("guarded")])
        other = await agent.new_conversation()
        for number in range(3):
            await agent.send(f"k{number} note", conversation=other.id)
        reply = await agent.send("k3 guarded")
        assert reply.stop_reason == "requires_approval"
        return Line(agent.id, other.id), await agent.message_count()


def _faults(tx: Tx) -> list[IndexFault]:
    return [fault for owner in tx.upkeep.owners() for fault in tx.upkeep.check(owner).faults]


async def _carried_out(perdure: AsyncPerdure) -> None:
    async with asyncio.timeout(30):
        while await perdure.app.store.read(lambda tx: tx.resets.list_agents()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_kill_around_a_reset_leaves_all_or_nothing(tmp_path: Path, seed: int) -> None:
    """Messages, search, counts, what waits and the record of resets agree; a second reset does what is left to do."""
    chance, place = random.Random(seed), Place(tmp_path)

    async def torment() -> None:
        line, count = await _talked(place)
        child = await Child.start(place)
        await child.ready()
        child.send({"agent": line.agent, "reset": "r1"})
        await asyncio.sleep(chance.uniform(0, DELAY_S))
        await child.kill()
        told = any("reset" in one for one in child.told)
        async with await open_store(place) as perdure:
            agent = await perdure.agent(line.agent)
            done, pending = await agent.resets(), await agent.pending()
            left = await perdure.app.store.read(lambda tx: tx.resets.list_agents())
            shown, found = await agent.messages(), await agent.search("k0")
            counted = await agent.message_count()
            if done:
                assert (len(done), shown, found, pending, counted) == (2, [], [], (), 0)
                await _carried_out(perdure)
                assert (await agent.messages(), await agent.search("k0"), await agent.message_count()) == ([], [], 0)
            else:
                assert (told, left, len(shown), counted, len(pending)) == (False, [], count, count, 1)
                assert found
                assert len(await agent.reset()) == 2
            with pytest.raises(AnswerInvalid):
                await agent.answer([ToolDecision("k3-0-0", True)])
            assert (await agent.messages(), await agent.search("k0"), await agent.reset()) == ([], [], [])
            kept = await agent.messages(reset=True)
            assert len(kept) == count + 1
            assert [result.text for result in kept[-1].results] == ["not run: the conversation was reset"]
            for conversation in (None, line.conversation):
                assert (await agent.send("k4 note", conversation=conversation)).text == "done k4"
            assert await perdure.app.store.read(_faults) == []
        assert "guarded k3" not in place.effects_left()

    asyncio.run(torment())
