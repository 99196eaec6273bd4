"""What a message costs the database after a long history that came from outside: no more than after a short one."""

from __future__ import annotations

from dataclasses import replace

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, MessageId, Uuids
from perdure.core.messages import Draft, Text
from perdure.core.sources import Source
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from tests.support.library import MODEL

FEW, MANY, INSTRUCTIONS = 200, 2_000, 100
PAGE = Source("web", "https://one.example")


async def instructions(messages: int) -> int:
    """The instructions of the database for a message after so many of another conversation, in hundreds."""
    store, ids, counted = InlineStore(), Uuids(), [0]
    settings = replace(Settings(), model=MODEL, embedding="none")
    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel()}, settings=settings) as perdure:
        agent = await perdure.create_agent("ada", settings={"facts": False})
        await agent.new_conversation()

        def fill(tx: Tx, agent_id: AgentId) -> None:
            drafts = [
                Draft(
                    id=MessageId(ids.new("message")),
                    role="user" if number % 2 == 0 else "assistant",
                    parts=(Text(f"Message {number} about topic w{number}."),),
                    sources=(PAGE,),
                )
                for number in range(messages)
            ]
            tx.messages.append((agent_id, 1), drafts, [9] * messages, at=perdure.app.ports.clock.now())

        await store.write(fill, agent.id)
        await agent.send("hello")

        def count() -> None:
            counted[0] += 1

        store._connection.set_progress_handler(count, INSTRUCTIONS)
        await agent.send("hello")
        store._connection.set_progress_handler(None, 0)
    return counted[0]


async def test_a_message_after_a_long_history_from_outside_costs_no_more() -> None:
    """Automatic recall asks only whether anything came from outside before, not for all of it."""
    few, many = await instructions(FEW), await instructions(MANY)

    assert many <= 1.3 * few
