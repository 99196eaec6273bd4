"""Archives as lines of JSON, for export to a file and import into another store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.ids import ArchiveId, OrgId, PassageId, derived_id, is_id
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.passages import PASSAGE_STATES, Archive, Passage
from perdure.core.sources import SOURCES_MAX, Source, WriteSource, parse_source
from perdure.domain.archives.passages import check_passage
from perdure.domain.archives.units import ArchiveChanges, check_archive, check_changeable, create_archive
from perdure.domain.conversations.importing import parse_time
from perdure.domain.values import check_item_limits
from perdure.storage.tx import Tx

LINE = JsonLimits(size_bytes=16 << 20)
"""The limits of one imported line."""

FORMAT_VERSION = 1

_NOWHERE, _NO_ORG = ArchiveId(""), OrgId("")


def archive_line(archive: Archive) -> str:
    """Return the header of an archive, without a line end."""
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
    """Return the line of a passage, without a line end or sources that are imports: the next import adds its own."""
    sources = [str(source.source) for source in passage.sources if source.source.label != "import"]
    return _line(
        {
            "id": passage.id,
            "text": passage.text,
            "tags": list(passage.tags),
            "metadata": dict(passage.metadata),
            "source": dict(passage.source),
            "created_at": passage.created_at.isoformat(),
            "occurred_at": passage.occurred_at.isoformat(),
            **({} if passage.state == "active" else {"state": passage.state}),
            **({"sources": sources} if sources else {}),
        }
    )


def parse_line(text: str) -> Archive | Passage:
    """Parse one line: the header of an archive, which has its id, name, description, metadata and time of creation, or
    a passage, which has no archive yet. An id is empty if the line has none. Raises: InvalidInput."""
    try:
        fields = parse_json(text, LINE)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not JSON ({error})") from error
    return parse_fields(fields)


def parse_fields(fields: Any) -> Archive | Passage:
    """Parse the value of a line, as `parse_line`. Raises: InvalidInput."""
    if not isinstance(fields, dict):
        raise InvalidInput(f"it is {fields!r:.60}: a JSON object is needed")
    if "perdure" in fields:
        return _parse_header(fields)
    if "text" not in fields:
        raise InvalidInput(f"it has no text: it has {', '.join(map(repr, fields)) or 'nothing'}")
    id_ = fields.get("id", "")
    if id_ != "" and not (isinstance(id_, str) and is_id("passage", id_)):
        raise InvalidInput(f"id is {id_!r:.60}: give one such as passage-123e4567-e89b-42d3-a456-426614174000, or none")
    if (state := fields.get("state", "active")) not in PASSAGE_STATES:
        raise InvalidInput(f"state is {state!r:.60}: it can be {', '.join(PASSAGE_STATES)}")
    occurred_at = parse_time("occurred_at", fields.get("occurred_at", fields.get("created_at")))
    return check_passage(
        Passage(
            id=PassageId(id_),
            archive_id=_NOWHERE,
            text=fields["text"],
            tags=fields.get("tags", ()),
            metadata=fields.get("metadata", {}),
            source=fields.get("source", {}),
            created_at=parse_time("created_at", fields["created_at"]) if "created_at" in fields else occurred_at,
            occurred_at=occurred_at,
            state=state,
            sources=_parse_sources(fields.get("sources", [])),
        )
    )


def _parse_sources(values: Any) -> tuple[WriteSource, ...]:
    """Parse the sources of a passage. Raises: InvalidInput."""
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values) or len(values) > SOURCES_MAX:
        raise InvalidInput(
            f'sources is {values!r:.60}: give a list of at most {SOURCES_MAX}, such as ["web:https://x"]'
        )
    return tuple(WriteSource(parse_source(value)) for value in values)


def open_import(tx: Tx, archive: Archive, new_id: ArchiveId) -> Archive:
    """Return the stored archive with the id, or else the name, of `archive`, a parsed header; if there is none, create
    it, with `new_id` where the header has no id. Raises: InvalidInput."""
    if archive.id:
        found = [*tx.archives.list_by_ids([archive.id]).values()]
    else:
        found = [*tx.archives.list(name=archive.name, limit=1)]
    if found:
        return found[0]
    fields: ArchiveChanges = {"name": archive.name, "description": archive.description, "metadata": archive.metadata}
    return create_archive(tx, archive.id or new_id, fields, at=archive.created_at)


def import_passages(tx: Tx, archive_id: ArchiveId, passages: Sequence[Passage]) -> int:
    """Add the passages that the archive does not have, in order; return how many.

    A passage keeps its id. If another archive has that id, the new id derives from the archive and the id; a passage
    without an id gets one derived from its content. So a second import adds nothing. Raises: NotFound, TooMany.
    """
    for passage in passages:
        check_item_limits(tx.limits, tags=passage.tags, metadata=passage.metadata, source=passage.source)
    imported = WriteSource(Source.of("import", f"archive {tx.archives.get(archive_id).name}"))
    check_changeable(tx, archive_id)
    # The same content in the same archive has the same id.
    passage_ids = [
        passage.id or PassageId(derived_id("passage", archive_id, passage_line(passage))) for passage in passages
    ]
    owners = {id_: owner for id_, (owner, _) in tx.passages.find_places(passage_ids).items()}
    ids = [
        id_ if owners.get(id_, archive_id) == archive_id else PassageId(derived_id("passage", archive_id, id_))
        for id_ in passage_ids
    ]
    existing = set(tx.passages.find_places(ids))
    new: dict[PassageId, Passage] = {}
    for id_, passage in zip(ids, passages, strict=True):
        if id_ not in existing:
            new.setdefault(id_, replace(passage, id=id_, archive_id=archive_id, sources=(*passage.sources, imported)))
    return len(tx.passages.add(list(new.values()))) if new else 0


def _parse_header(fields: dict[str, Any]) -> Archive:
    """Parse the header of an archive. Raises: InvalidInput."""
    if fields["perdure"] != "archive":
        raise InvalidInput(f"it begins a {fields['perdure']!r:.40}: only archives can be read")
    version = fields.get("version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise InvalidInput(
            f"its format has version {version!r:.40}, this Perdure reads up to {FORMAT_VERSION}: upgrade Perdure"
        )
    id_ = fields.get("id", "")
    if id_ != "" and not (isinstance(id_, str) and is_id("archive", id_)):
        raise InvalidInput(f"id is {id_!r:.60}: give one such as archive-123e4567-e89b-42d3-a456-426614174000, or none")
    at = parse_time("created_at", fields.get("created_at"))
    archive = Archive(
        id=ArchiveId(id_),
        org_id=_NO_ORG,
        name=fields.get("name", ""),
        description=fields.get("description"),
        metadata=fields.get("metadata", {}),
        created_at=at,
        updated_at=at,
    )
    return check_archive(archive)


def _line(fields: dict[str, Any]) -> str:
    """Return fields as one line of JSON, in ASCII."""
    return json.dumps(fields)  # escapes what is not ASCII: half a surrogate pair has no other form
