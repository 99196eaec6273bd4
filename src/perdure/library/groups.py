"""The groups of the store, and one group: agents that answer together; and the companion of an agent: on and off, how
often it wakes, and its passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, Unpack

from perdure.core.groups.group import Group as GroupInfo
from perdure.core.groups.group import GroupEvent, GroupFilter, GroupKind, GroupMessage, GroupTurn
from perdure.core.ids import AgentId, BlockId, GroupId
from perdure.core.messages import Text
from perdure.core.runs import IfBusy
from perdure.core.text.reprs import short_repr
from perdure.domain.groups.units import GroupChanges, NewGroup
from perdure.library.checks import Page, check_text
from perdure.library.sending import Picture, load_images
from perdure.library.services.groups.companions import CompanionChanges, CompanionInfo, PassInfo
from perdure.library.services.groups.groups import GroupReply
from perdure.library.services.messages import NewMessage
from perdure.library.services.store import Services


class OneAgent(Protocol):
    """An agent, as the library returns it."""

    @property
    def id(self) -> AgentId: ...


class AsyncGroups:
    """All groups of the store."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create(
        self,
        kind: GroupKind,
        *,
        agents: Sequence[OneAgent | str],
        manager: OneAgent | str | None = None,
        description: str = "",
        shared_block_ids: Sequence[BlockId] = (),
        max_turns: int | None = None,
        termination_token: str | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        project_id: str | None = None,
        hidden: bool = False,
    ) -> AsyncGroup:
        """A new group of agents, which are given by objects, names or ids.

        Args:
            kind: "round_robin": each speaks in turn; "supervisor": all speak at once, then the manager answers;
                "dynamic": the manager chooses who speaks next.
            agents: who takes part, in the order in which they speak.
            manager: of a supervisor or dynamic group.
            shared_block_ids: blocks that all of them get.
            max_turns: how often participants may speak after one message; by default each once, or 10 in a dynamic
                group.
            termination_token: what ends a dynamic turn where an agent writes it; by default "DONE!".
            max_tokens, max_cost_usd: what one message may use; None: no limit.
        Raises: InvalidInput: nobody, somebody twice, a manager among the participants or where there is none, more than
            50 agents; NotFound.
        """
        new = NewGroup(
            kind=kind,
            agent_ids=await self._ids_of(agents),
            manager_agent_id=None if manager is None else (await self._ids_of([manager]))[0],
            description=description,
            shared_block_ids=shared_block_ids,
            max_turns=max_turns,
            termination_token=termination_token,
            max_tokens=max_tokens,
            max_cost_usd=max_cost_usd,
            project_id=project_id,
            hidden=hidden,
        )
        return AsyncGroup(self._services, await self._services.groups.create(new))

    async def get(self, name_or_id: str) -> AsyncGroup:
        """The group of this id, or the newest of this description. Raises: NotFound, naming what there is."""
        return AsyncGroup(self._services, await self._services.groups.resolve(name_or_id))

    async def list(
        self,
        *,
        kind: GroupKind | None = None,
        agent_id: AgentId | None = None,
        limit: int = 50,
        after: GroupId | None = None,
    ) -> list[AsyncGroup]:
        """A page of the groups, newest first; `after` is the last one of the page before.

        Args:
            agent_id: only groups that it takes part in, or manages.
        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no group `after`.
        """
        where = GroupFilter(kind=kind, agent_id=agent_id, hidden=False)
        groups = await self._services.groups.list(where, Page(limit, ascending=False, after=after))
        return [AsyncGroup(self._services, group) for group in groups]

    async def delete(self, group_id: GroupId) -> None:
        """Remove a group with its transcript; its agents stay, with what they said. Raises: NotFound."""
        await self._services.groups.delete(group_id)

    async def _ids_of(self, agents: Sequence[OneAgent | str]) -> tuple[AgentId, ...]:
        """The ids of agents. Raises: NotFound."""
        resolve = self._services.agents.resolve
        return tuple([(await resolve(one)).id if isinstance(one, str) else one.id for one in agents])


class AsyncGroup:
    """One group. `info` has its values at look-up time; its transcript is read at each call."""

    __repr__ = short_repr("id", "kind", "info.agent_ids")

    def __init__(self, services: Services, group: GroupInfo) -> None:
        self._services, self._info = services, group

    @property
    def info(self) -> GroupInfo:
        """The group's values when it was looked up: its agents, its manager, its limits."""
        return self._info

    @property
    def id(self) -> GroupId:
        """The group's id."""
        return self._info.id

    @property
    def kind(self) -> GroupKind:
        """By which rule its agents speak."""
        return self._info.kind

    async def send(
        self,
        text: str,
        *,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        images: Sequence[Picture] = (),
    ) -> GroupReply:
        """Send a message to the group, and wait until its agents have said what they have to say.

        Args:
            idempotency_key: the same key again is the same message: nobody speaks twice, and the reply is returned.
            if_busy: whether to wait for the turn under way to end, or to raise GroupBusy.
            max_steps: the most model calls of each run.
            images: pictures behind the text: files, bytes or addresses.
        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, GroupBusy, IdempotencyMismatch, StoreError. That
            an agent failed says the reply: the others go on.
        """
        turn = await self.submit(
            text, idempotency_key=idempotency_key, if_busy=if_busy, max_steps=max_steps, images=images
        )
        return await self._services.groups.reply(turn)

    async def stream(
        self,
        text: str,
        *,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        images: Sequence[Picture] = (),
    ) -> AsyncIterator[GroupEvent]:
        """Send a message to the group, and yield who speaks, the events of the speakers' runs, and last the turn's end.

        Agents that speak at once come one after the other, in order. Leaving the loop early does not stop the turn;
        `cancel` does. Raises: as `send`.
        """
        turn = await self.submit(
            text, idempotency_key=idempotency_key, if_busy=if_busy, max_steps=max_steps, images=images
        )
        async for event in self._services.groups.follow(turn):
            yield event

    async def submit(
        self,
        text: str,
        *,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
        images: Sequence[Picture] = (),
    ) -> GroupTurn:
        """Send a message without waiting. When this returns, it is durable and will be answered. Raises: as `send`."""
        check_text("text", text)
        message = NewMessage((Text(text), *await load_images(images)))
        return await self._services.groups.submit(
            self.id, [message], idempotency_key=idempotency_key, if_busy=if_busy, max_steps=max_steps
        )

    async def messages(
        self, *, limit: int = 100, after_seq: int = -1, newest_first: bool = False
    ) -> Sequence[GroupMessage]:
        """A page of the transcript, oldest first, with the texts of what was said; `after_seq` is the number of the
        last entry on the page before. Raises: InvalidInput, NotFound."""
        return await self._services.groups.list_messages(
            self.id, limit=limit, after_seq=after_seq, newest_first=newest_first
        )

    async def cancel(self, turn_seq: int | None = None) -> Sequence[GroupTurn]:
        """End a turn by its number, or all that have not ended, with the runs of their speakers; what was said stays.

        Raises: NotFound.
        """
        return await self._services.groups.cancel(self.id, turn_seq)

    async def reset(self) -> None:
        """Have the transcript begin anew, and with it what its agents saw and said in this group; their other
        conversations stay. Raises: NotFound; GroupBusy: a turn has not ended."""
        await self._services.groups.reset(self.id)

    async def update(self, **changes: Unpack[GroupChanges]) -> AsyncGroup:
        """Change the group and return it; this object keeps its old values. A turn under way goes by the old ones.

        Args:
            changes: `agent_ids` and `shared_block_ids`, replaced as a whole, `manager_agent_id`, `description`,
                `max_turns`, `termination_token`, `max_tokens`, `max_cost_usd`, `project_id`, `hidden`. A missing field
                stays.
        Raises: NotFound; InvalidInput: a value that can't be used, no such field.
        """
        return AsyncGroup(self._services, await self._services.groups.update(self.id, changes))

    async def delete(self) -> None:
        """Remove the group with its transcript; see `AsyncGroups.delete`."""
        await self._services.groups.delete(self.id)


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
