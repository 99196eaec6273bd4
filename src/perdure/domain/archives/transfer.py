"""Archives as lines of JSON, to be carried to another store: what is written, what is read again, and what is there
already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ArchiveId, OrgId, PassageId, derived_id, is_id
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.passages import Archive, Passage
from perdure.domain.archives.passages import check_passage
from perdure.domain.archives.units import check_archive, check_own, create_archive
from perdure.domain.conversations.importing import moment
from perdure.domain.values import check_kept
from perdure.storage.tx import Tx

__all__ = ["FORMAT_VERSION", "Header", "add_carried", "archive_line", "open_carried", "parse_line", "passage_line"]

LINE = JsonLimits(size_bytes=16 << 20)
"""One line of a file that is brought in."""

FORMAT_VERSION = 1

_NOWHERE, _NO_ORG = ArchiveId(""), OrgId("")


@dataclass(frozen=True, slots=True)
class Header:
    """The line before an archive's passages. `archive` has its id, name, description and metadata; the rest of it is
    not carried."""

    archive: Archive


def archive_line(archive: Archive) -> str:
    """The header of an archive, without a line end."""
    return _line(
        {
            "perdure": "archive",
            "version": FORMAT_VERSION,
            "id": archive.id,
            "name": archive.name,
            "description": archive.description,
            "metadata": dict(archive.metadata),
            "created_at": archive.created_at.isoformat(),
            "passages": archive.passage_count,
        }
    )


def passage_line(passage: Passage) -> str:
    """A passage, without a line end."""
    return _line(
        {
            "id": passage.id,
            "text": passage.text,
            "tags": list(passage.tags),
            "metadata": dict(passage.metadata),
            "source": dict(passage.source),
            "created_at": passage.created_at.isoformat(),
            "occurred_at": passage.occurred_at.isoformat(),
        }
    )


def parse_line(text: str) -> Header | Passage:
    """What a line says; a passage has no archive yet, and an empty id if the line has none.

    Raises: InvalidInput: what is wrong with it.
    """
    try:
        said = parse_json(text, LINE)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is no JSON ({error})") from error
    if not isinstance(said, dict):
        raise InvalidInput(f"it is {text.strip()!r:.60}: a JSON object is needed")
    if "perdure" in said:
        return _header(said)
    if "text" not in said:
        raise InvalidInput(f"it has no text: it has {', '.join(map(repr, said)) or 'nothing'}")
    id_ = said.get("id", "")
    if id_ != "" and not (isinstance(id_, str) and is_id("passage", id_)):
        raise InvalidInput(f"id is {id_!r:.60}: give one such as passage-123e4567-e89b-42d3-a456-426614174000, or none")
    occurred_at = moment("occurred_at", said.get("occurred_at", said.get("created_at")))
    return check_passage(
        Passage(
            id=PassageId(id_),
            archive_id=_NOWHERE,
            text=said["text"],
            tags=said.get("tags", ()),
            metadata=said.get("metadata", {}),
            source=said.get("source", {}),
            created_at=moment("created_at", said["created_at"]) if "created_at" in said else occurred_at,
            occurred_at=occurred_at,
        )
    )


def open_carried(tx: Tx, header: Header, new_id: ArchiveId) -> Archive:
    """The archive that takes what follows the header: the one of its id, which is made if it is not there.

    Raises: InvalidInput: a name or description that can't be used.
    """
    carried = header.archive
    archive_id = carried.id or new_id
    known = _find(tx, archive_id) if carried.id else next(iter(tx.archives.list(name=carried.name, limit=1)), None)
    if known is not None:
        return known
    return create_archive(
        tx,
        archive_id,
        carried.name,
        at=carried.created_at,
        description=carried.description,
        metadata=carried.metadata,
    )


def add_carried(tx: Tx, archive_id: ArchiveId, passages: Sequence[Passage]) -> int:
    """How many of the passages were not there and were added, in their order.

    A passage keeps its id. Where another archive has that already, it gets one that follows from both, so that it is
    known again; one without an id is known by all that it says. Raises: NotFound, TooMany.
    """
    for passage in passages:
        check_kept(tx.limits, tags=passage.tags, metadata=passage.metadata, source=passage.source)
    tx.archives.get(archive_id)
    check_own(tx, archive_id)
    given = [passage.id or _own_id(archive_id, passage) for passage in passages]
    owners = tx.passages.known(given)
    ids = [
        id_ if owners.get(id_, archive_id) == archive_id else PassageId(derived_id("passage", archive_id, id_))
        for id_ in given
    ]
    known = set(tx.passages.known(ids))
    new: dict[PassageId, Passage] = {}
    for id_, passage in zip(ids, passages, strict=True):
        if id_ not in known:
            new.setdefault(id_, replace(passage, id=id_, archive_id=archive_id))
    return len(tx.passages.add(list(new.values()))) if new else 0


def _header(said: dict[str, Any]) -> Header:
    if said["perdure"] != "archive":
        raise InvalidInput(f"it begins a {said['perdure']!r:.40}: only archives can be read")
    version = said.get("version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise InvalidInput(
            f"its format has version {version!r:.40}, this Perdure reads up to {FORMAT_VERSION}: upgrade Perdure"
        )
    id_ = said.get("id", "")
    if id_ != "" and not (isinstance(id_, str) and is_id("archive", id_)):
        raise InvalidInput(f"id is {id_!r:.60}: give one such as archive-123e4567-e89b-42d3-a456-426614174000, or none")
    at = moment("created_at", said.get("created_at"))
    archive = Archive(
        id=ArchiveId(id_),
        org_id=_NO_ORG,
        name=said.get("name", ""),
        description=said.get("description"),
        metadata=said.get("metadata", {}),
        created_at=at,
        updated_at=at,
    )
    return Header(check_archive(archive))


def _own_id(archive_id: ArchiveId, passage: Passage) -> PassageId:
    return PassageId(derived_id("passage", archive_id, passage_line(passage)))


def _find(tx: Tx, archive_id: ArchiveId) -> Archive | None:
    try:
        return tx.archives.get(archive_id)
    except NotFound:
        return None


def _line(said: dict[str, Any]) -> str:
    return json.dumps(said)  # escapes what is not ASCII: half a surrogate pair has no other form
