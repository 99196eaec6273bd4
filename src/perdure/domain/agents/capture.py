"""Capture: messages of a conversation become passages, exactly once, each with a link to its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.core.conversations import Conversation
from perdure.core.ids import AgentId, ArchiveId, Ids, PassageId
from perdure.core.messages import Message
from perdure.core.passages import CAPTURED, Passage
from perdure.core.text.credentials import without_credentials
from perdure.domain.agents.automatic import AutoCapture, bypasses, find_automatic
from perdure.domain.archives.passages import own_archive
from perdure.domain.archives.units import check_changeable
from perdure.domain.provenance.context import captured_sources, sources_by_message
from perdure.domain.provenance.policy import is_from_outside, load_policy
from perdure.storage.tx import Tx

ROWS = 200  # of the log in one transaction
PASSAGE_CHARS = 1_500
"""The length up to which turns are joined; about what an embedder reads at once."""
TURN_CHARS = 6_000
"""A longer turn is split."""
TAG = "conversation"


@dataclass(frozen=True, slots=True)
class _TurnLine:
    """The text of a message, or a part of it if it is long."""

    message: Message
    text: str


def capture_due(tx: Tx, agent_id: AgentId, conversation_seq: int, *, force: bool = False) -> int | None:
    """Return the number of the last message to capture now; None: nothing to capture yet. `force`: below the threshold
    too, because the conversation is about to end. Raises: NotFound."""
    settings = tx.agents.get(agent_id).settings
    setting = find_automatic(AutoCapture, settings)
    if setting is None or bypasses(settings, tx.conversations.get_by_seq(agent_id, conversation_seq)):
        return None
    backlog = tx.captures.get_backlog(
        agent_id, conversation_seq, before_seq=first_open_seq(tx, agent_id, conversation_seq)
    )
    return backlog.upto_seq if backlog.tokens >= (1 if force else setting.commit_token_threshold) else None


def capture(tx: Tx, agent_id: AgentId, conversation_seq: int, upto_seq: int, *, ids: Ids, at: datetime) -> bool:
    """Capture the next messages up to `upto_seq` as passages; return whether more remain.

    The position is stored in the same transaction, so concurrent workers store nothing twice.
    Raises: NotFound: the archive of the setting is gone; InvalidInput: it is a folder's.
    """
    tx.agents.lock(agent_id)
    agent = tx.agents.get(agent_id)
    setting = find_automatic(AutoCapture, agent.settings)
    captured_seq = tx.captures.last_seq(agent_id, conversation_seq)
    if setting is None or captured_seq >= upto_seq:
        return False
    rows = tx.messages.list(
        agent_id, conversation_seq=conversation_seq, after_seq=captured_seq, before_seq=upto_seq + 1, limit=ROWS
    )
    turns = [
        message
        for message in rows
        if message.kind == "message" and message.role in ("user", "assistant") and message.text.strip()
    ]
    found = sources_by_message(tx, turns)
    outside = {turn.seq for turn in turns if is_from_outside(found[turn.id])}
    if outside and load_policy(tx, agent) in ("approve", "block"):  # nobody is asked; they stay in the history
        turns = [turn for turn in turns if turn.seq not in outside]
    if turns:
        archive_id = _target_archive(tx, agent_id, setting, ids, at)
        conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
        tx.passages.add(
            [
                _build_passage(tx, lines, conversation, PassageId(ids.new("passage")), archive_id, at=at)
                for lines in _group_turns(turns)
            ]
        )
    last = rows[-1].seq if len(rows) == ROWS else upto_seq
    tx.captures.put(agent_id, conversation_seq, last, at=at)
    return last < upto_seq


def first_open_seq(tx: Tx, agent_id: AgentId, conversation_seq: int) -> int | None:
    """Return the number of the active run's first message: what it says is captured and extracted when it ends."""
    active = tx.runs.find_active(agent_id, conversation_seq)
    return None if active is None else active.first_message_seq


def _target_archive(tx: Tx, agent_id: AgentId, setting: AutoCapture, ids: Ids, at: datetime) -> ArchiveId:
    """Return the archive of the setting, else the agent's own. Raises: NotFound, InvalidInput."""
    if setting.archive is not None:
        archive_id = tx.archives.get(setting.archive).id
        check_changeable(tx, archive_id)
        return archive_id
    return own_archive(tx, agent_id, ArchiveId(ids.new("archive")), at=at).id


def _group_turns(messages: Sequence[Message]) -> Iterator[list[_TurnLine]]:
    """Yield groups of lines, in order; each group becomes one passage of about `PASSAGE_CHARS` characters."""
    group: list[_TurnLine] = []
    size = 0
    for message in messages:
        text = message.text
        for first in range(0, len(text), TURN_CHARS):
            line = _TurnLine(message, text[first : first + TURN_CHARS].strip())
            if group and size + len(line.text) > PASSAGE_CHARS:
                yield group
                group, size = [], 0
            if line.text:
                group.append(line)
                size += len(line.text)
    if group:
        yield group


def _build_passage(
    tx: Tx,
    lines: Sequence[_TurnLine],
    conversation: Conversation,
    passage_id: PassageId,
    archive_id: ArchiveId,
    *,
    at: datetime,
) -> Passage:
    """Return the passage of a group of lines from a conversation, with links to their messages."""
    first, last = lines[0].message, lines[-1].message
    return Passage(
        id=passage_id,
        archive_id=archive_id,
        text=without_credentials("\n".join(f"{line.message.name or line.message.role}: {line.text}" for line in lines)),
        tags=(TAG,),
        metadata={
            "turns": [
                {
                    "id": line.message.id,
                    "role": line.message.role,
                    **({"name": line.message.name} if line.message.name else {}),
                    "occurred_at": line.message.occurred_at.isoformat(),
                }
                for line in lines
            ]
        },
        source={
            "type": CAPTURED,
            "agent_id": conversation.agent_id,
            "conversation_id": conversation.id,
            "first_message_id": first.id,
            "last_message_id": last.id,
            "first_seq": first.seq,
            "last_seq": last.seq,
        },
        created_at=at,
        occurred_at=first.occurred_at,
        sources=captured_sources(tx, [line.message for line in lines]),
    )
