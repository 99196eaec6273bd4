"""Chains of chats: known by their digests, an agent's own, and gone with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.features.openai_front.tables import OpenaiHistories
from perdure.features.openai_front.values import KnownChain
from tests.contracts.base import AT, Contract, raises

CONVERSATION = ConversationId("conv-1")


def new_chain(digest: str = "d1", said_in: str = "run-1", system_digest: str = "s1") -> KnownChain:
    """A chain in a conversation of nobody."""
    return KnownChain(
        digest=digest, said_in=said_in, conversation_id=CONVERSATION, system_digest=system_digest, created_at=AT
    )


class OpenaiHistoryContract(Contract):
    async def test_chains_are_found_by_their_digests(self) -> None:
        """The newest first, many at once; one that is there stays; other agents have none."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            first = new_chain()
            second = replace(new_chain(said_in="run-2", system_digest="s2"), created_at=AT + timedelta(seconds=1))
            await store.write(lambda tx: tx.of(OpenaiHistories).add(agent.id, [first]))
            await store.write(lambda tx: tx.of(OpenaiHistories).add(agent.id, [second, new_chain("d2")]))
            await store.write(lambda tx: tx.of(OpenaiHistories).add(agent.id, [replace(first, system_digest="other")]))

            digests = ["d1", "d2", *(f"x{number}" for number in range(1_200))]
            found = await store.read(lambda tx: tx.of(OpenaiHistories).find(agent.id, digests))
            assert found == {"d1": [second, first], "d2": [new_chain("d2")]}
            assert await store.read(lambda tx: tx.of(OpenaiHistories).find(other.id, digests)) == {}
            with raises(NotFound):
                await store.write(lambda tx: tx.of(OpenaiHistories).add(AgentId("agent-nobody"), [first]))

    async def test_the_newest_chain_says_what_a_conversation_was_told(self) -> None:
        """Empty, where no program said anything."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent, "ann")
            newer = replace(new_chain("d2", system_digest="s2"), created_at=AT + timedelta(seconds=1))
            await store.write(lambda tx: tx.of(OpenaiHistories).add(agent.id, [newer, new_chain()]))

            first = await store.read(lambda tx: tx.of(OpenaiHistories).newest_system(agent.id, CONVERSATION))
            other = await store.read(
                lambda tx: tx.of(OpenaiHistories).newest_system(agent.id, ConversationId("conv-2"))
            )
            assert (first, other) == ("s2", "")
