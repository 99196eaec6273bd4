"""Groups of agents: who belongs to one, its turns, and what was said in them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from perdure.core.errors import InvalidInput, LeaseLost, NotFound
from perdure.core.ids import AgentId, GroupId, MessageId
from perdure.core.messages import Text
from perdure.core.runs import Failure, Usage
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.units import GroupChanges, NewGroup, create_group, update_group
from perdure.features.groups.values import Group, GroupFilter, GroupMember, GroupMessage, GroupPlan, GroupTurn
from perdure.features.groups.work_tables import GroupTurns
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, UNTIL, Contract, raises


class GroupContract(Contract):
    def new_group(self, tx: Tx, /, *agent_ids: AgentId, **values: Any) -> Group:
        return create_group(tx, cast(NewGroup, {"agent_ids": agent_ids, **values}), ids=self.ids, at=AT)

    def agents(self, tx: Tx, /, count: int) -> list[AgentId]:
        return [self.add_agent(tx, f"agent {number}").id for number in range(count)]

    async def test_groups_come_back_as_they_were_put(self) -> None:
        """With their agents in order, found by page and filter; agents that stay keep their conversations."""
        async with self.open_store() as store:
            ada, bob, cat, dan = await store.write(self.agents, 4)
            groups = [await store.write(partial(self.new_group, description=text), bob, ada) for text in AWKWARD]
            led = await store.write(
                lambda tx: self.new_group(
                    tx, cat, ada, kind="dynamic", manager_agent_id=dan, max_turns=3, max_cost_usd=0.5, hidden=True
                )
            )

            def page(tx: Tx, /, **where: Any) -> list[Group]:
                return list(tx.of(Groups).page(where=GroupFilter(**where), ascending=True))

            assert await store.read(page) == [*groups, led]
            assert await store.read(lambda tx: [tx.of(Groups).get(one.id) for one in groups]) == groups
            assert groups[0].agent_ids == (bob, ada) and led.termination_token == "DONE!"
            assert await store.read(lambda tx: page(tx, kind="dynamic", manager_agent_id=dan)) == [led]
            assert await store.read(lambda tx: page(tx, agent_id=dan, hidden=True)) == [led]
            assert await store.read(lambda tx: tx.of(Groups).count(GroupFilter(agent_id=ada))) == len(groups) + 1
            assert (
                await store.read(lambda tx: tx.of(Groups).page(where=GroupFilter(agent_id=bob), ascending=True))
                == groups
            )
            assert [one[0] for one in await store.read(lambda tx: tx.of(Groups).members(led.id))] == [dan, cat, ada]
            companions = await store.write(partial(self.new_group, kind="sleeptime", manager_agent_id=dan), bob)
            await store.write(partial(self.new_group, kind="supervisor", manager_agent_id=dan), ada)
            managed = await store.read(lambda tx: tx.of(Groups).list_managed([dan, ada, cat]))
            assert managed == {dan: companions}
            assert await store.read(lambda tx: tx.of(Groups).list_managed([])) == {}

            before = await store.read(lambda tx: tx.of(Groups).members(groups[0].id))
            changes: GroupChanges = {"agent_ids": [ada, cat], "max_turns": 9}
            changed = await store.write(lambda tx: update_group(tx, groups[0].id, changes, ids=self.ids, at=LATER))
            assert (changed.agent_ids, changed.max_turns, changed.updated_at) == ((ada, cat), 9, LATER)
            after = await store.read(lambda tx: tx.of(Groups).members(groups[0].id))
            assert after[0] == before[1] and after[1][2] is not None
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Groups).put(replace(led, id=GroupId("group-none"))))

    async def test_a_group_shares_blocks(self) -> None:
        """With all its agents. One that leaves, or the end of the group, takes them away; what an agent had on its own
        or has because of another group stays."""
        async with self.open_store() as store:
            ada, bob, cat = await store.write(self.agents, 3)
            block = await store.write(lambda tx: self.add_block(tx, "plan", "x", agent_id=ada))
            shared = {"shared_block_ids": [block.id]}
            first = await store.write(lambda tx: self.new_group(tx, ada, bob, **shared))
            second = await store.write(
                lambda tx: self.new_group(tx, bob, kind="supervisor", manager_agent_id=cat, **shared)
            )

            def having(tx: Tx) -> list[AgentId]:
                return [one for one in (ada, bob, cat) if block.id in tx.blocks.list_versions(one)]

            assert first.shared_block_ids == second.shared_block_ids == (block.id,)
            assert await store.read(having) == [ada, bob, cat]
            assert await store.read(lambda tx: tx.of(Groups).has_attached(bob, block.id))
            assert not await store.read(lambda tx: tx.of(Groups).has_attached(ada, block.id))
            await store.write(lambda tx: update_group(tx, first.id, {"agent_ids": [ada]}, ids=self.ids, at=AT))
            assert await store.read(having) == [ada, bob, cat]
            await store.write(lambda tx: tx.of(Groups).delete(second.id))
            assert await store.read(having) == [ada]
            await store.write(lambda tx: tx.of(Groups).share_block(first.id, ada, block.id, attached=False))
            await store.write(lambda tx: tx.of(Groups).unshare_block(first.id, ada, block.id))
            assert await store.read(having) == [ada]
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Groups).get(second.id))

    async def test_a_deleted_agent_leaves_its_groups(self) -> None:
        """A deleted manager takes its group along."""
        async with self.open_store() as store:
            ada, bob, cat = await store.write(self.agents, 3)
            block = await store.write(lambda tx: self.add_block(tx, "plan", "x"))
            open_group = await store.write(lambda tx: self.new_group(tx, ada, bob))
            led = await store.write(
                lambda tx: self.new_group(tx, ada, kind="supervisor", manager_agent_id=cat, shared_block_ids=[block.id])
            )
            await store.write(lambda tx: tx.agents.delete(bob))
            await store.write(lambda tx: tx.agents.delete(cat))

            assert (await store.read(lambda tx: tx.of(Groups).get(open_group.id))).agent_ids == (ada,)
            assert await store.read(lambda tx: tx.blocks.list_versions(ada)) == {}
            assert await store.read(lambda tx: tx.of(Groups).page(where=GroupFilter(kind="supervisor"))) == []
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Groups).lock(led.id))

    async def test_bad_groups_are_refused(self) -> None:
        """With an error that names the value; nothing is written."""
        async with self.open_store() as store:
            ada, bob, cat = await store.write(self.agents, 3)
            nobody = AgentId(self.ids.new("agent"))
            await store.write(lambda tx: self.new_group(tx, bob, kind="sleeptime", manager_agent_id=cat))
            bad: list[tuple[type[Exception], str, list[AgentId], dict[str, Any]]] = [
                (InvalidInput, "at least one", [], {}),
                (InvalidInput, "more than once", [ada, ada], {}),
                (InvalidInput, "at most 50", [AgentId(f"agent-{number}") for number in range(51)], {}),
                (InvalidInput, "needs a manager", [ada], {"kind": "dynamic"}),
                (InvalidInput, "no manager", [ada], {"manager_agent_id": cat}),
                (InvalidInput, "not a participant", [ada, cat], {"kind": "supervisor", "manager_agent_id": cat}),
                (InvalidInput, "companion", [ada, bob], {}),
                (NotFound, nobody, [ada, nobody], {}),
                (InvalidInput, "use round_robin", [ada], {"kind": "circle"}),
                (InvalidInput, "max_turns", [ada], {"max_turns": 0}),
                (InvalidInput, "termination_token", [ada], {"termination_token": "STOP"}),
                (InvalidInput, "frequency", [ada], {"frequency": 5}),
                (NotFound, "block-none", [ada], {"shared_block_ids": ["block-none"]}),
            ]
            for kind, text, agent_ids, values in bad:
                with raises(kind) as caught:
                    await store.write(partial(self.new_group, **values), *agent_ids)
                assert text in str(caught.error)
            assert await store.read(lambda tx: tx.of(Groups).count(GroupFilter())) == 1

    def add_turn(self, tx: Tx, /, group_id: GroupId, **values: Any) -> GroupTurn:
        turn = GroupTurn(group_id=group_id, created_at=AT, lease_owner="here", lease_until=UNTIL, **values)
        return tx.of(GroupTurns).add(turn, "input", idempotency_key=None, digest="d")

    async def test_turns_of_a_group_run_one_after_the_other(self) -> None:
        """Claimed in order under a lease, begun with a plan, ended once; a key finds its turn again."""
        async with self.open_store() as store:
            (ada,) = await store.write(self.agents, 1)
            group = await store.write(self.new_group, ada)
            first = await store.write(self.add_turn, group.id)
            second = await store.write(
                lambda tx: tx.of(GroupTurns).add(
                    GroupTurn(group_id=group.id, created_at=AT, hops=2), "more", idempotency_key="k", digest="other"
                )
            )

            def claim(tx: Tx, turn: GroupTurn, owner: str = "here", /, **values: Any) -> GroupTurn | None:
                arguments = {"owner": owner, "at": AT, "until": UNTIL, **values}
                return tx.of(GroupTurns).claim((turn.group_id, turn.seq), **arguments)

            assert await store.read(lambda tx: tx.of(GroupTurns).list(group.id)) == [second, first]
            assert await store.read(lambda tx: tx.of(GroupTurns).list(group.id, before_seq=1)) == [first]
            assert await store.read(lambda tx: tx.of(GroupTurns).list_oldest()) == [first]
            assert await store.read(lambda tx: tx.of(GroupTurns).find_active(group.id)) == first
            assert await store.read(lambda tx: tx.of(GroupTurns).find_by_key(group.id, "k")) == (second, "other")
            assert await store.read(lambda tx: tx.of(GroupTurns).find_by_key(group.id, "x")) is None
            assert await store.write(claim, second) is None
            assert await store.write(claim, first, "there") is None
            held = await store.write(claim, first)
            assert held is not None and (held.status, held.lease_number, held.started_at) == ("running", 1, AT)
            assert await store.write(claim, first) is None

            member = GroupMember(agent_id=ada, name="agent 0", conversation_seq=1)
            plan = GroupPlan(kind="dynamic", participants=(member,), manager=member, max_cost_usd=0.5)
            begun, text = await store.write(lambda tx: tx.of(GroupTurns).begin(held, plan))
            assert (begun.plan, text) == (plan, "input")
            assert (await store.write(lambda tx: tx.of(GroupTurns).begin(held, plan)))[1] is None
            spent = replace(begun, usage=Usage(input_tokens=7), step_count=2, cost_usd=0.25)
            await store.write(lambda tx: tx.of(GroupTurns).spend(spent))
            assert await store.write(lambda tx: tx.of(GroupTurns).keep_lease(begun)) == spent
            later = await store.write(lambda tx: tx.of(GroupTurns).keep_lease(begun, until=LATER))
            assert later == replace(spent, lease_until=LATER)
            taken = await store.write(lambda tx: claim(tx, first, "there", dead_owner="here"))
            assert taken is not None
            with raises(LeaseLost):
                await store.write(lambda tx: tx.of(GroupTurns).keep_lease(held))
            assert await store.write(lambda tx: tx.of(GroupTurns).request_cancel((group.id, 0)))
            assert not await store.write(lambda tx: tx.of(GroupTurns).request_cancel((group.id, 0)))
            assert await store.write(lambda tx: tx.of(GroupTurns).release("there")) == 1
            failure = Failure(kind="error", message="no")
            ended = await store.write(lambda tx: tx.of(GroupTurns).end(taken, "error", failure=failure, at=LATER))
            assert (ended.status, ended.stop_reason, ended.ended) == ("failed", "error", True)
            again = await store.write(lambda tx: tx.of(GroupTurns).end(taken, "end_turn", failure=None, at=LATER))
            assert again == await store.read(lambda tx: tx.of(GroupTurns).get(group.id, 0))
            assert again.stop_reason == "error"
            assert await store.write(claim, second, "anyone") is not None
            with raises(NotFound):
                await store.read(lambda tx: tx.of(GroupTurns).get(group.id, 2))

    async def test_a_transcript_grows_and_is_reset(self) -> None:
        """Entries by number; after a reset the earlier ones are in no list, but still those of their turn."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.agents, 2)
            group = await store.write(self.new_group, ada, bob)
            turn = await store.write(self.add_turn, group.id)
            entries = [
                GroupMessage(group_id=group.id, turn_seq=turn.seq, kind="user", parts=(Text(text),), created_at=AT)
                for text in AWKWARD
            ]
            speech = GroupMessage(
                group_id=group.id,
                turn_seq=turn.seq,
                place=0,
                kind="speech",
                sender_id=ada,
                sender_name="agent 0",
                message_id=MessageId("message-1"),
                message_seq=3,
                ends_turn=True,
                seen_seq=8,
                created_at=AT,
            )
            added = await store.write(lambda tx: tx.of(GroupMessages).append(group.id, [*entries, speech]))
            assert [one.seq for one in added] == list(range(len(AWKWARD) + 1))

            def found(tx: Tx, /, **values: Any) -> list[GroupMessage]:
                return list(tx.of(GroupMessages).list(group.id, **values))

            assert await store.read(found) == added
            assert await store.read(lambda tx: found(tx, above=1, below=4)) == added[2:4]
            assert await store.read(lambda tx: found(tx, newest_first=True, limit=1)) == [added[-1]]
            assert await store.read(lambda tx: tx.of(GroupMessages).list_of_turn(group.id, 0)) == added
            assert await store.read(lambda tx: tx.of(GroupMessages).find(group.id, MessageId("message-1"))) == added[-1]
            assert await store.read(lambda tx: tx.of(GroupMessages).find(group.id, MessageId("message-2"))) is None
            assert await store.read(lambda tx: tx.of(GroupMessages).list_without_message(group.id)) == added[:-1]
            assert await store.read(lambda tx: tx.of(GroupMessages).find_seen(group.id, ada)) == 8
            assert await store.read(lambda tx: tx.of(GroupMessages).find_seen(group.id, bob)) is None
            await store.write(lambda tx: tx.of(Groups).reset(group.id))
            assert await store.read(found) == []
            assert await store.read(lambda tx: tx.of(GroupMessages).find_seen(group.id, ada)) is None
            assert await store.read(lambda tx: tx.of(GroupMessages).list_of_turn(group.id, 0)) == added
            member = GroupMember(agent_id=ada, name="agent 0", conversation_seq=0)
            await store.write(lambda tx: tx.of(Groups).put_conversation(group.id, member))
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Groups).reset(GroupId("group-none")))
            with raises(NotFound):
                await store.write(lambda tx: tx.of(GroupMessages).append(GroupId("group-none"), [speech]))

    async def test_a_deleted_group_is_removed_row_by_row(self) -> None:
        """Its agents stay."""
        async with self.open_store() as store:
            (ada,) = await store.write(self.agents, 1)
            group = await store.write(self.new_group, ada)
            await store.write(self.add_turn, group.id)
            assert (await store.write(lambda tx: tx.of(Groups).add(replace(group, id=GroupId("group-2"))))).number
            await store.write(lambda tx: tx.of(Groups).delete(group.id))
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=1, chars=1)):
                pass

            assert await store.read(
                lambda tx: [one.id for one in tx.of(Groups).page(where=GroupFilter(agent_id=ada))]
            ) == ["group-2"]
