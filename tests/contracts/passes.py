"""The passes of companions."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, GroupId, MessageId, RunId
from perdure.core.runs import Usage
from perdure.features.groups.values import Pass
from perdure.features.groups.work_tables import Passes
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, UNTIL, Contract, claimed, raises


class PassContract(Contract):
    def add_pass(self, tx: Tx, agent_id: AgentId, group: str = "group-1", upto_seq: int = 3) -> Pass:
        return tx.of(Passes).add(
            Pass(
                agent_id=agent_id,
                group_id=GroupId(group),
                companion_id=agent_id,
                cause="turns",
                from_seq=0,
                upto_seq=upto_seq,
                last_message_id=MessageId("message-3"),
                upto_run_seq=-1,
                run_id=RunId(self.ids.new("run")),
                created_at=AT,
            )
        )

    async def test_passes_come_back_as_they_were_put(self) -> None:
        """Numbered per agent, found by group and run, and ended once."""
        async with self.open_store() as store:
            ada, bob = [(await store.write(self.add_agent, name)).id for name in ("ada", "bob")]
            first = await store.write(self.add_pass, ada)
            second = await store.write(self.add_pass, ada, "group-2")
            other = await store.write(self.add_pass, bob)
            assert (first.number, second.number, other.number) == (1, 2, 1)

            narrow = await store.write(
                lambda tx: tx.of(Passes).narrow(first, upto_seq=2, last_message_id=MessageId("message-2"))
            )
            assert narrow == replace(first, upto_seq=2, last_message_id=MessageId("message-2"), is_full=True)
            assert await store.read(lambda tx: tx.of(Passes).find_last(ada, GroupId("group-1"))) == narrow
            wanted = await store.write(lambda tx: tx.of(Passes).ask(other))
            assert wanted == replace(other, cause="request")
            assert await store.read(lambda tx: tx.of(Passes).find_last(bob, GroupId("group-1"))) == wanted
            other = wanted
            assert await store.read(lambda tx: tx.of(Passes).find_by_run(second.run_id)) == second
            assert await store.read(lambda tx: tx.of(Passes).find_by_run(RunId("run-none"))) is None
            assert await store.read(lambda tx: tx.of(Passes).list_unended(limit=9, until=LATER)) == [
                narrow,
                second,
                other,
            ]
            assert await store.read(lambda tx: tx.of(Passes).list_unended(limit=9, until=AT)) == []

            ended = await store.write(lambda tx: tx.of(Passes).end(narrow, "budget", at=LATER))
            assert ended == replace(narrow, outcome="budget", ended_at=LATER)
            assert await store.write(lambda tx: tx.of(Passes).end(narrow, "finished", at=LATER)) is None
            assert await store.read(lambda tx: tx.of(Passes).list(ada, limit=9)) == [second, ended]
            assert await store.read(lambda tx: tx.of(Passes).list(ada, limit=9, before=2)) == [ended]
            assert await store.read(lambda tx: tx.of(Passes).list(ada, limit=9, since=UNTIL)) == [ended]
            assert await store.read(lambda tx: tx.of(Passes).list(ada, limit=9, since=LATER)) == []

            await store.write(lambda tx: tx.agents.delete(ada))
            assert await store.read(lambda tx: tx.of(Passes).list_unended(limit=9)) == [other]
            assert await store.read(lambda tx: tx.of(Passes).list(ada, limit=9)) == []
            with raises(NotFound):
                await store.write(self.add_pass, ada)

    async def test_turns_are_answered_runs_of_conversations_that_are_read(self) -> None:
        """A conversation with a block of its own is not read; working notes are no such block."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            assert await store.read(lambda tx: tx.of(Passes).last_run_seq(agent.id)) == -1

            def answer(tx: Tx, conversation_seq: int) -> None:
                run = claimed(tx, self.add_run(tx, agent.id, conversation_seq=conversation_seq).key)
                tx.runs.end(run, reason="end_turn", usage=Usage(), step_count=1, failure=None, at=AT)

            def count(tx: Tx, from_seq: int = 0, after: int = -1) -> int:
                return tx.of(Passes).count_turns(agent.id, from_seq=from_seq, after_run_seq=after)

            def isolate(tx: Tx, label: str) -> None:
                tx.blocks.isolate(agent.id, 0, label, self.add_block(tx, label=label).id)

            for _ in range(2):
                await store.write(answer, 0)
            assert await store.read(lambda tx: tx.of(Passes).last_run_seq(agent.id)) == 1
            assert await store.read(count) == 2
            assert await store.read(count, 0, 0) == 1
            assert await store.read(count, 10**6) == 0

            await store.write(isolate, WORKING_CHECKPOINT)
            assert await store.read(lambda tx: tx.of(Passes).list_isolated(agent.id)) == frozenset()
            await store.write(isolate, "human")
            assert await store.read(lambda tx: tx.of(Passes).list_isolated(agent.id)) == {0}
            assert await store.read(count) == 0
