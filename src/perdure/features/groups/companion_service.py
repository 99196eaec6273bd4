"""Companions of agents: on and off, how often they wake, and their passes with what each changed and why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, Unpack, cast, get_args

from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.errors import NotFound
from perdure.core.events import MemoryEdited
from perdure.core.ids import AgentId, BlockId
from perdure.core.runs import NO_USAGE, Failure, Run, Usage
from perdure.core.text.reprs import short_repr
from perdure.domain.values import check_fields, check_range
from perdure.engine.conversations.reset import delete
from perdure.features.groups.companions import (
    disable_companion,
    enable_companion,
    find_companion,
    kind_of_companion,
    list_companion_groups,
)
from perdure.features.groups.passes import load_companion
from perdure.features.groups.units import TURNS_MAX, GroupChanges, update_group
from perdure.features.groups.values import Group, Pass, PassCause, last_words
from perdure.features.groups.work_tables import Passes
from perdure.features.groups.worker import Companions
from perdure.library.agents.agents import CompanionKind
from perdure.library.memory.blocks import reason_in
from perdure.library.parts.checks import check_choice, check_limit, outside
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.storage.tx import Tx

WAIT_S = 0.05
OFF_HELPS = "it has none: `agent.companion.enable()` or `perdure companion on AGENT` gives it one"


class CompanionChanges(TypedDict, total=False):
    """What can be changed of a companion. A missing field stays; None is the default of the settings."""

    frequency: int
    max_steps: int | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class PassEdit:
    """A version of a block that a pass wrote, and its difference from the one before."""

    block_id: BlockId
    label: str
    version: int
    diff: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassInfo(Pass):
    """A pass of a companion with what it did.

    Args:
        reason: what the companion said of its edits.
        edits: the versions of blocks that it wrote, in order.
        failure: why its run failed.
    """

    __repr__ = short_repr("number", "cause", "outcome", "reason")

    reason: str
    edits: tuple[PassEdit, ...]
    steps: int
    usage: Usage
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionInfo:
    """The companion of an agent.

    Args:
        frequency: it wakes after so many turns of its agent.
        turns: how many turns there were since its last pass.
        max_steps, max_tokens: the limits of a pass; None: those of the settings.
    """

    __repr__ = short_repr("agent_name", "name", "frequency")

    agent_id: AgentId
    agent_name: str
    companion: Agent
    group: Group
    turns: int
    last_pass: PassInfo | None

    @property
    def name(self) -> str:
        """The companion's name."""
        return self.companion.name

    @property
    def kind(self) -> CompanionKind:
        """Whether it keeps the agent's memory, or reflects."""
        return kind_of_companion(self.companion)

    @property
    def frequency(self) -> int | None:
        return self.group.frequency

    @property
    def max_steps(self) -> int | None:
        return self.group.max_turns

    @property
    def max_tokens(self) -> int | None:
        return self.group.max_tokens


class AsyncCompanion(AsyncPart):
    """The companion of one agent. Every method raises NotFound when the agent is gone."""

    @reads
    def info(self, tx: Tx) -> CompanionInfo | None:
        """The companion, how often it wakes, and its last pass; None: the agent has none."""
        tx.agents.model(self._id)
        group = find_companion(tx, self._id)
        return None if group is None else _companion_info(tx, group)

    async def get(self) -> CompanionInfo:
        """The companion, how often it wakes, and its last pass. Raises: NotFound: the agent has none."""
        if (found := await self.info()) is None:
            raise NotFound("companion of", self._id, hint=OFF_HELPS)
        return found

    async def list(self) -> Sequence[CompanionInfo]:
        """The companions of all agents, oldest first."""
        return await self._ports.store.read(lambda tx: [_companion_info(tx, one) for one in list_companion_groups(tx)])

    @writes
    def enable(self, tx: Tx, *, kind: CompanionKind = "sleeptime", author: Author | None = None) -> CompanionInfo:
        """Give the agent a companion that reads what is said from now on, if it has none. One of the kind `reflection`
        reads what failed, and only proposes changes. Raises: InvalidInput."""
        ports = self._ports
        check_choice("kind", kind, get_args(CompanionKind))
        group = enable_companion(
            tx, self._id, ids=ports.ids, author=author or outside(), at=ports.clock.now(), kind=kind
        )
        return _companion_info(tx, group)

    async def disable(self) -> None:
        """Delete the companion with its history. What it wrote into blocks and archive stays."""
        now = self._ports.clock.now()
        await delete(self._ports, lambda tx: disable_companion(tx, self._id, at=now))

    async def update(self, **changes: Unpack[CompanionChanges]) -> CompanionInfo:
        """Change when the companion wakes, and what a pass may take.

        Args:
            changes: `frequency`: it wakes after so many turns of the agent. `max_steps`, `max_tokens`: the model calls
                of a pass, and its tokens in and out; None: those of the settings. A missing field stays.
        Raises: NotFound: there is no companion; InvalidInput: no such field, or a value below 1.
        """
        ports = self._ports
        check_fields("a companion", changes, CompanionChanges.__annotations__)
        if changes.get("max_steps") is not None:
            check_range("max_steps", changes["max_steps"], 1, TURNS_MAX)
        names = {"max_steps": "max_turns"}
        values = cast(GroupChanges, {names.get(name, name): value for name, value in changes.items()})

        def update(tx: Tx) -> CompanionInfo:
            """Change the companion's settings. Raises: NotFound: the agent has none."""
            if (group := find_companion(tx, self._id)) is None:
                raise NotFound("companion of", self._id, hint=OFF_HELPS)
            return _companion_info(tx, update_group(tx, group.id, values, ids=ports.ids, at=ports.clock.now()))

        updated = await ports.store.write(update)
        self._app.service(Companions).look(self._id)
        return updated

    async def wake(self) -> PassInfo | None:
        """Have the companion read what is new, and return its pass once it has ended; None: nothing new was said.

        Raises: NotFound: there is no companion.
        """
        one = await self.begin()
        return None if one is None else await self.wait(one)

    async def begin(self, *, cause: PassCause = "request") -> Pass | None:
        """Begin a pass and return it, or the one that is under way; None: nothing new was said. Raises: as `wake`."""
        await self.get()
        return await self._app.service(Companions).wake(self._id, cause)

    @reads
    def passes(
        self, tx: Tx, *, limit: int = 20, before: int | None = None, since: datetime | None = None
    ) -> Sequence[PassInfo]:
        """The passes, newest first, with what each changed and why; `before` is the number of the last one of the page
        before; `since`: those that ended after this time. Raises: InvalidInput."""
        check_limit(limit)
        tx.agents.model(self._id)
        passes = tx.of(Passes).list(self._id, limit=limit, before=before, since=since)
        return [_pass_info(tx, pass_) for pass_ in passes]

    @reads
    def show(self, tx: Tx, one: Pass) -> PassInfo:
        """A pass as it is now. Raises: NotFound."""
        found = tx.of(Passes).find_by_run(one.run_id)
        if found is None:
            raise NotFound("pass", str(one.number))
        return _pass_info(tx, found)

    async def wait(self, one: Pass) -> PassInfo:
        """A pass once it has ended. Raises: NotFound."""
        while True:
            info = await self.show(one)
            if info.outcome is not None:
                return info
            await asyncio.sleep(WAIT_S)


def _companion_info(tx: Tx, group: Group) -> CompanionInfo:
    """What is known of the companion in a group of an agent and its companion."""
    assert group.manager_agent_id is not None
    state = load_companion(tx, group)
    return CompanionInfo(
        agent_id=group.manager_agent_id,
        agent_name=tx.agents.get(group.manager_agent_id).name,
        companion=tx.agents.get(group.agent_ids[0]),
        group=group,
        turns=state.turns,
        last_pass=None if state.last is None else _pass_info(tx, state.last),
    )


def _pass_info(tx: Tx, pass_: Pass) -> PassInfo:
    """A pass with what its run did, as far as that is stored still."""
    found = tx.runs.find_by_key(pass_.companion_id, 0, pass_.key)
    run = None if found is None else found[0]
    edits = () if run is None else _edits(tx, run)
    messages = () if run is None else tx.messages.list_by_run(run, reset=True)
    return PassInfo(
        **{name: getattr(pass_, name) for name in Pass.__slots__},
        reason=reason_in(messages) or last_words(messages),
        edits=edits,
        steps=0 if run is None else run.step_count,
        usage=NO_USAGE if run is None else run.usage,
        failure=None if run is None else run.failure,
    )


def _edits(tx: Tx, run: Run) -> tuple[PassEdit, ...]:
    """What a run has done to blocks, in order."""
    edits, after = list[PassEdit](), 0
    while events := tx.events.list(run.key, after=after):
        for event in events:
            if isinstance(edited := event.event, MemoryEdited):
                edits.append(PassEdit(BlockId(edited.block_id), edited.label, edited.version, edited.diff))
        after = events[-1].seq
    return tuple(edits)
