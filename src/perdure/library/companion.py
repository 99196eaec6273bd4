"""The companion of an agent: on and off, how often it wakes, and its passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.core.ids import AgentId
from perdure.core.text.reprs import short_repr
from perdure.library.services import Services
from perdure.library.services.groups.companions import CompanionChanges, CompanionInfo, PassInfo


class AsyncCompanion:
    """The companion of one agent. Every method raises NotFound when the agent is gone."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._agent_id = services.companions, agent_id

    async def info(self) -> CompanionInfo | None:
        """The companion, how often it wakes, and its last pass; None: the agent has none."""
        return await self._service.find(self._agent_id)

    async def enable(self) -> CompanionInfo:
        """Give the agent a companion, which reads what is said from now on; one that is there stays. Raises:
        InvalidInput: the agent is a companion itself."""
        return await self._service.enable(self._agent_id)

    async def disable(self) -> None:
        """Delete the companion with its history. What it wrote into blocks and archive stays."""
        await self._service.disable(self._agent_id)

    async def update(self, **changes: Unpack[CompanionChanges]) -> CompanionInfo:
        """Change when the companion wakes, and what a pass may take.

        Args:
            changes: `frequency`: it wakes after so many turns of the agent. `max_steps`, `max_tokens`: the model calls
                of a pass, and its tokens in and out; None: those of the settings. A missing field stays.
        Raises: NotFound: there is no companion; InvalidInput: no such field, or a value below 1.
        """
        return await self._service.update(self._agent_id, changes)

    async def wake(self) -> PassInfo | None:
        """Have the companion read what is new, and return its pass once it has ended; None: nothing new was said.

        Raises: NotFound: there is no companion.
        """
        one = await self._service.wake(self._agent_id)
        return None if one is None else await self._service.wait(one)

    async def passes(self, *, limit: int = 20, before: int | None = None) -> Sequence[PassInfo]:
        """The passes, newest first, with what each changed and why; `before` is the number of the last one of the page
        before. Raises: InvalidInput."""
        return await self._service.passes(self._agent_id, limit=limit, before=before)
