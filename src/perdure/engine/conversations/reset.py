"""Conversations that begin anew: what was said leaves the view, and stays in the log. And what is deleted.

Leaving the view is one small transaction, however long the log is. What the store keeps for what is in view, words in
the index and vectors, is given up behind it, some rows at a time; whoever dies over that leaves it to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from perdure.core import hooks
from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, MessageCounts, Reset
from perdure.core.errors import ConversationBusy, InvalidInput, StoreDamaged, StoreError
from perdure.core.ids import AgentId, ConversationId, Ids
from perdure.core.ports import TokenCounter
from perdure.domain.agents.automatic import auto_capture_of
from perdure.domain.agents.capture import capture_due
from perdure.engine.approvals.answers import give_up_pending
from perdure.engine.hooks.rows import hook_draft, hook_tokens
from perdure.engine.ports import Ports
from perdure.engine.workers.capture import capture_rest
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 500
ROWS_A_STEP = 200
"""Messages of one transaction of carrying out: everybody else waits for it, about 10 ms."""


async def reset_conversations(
    agent_id: AgentId,
    conversation_seq: int | None,
    ports: Ports,
    *,
    author: Author,
    rows_a_step: int = ROWS_A_STEP,
) -> Sequence[Reset]:
    """Reset one conversation of an agent, or all of them, in one transaction; those that had nothing in view are left
    as they are. What automatic capture had still to take is taken before. Calls that wait for somebody are given up.
    Then hooks are told, and what they add begins the log anew. At last the resets are carried out.

    Raises: NotFound, StoreError; ConversationBusy: a run has not ended, and nothing is changed.
    """
    tried: Mapping[int, int] = {}
    while True:
        now = ports.clock.now()
        counted = await ports.store.read(lambda tx: tx.resets.counted(agent_id))
        waiting, resets = await ports.store.write(
            _reset_captured,
            agent_id,
            conversation_seq,
            tried,
            author=author,
            ids=ports.ids,
            counter=ports.counter,
            now=now,
            counted=counted,
        )
        if not waiting:
            break
        await capture_rest(ports, agent_id, tuple(waiting))
        tried = waiting
    for reset in resets:
        answers = await ports.hooks.fire(hooks.Reset(agent_id=agent_id, conversation_id=reset.conversation_id))
        if answers.context:
            await ports.store.write(_add_context, reset, answers.context, ids=ports.ids, counter=ports.counter, now=now)
    await _carry_out_now_or_later(agent_id, ports, rows_a_step)
    return resets


async def delete(ports: Ports, unit: Callable[[Tx], T]) -> T:
    """Run a unit that deletes, and remove what it leaves behind, some rows at a time; what the unit gives. From its
    transaction on nobody sees what is deleted.

    What can't be removed now, such as on a full disk, goes with the next recovery of runs, in whichever process.

    Raises: what the unit raises; StoreError: nothing was done.
    """
    result = await ports.store.write(unit)
    try:
        if await ports.store.read(lambda tx: tx.upkeep.unfinished_deletes()):
            await _carry_out_deletes(ports)
    except StoreError as error:
        log.warning("what was deleted is gone for everybody, and removing its last rows waits: %s", error)
    return result


async def carry_out_left(ports: Ports) -> None:
    """Carry out the resets, and remove what is left of deleted things, that a process left which is gone. Raises:
    StoreError."""
    if await ports.store.read(lambda tx: tx.upkeep.unfinished_deletes()):
        await _carry_out_deletes(ports)
    damaged: set[AgentId] = set()
    while agents := set(await ports.store.read(lambda tx: tx.resets.unfinished())) - damaged:
        for agent_id in sorted(agents):
            try:
                await _carry_out(agent_id, ports)
            except StoreDamaged as error:  # it must not keep the others waiting
                log.error("a reset of %s can't be carried out: %s", agent_id, error)
                damaged.add(agent_id)


async def _carry_out_deletes(ports: Ports) -> None:
    while await ports.store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=ROWS_A_STEP)):
        pass


async def _carry_out_now_or_later(agent_id: AgentId, ports: Ports, rows: int = ROWS_A_STEP) -> None:
    """Carry out a reset that is stored already: what fails now, such as on a full disk, goes with the next recovery."""
    try:
        await _carry_out(agent_id, ports, rows)
    except StoreError as error:
        log.warning("the messages of %s are out of view, and what is left to do waits: %s", agent_id, error)


async def _carry_out(agent_id: AgentId, ports: Ports, rows: int = ROWS_A_STEP) -> None:
    while await ports.store.write(lambda tx: tx.resets.carry_out(agent_id, limit=rows)):
        pass


def _reset_captured(
    tx: Tx,
    agent_id: AgentId,
    conversation_seq: int | None,
    tried: Mapping[int, int],
    *,
    author: Author,
    ids: Ids,
    counter: TokenCounter,
    now: datetime,
    counted: MessageCounts,
) -> tuple[Mapping[int, int], Sequence[Reset]]:
    """What waits for capture, and then nothing is changed; else the resets.

    Args:
        tried: what waited before: what still does can't be captured, and only what was said since counts.
    """
    tx.agents.lock(agent_id)
    waiting = _waiting(tx, agent_id, conversation_seq)
    if any(upto > tried.get(seq, -1) for seq, upto in waiting.items()):
        return waiting, ()
    return {}, _reset(tx, agent_id, conversation_seq, author=author, ids=ids, counter=counter, now=now, counted=counted)


def _waiting(tx: Tx, agent_id: AgentId, conversation_seq: int | None) -> Mapping[int, int]:
    """Up to which row each conversation waits for capture; nothing if a run goes on in one, for then none is reset."""
    if auto_capture_of(tx.agents.get(agent_id).settings) is None:
        return {}
    seqs = [line.seq for line in _all(tx, agent_id)] if conversation_seq is None else [conversation_seq]
    if any(tx.runs.active(agent_id, seq) is not None for seq in seqs):
        return {}
    found = {seq: capture_due(tx, agent_id, seq, force=True) for seq in seqs}
    return {seq: upto for seq, upto in found.items() if upto is not None}


def _reset(
    tx: Tx,
    agent_id: AgentId,
    conversation_seq: int | None,
    *,
    author: Author,
    ids: Ids,
    counter: TokenCounter,
    now: datetime,
    counted: MessageCounts,
) -> Sequence[Reset]:
    tx.agents.lock(agent_id)
    lines = _all(tx, agent_id) if conversation_seq is None else [tx.conversations.at(agent_id, conversation_seq)]
    for line in lines:
        if (busy := tx.runs.active(agent_id, line.seq)) is not None:
            raise ConversationBusy(busy.id)
    for line in lines:
        give_up_pending(tx, line, "the conversation was reset", ids=ids, counter=counter, now=now)
    resets = [tx.resets.add(line, author=author, at=now, counted=counted) for line in lines]
    return [reset for reset in resets if reset is not None]


async def delete_conversation(conversation_id: ConversationId, ports: Ports, *, author: Author) -> None:
    """Reset a conversation and take it out of every list; hooks are told that it is over. Its rows stay in the log.

    Raises: NotFound, StoreError; InvalidInput: it is the agent's first; ConversationBusy.
    """
    now = ports.clock.now()
    counted = await ports.store.read(lambda tx: tx.resets.counted(tx.conversations.get(conversation_id).agent_id))
    agent_id = await ports.store.write(
        _delete,
        conversation_id,
        author=author,
        ids=ports.ids,
        counter=ports.counter,
        now=now,
        counted=counted,
    )
    await ports.hooks.fire(hooks.ConversationEnd(agent_id=agent_id, conversation_id=conversation_id))
    await _carry_out_now_or_later(agent_id, ports)


def _delete(
    tx: Tx,
    conversation_id: ConversationId,
    *,
    author: Author,
    ids: Ids,
    counter: TokenCounter,
    now: datetime,
    counted: MessageCounts,
) -> AgentId:
    line = tx.conversations.get(conversation_id)
    if line.seq == 0:
        raise InvalidInput(f"{conversation_id} is the agent's first conversation, which stays: reset it")
    _reset(tx, line.agent_id, line.seq, author=author, ids=ids, counter=counter, now=now, counted=counted)
    tx.conversations.remove(line, at=now)
    return line.agent_id


def _add_context(tx: Tx, reset: Reset, texts: Sequence[str], *, ids: Ids, counter: TokenCounter, now: datetime) -> None:
    tx.agents.lock(reset.agent_id)
    line = tx.conversations.get(reset.conversation_id)
    if tx.runs.active(line.agent_id, line.seq) is not None or line.pending_run_seq is not None:
        # It would stand between that run's calls and their results.
        log.warning("what a hook adds at the reset of %s is left out: a run has begun since", line.id)
        return
    tx.messages.append(
        line.agent_id,
        [hook_draft(text, ids) for text in texts],
        conversation_seq=line.seq,
        at=now,
        tokens=[hook_tokens(text, counter) for text in texts],
    )


def _all(tx: Tx, agent_id: AgentId) -> list[Conversation]:
    found: list[Conversation] = []
    while page := tx.conversations.list(agent_id, limit=PAGE, after_seq=found[-1].seq if found else -1):
        found += page
    return found
