"""Units of work on notes: written, changed, put away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import AgentId, ArchiveId, Ids, PassageId
from perdure.core.passages import SEARCHED_STATES, Passage, PassageFilter
from perdure.domain.archives.passages import (
    NewPassage,
    get_passage,
    insert_passage,
    own_archive,
    restore_passage,
    shelve_passage,
    update_passage,
)
from perdure.domain.corrections import passage_item, record
from perdure.features.notes.state import clear_edits
from perdure.features.notes.values import (
    NOTE_TAG,
    Note,
    check_note_fields,
    check_note_tags,
    check_title,
    find_kind,
    get_note,
    note_of,
    to_markdown,
)
from perdure.storage.tx import Tx

NOTES_MAX = 500
"""The most notes of an agent that are not archived."""
FOUND_MAX = 10_000
NOT_ARCHIVED = PassageFilter(tags=(NOTE_TAG,), states=SEARCHED_STATES)
"""Finds the passages of notes that are not archived."""


def add_note(
    tx: Tx,
    agent_id: AgentId,
    kind: str,
    title: str,
    fields: Mapping[str, str],
    *,
    tags: Sequence[str],
    passage: NewPassage,
    ids: Ids,
    at: datetime,
) -> tuple[Note, Correction]:
    """Write a note; return it, and the correction that `undo` takes back.

    Args:
        passage: what else its passage has, such as who writes it.
    Raises: InvalidInput: a value that can't be used, or the agent has 500 notes; NotFound: no such agent.
    """
    _check_room(tx, agent_id)
    known = find_kind(kind)
    text = to_markdown(check_title(title), check_note_fields(known, fields))
    own_tags = (NOTE_TAG, known.name, *check_note_tags(known, tags))
    new = replace(passage, text=text, tags=own_tags, metadata=metadata_of(known.name, at))
    archive = own_archive(tx, agent_id, ArchiveId(ids.new("archive")), at=at)
    return _record(tx, agent_id, None, insert_passage(tx, archive.id, new, ids=ids, at=at), at=at)


def edit_note(
    tx: Tx,
    agent_id: AgentId,
    note_id: PassageId,
    *,
    title: str | None,
    fields: Mapping[str, str] | None,
    archived: bool | None = None,
    at: datetime,
) -> tuple[Note, Correction]:
    """Change a note, see `AsyncNotes.edit`; return it and its correction. Raises: InvalidInput; NotFound."""
    before = get_passage(tx, agent_id, note_id)
    note = get_note(before)
    merged = check_note_fields(find_kind(note.kind), {**note.fields, **(fields or {})})
    text = to_markdown(check_title(note.title if title is None else title), merged)
    metadata = {**before.metadata, **metadata_of(note.kind, at)}
    after = update_passage(tx, before, {"text": text, "metadata": metadata}, at=at)
    if archived is not None:
        after = put_away(tx, agent_id, after, archived, at=at)
    return _record(tx, agent_id, before, after, at=at)


def metadata_of(kind: str, at: datetime) -> Mapping[str, Any]:
    """What the passage of a note that is written at a time has beside its text."""
    return {"kind": kind, "changed_at": at.isoformat()}


def _record(
    tx: Tx, agent_id: AgentId, before: Passage | None, after: Passage, *, at: datetime
) -> tuple[Note, Correction]:
    """Return a note that was written, with its correction; the count of edits since the last note begins anew."""
    clear_edits(tx, agent_id)
    what = f"new passage: {after.text}" if before is None else f"passage: {before.text}"
    return get_note(after), record(tx, agent_id, "passage", what, [passage_item(before, after)], at=at)


def put_away(tx: Tx, agent_id: AgentId, passage: Passage, archived: bool, *, at: datetime) -> Passage:
    """Archive a note's passage or bring it back; return it. Raises: InvalidInput: the agent has 500 notes."""
    if archived:
        return shelve_passage(tx, passage, at=at)
    if passage.state == "archived":
        _check_room(tx, agent_id)
    return restore_passage(tx, passage, at=at)


def _check_room(tx: Tx, agent_id: AgentId) -> None:
    """Raise if there can be no further note. Others that write one wait until the end of the transaction. Raises:
    InvalidInput: the agent has 500; NotFound: no such agent."""
    tx.agents.lock(agent_id)
    tx.agents.model(agent_id)
    archives = tx.archives.list_by_agent(agent_id)
    if sum(len(tx.passages.seqs(archive.id, where=NOT_ARCHIVED)) for archive in archives) < NOTES_MAX:
        return  # counting passages is quicker than reading notes
    if (count := count_notes(tx, agent_id)) >= NOTES_MAX:
        raise InvalidInput(
            f"there are {count} notes, the limit is {NOTES_MAX}: archive at least {count - NOTES_MAX + 1}"
            " (`perdure note review` lists the oldest)"
        )


def count_notes(tx: Tx, agent_id: AgentId) -> int:
    """How many notes an agent has that are not archived. Raises: NotFound: no such agent."""
    tx.agents.model(agent_id)
    archives = tx.archives.list_by_agent(agent_id)
    pages = (tx.passages.page(archive.id, where=NOT_ARCHIVED, limit=FOUND_MAX) for archive in archives)
    return sum(note_of(passage) is not None for page in pages for passage in page)
