"""Summary nodes, and what a conversation knows of its view."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, LATER, Contract, raises


def node_of(agent_id: AgentId, *, conversation_seq: int = 0, text: str = "said", level: int = 0) -> SummaryNode:
    return SummaryNode(
        agent_id=agent_id,
        conversation_seq=conversation_seq,
        seq=0,
        level=level,
        from_message_seq=3,
        upto_message_seq=2**40,
        children=(1, 2) if level else (),
        message_count=7,
        since=AT,
        until=AT + timedelta(days=400, microseconds=1),
        text=text,
        tokens=99,
        made_by="extract" if level else "model",
        model="test/model \x00",
        rejected="empty \ud800" if level else None,
        usage=Usage(input_tokens=5, cached_input_tokens=2),
        created_at=LATER,
    )


class NodeContract(Contract):
    async def test_nodes_are_numbered_within_their_conversation(self) -> None:
        """From 0; each comes back as it was put, by its number and in pages."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> list[SummaryNode]:
                first = [tx.nodes.add(node_of(agent.id, text=text, level=i % 2)) for i, text in enumerate(AWKWARD)]
                return [*first, tx.nodes.add(node_of(agent.id, conversation_seq=1))]

            *first, other = await store.write(fill)
            assert [one.seq for one in first] == list(range(len(AWKWARD)))
            assert [replace(one, seq=0) for one in first] == [
                node_of(agent.id, text=text, level=i % 2) for i, text in enumerate(AWKWARD)
            ]
            assert other.seq == 0
            assert await store.read(lambda tx: tx.nodes.next_seq(agent.id, 0)) == len(AWKWARD)
            assert await store.read(lambda tx: tx.nodes.next_seq(agent.id, 0, at=AT)) == 0  # they are made later

            def look(tx: Tx) -> list[object]:
                return [
                    tx.nodes.list(agent.id, 0),
                    tx.nodes.list(agent.id, 0, limit=2),
                    tx.nodes.list_by_seqs(agent.id, 0, [4, 0, 99]),
                    tx.nodes.list_by_seqs(agent.id, 0, []),
                    tx.nodes.list(agent.id, 1),
                ]

            assert await store.read(look) == [first, first[:2], [first[4], first[0]], [], [other]]

    async def test_another_organisation_has_no_part_in_them(self) -> None:
        """It neither sees nor adds nodes of an agent that is not its own; deleting the agent removes them."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: tx.nodes.add(node_of(agent.id)))

            assert await other.read(lambda tx: tx.nodes.list(agent.id, 0)) == []
            with raises(NotFound):
                await other.write(lambda tx: tx.nodes.add(node_of(agent.id)))
            await store.write(lambda tx: tx.agents.delete(agent.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.nodes.add(node_of(agent.id)))
            assert await store.read(lambda tx: tx.nodes.list(agent.id, 0)) == []

    async def test_the_newest_nodes_are_listed_and_know_of_later_changes_of_their_messages(self) -> None:
        """Of their own messages only, and only of changes after the node was made."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                agent = self.add_agent(tx)
                rows = tx.messages.append((agent.id, 0), [self.draft(text) for text in "abc"], [1, 1, 1], at=AT)
                tx.messages.revise(rows[0].id, None, author=ADA, at=AT)
                fields: dict[str, Any] = {"upto_message_seq": rows[1].seq, "created_at": AT + timedelta(seconds=1)}
                nodes = [tx.nodes.add(replace(node_of(agent.id), from_message_seq=0, **fields)) for _ in range(3)]
                assert tx.nodes.list_newest(agent.id, 0) == nodes
                assert tx.nodes.list_newest(agent.id, 0, limit=2) == nodes[1:]
                assert not tx.nodes.is_outdated(nodes[0])
                tx.messages.revise(rows[2].id, None, author=ADA, at=LATER)
                assert not tx.nodes.is_outdated(nodes[0])
                tx.messages.revise(rows[1].id, None, author=ADA, at=LATER)
                assert tx.nodes.is_outdated(nodes[0])

            await store.write(unit)

    async def test_nodes_are_found_by_a_message_and_rewritten_with_their_copies(self) -> None:
        """Children before what stands for them; a copy has the range and the time of its original, and no children."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:

            def unit(tx: Tx) -> AgentId:
                agent = self.add_agent(tx)
                ranges = [(0, 9), (10, 19), (0, 19), (20, 29)]
                nodes = [
                    tx.nodes.add(
                        replace(
                            node_of(agent.id, level=int(last - first > 9)),
                            from_message_seq=first,
                            upto_message_seq=last,
                            created_at=AT + timedelta(seconds=last),
                        )
                    )
                    for first, last in ranges
                ]
                copy = tx.nodes.add(replace(nodes[2], conversation_seq=1, children=()))
                tx.nodes.add(replace(nodes[3], conversation_seq=1, created_at=LATER))
                assert tx.nodes.list_behind(agent.id, 0, [12]) == [nodes[1], nodes[2]]
                assert tx.nodes.list_behind(agent.id, 0, [9, 20, 2**40]) == [nodes[0], nodes[2], nodes[3]]
                assert tx.nodes.list_behind(agent.id, 0, []) == tx.nodes.list_behind(agent.id, 0, [30]) == []
                assert [tx.nodes.list_copies(node) for node in nodes] == [[], [], [copy], []]
                fields: dict[str, Any] = {"tokens": 1, "made_by": "model", "method": "capped", "revised_at": LATER}
                new = replace(nodes[1], text="x \x00", model=None, rejected=None, usage=Usage(), **fields)
                tx.nodes.put(new)
                assert tx.nodes.list(agent.id, 0) == [nodes[0], new, *nodes[2:]]
                return agent.id

            agent_id = await store.write(unit)
            [*_, last] = before = await store.read(lambda tx: tx.nodes.list(agent_id, 0))
            await other.write(lambda tx: tx.nodes.put(replace(last, text="theirs")))
            assert await other.read(lambda tx: tx.nodes.list_behind(agent_id, 0, [5])) == []
            assert await other.read(lambda tx: tx.nodes.list_copies(before[2])) == []
            assert await store.read(lambda tx: tx.nodes.list(agent_id, 0)) == before

    async def test_a_conversation_keeps_how_its_rows_are_shown(self) -> None:
        """Stubs, the view's estimate and its correction; appending adds to the estimate and may correct it again."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            before = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            stubs = {17: 200, 2**40: 3}
            await store.write(
                lambda tx: tx.conversations.put_view(agent.id, 0, view_tokens=500, stubs=stubs, overcount=-40)
            )
            after = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            assert (before.stubs, before.overcount) == ({}, 0)
            assert after == replace(before, view_tokens=500, stubs=stubs, overcount=-40)

            def say(tx: Tx, overcount: int | None) -> None:
                tx.messages.append((agent.id, 0), [self.draft("x")], [7], at=AT, overcount=overcount)

            await store.write(say, None)
            assert (await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))).overcount == -40
            await store.write(say, 60)
            corrected = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            assert (corrected.view_tokens, corrected.overcount, corrected.stubs) == (514, 60, stubs)

    async def test_a_prefix_keeps_what_it_shows_of_the_past(self) -> None:
        """Its summary, the nodes it was made of, and the rows it holds on to."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            prefix = Prefix(
                agent_id=agent.id,
                seq=0,
                conversation_seq=0,
                reason="window",
                system="s",
                tools=({"name": "t"},),
                summary="earlier \x00 \ud800",
                nodes=(4, 7),
                pinned=(2**40,),
                created_at=AT,
            )
            stored = await store.write(lambda tx: tx.prefixes.add(prefix))
            assert await store.read(lambda tx: tx.prefixes.get(agent.id, stored.seq)) == replace(prefix, seq=stored.seq)

    async def test_what_a_run_used_besides_its_steps_is_summed(self) -> None:
        """It stands on the run's row before the run ends."""
        async with self.open_store() as store:
            run = await store.write(lambda tx: self.add_run(tx, self.add_agent(tx).id))
            for _ in range(2):
                await store.write(lambda tx: tx.runs.spend(run.key, Usage(input_tokens=5, output_tokens=2)))
            used = (await store.read(lambda tx: tx.runs.get_by_key(run.key))).usage
            assert used == Usage(input_tokens=10, output_tokens=4)

    async def test_the_newest_factor_of_a_model_is_kept(self) -> None:
        """1 before anything is known; each organisation's own."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            model = "test/m \x00"
            assert await store.read(lambda tx: tx.steps.get_factor(model)) == 1.0
            for factor in (1.5, 1.75, 1.25):
                await store.write(lambda tx, factor=factor: tx.steps.put_factor(model, factor))  # type: ignore[misc]
            assert await store.read(lambda tx: tx.steps.get_factor(model)) == 1.25
            assert await store.read(lambda tx: tx.steps.get_factor("test/other")) == 1.0
            assert await other.read(lambda tx: tx.steps.get_factor(model)) == 1.0
