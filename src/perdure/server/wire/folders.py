"""Folders and files as the wire shows and takes them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from perdure.core.files import AgentFile, File, Folder
from perdure.core.ids import AgentId
from perdure.core.ports import Embedder
from perdure.domain.files.folders import NAME_CHARS, FolderChanges
from perdure.server.wire.archives import embedding_config_shape
from perdure.server.wire.base import ACTOR_ID, ORG_ID, WireRequest, stamp
from perdure.server.wire.values import JsonObject, keywords

__all__ = [
    "FolderChangesIn",
    "FolderIn",
    "agent_file_shape",
    "file_id_of",
    "file_shape",
    "folder_shape",
]

_VERSION = 0x4 << 76 | 0b10 << 62
_FREE = (1 << 128) - 1 & ~(0xF << 76 | 0b11 << 62)


_Name = Annotated[str, keywords(pattern=r"^[^/\n\r]*[^\s/][^/\n\r]*$", maxLength=NAME_CHARS)]


class FolderChangesIn(WireRequest):
    """What may be changed of a folder. What is missing or null stays as it is. The embedding is the server's own."""

    name: _Name | None = None
    description: str | None = None
    instructions: str | None = None
    metadata: JsonObject | None = None

    def changes(self) -> FolderChanges:
        given: FolderChanges = {}
        if self.name is not None:
            given["name"] = self.name
        if self.description is not None:
            given["description"] = self.description
        if self.instructions is not None:
            given["instructions"] = self.instructions
        if self.metadata is not None:
            given["metadata"] = self.metadata
        return given


class FolderIn(FolderChangesIn):
    """A folder to be made."""

    name: _Name


def folder_shape(folder: Folder, embedder: Embedder | None) -> dict[str, Any]:
    """The folder with all fields of the wire. `embedding_config` is what makes its vectors, null where nothing does."""
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(folder.created_at),
        "updated_at": stamp(folder.updated_at),
        "name": folder.name,
        "description": folder.description,
        "instructions": folder.instructions,
        "metadata": dict(folder.metadata) or None,
        "id": folder.id,
        "embedding_config": embedding_config_shape(embedder),
        "organization_id": ORG_ID,
        "vector_db_provider": "native",
    }


def file_shape(file: File, *, waiting: int = 0, embedded: bool = False, content: str | None = None) -> dict[str, Any]:
    """The file with all fields of the wire.

    Args:
        waiting: how many of its chunks wait for their vectors; `embedded`: whether chunks get vectors here.
        content: its text, if it was asked for.
    """
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(file.created_at),
        "updated_at": stamp(file.updated_at),
        "source_id": file.folder_id,
        "file_name": file.name,
        "original_file_name": file.original_name,
        "file_path": None,
        "file_type": file.media_type,
        "file_size": file.size_bytes,
        "file_creation_date": None,
        "file_last_modified_date": None,
        "processing_status": file.status,
        "error_message": file.problem or None,
        "progress": 100 if file.status == "completed" else 100 * file.done // max(1, file.total),
        "total_chunks": file.chunk_count if file.ended or file.status == "embedding" else None,
        "chunks_embedded": file.chunk_count - waiting if embedded else 0,
        "content": content,
        "id": file.id,
        "organization_id": ORG_ID,
    }


def agent_file_shape(agent_id: AgentId, file: AgentFile, visible: str | None) -> dict[str, Any]:
    """A file as one agent has it; `visible` is what of it is in view."""
    return {
        "id": _id_of(agent_id, file),
        "file_id": file.file.id,
        "file_name": file.path,
        "folder_id": file.file.folder_id,
        "folder_name": file.folder_name,
        "is_open": file.is_open,
        "last_accessed_at": stamp(file.used_at),
        "visible_content": visible,
        "start_line": file.first_line if file.is_open else None,
        "end_line": file.last_line if file.is_open else None,
    }


def _id_of(agent_id: AgentId, file: AgentFile) -> str:
    """The id of the pair, made of both ids, so that it need not be stored."""
    return f"file_agent-{_mixed(agent_id, file.file.id)}"


def file_id_of(agent_id: AgentId, cursor: str) -> str:
    """The file's id, of itself or of the pair's. A text that is neither comes back as it is."""
    return f"file-{_mixed(agent_id, cursor)}" if cursor.startswith("file_agent-") else cursor


def _mixed(one: str, other: str) -> str:
    """What is the one of the two with the other mixed in; mixed in again, it is the one."""
    try:
        numbers = [UUID(text.partition("-")[2]).int for text in (one, other)]
    except ValueError:
        return other
    return str(UUID(int=(numbers[0] ^ numbers[1]) & _FREE | _VERSION))
