"""Create, change and delete groups of agents, and check them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict, get_args

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, BlockId, ConversationId, GroupId, Ids, MessageId
from perdure.domain.values import check_fields, check_range
from perdure.features.groups.tables import Groups
from perdure.features.groups.values import SLEEPTIME_KINDS, Group, GroupFilter, GroupKind, GroupMember
from perdure.storage.tx import Tx

PARTICIPANTS_MAX = 50
DESCRIPTION_CHARS = 20_000
TOKEN_CHARS = 200
TURNS_MAX = 1_000
FREQUENCY_MAX = 10_000
TERMINATION_TOKEN = "DONE!"
"""What the agents of a dynamic group write to end a turn, unless it has a word of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    """The values of a new group; see `Group`."""

    kind: GroupKind = "round_robin"
    agent_ids: Sequence[AgentId]
    manager_agent_id: AgentId | None = None
    description: str = ""
    shared_block_ids: Sequence[BlockId] = ()
    termination_token: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    frequency: int | None = None
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None
    project_id: str | None = None
    hidden: bool = False


class GroupChanges(TypedDict, total=False):
    """The fields of a group that can change. A missing field stays; None removes a limit or sets the default."""

    agent_ids: Sequence[AgentId]
    manager_agent_id: AgentId | None
    description: str
    shared_block_ids: Sequence[BlockId]
    termination_token: str | None
    max_turns: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    frequency: int | None
    max_message_buffer_length: int | None
    min_message_buffer_length: int | None
    last_message_id: MessageId | None
    project_id: str | None
    hidden: bool


def create_group(tx: Tx, new: NewGroup, *, ids: Ids, at: datetime) -> Group:
    """Create a group. Its agents get a conversation of their own for it, and its blocks.

    Raises: InvalidInput; NotFound: an agent or block; TooMany; AlreadyExists: an agent has another block of that label.
    """
    values: dict[str, Any] = {name: getattr(new, name) for name in NewGroup.__slots__}
    blocks = _as_ids("shared_block_ids", values.pop("shared_block_ids"))
    values["agent_ids"] = _as_ids("agent_ids", new.agent_ids)
    group = Group(id=GroupId(ids.new("group")), org_id=tx.org_id, created_at=at, updated_at=at, **values)
    group = tx.of(Groups).add(_check_group(tx, group, before=None))
    _open_conversations(tx, group, ids=ids, at=at)
    _share_blocks(tx, group, blocks)
    return tx.of(Groups).get(group.id)


def update_group(tx: Tx, group_id: GroupId, changes: GroupChanges, *, ids: Ids, at: datetime) -> Group:
    """Change a group and return it. Agents that stay keep their conversations; one that leaves loses the blocks that it
    had because of the group.

    Raises: as `create_group`; NotFound: the group.
    """
    check_fields("a group", changes, GroupChanges.__annotations__)
    tx.of(Groups).lock(group_id)
    before = tx.of(Groups).get(group_id)
    values: dict[str, Any] = {**changes}
    blocks = _as_ids("shared_block_ids", values.pop("shared_block_ids", before.shared_block_ids))
    if "agent_ids" in values:
        values["agent_ids"] = _as_ids("agent_ids", values["agent_ids"])
    after = _check_group(tx, replace(before, **values), before=before)
    if after == before and blocks == before.shared_block_ids:
        return before
    for agent_id in _agents_of(before) - _agents_of(after):
        for block_id in before.shared_block_ids:
            tx.of(Groups).unshare_block(group_id, agent_id, block_id)
    after = tx.of(Groups).put(replace(after, updated_at=at))
    for block_id in before.shared_block_ids:
        if block_id not in blocks:
            for agent_id in _agents_of(after):
                tx.of(Groups).unshare_block(group_id, agent_id, block_id)
    _open_conversations(tx, after, ids=ids, at=at)
    _share_blocks(tx, after, blocks)
    return tx.of(Groups).get(group_id)


def _agents_of(group: Group) -> set[AgentId]:
    """Its participants and its manager."""
    return {*group.agent_ids} | ({group.manager_agent_id} if group.manager_agent_id is not None else set())


def _check_group(tx: Tx, group: Group, *, before: Group | None) -> Group:
    """Return the group, with a termination token if its kind needs one, after checking all its fields.

    Raises: InvalidInput, NotFound.
    """
    if group.kind not in get_args(GroupKind):
        raise InvalidInput(f"kind is {group.kind!r:.80}: use {', '.join(get_args(GroupKind))}")
    _check_agents(tx, group, known=() if before is None else _agents_of(before))
    for name, most in (("description", DESCRIPTION_CHARS), ("termination_token", TOKEN_CHARS), ("project_id", 200)):
        _check_text(name, getattr(group, name), most, may_be_none=name != "description")
    if not isinstance(group.hidden, bool):
        raise InvalidInput(f"hidden is {group.hidden!r:.80}: give True or False")
    if group.kind == "dynamic":
        group = replace(group, termination_token=(group.termination_token or "").strip() or TERMINATION_TOKEN)
    elif group.termination_token is not None:
        raise InvalidInput(f"termination_token is of dynamic groups: a {group.kind} group has none")
    _check_text("last_message_id", group.last_message_id, 200, may_be_none=True)
    for name in ("frequency", "last_message_id"):
        if getattr(group, name) is not None and group.kind not in SLEEPTIME_KINDS:
            raise InvalidInput(f"{name} is of groups with companions: a {group.kind} group has none")
    for name, most in (("max_turns", TURNS_MAX), ("max_tokens", 10**12), ("frequency", FREQUENCY_MAX)):
        if getattr(group, name) is not None:
            check_range(name, getattr(group, name), 1, most)
    if group.max_cost_usd is not None:
        check_range("max_cost_usd", group.max_cost_usd, 0, 10**6, whole=False)
    shortest, longest = group.min_message_buffer_length, group.max_message_buffer_length
    for name, length in (("min_message_buffer_length", shortest), ("max_message_buffer_length", longest)):
        if length is not None:
            check_range(name, length, 1, 10**6)
    if shortest is not None and longest is not None and shortest > longest:
        raise InvalidInput(f"min_message_buffer_length is {shortest}, more than max_message_buffer_length, {longest}")
    return group


def _check_agents(tx: Tx, group: Group, *, known: Collection[AgentId]) -> None:
    """Check who belongs to a group; `known` belong to it already. Raises: InvalidInput; NotFound: an agent."""
    if not group.agent_ids:
        raise InvalidInput("agent_ids is empty: a group needs at least one agent")
    if len(group.agent_ids) > PARTICIPANTS_MAX:
        raise InvalidInput(f"agent_ids has {len(group.agent_ids)} agents: a group has at most {PARTICIPANTS_MAX}")
    if twice := [one for one in dict.fromkeys(group.agent_ids) if group.agent_ids.count(one) > 1]:
        raise InvalidInput(f"agent_ids names {', '.join(twice)} more than once: each agent belongs to a group once")
    manager = group.manager_agent_id
    if group.kind == "round_robin" and manager is not None:
        raise InvalidInput("manager_agent_id: a round_robin group has no manager")
    if group.kind != "round_robin":
        if manager is None:
            raise InvalidInput(f"manager_agent_id is missing: a {group.kind} group needs a manager")
        if not isinstance(manager, str):
            raise InvalidInput(f"manager_agent_id is {manager!r:.80}: give the id of an agent")
        if manager in group.agent_ids:
            raise InvalidInput(f"{manager} is the manager and in agent_ids: a manager is no participant of its group")
    for agent_id in (*group.agent_ids, *([manager] if manager is not None else [])):
        if agent_id in known:
            continue
        tx.agents.model(agent_id)  # it is there
        if _is_companion(tx, agent_id):
            raise InvalidInput(f"{agent_id} is the companion of another agent: it can't belong to a {group.kind} group")
        if group.kind in SLEEPTIME_KINDS and _has_companion(tx, agent_id):  # they would wake one another for ever
            raise InvalidInput(
                f"{agent_id} has a companion: it can't get another one, nor be one itself. Take that away first"
            )


def _has_companion(tx: Tx, agent_id: AgentId) -> bool:
    """Whether the agent has a companion."""
    return any(
        tx.of(Groups).page(where=GroupFilter(manager_agent_id=agent_id, kind=kind), limit=1) for kind in SLEEPTIME_KINDS
    )


def _is_companion(tx: Tx, agent_id: AgentId) -> bool:
    """Whether the agent is the companion of another one."""
    groups = [
        group
        for kind in SLEEPTIME_KINDS
        for group in tx.of(Groups).page(where=GroupFilter(agent_id=agent_id, kind=kind), limit=100)
    ]
    return any(agent_id in group.agent_ids for group in groups)


def _open_conversations(tx: Tx, group: Group, *, ids: Ids, at: datetime) -> None:
    """Give each agent that has none a conversation for this group. Companions speak with nobody."""
    if group.kind in SLEEPTIME_KINDS:
        return
    for agent_id, name, conversation_seq in tx.of(Groups).members(group.id):
        if conversation_seq is None:
            conversation_id = ConversationId(ids.new("conversation"))
            conversation = tx.conversations.add(agent_id, conversation_id, summary=f"In {group.id}", at=at)
            member = GroupMember(agent_id=agent_id, name=name, conversation_seq=conversation.seq)
            tx.of(Groups).put_conversation(group.id, member)


def _share_blocks(tx: Tx, group: Group, block_ids: Sequence[BlockId]) -> None:
    """Have all agents of the group have these blocks."""
    for agent_id in sorted(_agents_of(group)) if block_ids else ():
        own = tx.blocks.list_versions(agent_id)
        attached = [one not in own or tx.of(Groups).has_attached(agent_id, one) for one in block_ids]
        tx.blocks.attach(agent_id, *block_ids)
        for block_id, by_group in zip(block_ids, attached, strict=True):
            tx.of(Groups).share_block(group.id, agent_id, block_id, attached=by_group)


def _as_ids(name: str, values: Any) -> tuple[Any, ...]:
    """The ids as a tuple. Raises: InvalidInput: no list, or an item that is no text."""
    if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
        raise InvalidInput(f"{name} is {values!r:.80}: give a list of ids")
    return tuple(values)


def _check_text(name: str, value: Any, most: int, *, may_be_none: bool) -> None:
    """Raises: InvalidInput: it is no text, or too long."""
    if value is None and may_be_none:
        return
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r:.80}: give a text")
    if len(value) > most:
        raise InvalidInput(f"{name} has {len(value):,} characters: at most {most:,} are kept")
