"""Give an agent a companion, or take it away; share the agent's blocks and archive with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from perdure.core.agents import AUTOCLEAR, Agent
from perdure.core.blocks import Author
from perdure.core.errors import Conflict, InvalidInput, NotFound
from perdure.core.features import Point, feature_settings
from perdure.core.ids import AgentId, ArchiveId, GroupId, Ids
from perdure.core.tools.engine_specs import DEFAULT_RULES, DEFAULT_TOOLS
from perdure.domain.agents.units import NewAgent, create_agent
from perdure.domain.archives.passages import own_archive
from perdure.domain.blocks.units import NewBlock
from perdure.engine.ports import UnitInputs
from perdure.features.groups.feature import COMPANION, COMPANION_OF
from perdure.features.groups.tables import Groups
from perdure.features.groups.units import GroupChanges, NewGroup, create_group, update_group
from perdure.features.groups.values import FREQUENCY, SLEEPTIME_KINDS, Group, GroupFilter, GroupKind
from perdure.features.groups.work_tables import Passes
from perdure.library.agents.agents import CompanionKind
from perdure.storage.tx import Tx

COMPANION_LOST: Point[[Tx, AgentId, datetime], None] = Point("companion_lost")
"""An agent has no companion any more."""

COMPANION_FIELDS: Point[[CompanionKind], Mapping[str, Any]] = Point("companion_fields")
"""Fields of `NewAgent` of companions of this kind, where a feature brings the kind; else none."""

PERSONA = "memory_persona"
"""The label of the block that only a companion has."""

_PERSONA_TEXT = (
    "I keep the memory of the agent {name} in order while nobody waits. I read what was said, note what lasts in the"
    " block that is meant for it, correct what has changed, and keep each block short."
)
_PERSONA_DESCRIPTION = "Who you are, and how you have learned to keep the memory. Nobody else has this block."
_SUFFIX = "-sleeptime"
_WITH_AGENT = "deleted_with_agent"
"""Of companions that `enable_companion` made. An agent that a group made one is never deleted with another."""
_KIND = "kind"
"""The name in `COMPANION_OF` of the kind of a companion that a feature brings."""
_NAME_CHARS = 200

_TYPES: Mapping[CompanionKind, str] = {
    "sleeptime": "sleeptime_agent",
    "voice_sleeptime": "voice_sleeptime_agent",
    "reflection": "sleeptime_agent",
}


def find_companion(tx: Tx, agent_id: AgentId) -> Group | None:
    """The group of an agent and its companion; None: it has none."""
    groups = tx.of(Groups).page(where=GroupFilter(kinds=SLEEPTIME_KINDS, manager_agent_id=agent_id), limit=20)
    return next((group for group in groups if group.agent_ids), None)


def list_companions(tx: Tx, agent_id: AgentId) -> Sequence[AgentId]:
    """An agent's companion, if it has one."""
    group = find_companion(tx, agent_id)
    return () if group is None else group.agent_ids


def find_owner(tx: Tx, agent: Agent) -> Agent | None:
    """Return the agent whose companion this one is; None: it is no companion, or that agent was deleted."""
    link = agent.settings.get(COMPANION_OF)
    if isinstance(link, Mapping) and link.get("agent_id"):
        with suppress(NotFound):  # it is deleted, and nobody's memory is kept
            return tx.agents.get(AgentId(link["agent_id"]))
    return None


def kind_of_companion(companion: Agent) -> CompanionKind:
    """The kind of a companion."""
    kind: CompanionKind = (companion.settings.get(COMPANION_OF) or {}).get(_KIND, "sleeptime")
    return kind


def set_companion(
    tx: Tx, agent_id: AgentId, kind: CompanionKind | Literal[False], author: Author, inputs: UnitInputs
) -> None:
    """Give an agent a companion of this kind, or (False) take it away. Raises: NotFound, InvalidInput."""
    if kind is False:
        disable_companion(tx, agent_id, at=inputs.now)
    else:
        enable_companion(tx, agent_id, ids=inputs.ids, author=author, at=inputs.now, kind=kind)


def enable_companion(
    tx: Tx, agent_id: AgentId, *, ids: Ids, author: Author, at: datetime, kind: CompanionKind = "sleeptime"
) -> Group:
    """Give an agent a companion that shares its blocks, unless it has one; it reads what is said from now on. Raises:
    NotFound; InvalidInput: the agent is a companion itself; Conflict: its companion is of another kind."""
    tx.agents.lock(agent_id)
    agent = tx.agents.get(agent_id)
    group = find_companion(tx, agent_id)
    if group is None:
        if COMPANION_OF in agent.settings:
            raise InvalidInput(f"{agent.name!r} is the companion of another agent, and can't have one itself")
        group = _add_companion(tx, agent, kind, ids=ids, author=author, at=at)
    elif kind == "reflection" and kind_of_companion(tx.agents.get(group.agent_ids[0])) != kind:
        raise Conflict(f"{agent.name!r} has a companion that edits its memory: take that one away first")
    if not agent.settings.get(COMPANION):
        _put_setting(tx, agent, COMPANION, True)
    follow_blocks(tx, agent_id)
    return group


def _add_companion(tx: Tx, agent: Agent, kind: CompanionKind, *, ids: Ids, author: Author, at: datetime) -> Group:
    """Create a companion of an agent, and the group of both, which is returned. It has read all messages until now.
    Raises: InvalidInput: the feature that has this kind is missing."""
    agent_type, reflects = _TYPES[kind], kind == "reflection"
    fields = {name: value for own in COMPANION_FIELDS(kind) for name, value in own.items()}
    if reflects and not fields:
        raise InvalidInput("companions of the kind 'reflection' need the feature `proposals`, which this program lacks")
    window = agent.settings.get("context_window_tokens")
    settings: dict[str, Any] = {
        # It begins each pass with its memory only, and what it reads are no statements of a user.
        AUTOCLEAR: True,
        **{name: one.of_companions for name, (_, one) in feature_settings().items() if one.of_companions is not None},
        "tool_rules": list(DEFAULT_RULES[agent_type]),
        **({} if window is None else {"context_window_tokens": window}),
    }
    new = NewAgent(
        name=f"{agent.name[: _NAME_CHARS - len(_SUFFIX)]}{_SUFFIX}",
        model=agent.model,
        follows_default=agent.follows_default,
        agent_type=agent_type,
        timezone=agent.timezone,
        blocks=(
            NewBlock(label=PERSONA, value=_PERSONA_TEXT.format(name=agent.name), description=_PERSONA_DESCRIPTION),
        ),
        tools=tuple(dict.fromkeys((*DEFAULT_TOOLS[agent_type], "store_memories"))),
        settings=settings,
    )
    companion = create_agent(tx, replace(new, **fields), ids=ids, author=author, at=at)
    link: dict[str, Any] = {
        "agent_id": agent.id,
        "block_ids": [],
        _WITH_AGENT: True,
        **({_KIND: kind} if reflects else {}),
    }
    _put_setting(tx, companion, COMPANION_OF, link)
    group_kind: GroupKind = "voice_sleeptime" if kind == "voice_sleeptime" else "sleeptime"
    group: NewGroup = {
        "kind": group_kind,
        "agent_ids": (companion.id,),
        "manager_agent_id": agent.id,
        "frequency": FREQUENCY,
    }
    if newest := tx.messages.list(agent.id, newest_first=True, limit=1):
        group["last_message_id"] = newest[0].id
    return create_group(tx, group, ids=ids, at=at)


def disable_companion(tx: Tx, agent_id: AgentId, *, at: datetime) -> Sequence[AgentId]:
    """Delete an agent's companion with its history, and the group of both; what it wrote stays. An agent that became a
    companion by a group is released only. Return the ids of the agents that were deleted. Raises: NotFound."""
    tx.agents.lock(agent_id)
    group = find_companion(tx, agent_id)
    if group is None:
        _put_setting(tx, tx.agents.get(agent_id), COMPANION, None)
        return ()
    companions = map(tx.agents.get, group.agent_ids)
    to_delete = [companion.id for companion in companions if companion.settings.get(COMPANION_OF, {}).get(_WITH_AGENT)]
    delete_group(tx, group.id, at=at)
    for companion_id in to_delete:
        tx.agents.delete(companion_id)
    return to_delete


def delete_group(tx: Tx, group_id: GroupId, *, at: datetime) -> None:
    """Delete a group with its transcript, not its agents; companions are released, see `_release`. Raises: NotFound."""
    group = tx.of(Groups).get(group_id)
    agent_id = group.manager_agent_id
    if group.kind not in SLEEPTIME_KINDS or agent_id is None:
        tx.of(Groups).delete(group_id)
        return
    tx.agents.lock(agent_id)  # before the group, as where a pass ends
    tx.of(Groups).delete(group_id)
    _release(tx, group, group.agent_ids, at=at)


def change_group(tx: Tx, group_id: GroupId, changes: GroupChanges, *, ids: Ids, author: Author, at: datetime) -> Group:
    """Change a group and return it. A companion that leaves it, or whose agent leaves it, is released as when the group
    is deleted; a new one shares the agent's blocks. Raises: as `update_group`."""
    before = tx.of(Groups).get(group_id)
    if before.kind not in SLEEPTIME_KINDS or before.manager_agent_id is None:
        return update_group(tx, group_id, changes, ids=ids, at=at)
    managers = (before.manager_agent_id, changes.get("manager_agent_id"))
    for agent_id in sorted({id_ for id_ in managers if isinstance(id_, str)}):
        tx.agents.lock(agent_id)  # before the group, as where a pass ends
    before = tx.of(Groups).get(group_id)
    after = update_group(tx, group_id, changes, ids=ids, at=at)
    manager_id = after.manager_agent_id
    assert manager_id is not None  # a group of this kind has one
    has_moved = manager_id != before.manager_agent_id
    left = [id_ for id_ in before.agent_ids if has_moved or id_ not in after.agent_ids]
    if left:
        _release(tx, before, left, at=at)
    if has_moved and "last_message_id" not in changes:  # that is a message of the former agent
        update_group(tx, group_id, {"last_message_id": None}, ids=ids, at=at)
    enable_companion(tx, manager_id, ids=ids, author=author, at=at)
    return tx.of(Groups).get(group_id)


def _release(tx: Tx, group: Group, companion_ids: Sequence[AgentId], *, at: datetime) -> None:
    """Stop these agents from being companions of a group's manager; `group`: as before. Their pass ends and they lose
    the manager's blocks. Without any companion left, schedules that wake one end."""
    agent_id = group.manager_agent_id
    assert agent_id is not None
    last = tx.of(Passes).find_last(agent_id, group.id)
    if last is not None and last.companion_id not in {*group.agent_ids} - {*companion_ids}:
        tx.of(Passes).end(last, "cancelled", at=at)
    for companion_id in companion_ids:
        companion = tx.agents.get(companion_id)
        for block_id in companion.settings.get(COMPANION_OF, {}).get("block_ids", ()):
            tx.blocks.detach(companion_id, block_id)
        _put_setting(tx, companion, COMPANION_OF, None)
    if find_companion(tx, agent_id) is None:
        _put_setting(tx, tx.agents.get(agent_id), COMPANION, None)
        COMPANION_LOST(tx, agent_id, at)


def delete_companions(tx: Tx, agent: Agent, at: datetime) -> Sequence[AgentId]:
    """Delete the companion of an agent that is to be deleted, and return its id; of a companion only its group goes."""
    link = agent.settings.get(COMPANION_OF)
    if link is not None and (group := find_companion(tx, link["agent_id"])) is not None and agent.id in group.agent_ids:
        delete_group(tx, group.id, at=at)
        return ()
    return disable_companion(tx, agent.id, at=at)


def follow_blocks(tx: Tx, agent_id: AgentId) -> None:
    """Attach an agent's blocks to its companion, except labels that it has, and detach those the agent lost."""
    group = find_companion(tx, agent_id)
    if group is None:
        return
    wanted = {block.id: block.label for block in tx.blocks.list_by_agent(agent_id)}
    for companion_id in group.agent_ids:
        companion = tx.agents.get(companion_id)
        link = companion.settings.get(COMPANION_OF) or {"agent_id": agent_id, "block_ids": []}
        own = {block.id: block.label for block in tx.blocks.list_by_agent(companion_id)}
        for block_id in own.keys() & {*link["block_ids"]} - wanted.keys():
            tx.blocks.detach(companion_id, block_id)
            del own[block_id]
        missing = [id_ for id_, label in wanted.items() if id_ not in own and label not in own.values()]
        tx.blocks.attach(companion_id, *missing)
        shared = sorted({*missing, *link["block_ids"]} & wanted.keys())
        if shared != link["block_ids"]:
            _put_setting(tx, companion, COMPANION_OF, {**link, "block_ids": shared})


def share_archive(tx: Tx, group: Group, agent_id: AgentId, *, ids: Ids, at: datetime) -> None:
    """Attach an agent's own archive to its companion, which stores passages there. Raises: NotFound."""
    archive = own_archive(tx, agent_id, ArchiveId(ids.new("archive")), at=at)
    for companion_id in group.agent_ids:
        if archive.id not in {other.id for other in tx.archives.list_by_agent(companion_id)}:
            tx.archives.attach(companion_id, archive.id)


def _put_setting(tx: Tx, agent: Agent, name: str, value: Any) -> None:
    """Set a setting of an agent; None removes it."""
    if value is None and name not in agent.settings:
        return
    settings = {key: one for key, one in agent.settings.items() if key != name}
    tx.agents.put(replace(agent, settings=settings if value is None else {**settings, name: value}))


def list_companion_groups(tx: Tx, *, limit: int = 1_000) -> Sequence[Group]:
    """The groups of all agents with companions, oldest first."""
    groups = tx.of(Groups).page(where=GroupFilter(kinds=SLEEPTIME_KINDS), ascending=True, limit=limit)
    return [group for group in groups if group.agent_ids and group.manager_agent_id is not None]
