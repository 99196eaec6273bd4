"""Archival memory: putting texts away. `search` finds them again."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import EmbeddingMismatch, InvalidInput, NotFound, TooMany
from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.limits import Limits
from perdure.core.passages import Archive, Passage, PassageFilter
from perdure.core.ports import Ids
from perdure.domain.archives.units import archives_of, check_own
from perdure.domain.values import as_tags, check_json, check_kept
from perdure.storage.tx import Tx

__all__ = [
    "MAX_PASSAGE_CHARS",
    "NewPassage",
    "PassageChanges",
    "add_passages",
    "archive_of",
    "check_passage",
    "delete_passage",
    "insert_passage",
    "list_passages",
    "new_passages",
    "passage_in",
    "passage_of_agent",
    "update_passage",
]

MAX_PASSAGE_CHARS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """A text to put away. `source` says where it came from, `occurred_at` when it happened, by default now.

    `embedding` is its vector, if the archive has vectors of the same model; without one it is made here.
    """

    text: str
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None
    embedding: Sequence[float] | None = None


class PassageChanges(TypedDict, total=False):
    """What may be changed of a passage. What is not given stays."""

    text: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    source: Mapping[str, Any]
    occurred_at: datetime


def archive_of(tx: Tx, agent_id: AgentId, new_id: ArchiveId, *, at: datetime) -> Archive:
    """The archive that takes what the agent inserts, the first that is no folder's; its first use makes it, under
    `new_id`. Raises: NotFound."""
    if (first := _first_own(tx, agent_id)) is not None:
        return first
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

    Raises: InvalidInput: an empty text, or one of more than a million characters, a folder's archive; NotFound.
    """
    check_own(tx, archive_id)
    new = NewPassage(text=text, tags=tags, metadata=metadata or {}, source=source or {}, occurred_at=occurred_at)
    return tx.passages.add([_passage(new, archive_id, passage_id, at=at, limits=tx.limits)])[0]


def new_passages(
    new: Sequence[NewPassage], archive_id: ArchiveId, *, ids: Ids, at: datetime, limits: Limits
) -> list[Passage]:
    """The passages to store, in their order. Raises: InvalidInput, naming the first that can't be by its place from
    0; TooMany."""
    passages = []
    for index, one in enumerate(new):
        try:
            passages.append(_passage(one, archive_id, PassageId(ids.new("passage")), at=at, limits=limits))
        except TooMany:
            raise
        except InvalidInput as error:
            if len(new) == 1:
                raise
            raise InvalidInput(f"passage {index}: {error}") from error
    return passages


def add_passages(
    tx: Tx, passages: Sequence[Passage], embeddings: Sequence[Sequence[float] | None]
) -> Sequence[Passage]:
    """The passages, all of one archive, as stored, with the vectors that come with some of them.

    Raises: NotFound; EmbeddingMismatch, InvalidInput: a vector that the archive's can't be compared with.
    """
    archive_id = passages[0].archive_id
    check_own(tx, archive_id)
    added = tx.passages.add(passages)
    vectors = [(passage.seq, vector) for passage, vector in zip(added, embeddings, strict=True) if vector is not None]
    if not vectors:
        return added
    scope = tx.vectors.scope(tx.archives.get(archive_id).number)
    if scope is None or scope.dimensions is None:
        raise InvalidInput(
            f"embedding has {len(vectors[0][1])} numbers, and {archive_id} has no vectors (0 numbers): leave it out,"
            " the text is found without it"
        )
    for _, vector in vectors:
        if len(vector) != scope.dimensions:
            raise EmbeddingMismatch(
                archive_id,
                stored_model=scope.model,
                stored_dimensions=scope.dimensions,
                model="the request",
                dimensions=len(vector),
            )
    rows = [(seq, _half_floats(vector)) for seq, vector in vectors]
    tx.vectors.put(scope.number, rows, model=scope.model, dimensions=scope.dimensions)
    return added


def check_passage(passage: Passage) -> Passage:
    """`passage` as it can be stored: its tags without space around them and without empty ones.

    Raises: InvalidInput: an empty text, one of more than a million characters, values that are no JSON.
    """
    text = passage.text
    if not isinstance(text, str):
        raise InvalidInput(f"the passage's text is {text!r:.80}: give a text")
    if not text.strip():
        raise InvalidInput("the passage is empty: give the text to remember")
    if len(text) > MAX_PASSAGE_CHARS:
        raise InvalidInput(
            f"the passage has {len(text):,} characters, the limit is {MAX_PASSAGE_CHARS:,}: insert it in parts"
        )
    check_json("metadata", passage.metadata)
    check_json("source", passage.source)
    return replace(passage, tags=tuple(tag.strip() for tag in as_tags(passage.tags) if tag.strip()))


def update_passage(tx: Tx, passage: Passage, changes: PassageChanges) -> Passage:
    """The passage as changed; search finds what it says now. Raises: InvalidInput; NotFound."""
    if unknown := [name for name in changes if name not in PassageChanges.__annotations__]:
        there = ", ".join(PassageChanges.__annotations__)
        raise InvalidInput(f"a passage has no field {', '.join(unknown)} to change: there are {there}")
    given: dict[str, Any] = {**changes}
    if "tags" in given:
        given["tags"] = as_tags(given["tags"])
    check_own(tx, passage.archive_id)
    after = check_passage(replace(passage, **given))
    check_kept(tx.limits, tags=after.tags, metadata=after.metadata, source=after.source)
    return passage if after == passage else tx.passages.put(after)


def passage_in(tx: Tx, archive_id: ArchiveId, passage_id: PassageId) -> Passage:
    """The passage of this archive. Raises: NotFound, also for one of another archive."""
    tx.archives.get(archive_id)
    passage = tx.passages.get(passage_id)
    if passage.archive_id != archive_id:
        raise NotFound("passage", passage_id, hint="it is in another archive")
    return passage


def list_passages(
    tx: Tx, agent_id: AgentId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
) -> Sequence[Passage]:
    """A page of the archive that takes what the agent inserts, oldest first; none when there is no archive yet."""
    first = _first_own(tx, agent_id)
    return () if first is None else tx.passages.list(first.id, where=where, limit=limit, after_seq=after_seq)


def delete_passage(tx: Tx, passage: Passage) -> None:
    """Remove a passage. Raises: NotFound; InvalidInput: it is of a folder's file."""
    check_own(tx, passage.archive_id)
    tx.passages.delete(passage.archive_id, [passage.seq])


def passage_of_agent(tx: Tx, agent_id: AgentId, passage_id: PassageId) -> Passage:
    """The passage of one of the agent's archives or files. Raises: NotFound, also for one of another agent's."""
    passage = tx.passages.get(passage_id)
    if passage.archive_id not in {archive.id for archive in archives_of(tx, agent_id, files=True)}:
        raise NotFound("passage", passage_id, hint="it is in no archive of this agent")
    return passage


def _half_floats(vector: Sequence[float]) -> bytes:
    """A unit vector of 16-bit floats. Raises: InvalidInput: it has no direction."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise InvalidInput(f"embedding has the length {length}: give numbers that are not all 0")
    return struct.pack(f"<{len(vector)}e", *(number / length for number in vector))


def _first_own(tx: Tx, agent_id: AgentId) -> Archive | None:
    return next((one for one in tx.archives.of_agent(agent_id) if tx.folders.of_archive(one.id) is None), None)


def _passage(new: NewPassage, archive_id: ArchiveId, passage_id: PassageId, *, at: datetime, limits: Limits) -> Passage:
    """The passage to store. Raises: InvalidInput."""
    passage = check_passage(
        Passage(
            id=passage_id,
            archive_id=archive_id,
            text=new.text,
            tags=as_tags(new.tags),
            metadata=new.metadata,
            source=new.source,
            created_at=at,
            occurred_at=new.occurred_at or at,
        )
    )
    check_kept(limits, tags=passage.tags, metadata=passage.metadata, source=passage.source)
    return passage
