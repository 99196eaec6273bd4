"""Archival memory: putting texts away and finding them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Archive, Passage
from perdure.core.text import query_of
from perdure.core.tx import PassageFilter, Tx
from perdure.memory.ranking import bm25

__all__ = [
    "MAX_PASSAGE_CHARS",
    "PassageHit",
    "archive_of",
    "delete_passage",
    "insert_passage",
    "list_passages",
    "search_passages",
]

MAX_PASSAGE_CHARS = 1_000_000
CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class PassageHit:
    passage: Passage
    score: float


def archive_of(tx: Tx, agent_id: AgentId, new_id: ArchiveId, *, at: datetime) -> Archive:
    """The archive that takes what the agent inserts; its first use makes it, under `new_id`. Raises: NotFound."""
    archives = tx.archives.of_agent(agent_id)
    if archives:
        return archives[0]
    agent = tx.agents.get(agent_id)
    archive = tx.archives.add(
        Archive(id=new_id, org_id=tx.org_id, name=f"{agent.name}'s archive", created_at=at, updated_at=at)
    )
    tx.archives.attach(agent_id, archive.id)
    return archive


def insert_passage(
    tx: Tx,
    archive_id: ArchiveId,
    passage_id: PassageId,
    text: str,
    *,
    at: datetime,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    occurred_at: datetime | None = None,
) -> Passage:
    """The new passage, searchable at once.

    Raises: InvalidInput: an empty text, or one of more than a million characters; NotFound.
    """
    if not text.strip():
        raise InvalidInput("the passage is empty: give the text to remember")
    if len(text) > MAX_PASSAGE_CHARS:
        raise InvalidInput(
            f"the passage has {len(text):,} characters, the limit is {MAX_PASSAGE_CHARS:,}: insert it in parts"
        )
    passage = Passage(
        id=passage_id,
        archive_id=archive_id,
        text=text,
        tags=tuple(tag.strip() for tag in tags if tag.strip()),
        metadata=metadata or {},
        source=source or {},
        created_at=at,
        occurred_at=occurred_at or at,
    )
    return tx.passages.add([passage])[0]


def list_passages(
    tx: Tx, agent_id: AgentId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
) -> Sequence[Passage]:
    """A page of the archive that takes what the agent inserts, oldest first; none when there is no archive yet."""
    archives = tx.archives.of_agent(agent_id)
    return tx.passages.list(archives[0].id, where=where, limit=limit, after_seq=after_seq) if archives else ()


def delete_passage(tx: Tx, agent_id: AgentId, passage_id: PassageId) -> None:
    """Remove a passage from the agent's archives. Raises: NotFound, also for one of another agent's archive."""
    passage = tx.passages.get(passage_id)
    if passage.archive_id not in {archive.id for archive in tx.archives.of_agent(agent_id)}:
        raise NotFound("passage", passage_id, hint="it is in no archive of this agent")
    tx.passages.delete(passage.archive_id, [passage.seq])


def search_passages(
    tx: Tx, agent_id: AgentId, text: str, *, where: PassageFilter | None = None, limit: int = 10
) -> list[PassageHit]:
    """The passages of the agent's archives that best match `text`, best first; for an empty text the newest ones."""
    where = where or PassageFilter()
    hits: list[PassageHit] = []
    for archive in tx.archives.of_agent(agent_id):
        if not text.strip():
            newest = tx.passages.newest(archive.id, where=where, limit=limit)
            hits.extend(PassageHit(passage, 0.0) for passage in newest)
            continue
        query = query_of(text)
        found = tx.passages.match(archive.id, query, where=where, limit=CANDIDATES)
        if not found.seqs:
            query = query.loosened()
            found = tx.passages.match(archive.id, query, where=where, limit=CANDIDATES)
        passages = tx.passages.by_seqs(archive.id, found.seqs)
        scores = bm25(query, [passage.text for passage in passages], scope_size=archive.passage_count)
        hits.extend(PassageHit(passage, score) for passage, score in zip(passages, scores, strict=True))
    return sorted(hits, key=lambda hit: (-hit.score, -hit.passage.occurred_at.timestamp()))[:limit]
