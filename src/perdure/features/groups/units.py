"""Create, change, check and delete groups of agents; accept, begin, cancel and end their turns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict, get_args

from perdure.core.blocks import Author
from perdure.core.conversations import ConversationFilter
from perdure.core.errors import GroupBusy, IdempotencyMismatch, InvalidInput, LimitReached, NotFound
from perdure.core.ids import AgentId, BlockId, ConversationId, GroupId, Ids, MessageId
from perdure.core.messages import Draft, parts_to_json, text_of
from perdure.core.runs import NO_OPTIONS, Failure, IfBusy, RunOptions
from perdure.domain.values import check_fields, check_range, check_short_text, is_there
from perdure.engine.budget import check_agent_size, find_limit
from perdure.engine.conversations.reset import reset_conversations
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.records.rows import decode_drafts, encode_drafts
from perdure.features.groups.log import FinishAction, GroupLog, load_group_log
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.values import (
    SLEEPTIME_KINDS,
    Group,
    GroupFilter,
    GroupKind,
    GroupMember,
    GroupMessage,
    GroupPlan,
    GroupTurn,
)
from perdure.features.groups.work_tables import GroupTurns, Passes
from perdure.storage.tx import Tx

PARTICIPANTS_MAX = 50
DESCRIPTION_CHARS = 20_000
TOKEN_CHARS = 200
TURNS_MAX = 1_000
FREQUENCY_MAX = 10_000
TERMINATION_TOKEN = "DONE!"
"""What the agents of a dynamic group write to end a turn, unless it has a word of its own."""


class GroupFields(TypedDict, total=False):
    """The fields of a group besides its agents. A missing field has its default."""

    description: str
    shared_block_ids: Sequence[BlockId]
    termination_token: str | None
    max_turns: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    project_id: str | None
    hidden: bool


class GroupChanges(GroupFields, total=False):
    """The fields of a group that can change. A missing field stays; None removes a limit or sets the default."""

    agent_ids: Sequence[AgentId]
    manager_agent_id: AgentId | None
    frequency: int | None
    max_message_buffer_length: int | None
    min_message_buffer_length: int | None
    last_message_id: MessageId | None


class NewGroup(GroupChanges, total=False):
    """The fields of a new group, by default one in which each speaks in turn."""

    kind: GroupKind


def create_group(tx: Tx, new: NewGroup, *, ids: Ids, at: datetime) -> Group:
    """Create a group. Its agents get a conversation of their own for it, and its blocks.

    Raises: InvalidInput; NotFound: an agent or block; TooMany; AlreadyExists: an agent has another block of that label.
    """
    values: dict[str, Any] = {"kind": "round_robin", **new}
    blocks = _parse_ids("shared_block_ids", values.pop("shared_block_ids", ()))
    values["agent_ids"] = _parse_ids("agent_ids", values.get("agent_ids", ()))
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
    blocks = _parse_ids("shared_block_ids", values.pop("shared_block_ids", before.shared_block_ids))
    if "agent_ids" in values:
        values["agent_ids"] = _parse_ids("agent_ids", values["agent_ids"])
    after = _check_group(tx, replace(before, **values), before=before)
    if after == before and blocks == before.shared_block_ids:
        return before
    for agent_id in {*before.members} - {*after.members}:
        for block_id in before.shared_block_ids:
            tx.of(Groups).unshare_block(group_id, agent_id, block_id)
    after = tx.of(Groups).put(replace(after, updated_at=at))
    for block_id in before.shared_block_ids:
        if block_id not in blocks:
            for agent_id in after.members:
                tx.of(Groups).unshare_block(group_id, agent_id, block_id)
    _open_conversations(tx, after, ids=ids, at=at)
    _share_blocks(tx, after, blocks)
    return tx.of(Groups).get(group_id)


def _check_group(tx: Tx, group: Group, *, before: Group | None) -> Group:
    """Return the group, with a termination token if its kind needs one, after checking all its fields.

    Raises: InvalidInput, NotFound.
    """
    if group.kind not in get_args(GroupKind):
        raise InvalidInput(f"kind is {group.kind!r:.80}: use {', '.join(get_args(GroupKind))}")
    _check_agents(tx, group, old_members=() if before is None else before.members)
    for name, most in (("description", DESCRIPTION_CHARS), ("termination_token", TOKEN_CHARS), ("project_id", 200)):
        check_short_text(name, getattr(group, name), most, may_be_none=name != "description")
    if not isinstance(group.hidden, bool):
        raise InvalidInput(f"hidden is {group.hidden!r:.80}: give True or False")
    if group.kind == "dynamic":
        group = replace(group, termination_token=(group.termination_token or "").strip() or TERMINATION_TOKEN)
    elif group.termination_token is not None:
        raise InvalidInput(f"termination_token is of dynamic groups: a {group.kind} group has none")
    check_short_text("last_message_id", group.last_message_id, 200)
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


def _check_agents(tx: Tx, group: Group, *, old_members: Collection[AgentId]) -> None:
    """Check who belongs to a group; `old_members`, who belonged to it before, exist. Raises: InvalidInput, NotFound."""
    if not group.agent_ids:
        raise InvalidInput("agent_ids is empty: a group needs at least one agent")
    if len(group.agent_ids) > PARTICIPANTS_MAX:
        raise InvalidInput(f"agent_ids has {len(group.agent_ids)} agents: a group has at most {PARTICIPANTS_MAX}")
    if twice := [agent for agent in dict.fromkeys(group.agent_ids) if group.agent_ids.count(agent) > 1]:
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
            raise InvalidInput(
                f"{manager} is the manager and in agent_ids: the manager is not a participant of its group"
            )
    for agent_id in group.members:
        if agent_id in old_members:
            continue
        tx.agents.model(agent_id)  # it is there
        sleeping = tx.of(Groups).page(where=GroupFilter(agent_id=agent_id, kinds=SLEEPTIME_KINDS), limit=200)
        if any(agent_id in agent.agent_ids for agent in sleeping):
            raise InvalidInput(f"{agent_id} is the companion of another agent: it can't belong to a {group.kind} group")
        has_one = any(agent_id == agent.manager_agent_id for agent in sleeping)
        if group.kind in SLEEPTIME_KINDS and has_one:  # they would wake one another for ever
            raise InvalidInput(
                f"{agent_id} has a companion: it can't get another one, nor be one itself. Take that away first"
            )


def _open_conversations(tx: Tx, group: Group, *, ids: Ids, at: datetime) -> None:
    """Give each agent that has none a conversation for this group. Companions speak with nobody."""
    if group.kind in SLEEPTIME_KINDS:
        return
    for agent_id, name, conversation_seq in tx.of(Groups).members(group.id):
        if conversation_seq is None:
            open_conversation(tx, group, agent_id, name, ids=ids, at=at)


def open_conversation(tx: Tx, group: Group, agent_id: AgentId, name: str, *, ids: Ids, at: datetime) -> GroupMember:
    """Give an agent the conversation for this group that it has from before or from another server, or a new one."""
    title = f"In {group.id}"
    named = tx.conversations.page(ConversationFilter(agent_id=agent_id, text=title))
    there = [one for one in named if one.summary == title]
    if not there:
        there = [tx.conversations.add(agent_id, ConversationId(ids.new("conversation")), summary=title, at=at)]
    member = GroupMember(agent_id=agent_id, name=name, conversation_seq=there[0].seq)
    tx.of(Groups).put_conversation(group.id, member)
    return member


def _share_blocks(tx: Tx, group: Group, block_ids: Sequence[BlockId]) -> None:
    """Attach blocks to all agents of a group, and note which agents have them only through it."""
    for agent_id in sorted(group.members) if block_ids else ():
        own = tx.blocks.list_versions(agent_id)
        attached = [one not in own or tx.of(Groups).has_attached(agent_id, one) for one in block_ids]
        tx.blocks.attach(agent_id, *block_ids)
        for block_id, by_group in zip(block_ids, attached, strict=True):
            tx.of(Groups).share_block(group.id, agent_id, block_id, attached=by_group)


def _parse_ids(name: str, values: Any) -> tuple[Any, ...]:
    """The ids in a field `name` as a tuple. Raises: InvalidInput: it is no list, or an item is no text."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InvalidInput(f"{name} is {values!r:.80}: give a list of ids")
    return tuple(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A user's messages to a group; see `GroupRunner.send`. `options`: of its runs, with the key they count for."""

    group_id: GroupId
    drafts: Sequence[Draft]
    idempotency_key: str | None = None
    if_busy: IfBusy = "wait"
    max_steps: int | None = None
    hops: int = 0
    options: RunOptions = NO_OPTIONS

    @property
    def chars(self) -> int:
        """The characters of the messages."""
        return sum(len(text_of(draft.parts)) for draft in self.drafts)

    @property
    def digest(self) -> str:
        """The hash of the messages, which tells a retry from another request under the same key."""
        messages = [[draft.role, parts_to_json(draft.parts)] for draft in self.drafts]
        return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


def accept_turn(tx: Tx, request: GroupRequest, inputs: UnitInputs) -> GroupTurn:
    """Add a queued turn, reserved for this process until the lease ends.

    Raises: NotFound; InvalidInput: the group has no agents left; IdempotencyMismatch; GroupBusy; MessageTooLarge;
        LimitReached: nobody could speak.
    """
    tx.of(Groups).lock(request.group_id)
    if request.idempotency_key is not None:
        found = tx.of(GroupTurns).find_by_key(request.group_id, request.idempotency_key)
        if found is not None:
            turn, digest = found
            if digest != request.digest:
                raise IdempotencyMismatch(request.idempotency_key)
            return turn
    group = tx.of(Groups).get(request.group_id)
    if not group.agent_ids:
        raise InvalidInput(f"{group.id} has no agents left: give it some, or delete it")
    if request.if_busy == "reject" and (active := tx.of(GroupTurns).find_active(group.id)) is not None:
        raise GroupBusy(group.id, active.seq)
    _check_limits(tx, group, request, inputs.now)
    turn = GroupTurn(
        group_id=group.id,
        hops=request.hops,
        max_steps=request.max_steps,
        lease_owner=inputs.owner,
        lease_until=inputs.until,
        created_at=inputs.now,
    )
    text = encode_drafts(request.drafts, [0] * len(request.drafts))
    return tx.of(GroupTurns).add(turn, text, idempotency_key=request.idempotency_key, digest=request.digest)


def _check_limits(tx: Tx, group: Group, request: GroupRequest, at: datetime) -> None:
    """Raises: MessageTooLarge, for one agent; LimitReached: the manager, or every other agent, may not begin a run."""
    others = () if group.kind in SLEEPTIME_KINDS else group.agent_ids
    reached: dict[AgentId, LimitReached | None] = {}
    for agent_id in dict.fromkeys((*others, *filter(None, [group.manager_agent_id]))):
        opening = tx.conversations.get_state(agent_id, 0)
        check_agent_size(request.chars, opening.agent)
        reached[agent_id] = find_limit(tx, opening, request.options, at)
    if group.manager_agent_id is not None and (of_manager := reached[group.manager_agent_id]) is not None:
        raise of_manager
    found = [one for agent_id in others if (one := reached[agent_id]) is not None]
    if others and len(found) == len(others):
        raise min(found, key=lambda one: one.retry_after_s)


def claim_turn(tx: Tx, turn: GroupTurn, inputs: UnitInputs, *, dead_owner: str | None = None) -> GroupLog | None:
    """Claim a turn for this process, and return its log; None: it can't be claimed now. One that has not begun begins:
    it gets the group's settings, and the transcript the user's messages. `dead_owner`: whose lease is void."""
    tx.of(Groups).lock(turn.group_id)
    claimed = tx.of(GroupTurns).claim(
        (turn.group_id, turn.seq), owner=inputs.owner, at=inputs.now, until=inputs.until, dead_owner=dead_owner
    )
    if claimed is None:
        return None
    if claimed.plan is None:
        claimed, text = tx.of(GroupTurns).begin(claimed, _plan_of(tx, tx.of(Groups).get(turn.group_id), inputs))
        drafts, _ = decode_drafts(text or "[]")
        entries = [_user_entry(claimed, draft, inputs.now) for draft in drafts]
        tx.of(GroupMessages).append(turn.group_id, entries)
    return load_group_log(tx, turn.group_id, turn.seq)


def has_work(tx: Tx, at: datetime) -> bool:
    """Whether turns, or passes of companions, go on or wait."""
    return bool(tx.of(GroupTurns).list_oldest(limit=1) or tx.of(Passes).list_unended(limit=1))


def cancel_turn(tx: Tx, group_id: GroupId, seq: int, at: datetime) -> GroupTurn:
    """Ask a turn to end, and return it; one that has not begun ends at once. Raises: NotFound."""
    tx.of(Groups).lock(group_id)
    turn = tx.of(GroupTurns).get(group_id, seq)
    tx.of(GroupTurns).request_cancel((group_id, seq))
    if turn.status == "queued":
        return tx.of(GroupTurns).end(turn, "cancelled", failure=None, at=at)
    return tx.of(GroupTurns).get(group_id, seq)


def finish_turn(tx: Tx, turn: GroupTurn, action: FinishAction, at: datetime) -> GroupTurn:
    """End a turn under its lease. Raises: LeaseLost."""
    tx.of(Groups).lock(turn.group_id)
    failure = Failure(kind=_failure_kind(tx, action), message=action.problem) if action.problem else None
    return tx.of(GroupTurns).end(tx.of(GroupTurns).keep_lease(turn), action.reason, failure=failure, at=at)


def _failure_kind(tx: Tx, action: FinishAction) -> str:
    """The kind of failure of all causes of an end, as if an agent alone had failed; `group_error`: several kinds."""
    kinds = set[str]()
    for cause in action.causes:
        run = None
        with suppress(NotFound):
            run = None if cause.run_id is None else tx.runs.get(cause.run_id, hidden=True)
        kinds.add("group_error" if run is None or run.failure is None else run.failure.kind)
    return kinds.pop() if len(kinds) == 1 else "group_error"


def _plan_of(tx: Tx, group: Group, inputs: UnitInputs) -> GroupPlan:
    """Return the present settings of a group; an agent whose conversation was deleted gets a new one. An agent with a
    companion is addressed in its first conversation, as by its user."""
    members: dict[str, GroupMember] = {}
    for agent_id, name, seq in tx.of(Groups).members(group.id):
        seq = 0 if group.kind in SLEEPTIME_KINDS else seq
        if seq is not None and is_there(tx.conversations.get, tx.conversations.get_by_seq(agent_id, seq).id):
            members[agent_id] = GroupMember(agent_id=agent_id, name=name, conversation_seq=seq)
        else:
            members[agent_id] = open_conversation(tx, group, agent_id, name, ids=inputs.ids, at=inputs.now)
    return GroupPlan(
        kind=group.kind,
        participants=tuple(members[one] for one in group.agent_ids),
        manager=None if group.manager_agent_id is None else members[group.manager_agent_id],
        termination_token=group.termination_token,
        max_turns=group.max_turns,
        max_tokens=group.max_tokens,
        max_cost_usd=group.max_cost_usd,
    )


def _user_entry(turn: GroupTurn, draft: Draft, at: datetime) -> GroupMessage:
    """The entry of the transcript for a user's message."""
    return GroupMessage(
        group_id=turn.group_id,
        turn_seq=turn.seq,
        kind="user",
        sender_name=draft.name or "",
        message_id=draft.id,
        parts=draft.parts,
        created_at=at,
    )


async def reset_group(group_id: GroupId, ports: Ports, *, author: Author) -> None:
    """Empty the group's transcript and the conversations that its agents have for it; their other conversations stay.
    If it is interrupted, the next call goes on with it.

    Raises: NotFound, StoreError; GroupBusy, ConversationBusy: a turn, or the run of an agent, has not ended.
    """
    for agent_id, _, conversation_seq in await ports.store.read(_load_idle_members, group_id):
        if conversation_seq is not None:
            await reset_conversations(agent_id, conversation_seq, ports, author=author)
    await ports.store.write(_reset, group_id)


def _load_idle_members(tx: Tx, group_id: GroupId) -> list[tuple[AgentId, str, int | None]]:
    """The agents of a group with their names and conversations. Raises: NotFound; GroupBusy: a turn goes on."""
    tx.of(Groups).get(group_id)
    if (turn := tx.of(GroupTurns).find_active(group_id)) is not None:
        raise GroupBusy(group_id, turn.seq)
    return list(tx.of(Groups).members(group_id))


def _reset(tx: Tx, group_id: GroupId) -> None:
    tx.of(Groups).lock(group_id)
    _load_idle_members(tx, group_id)
    tx.of(Groups).reset(group_id)
