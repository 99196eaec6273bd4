"""Conversations that begin again: what was said leaves the view, and stays in the log. And what is deleted.

Leaving the view is one small transaction, however long the log is. What the store keeps for what is in view, words in
the index and vectors, is removed behind it, some rows at a time; a process that dies over that leaves it to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from perdure.core import hooks
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.conversations import EPHEMERAL, Conversation, ConversationKey, MessageCounts, Reset
from perdure.core.errors import ConversationBusy, InvalidInput, LeaseLost, NotFound, StoreDamaged, StoreError
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId
from perdure.domain.agents.automatic import AutoCapture, find_automatic
from perdure.domain.agents.capture import capture_due
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.engine.approvals.answers import give_up_pending
from perdure.engine.compaction.after_runs import capture_rest
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.rows import engine_drafts
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

T = TypeVar("T")

AGENT_DELETED: Point[[Tx, Agent, datetime], Sequence[AgentId]] = Point("agent_deleted")
"""An agent is about to be deleted. Returns: the other agents that were deleted with it."""
AGENT_GONE: Point[[Agent, Collection[AgentId]], None] = Point("agent_gone")
"""An agent was deleted, with others: all have these ids. Called in a thread, after that is stored."""

PAGE = 500
MAX_AGE = timedelta(days=1)
"""An ephemeral conversation in which nothing was said for so long is deleted with its agent."""
ENGINE = Author(kind="system", id="perdure")


async def reset_conversations(
    agent_id: AgentId, conversation_seq: int | None, ports: Ports, *, author: Author
) -> Sequence[Reset]:
    """Reset one conversation of an agent, or all of them, in one transaction; those with nothing in view stay as they
    are. What automatic capture still has to store is stored before. Calls that wait are given up. Then
    hooks are called, and what they add begins the new log. At last the resets are carried out.

    Raises: NotFound, StoreError; ConversationBusy: a run has not ended, and nothing is changed.
    """
    inputs = ports.inputs()
    captured: Mapping[int, int] = {}
    while True:
        counted = await ports.store.read(lambda tx: tx.resets.count_messages(agent_id))
        uncaptured, resets = await ports.store.write(
            _reset_captured, agent_id, conversation_seq, captured, inputs, author=author, counted=counted
        )
        if not uncaptured:
            break
        await capture_rest(ports, agent_id, tuple(uncaptured))
        captured = uncaptured
    for reset in resets:
        answers = await ports.hooks.fire(hooks.Reset(agent_id=agent_id, conversation_id=reset.conversation_id))
        if answers.context:
            await ports.store.write(_add_context, reset, answers.context, inputs)
    await _try_to_finish_reset(agent_id, ports)
    for seq in await ports.store.read(lambda tx: [tx.conversations.get(one.conversation_id).seq for one in resets]):
        ports.unread.note((agent_id, seq), now=True)
    return resets


async def delete_conversation(conversation_id: ConversationId, ports: Ports, *, author: Author) -> None:
    """Reset a conversation and take it out of every list; hooks are told that it is over. Its own blocks are deleted.
    Its rows stay in the log, but those of an ephemeral one are removed with its agent. Raises: NotFound, StoreError;
    InvalidInput: it is the agent's first; ConversationBusy."""
    counted = await ports.store.read(
        lambda tx: tx.resets.count_messages(tx.conversations.get(conversation_id).agent_id)
    )
    inputs = ports.inputs()
    agent_id, seq = await delete(ports, lambda tx: _delete(tx, conversation_id, inputs, author=author, counted=counted))
    await ports.hooks.fire(hooks.ConversationEnd(agent_id=agent_id, conversation_id=conversation_id))
    await _try_to_finish_reset(agent_id, ports)
    ports.unread.note((agent_id, seq), now=True)


async def delete_agent(agent_id: AgentId, ports: Ports) -> None:
    """Remove an agent with its whole history, and its companion. What their runs wait for in this process ends at
    once; in others, when they next extend their leases. Raises: NotFound, StoreError."""

    def unit(tx: Tx) -> tuple[Agent, set[AgentId]]:
        """Delete the agent; return it, and the ids of all agents whose memory changed with it."""
        agent = tx.agents.get(agent_id)
        others = AGENT_DELETED(tx, agent, ports.clock.now())
        tx.agents.delete(agent_id)
        return agent, {agent_id}.union(*others)

    agent, deleted = await delete(ports, unit)
    for key, interrupt in ports.interrupts.items():
        if key.agent_id in deleted:
            interrupt.fire(LeaseLost(f"{key.agent_id} was deleted"))
    await asyncio.to_thread(AGENT_GONE, agent, deleted)


async def delete(ports: Ports, unit: Callable[[Tx], T]) -> T:
    """Run a unit that deletes, remove the rows that it hides, some at a time, and return the unit's result.

    After a failure, such as a full disk, the next recovery of runs in any process removes the rest.

    Raises: what the unit raises; StoreError: nothing was done.
    """
    result = await ports.store.write(unit)
    try:
        await _finish_deletes(ports)
    except StoreError as error:
        log.warning("what was deleted is gone for everybody, and removing its last rows waits: %s", error)
    return result


async def finish_removals(ports: Ports) -> None:
    """Finish the resets and deletes that a dead process began. Raises: StoreError."""
    await _finish_deletes(ports)
    damaged: set[AgentId] = set()
    while agents := set(await ports.store.read(lambda tx: tx.resets.list_agents())) - damaged:
        for agent_id in sorted(agents):
            try:
                await _finish_reset(agent_id, ports)
            except StoreDamaged as error:  # the others go on
                log.error("a reset of %s can't be carried out: %s", agent_id, error)
                damaged.add(agent_id)


async def _finish_deletes(ports: Ports) -> None:
    """Remove rows of deleted things, some at a time. Raises: StoreError."""
    if await ports.store.read(lambda tx: tx.upkeep.unfinished_deletes()):
        while await ports.store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=ports.settings.rows_a_step)):
            pass


async def _try_to_finish_reset(agent_id: AgentId, ports: Ports) -> None:
    """Finish a stored reset; after a failure, such as a full disk, leave it to the next recovery."""
    try:
        await _finish_reset(agent_id, ports)
    except StoreError as error:
        log.warning("the messages of %s are out of view, and what is left to do waits: %s", agent_id, error)


async def _finish_reset(agent_id: AgentId, ports: Ports) -> None:
    """Remove messages out of view from the full-text index, some at a time. Raises: StoreError."""
    while await ports.store.write(lambda tx: tx.resets.carry_out(agent_id, limit=ports.settings.rows_a_step)):
        pass


def _reset_captured(
    tx: Tx,
    agent_id: AgentId,
    conversation_seq: int | None,
    captured: Mapping[int, int],
    inputs: UnitInputs,
    *,
    author: Author,
    counted: MessageCounts,
) -> tuple[Mapping[int, int], Sequence[Reset]]:
    """Reset the conversations, if nothing in them waits for capture.

    Args:
        conversation_seq: the conversation to reset; None: all of the agent's.
        captured: conversation -> row up to which capture was tried: what still waits there can't be captured.
        counted: the agent's messages, as they were counted before.
    Returns: conversation -> row up to which it waits for capture, and no resets; or nothing, and the resets.
    """
    tx.agents.lock(agent_id)
    conversations = _conversations(tx, agent_id, conversation_seq)
    uncaptured = _uncaptured(tx, agent_id, conversations)
    if any(upto > captured.get(seq, -1) for seq, upto in uncaptured.items()):
        return uncaptured, ()
    return {}, _reset(tx, conversations, inputs, author=author, counted=counted)


def _uncaptured(tx: Tx, agent_id: AgentId, conversations: Sequence[Conversation]) -> Mapping[int, int]:
    """Return conversation -> the row up to which it waits for capture; empty while a run prevents a reset."""
    if find_automatic(AutoCapture, tx.agents.get(agent_id).settings) is None:
        return {}
    if any(tx.runs.find_active(agent_id, conversation.seq) is not None for conversation in conversations):
        return {}
    due = {conversation.seq: capture_due(tx, agent_id, conversation.seq, force=True) for conversation in conversations}
    return {seq: upto for seq, upto in due.items() if upto is not None}


def _reset(
    tx: Tx, conversations: Sequence[Conversation], inputs: UnitInputs, *, author: Author, counted: MessageCounts
) -> Sequence[Reset]:
    """Reset these conversations of one agent. The caller holds the agent's lock. Raises: ConversationBusy."""
    for conversation in conversations:
        if (busy := tx.runs.find_active(conversation.agent_id, conversation.seq)) is not None:
            raise ConversationBusy(busy.id)
    for conversation in conversations:
        give_up_pending(tx, conversation, "the conversation was reset", inputs)
    resets = [
        tx.resets.add(conversation, author=author, at=inputs.now, counts=counted) for conversation in conversations
    ]
    for conversation in conversations:
        renew_system_message(tx, conversation.agent_id, conversation.seq, inputs)
        MEMORY_CORRECTED(tx, conversation.agent_id)
    return [reset for reset in resets if reset is not None]


def _delete(
    tx: Tx, conversation_id: ConversationId, inputs: UnitInputs, *, author: Author, counted: MessageCounts
) -> ConversationKey:
    """Reset a conversation and take it out of every list, an ephemeral one with its agent; return its agent and number.
    Raises: NotFound, InvalidInput, ConversationBusy."""
    agent_id = tx.conversations.get(conversation_id).agent_id
    tx.agents.lock(agent_id)
    conversation = tx.conversations.get(conversation_id)
    if conversation.seq == 0:
        raise InvalidInput(f"{conversation_id} is the agent's first conversation, which stays: reset it")
    _reset(tx, [conversation], inputs, author=author, counted=counted)
    tx.blocks.delete_isolated(agent_id, conversation.seq)
    tx.conversations.remove(conversation, at=inputs.now)
    if conversation.settings.get(EPHEMERAL):
        tx.agents.delete(agent_id)
    return agent_id, conversation.seq


def _add_context(tx: Tx, reset: Reset, texts: Sequence[str], inputs: UnitInputs) -> None:
    """Begin the log after a reset with what hooks have added, unless a run has begun since."""
    tx.agents.lock(reset.agent_id)
    conversation = tx.conversations.get(reset.conversation_id)
    agent_id, seq = conversation.agent_id, conversation.seq
    if tx.runs.find_active(agent_id, seq) is not None or conversation.pending_run_seq is not None:
        # It would stand between that run's calls and their results.
        log.warning("what a hook adds at the reset of %s is left out: a run has begun since", conversation.id)
        return
    drafts, tokens = engine_drafts("hook", texts, inputs)
    tx.messages.append((agent_id, seq), drafts, tokens, at=inputs.now)


def _conversations(tx: Tx, agent_id: AgentId, conversation_seq: int | None) -> Sequence[Conversation]:
    """Load the conversation with this number, or for None all of the agent's. Raises: NotFound."""
    if conversation_seq is not None:
        return [tx.conversations.get_by_seq(agent_id, conversation_seq)]
    found: list[Conversation] = []
    while page := tx.conversations.list(agent_id, limit=PAGE, after_seq=found[-1].seq if found else -1):
        found += page
    return found


async def delete_unused(ports: Ports) -> None:
    """Delete the ephemeral conversations that were not used for a day. Raises: StoreError."""
    store, before, after = ports.store, ports.clock.now() - MAX_AGE, -1
    while found := await store.read(lambda tx, after: tx.conversations.find_unused(before=before, after=after), after):
        conversation_id, after = found
        with contextlib.suppress(NotFound, ConversationBusy):  # another process was first, or it is in use again
            await delete_conversation(conversation_id, ports, author=ENGINE)


async def remove_traces(ports: Ports, progress: Callable[[str, int, int], None]) -> None:
    """Remove what is left of deleted rows: their words in the indexes, vectors of recent texts, and bytes in the free
    space of the file and in its log. All but the last is done in small steps. Raises: StoreError."""
    store = ports.store
    await delete(ports, lambda tx: None)  # what was deleted before, and still has rows
    for kind in await store.read(lambda tx: tx.upkeep.rebuilding()):
        while await store.write(lambda tx, kind: tx.upkeep.rebuild_words(kind), kind):
            pass
    progress("merging the word index", 0, 1)
    begin = True
    while await store.write(lambda tx, begin: tx.upkeep.merge_words(begin=begin), begin):
        begin = False
    while await store.write(lambda tx: tx.upkeep.drop_vector_cache()):
        pass
    progress("writing the file anew", 0, 1)
    await store.scrub(partial(progress, "writing the file anew"))
    progress("writing the file anew", 1, 1)
