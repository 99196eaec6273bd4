"""Units of work on passages, the texts of archival memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

from perdure.core.errors import EmbeddingMismatch, InvalidInput, NotFound, TooMany
from perdure.core.ids import AgentId, ArchiveId, Ids, PassageId, is_id
from perdure.core.incoming.limits import Limits
from perdure.core.passages import Archive, Passage, PassageFilter
from perdure.core.sources import WriteSource
from perdure.core.text.credentials import without_credentials
from perdure.core.text.words import part_clauses
from perdure.domain.archives.units import archives_of, check_changeable
from perdure.domain.corrections import tell_agents
from perdure.domain.texts import TEXTS_CHANGED, TEXTS_DELETED
from perdure.domain.values import as_tags, check_fields, check_item_limits, check_json
from perdure.storage.tx import Tx

PARTS_ROWS, WORDS_ROWS = 2_000, 5_000
"""In so many passages of a page a text is looked for one by one, so that any part of a word finds them: 1 ms.
Behind these, so many at once of those that the index finds."""
MAX_PASSAGE_CHARS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """The values of a new passage. `source` says where the text comes from; `occurred_at` defaults to now.

    `embedding` is its vector, from the model of the archive's vectors; None: Perdure embeds the text. `sources` are
    what it may come from; then an agent writes it, and its credentials are masked, unless it `is_masked` already.
    """

    text: str
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None
    embedding: Sequence[float] | None = None
    sources: tuple[WriteSource, ...] = ()
    is_masked: bool = False


class PassageChanges(TypedDict, total=False):
    """The fields of a passage that can change. A missing field stays."""

    text: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    source: Mapping[str, Any]
    occurred_at: datetime


def own_archive(tx: Tx, agent_id: AgentId, new_id: ArchiveId, *, at: datetime) -> Archive:
    """Return the archive that the agent writes to: its first one, else a new one with `new_id`. Raises: NotFound."""
    tx.agents.lock(agent_id)
    if (first := find_own_archive(tx, agent_id)) is not None:
        return first
    agent = tx.agents.get(agent_id)
    archive = tx.archives.add(
        Archive(id=new_id, org_id=tx.org_id, name=f"{agent.name}'s archive", created_at=at, updated_at=at)
    )
    tx.archives.attach(agent_id, archive.id)
    return archive


def find_own_archive(tx: Tx, agent_id: AgentId) -> Archive | None:
    """Return the archive that the agent inserts into, its first one; None: it has none."""
    return next(iter(tx.archives.list_by_agent(agent_id)), None)  # nobody can attach one that belongs to a folder


def new_passages(
    new: Sequence[NewPassage], archive_id: ArchiveId, *, ids: Ids, at: datetime, limits: Limits
) -> list[Passage]:
    """Return `new` as passages to store, in order. Raises: TooMany; InvalidInput, with the index of the invalid one."""
    passages = []
    for index, one in enumerate(new):
        try:
            passages.append(_build_passage(one, archive_id, PassageId(ids.new("passage")), at=at, limits=limits))
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
    """Store passages of one archive, and return them with their numbers. `embeddings`: the vector of each, or None.
    Raises: NotFound; EmbeddingMismatch, InvalidInput: a vector that can't be compared with the archive's."""
    archive_id = passages[0].archive_id
    check_changeable(tx, archive_id)
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


def insert_passage(tx: Tx, archive_id: ArchiveId, new: NewPassage, *, ids: Ids, at: datetime) -> Passage:
    """Store one passage, searchable at once. Raises: as `new_passages` and `add_passages`."""
    return add_passages(tx, new_passages([new], archive_id, ids=ids, at=at, limits=tx.limits), [new.embedding])[0]


def check_passage(passage: Passage) -> Passage:
    """Return `passage` with stripped tags, without empty ones, after checking its fields. Raises: InvalidInput: an
    empty text, one of more than a million characters, values that are no JSON."""
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


def update_passage(tx: Tx, passage: Passage, changes: PassageChanges, *, at: datetime) -> Passage:
    """Change a passage and return it; one that had faded is active again. Raises: InvalidInput, NotFound."""
    check_fields("a passage", changes, PassageChanges.__annotations__)
    values: dict[str, Any] = {**changes}
    if "tags" in values:
        values["tags"] = as_tags(values["tags"])
    check_changeable(tx, passage.archive_id)
    after = check_passage(replace(passage, **values))
    check_item_limits(tx.limits, tags=after.tags, metadata=after.metadata, source=after.source)
    if after == passage:
        return passage
    if after.text != passage.text:
        TEXTS_CHANGED(tx, [passage.id], at)
        tell_agents(tx, "archives", passage.archive_id)
    after = tx.passages.put(after)
    return restore_passage(tx, after, at=at) if after.state == "faded" else after  # somebody cares for it


def restore_passage(tx: Tx, passage: Passage, *, at: datetime) -> Passage:
    """Make a faded or archived passage active, so that it is found again; return it. Its age counts from `at`."""
    if passage.state == "active":
        return passage
    after = replace(passage, state="active", state_origin={"at": at.isoformat()})
    tx.passages.put_states([after])
    return after


def shelve_passage(tx: Tx, passage: Passage, *, at: datetime) -> Passage:
    """Have a passage found only by searches that ask for archived ones; return it."""
    if passage.state == "archived":
        return passage
    after = replace(passage, state="archived", state_origin={"at": at.isoformat(), "reason": "shelved"})
    tx.passages.put_states([after])
    tell_agents(tx, "archives", passage.archive_id)
    return after


def get_passage(tx: Tx, owner_id: ArchiveId | AgentId, passage_id: PassageId) -> Passage:
    """Return a passage of this archive, or of this agent's archives and files. Raises: NotFound, also for another's."""
    if is_id("agent", owner_id):
        archive_ids = {archive.id for archive in archives_of(tx, AgentId(owner_id), files=True)}
        hint = "it is in no archive of this agent"
    else:
        archive_ids, hint = {tx.archives.get(ArchiveId(owner_id)).id}, "it is in another archive"
    passage = tx.passages.get(passage_id)
    if passage.archive_id not in archive_ids:
        raise NotFound("passage", passage_id, hint=hint)
    return passage


def list_passages(
    tx: Tx, owner_id: ArchiveId | AgentId, *, where: PassageFilter, limit: int, after_seq: int
) -> Sequence[Passage]:
    """Return a page of an archive, or of the one that an agent inserts into, oldest first. Raises: NotFound."""
    if is_id("agent", owner_id):
        archive = find_own_archive(tx, AgentId(owner_id))
    else:
        archive = tx.archives.get(ArchiveId(owner_id))
    return () if archive is None else tx.passages.page(archive.id, where=where, limit=limit, above=after_seq)


def page_of_text(
    tx: Tx,
    archive_id: ArchiveId,
    text: str | None,
    *,
    where: PassageFilter | None = None,
    above: int | None = None,
    below: int | None = None,
    newest_first: bool = False,
    limit: int = 100,
) -> Sequence[Passage]:
    """Return a page of passages with numbers between `above` and `below` that contain `text` in any case, in order.

    In the first `PARTS_ROWS` passages of the page any part of a word is found. Behind them only passages are found in
    which a word begins where `text` does: the index finds those, however many passages there are.
    """
    page = partial(tx.passages.page, archive_id, where=where, text=text, newest_first=newest_first)
    words, edge = part_clauses(text) if text else (), None
    if words:
        edge = tx.passages.find_edge(archive_id, PARTS_ROWS, above=above, below=below, newest_first=newest_first)
    if edge is None:
        return page(above=above, below=below, limit=limit)
    last = edge + 1 if newest_first else edge - 1
    found = [*page(above=edge if newest_first else above, below=below if newest_first else edge, limit=limit)]
    while len(found) < limit:
        above, below = (above, last) if newest_first else (last, below)
        seqs = tx.passages.seqs_with(
            archive_id, words, above=above, below=below, newest_first=newest_first, limit=WORDS_ROWS
        )
        found += page(among=seqs, limit=limit - len(found)) if seqs else ()
        if len(seqs) < WORDS_ROWS:
            break
        last = seqs[-1]
    return found


def delete_passage(tx: Tx, passage: Passage, *, at: datetime) -> None:
    """Delete a passage. Raises: NotFound; InvalidInput: it belongs to a folder's file."""
    check_changeable(tx, passage.archive_id)
    TEXTS_DELETED(tx, [passage.id], at)
    tell_agents(tx, "archives", passage.archive_id)
    tx.passages.delete(passage.archive_id, [passage.seq])


def count_passages(tx: Tx, ids: Sequence[PassageId]) -> None:
    """Add one to the count of recalls of each of these passages that exists."""
    by_archive: dict[ArchiveId, list[int]] = {}
    for archive_id, seq in tx.passages.find_places(ids).values():
        by_archive.setdefault(archive_id, []).append(seq)
    for archive_id, seqs in by_archive.items():
        tx.passages.count(archive_id, seqs, "recalls")


def _half_floats(vector: Sequence[float]) -> bytes:
    """Return the unit vector as 16-bit floats. Raises: InvalidInput: its length is 0 or infinite."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise InvalidInput(f"embedding has the length {length}: give numbers that are not all 0")
    return struct.pack(f"<{len(vector)}e", *(number / length for number in vector))


def _build_passage(
    new: NewPassage, archive_id: ArchiveId, passage_id: PassageId, *, at: datetime, limits: Limits
) -> Passage:
    """Build the passage to store. Raises: InvalidInput, TooMany."""
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
            sources=new.sources,
        )
    )
    check_item_limits(limits, tags=passage.tags, metadata=passage.metadata, source=passage.source)
    if new.sources and not new.is_masked:  # by an agent; what is too large was refused before it is masked
        tags = tuple(map(without_credentials, passage.tags))
        passage = check_passage(replace(passage, text=without_credentials(passage.text), tags=tags))
        check_item_limits(limits, tags=passage.tags)
    return passage
