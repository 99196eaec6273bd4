"""Conversations that begin anew: nothing of what was said is in view, and all of it is in the log."""

from __future__ import annotations

from perdure.core.agents import Agent
from perdure.core.conversations import MessageCounts, Reset
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.core.messages import MessageFilter, Text
from perdure.core.runs import Prefix
from perdure.core.text.words import parse_query
from perdure.core.vectors import IndexFault
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, LATER, Contract, list_texts, match_messages, raises
from tests.contracts.nodes import node_of
from tests.contracts.upkeep import faults_of
from tests.contracts.vectors import MODEL, blob, vectors_in


class ResetContract(Contract):
    def two_lines(self, tx: Tx) -> Agent:
        """An agent that said a walrus in its first conversation, also in the engine's name, and in a second one."""
        agent = self.add_agent(tx)
        tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
        self.say(tx, agent.id, "a walrus", self.draft("{}", kind="memory_delta"), "a seal")
        self.say(tx, agent.id, "another walrus", conversation_seq=1)
        first = tx.messages.list(agent.id)[0]
        tx.messages.revise(first.id, [Text("an old walrus")], author=ADA, at=AT)
        prefix = tx.prefixes.add(
            Prefix(agent_id=agent.id, seq=0, conversation_seq=0, reason="first", system="s", tools=(), created_at=AT)
        )
        tx.conversations.put_seen_versions(agent.id, 0, {"block-1": 3}, prefix=prefix)
        tx.conversations.put_view(agent.id, 0, view_tokens=30, stubs={0: 1}, overcount=7)
        return agent

    async def test_what_was_said_is_out_of_view_and_in_the_log(self) -> None:
        """Of the one conversation: it is not listed, counted, found or got any more; other conversations are as before,
        numbers go on, and the next prefix begins behind it."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)
            before = await store.read(lambda tx: list(tx.messages.list(agent.id)))

            def reset(tx: Tx) -> Reset | None:
                return tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=LATER)

            made = await store.write(reset)
            line = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            opened = await store.read(lambda tx: tx.conversations.get_state(agent.id, 0))
            (new,) = await store.write(self.say, agent.id, "a walrus again")

            assert made == Reset(
                agent_id=agent.id,
                conversation_id=line.id,
                number=1,
                upto_seq=3,
                message_count=2,
                author=ADA,
                created_at=LATER,
            )
            assert (line.first_seq, line.prefix_seq, line.seen, line.view_tokens) == (4, None, {}, 0)
            assert (line.stubs, line.overcount) == ({}, 0)
            assert opened.conversation == line
            assert new.seq == 4
            assert await store.read(list_texts, agent.id) == ["another walrus", "a walrus again"]
            assert await store.read(lambda tx: tx.messages.count(agent.id)) == 2
            assert sorted(await store.read(match_messages, agent.id, "walrus")) == [3, 4]
            assert await store.read(lambda tx: tx.messages.list_by_seqs(agent.id, [0, 2])) == []
            assert await store.read(lambda tx: tx.messages.view(agent.id, 0, from_seq=0, upto_seq=9)) == [new]
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.get(before[0].id))
            kept = await store.read(lambda tx: list(tx.messages.list(agent.id, reset=True)))
            assert kept == [*before, new]
            assert await store.read(lambda tx: tx.messages.find_existing([one.id for one in before])) == {
                one.id for one in before
            }
            assert await store.read(lambda tx: tx.messages.place(before[0].id)) == (agent.id, 0)
            ids = [new.id, *(one.id for one in before)]
            gone = {one.id for one in before if one.conversation_seq == 0}
            assert await store.read(lambda tx: tx.messages.find_reset(ids)) == gone
            assert await store.read(lambda tx: tx.messages.find_reset([])) == set()

    async def test_a_past_request_shows_what_it_showed(self) -> None:
        """By the settings revision it was made with, whatever was taken out of view since."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)

            def view_texts(tx: Tx) -> list[str]:
                rows = tx.messages.view(agent.id, 0, from_seq=0, upto_seq=3, settings_revision=1)
                return [row.text for row in rows]

            before = await store.read(view_texts)
            await store.write(lambda tx: tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=LATER))

            assert before == ["an old walrus", "{}", "a seal"]
            assert await store.read(view_texts) == before

    async def test_resets_are_counted_and_listed(self) -> None:
        """An empty view is no reset; the newest of a conversation comes first; they go with their agent."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)

            def reset(tx: Tx, seq: int) -> Reset | None:
                return tx.resets.add(tx.conversations.get_by_seq(agent.id, seq), author=ADA, at=LATER)

            first = await store.write(reset, 0)
            nothing = await store.write(reset, 0)
            await store.write(self.say, agent.id, "again")
            second = await store.write(reset, 0)
            other = await store.write(reset, 1)

            assert nothing is None
            assert second is not None
            assert (second.number, second.message_count) == (2, 1)
            assert await store.read(lambda tx: tx.resets.list(agent.id)) == [second, first, other]
            assert await store.read(lambda tx: tx.resets.list(agent.id, limit=1)) == [second]
            assert await store.read(lambda tx: tx.resets.list(agent.id, conversation_seq=1)) == [other]
            await store.write(lambda tx: tx.agents.delete(agent.id))
            assert await store.read(lambda tx: tx.resets.list(agent.id)) == []

    async def test_a_reset_is_carried_out_in_steps_that_nobody_sees(self) -> None:
        """From its first moment on all that can be read is as it will be, after each step of one row, also of a reset
        that comes meanwhile; nothing that is derived is wrong at any point, and at last nothing is left of it."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)
            _, second = await store.write(self.say, agent.id, *["a walrus sleeps"] * 2)
            await store.write(lambda tx: tx.messages.revise(second.id, None, author=ADA, at=AT))

            def reset(tx: Tx, seq: int) -> Reset | None:
                return tx.resets.add(tx.conversations.get_by_seq(agent.id, seq), author=ADA, at=LATER)

            def readings(tx: Tx) -> list[object]:
                where = MessageFilter()
                return [
                    tx.messages.list(agent.id, kinds=None),
                    tx.messages.list(agent.id, conversation_seq=0, newest_first=True),
                    tx.messages.list(agent.id, kinds=None, reset=True),
                    tx.messages.view(agent.id, 0, from_seq=0, upto_seq=99),
                    tx.messages.view(agent.id, 0, from_seq=0, upto_seq=99, settings_revision=1),
                    tx.messages.list_by_seqs(agent.id, range(12)),
                    tx.messages.texts(agent.id, range(12)),
                    tx.messages.newest(agent.id, where=where, limit=9),
                    tx.turns.list(agent.id, from_seq=0, before_seq=99),
                    tx.messages.count(agent.id),
                    tx.agents.get(agent.id).message_count,
                    match_messages(tx, agent.id, "walrus"),
                    tx.messages.match(
                        agent.id, parse_query("walrus"), where=MessageFilter(roles=("user",)), limit=9
                    ).seqs,
                    tx.messages.find_reset([message.id for message in tx.messages.list(agent.id, reset=True)]),
                    tx.conversations.list_view_ids([(agent.id, 0)]),
                    tx.captures.get_backlog(agent.id, 0),
                    tx.resets.list(agent.id),
                ]

            def faults(tx: Tx) -> list[IndexFault]:
                (owner,) = [one for one in tx.upkeep.owners() if one.id == agent.id]
                return list(tx.upkeep.check(owner).faults)

            def newest(tx: Tx) -> dict[int, int]:
                """Conversation -> the last message of its newest reset."""
                each = [(seq, tx.resets.list(agent.id, conversation_seq=seq)) for seq in (0, 1)]
                return {seq: resets[0].upto_seq for seq, resets in each if resets}

            made = await store.write(reset, 0)
            assert made is not None
            assert made.message_count == 3
            assert await store.read(lambda tx: tx.resets.get_pending_seqs(agent.id)) == {0: 5}
            assert await store.read(list_texts, agent.id) == ["another walrus"]
            steps = 0
            for resets_more in (True, False):
                await store.write(self.say, agent.id, "a walrus again", "a seal again")
                if resets_more:
                    expected = await store.read(readings)
                    assert await store.write(lambda tx: tx.resets.carry_out(agent.id, limit=1))
                    assert await store.read(readings) == expected
                    again = await store.write(reset, 0)
                    assert again is not None
                    assert (again.number, again.message_count) == (2, 2)
                    await store.write(self.say, agent.id, "a third walrus")
                expected = await store.read(readings)
                assert await store.read(lambda tx: tx.resets.list_agents()) == [agent.id]
                while await store.write(lambda tx: tx.resets.carry_out(agent.id, limit=1)):
                    steps += 1
                    assert await store.read(readings) == expected
                    assert await store.read(faults) == []
                assert await store.read(readings) == expected
                assert await store.read(faults) == []
                assert await store.read(lambda tx: tx.resets.list_agents()) == []
                assert await store.read(lambda tx: tx.resets.get_pending_seqs(agent.id)) == {}
                assert await store.read(lambda tx: tx.resets.get_last_seqs(agent.id)) == await store.read(newest)
                if resets_more:
                    await store.write(reset, 1)
            assert steps >= 7

    async def test_texts_out_of_view_need_no_vectors(self) -> None:
        """While a reset is carried out some have one, and those that waited for one get none: neither is wrong."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> Agent:
                agent = self.add_agent(tx)
                tx.vectors.open(agent.number, "agent", agent.id, MODEL)
                self.say(tx, agent.id, "a walrus", "a seal", "a gull")
                tx.vectors.put(agent.number, [(1, blob(1, 0))], model=MODEL, dimensions=2)
                tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=AT)
                self.say(tx, agent.id, "a penguin")
                return agent

            def take(tx: Tx, agent: Agent) -> None:
                claims = tx.vectors.claim(MODEL, at=AT, until=LATER, limit=9)
                gone = [claim for claim in claims if not tx.messages.list_by_seqs(agent.id, [claim.seq])]
                assert [claim.seq for claim in gone] == [0, 2]
                tx.vectors.drop(gone, claimed=LATER)

            agent = await store.write(fill)
            await store.write(take, agent)
            for limit in (1, 9):
                assert await store.read(faults_of) == []
                await store.write(lambda tx, limit=limit: tx.resets.carry_out(agent.id, limit=limit))  # type: ignore[misc]
            assert await store.read(faults_of) == []
            assert await store.read(lambda tx: vectors_in(tx, agent.number)) == {}

    async def test_what_was_counted_before_spares_counting(self) -> None:
        """Whatever happened since: something was said, removed, or the conversation was reset already."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)

            def reset(tx: Tx, seq: int = 0) -> Reset | None:
                return tx.resets.add(tx.conversations.get_by_seq(agent.id, seq), author=ADA, at=LATER, counts=counted)

            counted = await store.read(lambda tx: tx.resets.count_messages(agent.id))
            assert counted == MessageCounts(
                next_seq=4, settings_revision=counted.settings_revision, counts={0: 2, 1: 1}
            )
            await store.write(self.say, agent.id, "more")
            first = await store.write(reset)
            await store.write(self.say, agent.id, "again", "and again")
            second = await store.write(reset)
            counted = await store.read(lambda tx: tx.resets.count_messages(agent.id))
            at_once = await store.write(reset, 1)
            (new,) = await store.write(self.say, agent.id, "new", conversation_seq=1)
            counted = await store.read(lambda tx: tx.resets.count_messages(agent.id))
            await store.write(lambda tx: tx.messages.revise(new.id, None, author=ADA, at=AT))
            await store.write(self.say, agent.id, "newer", conversation_seq=1)
            revised = await store.write(reset, 1)

            made = [first, second, at_once, revised]
            assert [one and one.message_count for one in made] == [3, 2, 1, 1]
            assert await store.read(lambda tx: tx.messages.count(agent.id)) == 0
            with raises(NotFound):
                await store.read(lambda tx: tx.resets.count_messages(AgentId("agent-none")))

    async def test_an_agent_may_go_while_its_reset_is_carried_out(self) -> None:
        """Nothing is left of either."""
        async with self.open_store() as store:
            agent = await store.write(self.two_lines)
            await store.write(lambda tx: tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=LATER))
            await store.write(lambda tx: tx.resets.carry_out(agent.id, limit=1))
            await store.write(lambda tx: tx.agents.delete(agent.id))

            assert not await store.write(lambda tx: tx.resets.carry_out(agent.id))
            assert await store.read(lambda tx: tx.resets.list_agents()) == []

    async def test_nodes_can_be_listed_from_a_message_on(self) -> None:
        """Those before it stand for what a reset took out of view."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            node = await store.write(lambda tx: tx.nodes.add(node_of(agent.id)))

            def nodes(tx: Tx, first: int) -> list[int]:
                return [one.seq for one in tx.nodes.list(agent.id, 0, from_message_seq=first)]

            assert await store.read(nodes, node.from_message_seq) == [node.seq]
            assert await store.read(nodes, node.from_message_seq + 1) == []

    async def test_a_conversation_that_is_not_there_is_not_reset(self) -> None:
        """Whoever deleted its agent was quicker."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            line = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            await store.write(lambda tx: tx.agents.delete(agent.id))

            with raises(NotFound):
                await store.write(lambda tx: tx.resets.add(line, author=ADA, at=AT))
            assert await store.read(lambda tx: tx.resets.list(AgentId("agent-none"))) == []
