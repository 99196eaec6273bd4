"""When a pass of a companion is due, what it reads, and its end. All of it follows from what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from perdure.context.sections.pass_input import PassInput, build_pass_input
from perdure.core.errors import NotFound
from perdure.core.groups.group import FINISH_TOOLS, FREQUENCY, SLEEPTIME_KINDS, Group, Pass, PassCause, PassOutcome
from perdure.core.ids import AgentId, Ids, RunId
from perdure.core.messages import Message
from perdure.core.ports import TokenCounter
from perdure.core.provenance.sources import Source
from perdure.core.text.zones import zone
from perdure.domain.companions.units import find_companion, follow_blocks, share_archive
from perdure.domain.groups.units import update_group
from perdure.domain.provenance.context import range_sources
from perdure.storage.tx import Tx

TRIES = 5
"""After so many failures in a row a companion waits for its agent's next turns."""

MESSAGES_MAX = 1_000
"""The most messages of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLimits:
    """The limits of passes.

    Args:
        steps, tokens: the model calls of a pass, and its tokens in and out, unless its group says otherwise.
        retry_s: how long a companion waits after its first failure; each time four times as long.
    """

    steps: int
    tokens: int
    retry_s: float

    def steps_of(self, group: Group) -> int:
        """The model calls of a pass of this group."""
        return self.steps if group.max_turns is None else group.max_turns

    def tokens_of(self, group: Group) -> int:
        """The tokens of a pass of this group."""
        return self.tokens if group.max_tokens is None else group.max_tokens

    def retry_at(self, failed: Pass) -> datetime | None:
        """When a pass that failed is tried again; None: with the agent's next turns."""
        if failed.ended_at is None or failed.outcome == "cancelled" or failed.failures + 1 >= TRIES:
            return None
        return failed.ended_at + timedelta(seconds=self.retry_s * float(4**failed.failures))


@dataclass(frozen=True, slots=True)
class CompanionState:
    """A companion's group, its newest pass, and how many turns its agent has had since."""

    group: Group
    last: Pass | None
    turns: int

    @property
    def turns_counter(self) -> int:
        """The count that Letta's clients are shown; -1: the agent has had no turn yet."""
        if not self.turns and self.last is None:
            return -1
        return self.turns % (self.group.frequency or FREQUENCY)


def load_companion(tx: Tx, group: Group) -> CompanionState:
    """The state of a companion."""
    assert group.manager_agent_id is not None
    last = tx.passes.find_last(group.manager_agent_id, group.id)
    after = -1 if last is None else last.upto_run_seq
    turns = tx.passes.count_turns(group.manager_agent_id, from_seq=_from_seq(tx, group), after_run_seq=after)
    return CompanionState(group, last, turns)


def with_turns_counter(tx: Tx, group: Group) -> Group:
    """The group with the count of turns towards the next pass, if it has a companion."""
    if group.kind not in SLEEPTIME_KINDS or group.manager_agent_id is None:
        return group
    return replace(group, turns_counter=load_companion(tx, group).turns_counter)


def due_cause(tx: Tx, agent_id: AgentId, limits: PassLimits, *, now: datetime) -> PassCause | None:
    """Why a pass of the agent's companion is due; None: none is."""
    if (group := find_companion(tx, agent_id)) is None:
        return None
    state = load_companion(tx, group)
    last = state.last
    if last is not None and last.outcome is None:
        return last.cause  # it goes on
    if last is not None and last.is_full and not last.failed:
        return "rest"
    if last is not None and last.failed and (at := limits.retry_at(last)) is not None and at <= now:
        return "retry"
    if state.turns >= (group.frequency or FREQUENCY):
        return "turns"
    since = _from_seq(tx, group) - 1 if last is None else last.upto_seq
    return "compaction" if tx.messages.list(agent_id, after_seq=since, kinds=("compaction",), limit=1) else None


def begin_due_pass(tx: Tx, agent_id: AgentId, limits: PassLimits, *, ids: Ids, at: datetime) -> Pass | None:
    """Begin the pass that is due, or return the one that goes on; None: none is due, or it has ended meanwhile.
    Raises: NotFound."""
    tx.agents.lock(agent_id)
    cause = due_cause(tx, agent_id, limits, now=at)
    return None if cause is None else begin_pass(tx, agent_id, cause, ids=ids, at=at)


def begin_pass(tx: Tx, agent_id: AgentId, cause: PassCause, *, ids: Ids, at: datetime) -> Pass | None:
    """Store that a pass begins, or return the one that goes on; None: the agent has no companion, or has said nothing
    new. Its companion shares the agent's blocks and archive from here on. Raises: NotFound."""
    tx.agents.lock(agent_id)
    if (group := find_companion(tx, agent_id)) is None:
        return None
    last = tx.passes.find_last(agent_id, group.id)
    if last is not None and last.outcome is None:
        return tx.passes.ask(last) if cause == "request" else last
    from_seq = _from_seq(tx, group)
    apart = tx.passes.list_apart(agent_id)
    newest = [
        message
        for message in tx.messages.list(
            agent_id, after_seq=from_seq - 1, newest_first=True, limit=MESSAGES_MAX if apart else 1
        )
        if message.conversation_seq not in apart
    ]
    if not newest:
        return None
    follow_blocks(tx, agent_id)
    share_archive(tx, group, agent_id, ids=ids, at=at)
    return tx.passes.add(
        Pass(
            agent_id=agent_id,
            group_id=group.id,
            companion_id=group.agent_ids[0],
            cause=cause,
            from_seq=from_seq,
            upto_seq=tx.messages.next_seq(agent_id) - 1,
            last_message_id=newest[0].id,
            upto_run_seq=tx.passes.last_run_seq(agent_id),
            failures=last.failures + 1 if last is not None and last.failed else 0,
            run_id=RunId(ids.new("run")),
            created_at=at,
        )
    )


def said_in_pass(tx: Tx, one: Pass) -> Sequence[Message]:
    """The messages that a pass is about, and one more than it may have."""
    return tx.messages.list(
        one.agent_id,
        after_seq=one.from_seq - 1,
        before_seq=one.upto_seq + 1,
        kinds=("message",),
        limit=MESSAGES_MAX + 1,
    )


def read_pass(
    tx: Tx, one: Pass, messages: Sequence[Message], *, counter: TokenCounter, budget_tokens: int
) -> PassInput:
    """What a companion is given to read in a pass about these messages. Raises: NotFound."""
    agent, apart = tx.agents.get(one.agent_id), tx.passes.list_apart(one.agent_id)
    labels = {block.id: block.label for block in tx.blocks.list_by_agent(agent.id)}
    shared = tx.blocks.list_versions(one.companion_id)
    tools = {tool.spec.name for tool in tx.tools.list_by_agent(one.companion_id)}
    built = build_pass_input(
        agent.name,
        [label for block_id, label in labels.items() if block_id in shared],
        [message for message in messages[:MESSAGES_MAX] if message.conversation_seq not in apart],
        zone=zone(agent.timezone),
        counter=counter,
        budget_tokens=budget_tokens,
        finish_tool=next((name for name in FINISH_TOOLS if name in tools), FINISH_TOOLS[0]),
    )
    if len(messages) > MESSAGES_MAX and not built.is_full:
        built = replace(built, last=messages[MESSAGES_MAX - 1], is_full=True)
    return built


def pass_sources(tx: Tx, one: Pass) -> tuple[Source, ...]:
    """What the messages that a companion reads in a pass brought from outside: it is in the companion's context."""
    apart = tx.passes.list_apart(one.agent_id)
    seqs = [each.seq for each in tx.conversations.list(one.agent_id) if each.seq not in apart]
    return range_sources(tx, one.agent_id, seqs, from_seq=one.from_seq, upto_seq=one.upto_seq)


def narrow_pass(tx: Tx, one: Pass, read: PassInput) -> Pass:
    """Store that a pass has room for some of its messages only."""
    if not read.is_full or read.last is None:
        return one
    return tx.passes.narrow(one, upto_seq=read.last.seq, last_message_id=read.last.id)


def end_pass(tx: Tx, one: Pass, outcome: PassOutcome, *, ids: Ids, at: datetime) -> Pass | None:
    """End a pass; its messages count as read, unless it failed. None: it has ended already."""
    tx.agents.lock(one.agent_id)
    ended = tx.passes.end(one, outcome, at=at)
    if ended is not None and not ended.failed:
        group = find_companion(tx, one.agent_id)
        if group is not None and group.id == one.group_id:
            update_group(tx, group.id, {"last_message_id": ended.last_message_id}, ids=ids, at=at)
    return ended


def _from_seq(tx: Tx, group: Group) -> int:
    """The number of the first message that the companion has not read."""
    if group.last_message_id is None:
        return 0
    try:
        return tx.messages.place(group.last_message_id)[1] + 1
    except NotFound:
        return 0
