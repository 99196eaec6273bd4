"""How far conversations were captured."""

from __future__ import annotations

from perdure.core.blocks import Author
from perdure.core.conversations import Backlog
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.core.messages import Role, ToolCall
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, raises


class CaptureContract(Contract):
    async def test_what_waits_is_what_was_said_since_and_is_still_there(self) -> None:
        """Of one conversation, by users and assistants; up to another row if asked."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> list[int]:
                roles: tuple[Role, ...] = ("user", "assistant", "system", "user", "assistant", "user")
                drafts = [self.draft(f"line {number}", role=role) for number, role in enumerate(roles)]
                messages = tx.messages.append((agent.id, 0), drafts, [1, 2, 4, 8, 16, 32], at=AT)
                self.say(tx, agent.id, self.draft(ToolCall("call", "look", "{}"), role="assistant"))
                tx.messages.revise(messages[-1].id, None, author=Author(kind="user", id="user-1"), at=AT)
                return [message.seq for message in messages]

            seqs = await store.write(fill)

            def waiting(tx: Tx, before: int | None = None) -> Backlog:
                return tx.captures.get_backlog(agent.id, 0, before_seq=before)

            assert await store.read(lambda tx: tx.captures.last_seq(agent.id, 0)) == -1
            assert await store.read(waiting) == Backlog(27, seqs[4], 4)
            assert await store.read(lambda tx: waiting(tx, seqs[4])) == Backlog(11, seqs[3], 3)
            assert await store.read(lambda tx: tx.captures.get_backlog(agent.id, 1)) == Backlog(0, -1)

            await store.write(lambda tx: tx.captures.put(agent.id, 0, seqs[0], at=AT))
            await store.write(lambda tx: tx.captures.put(agent.id, 0, seqs[1], at=LATER))
            assert await store.read(lambda tx: tx.captures.last_seq(agent.id, 0)) == seqs[1]
            assert await store.read(lambda tx: tx.captures.last_seq(agent.id, 1)) == -1
            assert await store.read(waiting) == Backlog(24, seqs[4], 2)

            await store.write(lambda tx: tx.agents.delete(agent.id))
            assert await store.read(lambda tx: tx.captures.last_seq(agent.id, 0)) == -1
            with raises(NotFound):
                await store.write(lambda tx: tx.captures.put(AgentId("agent-none"), 0, 1, at=AT))
