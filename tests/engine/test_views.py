"""The views that a process keeps of its conversations: the newest ones, within a number of bytes."""

from __future__ import annotations

from dataclasses import replace

from perdure.context.sections.assemble import View
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Text
from perdure.core.runs import Prefix
from perdure.engine.log.run_log import RequestParts
from perdure.engine.process import ViewCache, size_of
from perdure.testing import InlineStore
from perdure.testing.clock import START
from tests.contracts.base import Contract

LINES: list[ConversationKey] = [(AgentId("agent-1"), number) for number in range(4)]
PREFIX = Prefix(
    agent_id=AgentId("agent-1"),
    seq=0,
    conversation_seq=0,
    reason="first",
    system="Be kind.",
    tools=(),
    created_at=START,
)


def rows(first: int, count: int, tokens: int = 100) -> list[Message]:
    """So many messages of a user with these numbers."""
    return [
        Message(
            id=MessageId(f"message-{seq}"),
            agent_id=AgentId("agent-1"),
            seq=seq,
            conversation_seq=0,
            role="user",
            parts=(Text("hello"),),
            tokens=tokens,
            created_at=START,
            occurred_at=START,
        )
        for seq in range(first, first + count)
    ]


async def any_agent() -> Agent:
    store = InlineStore()
    agent = await store.write(Contract().add_agent)
    await store.close()
    return agent


async def test_views_that_grow_push_out_those_that_were_used_longest_ago() -> None:
    """What is kept stays within the bytes, however long the conversations become; the newest is kept alone."""
    agent, page = await any_agent(), size_of(rows(0, 10))
    views = ViewCache(max_bytes=4 * page)
    for line in LINES:
        views.keep(line, RequestParts(agent, View.of(PREFIX).with_rows(rows(0, 10))))
    assert list(views) == LINES

    for grown in range(1, 4):
        parts = views[LINES[0]]
        views.keep(LINES[0], replace(parts, view=parts.view.with_rows(rows(10 * grown, 10))))
        assert list(views) == [*LINES[grown + 1 :], LINES[0]]
        assert views.nbytes == 4 * page

    parts = views[LINES[0]]
    views.keep(LINES[0], replace(parts, view=parts.view.with_rows(rows(40, 10))))
    assert list(views) == [LINES[0]]
    assert views.nbytes == 5 * page


async def test_a_view_that_begins_anew_is_counted_anew() -> None:
    """After a compaction a conversation takes less, and others have room again."""
    agent = await any_agent()
    views = ViewCache()
    views.keep(LINES[0], RequestParts(agent, View.of(PREFIX).with_rows(rows(0, 50))))
    views.keep(LINES[0], RequestParts(agent, View.of(replace(PREFIX, seq=1)).with_rows(rows(48, 2))))

    assert views.nbytes == size_of(rows(48, 2))
