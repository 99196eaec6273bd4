"""Lists that the library returns page by page, loaded whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from perdure.core.conversations import Conversation
from perdure.library.agent import AsyncAgent
from perdure.library.archives import AsyncArchive
from perdure.library.perdure import AsyncPerdure

PAGE = 100

Item = TypeVar("Item")


async def load_all(load_page: Callable[[Item | None], Awaitable[Sequence[Item]]]) -> list[Item]:
    """Every item of a list; `load_page` gets the last item so far, None at the start."""
    items: list[Item] = []
    while page := await load_page(items[-1] if items else None):
        items += page
    return items


async def load_agents(perdure: AsyncPerdure) -> list[AsyncAgent]:
    """Every agent, oldest first."""
    return await load_all(lambda last: perdure.agents(limit=PAGE, after=last.id if last else None))


async def load_archives(perdure: AsyncPerdure) -> list[AsyncArchive]:
    """Every archive, oldest first."""
    return await load_all(lambda last: perdure.archives.list(limit=PAGE, after=last.id if last else None))


async def load_conversations(agent: AsyncAgent) -> list[Conversation]:
    """Every conversation of an agent, oldest first."""
    return await load_all(lambda last: agent.conversations(limit=PAGE, after_seq=last.seq if last else -1))
