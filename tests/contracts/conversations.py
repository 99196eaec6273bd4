"""Conversations as lists show them: pages, changes, and what is taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.conversations import EPHEMERAL, Conversation, ConversationFilter, ConversationOrder, SystemMessage
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, raises
from tests.contracts.organisations import system_message_of

ALL = ConversationFilter()


class ConversationContract(Contract):
    def begin(
        self,
        tx: Tx,
        agent_id: AgentId,
        *,
        hours: int = 0,
        summary: str | None = None,
        settings: Mapping[str, Any] | None = None,
        hidden: bool = False,
    ) -> Conversation:
        conversation_id, at = ConversationId(self.ids.new("conversation")), AT + timedelta(hours=hours)
        return tx.conversations.add(agent_id, conversation_id, at=at, summary=summary, settings=settings, hidden=hidden)

    async def test_pages_leave_out_first_and_hidden_ones(self) -> None:
        """Of one agent or of all, newest first unless asked otherwise; each page goes on where the one before ended."""
        async with self.open_store() as store:
            ada, ben = await store.write(self.add_agent), await store.write(self.add_agent, "ben")

            def fill(tx: Tx) -> list[Conversation]:
                self.begin(tx, ada.id, hidden=True)
                made = [self.begin(tx, owner.id) for owner in (ada, ben, ada)]
                return [*made, self.begin(tx, ada.id, hours=1)]

            one, two, three, four = await store.write(fill)

            async def page(where: ConversationFilter = ALL, **asked: object) -> list[Conversation]:
                return list(await store.read(lambda tx: tx.conversations.page(where, **asked)))  # type: ignore[arg-type]

            # Of those made at one time the agents' order decides, then the conversations' own.
            assert await page() == [four, two, three, one]
            assert await page(ascending=True) == [one, three, two, four]
            assert await page(limit=2) == [four, two]
            assert await page(limit=2, after=two.id) == [three, one]
            assert await page(ascending=True, after=three.id) == [two, four]
            assert await page(ConversationFilter(agent_id=ada.id)) == [four, three, one]
            with raises(NotFound):
                await page(after=ConversationId("conv-none"))

    async def test_they_are_sorted_by_what_happened_in_them(self) -> None:
        """By the last message, or the last run that ended; those without come last."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> list[Conversation]:
                lines = [self.begin(tx, agent.id) for _ in range(3)]
                self.say(tx, agent.id, "late", conversation_seq=lines[0].seq, at=LATER)
                self.say(tx, agent.id, "early", conversation_seq=lines[1].seq, at=AT)
                return lines

            one, two, three = [line.id for line in await store.write(fill)]

            async def order(by: ConversationOrder) -> list[ConversationId]:
                return [line.id for line in await store.read(lambda tx: tx.conversations.page(ALL, order=by))]

            assert await order("last_message") == [one, two, three]
            assert await order("last_run") == [three, two, one]

    async def test_what_is_said_about_one_can_be_changed_and_looked_for(self) -> None:
        """Its summary, its settings, and whether it is archived."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            line = await store.write(lambda tx: self.begin(tx, agent.id, summary="On Walruses", settings={"a": 1}))
            other = await store.write(self.begin, agent.id)
            changed = replace(line, summary="100% seals", settings={"b": 2}, archived_at=LATER)

            async def find(where: ConversationFilter) -> list[ConversationId]:
                return [one.id for one in await store.read(lambda tx: tx.conversations.page(where))]

            assert await store.read(lambda tx: tx.conversations.get(line.id)) == line
            assert await find(ConversationFilter(text="walrus")) == [line.id]
            stored = await store.write(lambda tx: tx.conversations.put(changed, at=LATER))
            assert stored == replace(changed, updated_at=LATER)
            assert await store.read(lambda tx: tx.conversations.get(line.id)) == stored
            assert await find(ConversationFilter(text="walrus")) == []
            assert await find(ConversationFilter(text="0% S")) == [line.id]
            assert await find(ConversationFilter(archived=True)) == [line.id]
            assert await find(ConversationFilter(archived=False)) == [other.id]

    async def test_a_removed_one_is_neither_got_nor_listed(self) -> None:
        """Its number is not given again, and it can't be changed; its rows are still there."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            line = await store.write(self.begin, agent.id)
            await store.write(self.say, agent.id, "hello", conversation_seq=1)
            await store.write(lambda tx: tx.conversations.remove(line, at=LATER))

            with raises(NotFound):
                await store.read(lambda tx: tx.conversations.get(line.id))
            with raises(NotFound):  # nor does it take what somebody says who found it just before
                await store.read(lambda tx: tx.conversations.get_state(agent.id, line.seq))
            with raises(NotFound):
                await store.write(lambda tx: tx.conversations.put(line, at=LATER))
            with raises(NotFound):
                await store.write(lambda tx: tx.conversations.remove(line, at=LATER))
            assert await store.read(lambda tx: tx.conversations.page(ALL)) == []
            assert [one.seq for one in await store.read(lambda tx: tx.conversations.list(agent.id))] == [0]
            assert (await store.write(self.begin, agent.id)).seq == 2
            assert len(await store.read(lambda tx: tx.messages.view(agent.id, 1, from_seq=0, upto_seq=9))) == 1

    async def test_ephemeral_ones_without_a_new_message_are_found(self) -> None:
        """One at a time, in the order of their agents; only hidden ones of hidden agents."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[Conversation]:
                agents = [tx.agents.put(replace(self.add_agent(tx, name), hidden=True)) for name in ("a", "b", "c")]
                self.begin(tx, self.add_agent(tx, "seen").id, settings={EPHEMERAL: True}, hidden=True)
                self.begin(tx, agents[0].id, hidden=True)
                return [self.begin(tx, one.id, settings={EPHEMERAL: True}, hidden=True) for one in agents]

            first, used, last = await store.write(fill)
            await store.write(self.say, used.agent_id, "hello", conversation_seq=1, at=AT + timedelta(hours=2))

            async def find(after: int, hours: int) -> tuple[ConversationId, int] | None:
                before = AT + timedelta(hours=hours)
                return await store.read(lambda tx: tx.conversations.find_unused(before=before, after=after))

            assert await find(-1, 0) is None
            found: list[ConversationId] = []
            after = -1
            while one := await find(after, 2):
                found.append(one[0])
                after = one[1]
            assert found == [first.id, last.id]
            assert await find(after, 3) is None

    async def test_an_agent_has_the_model_and_options_of_its_conversation(self) -> None:
        """Its own window is of its own model; a change of them is a new revision of its settings."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            settings = {"temperature": 0.1, "context_window_tokens": 9_000}
            agent = await store.write(lambda tx: tx.agents.put(replace(agent, settings=settings)))
            own = {"model": "x/y", "options": {"top_p": 0.5}}
            line = await store.write(lambda tx: self.begin(tx, agent.id, settings=own))

            assert await store.read(lambda tx: tx.conversations.get_agent(agent.id, 0)) == agent
            found = await store.read(lambda tx: tx.conversations.get_agent(agent.id, line.seq))
            assert (found.model, found.settings) == ("x/y", {"temperature": 0.1, "top_p": 0.5})
            assert (await store.read(lambda tx: tx.conversations.get_state(agent.id, line.seq))).agent == found
            for shapes, added in ((False, 0), (True, 1)):
                await store.write(
                    lambda tx, shapes=shapes: tx.conversations.put(line, at=LATER, shapes_requests=shapes)  # type: ignore[misc]
                )
                now = await store.read(lambda tx: tx.agents.get(agent.id))
                assert now.settings_revision == agent.settings_revision + added

    async def test_system_messages_are_listed_before_the_log_in_order_of_their_conversations(self) -> None:
        """Each is replaced under its id; those of a removed conversation and of a deleted agent are gone."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            lines = [await store.write(self.begin, agent.id) for _ in range(2)]
            first = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
            for text in ("old", "new \ud800"):
                for line in (first, *lines):
                    message = system_message_of(line, f"{text} {line.seq}")
                    later = replace(message, created_at=LATER, compiled_at=LATER)
                    await store.write(tx_put, message if text == "old" else later)

            def texts(tx: Tx, /, **page: Any) -> list[str]:
                return [message.text for message in tx.system_messages.list(agent.id, **page)]

            assert await store.read(texts) == ["new \ud800 0", "new \ud800 1", "new \ud800 2"]
            assert await store.read(lambda tx: texts(tx, limit=2, newest_first=True)) == [
                "new \ud800 2",
                "new \ud800 1",
            ]
            assert await store.read(lambda tx: texts(tx, conversation_seq=1)) == ["new \ud800 1"]
            stored = (await store.read(lambda tx: tx.system_messages.list(agent.id)))[1]
            second = stored.as_message
            assert second.seq < 0 and second.created_at == AT
            assert await store.read(lambda tx: tx.messages.place(second.id)) == (agent.id, second.seq)
            assert await store.read(lambda tx: texts(tx, after_seq=second.seq)) == ["new \ud800 2"]
            assert await store.read(lambda tx: texts(tx, before_seq=second.seq)) == ["new \ud800 0"]
            assert await store.read(lambda tx: texts(tx, after_seq=0)) == []
            assert await store.read(lambda tx: texts(tx, conversation_seq=1, before_seq=second.seq)) == []
            found = await store.read(lambda tx: tx.system_messages.find(agent.id, 1))
            assert found is not None and (found.compiled_at, found) == (LATER, stored)
            assert await store.read(lambda tx: tx.system_messages.find_ids([(agent.id, 1), (agent.id, 7)])) == {
                (agent.id, 1): second.id
            }
            renewed = lambda tx, seq: tx.system_messages.renew(agent.id, seq, {"block-1": 3}, at=AT)  # noqa: E731
            assert await store.write(renewed, 1) and not await store.write(renewed, 7)
            found = await store.read(lambda tx: tx.system_messages.find(agent.id, 1))
            assert found == replace(stored, text="", blocks={"block-1": 3}, compiled_at=AT)
            await store.write(lambda tx: tx.conversations.remove(lines[0], at=LATER))
            assert await store.read(lambda tx: tx.system_messages.find(agent.id, 1)) is None
            assert await store.read(texts) == ["new \ud800 0", "new \ud800 2"]
            await store.write(lambda tx: tx.agents.delete(agent.id))
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=20)):
                pass
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.place(second.id))
            with raises(NotFound):
                await store.write(tx_put, system_message_of(first))


def tx_put(tx: Tx, message: SystemMessage) -> SystemMessage:
    return tx.system_messages.put(message)
