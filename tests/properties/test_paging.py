"""Pages over any log: each row once, in order, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.agents import Agent
from perdure.core.blocks import BlockFilter
from perdure.core.ids import AgentId, BlockId, ConversationId
from perdure.core.messages import Message
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import ADA, AT, Contract
from tests.support.strategies import effort

units = Contract()

# Rows of a log: (conversation, whether the engine added it, whether it is removed afterwards).
ROWS = st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans()), max_size=15)


async def a_log(store: InlineStore, rows: Sequence[tuple[int, bool, bool]]) -> AgentId:
    def fill(tx: Tx) -> AgentId:
        agent = units.add_agent(tx)
        tx.conversations.add(agent.id, ConversationId(units.ids.new("conversation")), at=AT)
        for conversation_seq, by_engine, removed in rows:
            draft = units.draft("text", kind="heartbeat" if by_engine else "message")
            (message,) = units.say(tx, agent.id, draft, conversation_seq=conversation_seq)
            if removed:
                tx.messages.revise(message.id, None, author=ADA, at=AT)
        return agent.id

    return await store.write(fill)


def all_pages(page_after: Callable[[int | None], Sequence[Message]]) -> list[int]:
    """The numbers on all pages, each asked for from the last number of the one before."""
    numbers: list[int] = []
    while page := page_after(numbers[-1] if numbers else None):
        numbers += [message.seq for message in page]
        assert len(numbers) <= 100, "the pages have no end"
    return numbers


@effort(12, 2000)
@given(ROWS, st.integers(1, 6), st.none() | st.integers(0, 1), st.booleans())
async def test_pages_hold_each_message_once(
    rows: list[tuple[int, bool, bool]], limit: int, conversation_seq: int | None, engine_kinds: bool
) -> None:
    """Forwards and backwards, in one conversation or all, with the engine's own messages or without."""
    store = InlineStore()
    agent_id = await a_log(store, rows)

    def forwards(tx: Tx) -> list[int]:
        return all_pages(
            lambda last: tx.messages.list(
                agent_id,
                conversation_seq=conversation_seq,
                after_seq=last,
                limit=limit,
                kinds=None if engine_kinds else ("message",),
            )
        )

    def backwards(tx: Tx) -> list[int]:
        return all_pages(
            lambda last: tx.messages.list(
                agent_id,
                conversation_seq=conversation_seq,
                before_seq=last,
                limit=limit,
                newest_first=True,
                kinds=None if engine_kinds else ("message",),
            )
        )

    visible = [
        seq
        for seq, (conversation, by_engine, removed) in enumerate(rows)
        if not removed and conversation_seq in (None, conversation) and (engine_kinds or not by_engine)
    ]
    assert await store.read(forwards) == visible
    assert await store.read(backwards) == visible[::-1]
    await store.close()


@effort(12, 1000)
@given(ROWS, st.integers(1, 4), st.integers(0, 15))
async def test_messages_that_arrive_while_paging_disturb_no_page(
    rows: list[tuple[int, bool, bool]], limit: int, later: int
) -> None:
    """A reader who goes forwards sees them at the end; one who goes backwards does not see them."""
    store = InlineStore()
    agent_id = await a_log(store, rows)
    visible = [seq for seq, (_, by_engine, removed) in enumerate(rows) if not (by_engine or removed)]
    forwards: list[int] = []
    backwards: list[int] = []
    for turn in range(40):
        after, before = forwards[-1] if forwards else None, backwards[-1] if backwards else len(rows)

        def pages(tx: Tx, after: int | None = after, before: int = before) -> tuple[list[int], list[int]]:
            next_page = tx.messages.list(agent_id, after_seq=after, limit=limit)
            page_before = tx.messages.list(agent_id, before_seq=before, limit=limit, newest_first=True)
            return [message.seq for message in next_page], [message.seq for message in page_before]

        next_page, page_before = await store.read(pages)
        forwards += next_page
        backwards += page_before
        if turn < later:
            await store.write(units.say, agent_id, "late")

    assert forwards == [*visible, *range(len(rows), len(rows) + later)]
    assert backwards == visible[::-1]
    await store.close()


@effort(12, 500)
@given(st.integers(0, 9), st.integers(1, 4))
async def test_agents_and_blocks_come_in_pages_too(count: int, limit: int) -> None:
    """Agents newest first, blocks oldest first: each once."""
    store = InlineStore()

    def fill(tx: Tx) -> tuple[list[Agent], list[BlockId]]:
        return [units.add_agent(tx) for _ in range(count)], [units.add_block(tx).id for _ in range(count)]

    agents, blocks = await store.write(fill)

    def pages(tx: Tx) -> tuple[list[str], list[str]]:
        found_agents: list[AgentId] = []
        while page := tx.agents.list(limit=limit, after=found_agents[-1] if found_agents else None):
            found_agents += [agent.id for agent in page]
        found_blocks: list[BlockId] = []
        while block_page := tx.blocks.page(
            where=BlockFilter(), ascending=True, limit=limit, after=found_blocks[-1] if found_blocks else None
        ):
            found_blocks += [block.id for block in block_page]
        return list(found_agents), list(found_blocks)

    assert await store.read(pages) == ([agent.id for agent in reversed(agents)], blocks)
    await store.close()
