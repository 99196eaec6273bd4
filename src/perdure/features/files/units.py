"""Units of work on folders and their files: create, change, attach, upload, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, TypedDict

from perdure.core.documents import Chunk
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, FileId, FolderId, Ids, PassageId, is_id
from perdure.core.passages import Archive, Passage, PassageFilter
from perdure.core.sources import Source
from perdure.core.tools.engine_specs import FILE_TOOLS
from perdure.domain.values import check_fields, check_item_limits, check_json
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.values import File, Folder, IfExists, file_tag
from perdure.storage.tx import Tx

NAME_CHARS = 200
TEXT_CHARS = 10_000  # of a description or instructions: both stand in prompts


class FolderChanges(TypedDict, total=False):
    """The fields of a folder. In a change a missing field stays, and None removes a text."""

    name: str
    description: str | None
    instructions: str | None
    metadata: Mapping[str, Any]


def create_folder(tx: Tx, fields: FolderChanges, *, ids: Ids, at: datetime) -> Folder:
    """Create a folder, with an archive for the passages of its files. Raises: InvalidInput, AlreadyExists."""
    folder_id, archive_id = FolderId(ids.new("folder")), ArchiveId(ids.new("archive"))
    folder = _check_folder(
        Folder(id=folder_id, org_id=tx.org_id, archive_id=archive_id, created_at=at, updated_at=at, **fields)
    )
    check_item_limits(tx.limits, metadata=folder.metadata)
    folder = tx.of(Folders).add(folder)
    tx.archives.add(
        Archive(id=archive_id, org_id=tx.org_id, name=f"files of {folder.name}", created_at=at, updated_at=at)
    )
    return folder


def update_folder(tx: Tx, folder_id: FolderId, changes: FolderChanges, *, at: datetime) -> Folder:
    """Change a folder and return it. Raises: NotFound, InvalidInput, AlreadyExists."""
    check_fields("a folder", changes, FolderChanges.__annotations__)
    before = tx.of(Folders).get(folder_id)
    after = _check_folder(replace(before, **changes))
    if after == before:
        return before
    check_item_limits(tx.limits, metadata=after.metadata)
    tx.of(Folders).put(replace(after, updated_at=at))
    return tx.of(Folders).get(folder_id)


def _check_folder(folder: Folder) -> Folder:
    """Return the folder after checking its fields. Raises: InvalidInput."""
    name = folder.name
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_CHARS or "/" in name or not name.isprintable():
        raise InvalidInput(
            f"folder name {name!r:.80} can't be used: 1 to {NAME_CHARS} characters, no slash and no line break"
        )
    for field in ("description", "instructions"):
        value = getattr(folder, field)
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{field} is {value!r:.80}: give a text")
        if value is not None and len(value) > TEXT_CHARS:
            raise InvalidInput(f"{field} has {len(value):,} characters, the limit is {TEXT_CHARS:,}: shorten it")
    check_json("metadata", folder.metadata)
    return folder


def find_folder(tx: Tx, name_or_id: str) -> Folder:
    """Return a folder by id or name. Raises: NotFound, with the names of other folders."""
    if is_id("folder", name_or_id):
        return tx.of(Folders).get(FolderId(name_or_id))
    folder = tx.of(Folders).find(name_or_id)
    if folder is None:
        names = ", ".join(repr(other.name) for other in tx.of(Folders).list(limit=10))
        raise NotFound("folder", name_or_id, hint=f"there are {names}" if names else "there is none yet")
    return folder


def attach_folders(tx: Tx, agent_id: AgentId, *folder_ids: FolderId, opens: bool = True) -> Sequence[FolderId]:
    """Attach folders to an agent, and the file tools with them; return those that are new to the agent.

    Args:
        opens: open files of them as they become readable, while there is room.
    Raises: NotFound.
    """
    added = tx.of(Folders).attach(agent_id, *folder_ids, opens=opens)
    if added:
        tx.tools.attach(agent_id, *FILE_TOOLS)
    return added


def detach_folder(tx: Tx, agent_id: AgentId, folder_id: FolderId) -> bool:
    """Detach a folder, and with the last one the file tools; return whether the agent had it. Raises: NotFound."""
    removed = tx.of(Folders).detach(agent_id, folder_id)
    if removed and not tx.of(Folders).list_by_agent(agent_id):
        attached = {tool.spec.name for tool in tx.tools.list_by_agent(agent_id)}
        for name in attached.intersection(FILE_TOOLS):
            tx.tools.detach(agent_id, name)
    return removed


def file_source(tx: Tx, file_id: str) -> Source:
    """Return a file as a source, by its path; by its id if it is gone."""
    try:
        file = tx.of(Files).get(FileId(file_id))
        return Source.of("file", f"{tx.of(Folders).get(file.folder_id).name}/{file.name}")
    except NotFound:
        return Source.of("file", file_id)


def passage_source(tx: Tx, passage: Passage) -> Source | None:
    """Return the file of a passage as a source; None: it is of none."""
    return file_source(tx, file_id) if (file_id := passage.source.get("file_id")) else None


def has_work(tx: Tx, at: datetime) -> bool:
    """Return whether a file is unfinished."""
    return tx.of(Files).has_work()


def archives_of(tx: Tx, agent_id: AgentId) -> Sequence[Archive]:
    """Return the archives with the passages of the agent's folders."""
    return [tx.archives.get(folder.archive_id) for folder in tx.of(Folders).list_by_agent(agent_id)]


# -- uploads -----------------------------------------------------------------------------------------------------------


def place_file(tx: Tx, folder_id: FolderId, name: str, digest: str, if_exists: IfExists) -> File | str:
    """Return the name that an upload gets, or the existing file that is kept instead of it.

    Raises: NotFound: no such folder; AlreadyExists: the name is taken, and `if_exists` is `error`.
    """
    tx.of(Folders).get(folder_id)
    existing = tx.of(Files).find(folder_id, name)
    if existing is None:
        return name
    match if_exists:
        case "skip":
            return existing
        case "error":
            raise AlreadyExists("file", name)
        case "replace":
            return existing if existing.digest == digest and existing.status != "error" else name
        case "suffix":
            path = PurePosixPath(name)
            number = 1
            while tx.of(Files).find(folder_id, str(path.with_name(f"{path.stem}_({number}){path.suffix}"))) is not None:
                number += 1
            return str(path.with_name(f"{path.stem}_({number}){path.suffix}"))


def add_file(tx: Tx, file: File, if_exists: IfExists) -> File:
    """Store a file and return it, or the existing file that is kept instead. Raises: NotFound, AlreadyExists."""
    target = place_file(tx, file.folder_id, file.name, file.digest, if_exists)
    if isinstance(target, File):
        return target
    if (existing := tx.of(Files).find(file.folder_id, target)) is not None:
        tx.of(Files).delete(existing.id)
    return tx.of(Files).add(replace(file, name=target))


def delete_files(tx: Tx, folder_id: FolderId, *, limit: int) -> int:
    """Delete up to `limit` files of a folder; return how many. Raises: NotFound."""
    tx.of(Folders).get(folder_id)
    files = tx.of(Files).list(folder_id, limit=limit)
    for file in files:
        tx.of(Files).delete(file.id)
    return len(files)


# -- passages of files -------------------------------------------------------------------------------------------------


def add_chunks(tx: Tx, file: File, chunks: Sequence[Chunk], *, ids: Ids, at: datetime) -> None:
    """Store the chunks of a file as passages, so that search finds them. Raises: NotFound."""
    folder = tx.of(Folders).get(file.folder_id)
    tx.passages.add(
        [
            Passage(
                id=PassageId(ids.new("passage")),
                archive_id=folder.archive_id,
                text=chunk.text_in_context,
                tags=(file_tag(file.id),),
                source={
                    "folder_id": folder.id,
                    "file_id": file.id,
                    "file_name": file.name,
                    "first_line": chunk.first_line,
                    "last_line": chunk.last_line,
                    **({"page": chunk.page} if chunk.page else {}),
                },
                created_at=at,
                occurred_at=at,
            )
            for chunk in chunks
        ]
    )


def drop_chunks(tx: Tx, file: File, *, limit: int) -> int:
    """Delete up to `limit` of a file's passages; return how many."""
    try:
        folder = tx.of(Folders).get(file.folder_id)
    except NotFound:  # earlier versions removed a folder before the last of its files, with its archive
        return 0
    seqs = tx.passages.seqs(folder.archive_id, where=PassageFilter(tags=(file_tag(file.id),)))
    return tx.passages.delete(folder.archive_id, seqs[:limit])
