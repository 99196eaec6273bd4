"""Units of work on the turns of groups: accept, begin, cancel and end one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from perdure.core.blocks import Author
from perdure.core.errors import GroupBusy, IdempotencyMismatch, InvalidInput, LimitReached, NotFound
from perdure.core.ids import AgentId, ConversationId, GroupId
from perdure.core.messages import Draft, parts_to_json, text_of
from perdure.core.runs import NO_OPTIONS, Failure, IfBusy, RunOptions
from perdure.engine.budget import check_agent_size, find_limit
from perdure.engine.conversations.reset import reset_conversations
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.rows import decode_drafts, encode_drafts
from perdure.features.groups.log import GroupLog, load_group_log
from perdure.features.groups.next_action import Finish
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.values import SLEEPTIME_KINDS, Group, GroupMember, GroupMessage, GroupPlan, GroupTurn
from perdure.features.groups.work_tables import GroupTurns, Passes
from perdure.storage.tx import Tx


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
        """It tells a retry from another request under the same key."""
        messages = [[draft.role, parts_to_json(draft.parts)] for draft in self.drafts]
        return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


def accept_turn(tx: Tx, request: GroupRequest, inputs: UnitInputs) -> GroupTurn:
    """Add a queued turn, reserved for this process until the lease ends.

    Raises: NotFound; InvalidInput: the group has no agents left; IdempotencyMismatch; GroupBusy; MessageTooLarge;
        LimitReached: nobody could speak.
    """
    tx.of(Groups).lock(request.group_id)
    if request.idempotency_key is not None:
        known = tx.of(GroupTurns).find_by_key(request.group_id, request.idempotency_key)
        if known is not None:
            turn, digest = known
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
    """Check a message by the limits of all agents that it is for. Raises: MessageTooLarge; LimitReached: the manager,
    or each of the others, may not begin a run."""
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
    """Claim a turn, and begin it if nobody has: it gets its settings, and the user's messages stand in the transcript.
    None: it can't be claimed now."""
    tx.of(Groups).lock(turn.group_id)
    claimed = tx.of(GroupTurns).claim(
        turn.group_id, turn.seq, owner=inputs.owner, at=inputs.now, until=inputs.until, dead_owner=dead_owner
    )
    if claimed is None:
        return None
    if claimed.plan is None:
        claimed, text = tx.of(GroupTurns).begin(claimed, _plan_of(tx, tx.of(Groups).get(turn.group_id), inputs))
        drafts, _ = decode_drafts(text or "[]")
        entries = [_entry_of(claimed, draft, inputs.now) for draft in drafts]
        tx.of(GroupMessages).append(turn.group_id, entries)
    return load_group_log(tx, turn.group_id, turn.seq)


def has_work(tx: Tx, at: datetime) -> bool:
    """Whether turns, or passes of companions, go on or wait."""
    return bool(tx.of(GroupTurns).list_oldest(limit=1) or tx.of(Passes).list_unended(limit=1))


def cancel_turn(tx: Tx, group_id: GroupId, seq: int, at: datetime) -> GroupTurn:
    """Request the end of a turn; one that nobody has begun ends at once. Raises: NotFound."""
    tx.of(Groups).lock(group_id)
    turn = tx.of(GroupTurns).get(group_id, seq)
    tx.of(GroupTurns).request_cancel(group_id, seq)
    if turn.status == "queued":
        return tx.of(GroupTurns).end(turn, "cancelled", failure=None, at=at)
    return tx.of(GroupTurns).get(group_id, seq)


def finish_turn(tx: Tx, turn: GroupTurn, action: Finish, at: datetime) -> GroupTurn:
    """End a turn under its lease. Raises: LeaseLost."""
    tx.of(Groups).lock(turn.group_id)
    failure = Failure(kind=_kind_of(tx, action), message=action.problem) if action.problem else None
    return tx.of(GroupTurns).end(tx.of(GroupTurns).keep_lease(turn), action.reason, failure=failure, at=at)


def _kind_of(tx: Tx, action: Finish) -> str:
    """The kind of failure that all causes of an end are of, so that it is answered as one of an agent alone."""
    kinds = set[str]()
    for cause in action.causes:
        run = None
        with suppress(NotFound):
            run = None if cause.run_id is None else tx.runs.get(cause.run_id, hidden=True)
        kinds.add("group_error" if run is None or run.failure is None else run.failure.kind)
    return kinds.pop() if len(kinds) == 1 else "group_error"


def _plan_of(tx: Tx, group: Group, inputs: UnitInputs) -> GroupPlan:
    """The settings of a group as they are now; an agent whose conversation was deleted gets a new one. An agent with a
    companion is written to in its first conversation, as if its user wrote to it."""
    members: dict[str, GroupMember] = {}
    for agent_id, name, conversation_seq in tx.of(Groups).members(group.id):
        if group.kind in SLEEPTIME_KINDS:
            conversation_seq = 0
        elif conversation_seq is None or not _is_there(tx, tx.conversations.get_by_seq(agent_id, conversation_seq).id):
            conversation_id = ConversationId(inputs.ids.new("conversation"))
            conversation = tx.conversations.add(agent_id, conversation_id, summary=f"In {group.id}", at=inputs.now)
            conversation_seq = conversation.seq
            tx.of(Groups).put_conversation(
                group.id, GroupMember(agent_id=agent_id, name=name, conversation_seq=conversation_seq)
            )
        members[agent_id] = GroupMember(agent_id=agent_id, name=name, conversation_seq=conversation_seq)
    return GroupPlan(
        kind=group.kind,
        participants=tuple(members[one] for one in group.agent_ids),
        manager=None if group.manager_agent_id is None else members[group.manager_agent_id],
        termination_token=group.termination_token,
        max_turns=group.max_turns,
        max_tokens=group.max_tokens,
        max_cost_usd=group.max_cost_usd,
    )


def _is_there(tx: Tx, conversation_id: ConversationId) -> bool:
    """Whether the conversation was not deleted."""
    try:
        tx.conversations.get(conversation_id)
    except NotFound:
        return False
    return True


def _entry_of(turn: GroupTurn, draft: Draft, at: datetime) -> GroupMessage:
    """A user's message as it stands in the transcript."""
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
    for agent_id, _, conversation_seq in await ports.store.read(_load_idle, group_id):
        if conversation_seq is not None:
            await reset_conversations(agent_id, conversation_seq, ports, author=author)
    await ports.store.write(_reset, group_id)


def _load_idle(tx: Tx, group_id: GroupId) -> list[tuple[AgentId, str, int | None]]:
    """The agents of a group in which no turn goes on. Raises: NotFound, GroupBusy."""
    tx.of(Groups).get(group_id)
    if (turn := tx.of(GroupTurns).find_active(group_id)) is not None:
        raise GroupBusy(group_id, turn.seq)
    return list(tx.of(Groups).members(group_id))


def _reset(tx: Tx, group_id: GroupId) -> None:
    tx.of(Groups).lock(group_id)
    if (turn := tx.of(GroupTurns).find_active(group_id)) is not None:
        raise GroupBusy(group_id, turn.seq)
    tx.of(Groups).reset(group_id)
