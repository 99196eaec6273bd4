"""Recall memory: searching the whole history of an agent."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.ids import AgentId
from perdure.core.messages import Message
from perdure.core.text import query_of
from perdure.core.tx import MessageFilter, Tx
from perdure.memory.ranking import bm25

__all__ = ["MessageHit", "search_messages"]

CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class MessageHit:
    message: Message
    score: float


def search_messages(
    tx: Tx, agent_id: AgentId, text: str | None, *, where: MessageFilter | None = None, limit: int = 5
) -> list[MessageHit]:
    """The messages that best match `text`, best first; without a text the newest ones, newest first, with score 0.

    Phrases (quoted, and runs of scripts without spaces) are taken whole first; only when nothing is found, by their
    pieces.
    """
    where = where or MessageFilter()
    if text is None or not text.strip():
        return [MessageHit(message, 0.0) for message in tx.messages.newest(agent_id, where=where, limit=limit)]
    query = query_of(text)
    found = tx.messages.match(agent_id, query, where=where, limit=CANDIDATES)
    if not found.seqs:
        query = query.loosened()
        found = tx.messages.match(agent_id, query, where=where, limit=CANDIDATES)
    messages = tx.messages.by_seqs(agent_id, found.seqs)
    scores = bm25(query, [message.text for message in messages], scope_size=tx.messages.count(agent_id))
    hits = [MessageHit(message, score) for message, score in zip(messages, scores, strict=True)]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.message.seq))[:limit]
