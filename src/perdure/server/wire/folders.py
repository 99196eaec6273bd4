"""Folders and files on the wire."""

from __future__ import annotations

from typing import Annotated, Any, cast
from uuid import UUID

from perdure.core.files import AgentFile, Folder
from perdure.core.ids import AgentId
from perdure.core.ports import Embedder
from perdure.domain.files.folders import NAME_CHARS, FolderChanges
from perdure.library.services.folders.files import FileState
from perdure.library.services.folders.folders import FolderSizes
from perdure.server.wire.archives import filled_embedding_config
from perdure.server.wire.base import ORG_ID, WireRequest, fields, nulls, stamps
from perdure.server.wire.fields import JsonObject, keywords

_VERSION = 0x4 << 76 | 0b10 << 62
_FREE = (1 << 128) - 1 & ~(0xF << 76 | 0b11 << 62)
"""The bits of a version 4 UUID that say so, and those that are free."""

_Name = Annotated[str, keywords(pattern=r"^[^/\n\r]*[^\s/][^/\n\r]*$", maxLength=NAME_CHARS)]


class FolderChangesIn(WireRequest):
    """Changes of a folder. A field that is missing or null stays. The embedding is the server's own."""

    name: _Name | None = None
    description: str | None = None
    instructions: str | None = None
    metadata: JsonObject | None = None

    def changes(self) -> FolderChanges:
        """The fields that are neither missing nor null."""
        return cast(FolderChanges, self.non_null())


class FolderIn(FolderChangesIn):
    """A new folder."""

    name: _Name


def folder_shape(folder: Folder, embedder: Embedder | None) -> dict[str, Any]:
    """The folder with all fields of the wire."""
    return {
        **stamps(folder.created_at, folder.updated_at),
        **fields(folder, "name", "description", "instructions"),
        "metadata": dict(folder.metadata) or None,
        "id": folder.id,
        "embedding_config": filled_embedding_config(embedder),
        "organization_id": ORG_ID,
        "vector_db_provider": "native",
    }


def sizes_shape(sizes: FolderSizes) -> dict[str, Any]:
    """How much there is in all folders, and in each."""
    folders = [
        fields(one.folder, source_id="id", source_name="name")
        | fields(one, "file_count", total_size="size_bytes")
        | {"files": [fields(file, file_id="id", file_name="name", file_size="size_bytes") for file in one.files]}
        for one in sizes.folders
    ]
    shape = fields(sizes, total_sources="folder_count", total_files="file_count", total_size="size_bytes")
    return shape | {"sources": folders}


def file_shape(state: FileState) -> dict[str, Any]:
    """The file with all fields of the wire."""
    file = state.file
    return {
        **stamps(file.created_at, file.updated_at),
        **fields(file, source_id="folder_id", file_name="name", original_file_name="original_name"),
        "file_path": None,
        **fields(file, file_type="media_type", file_size="size_bytes"),
        **nulls("file_creation_date", "file_last_modified_date"),
        "processing_status": file.status,
        "error_message": file.problem or None,
        "warnings": list(file.warnings),
        "progress": 100 if file.status == "completed" else 100 * file.done // max(1, file.total),
        "total_chunks": file.chunk_count if file.ended or file.status == "embedding" else None,
        "chunks_embedded": file.chunk_count - state.waiting,  # without an embedder none waits: they are found by words
        "content": state.text,
        "id": file.id,
        "organization_id": ORG_ID,
    }


def agent_file_shape(agent_id: AgentId, file: AgentFile, visible: str | None) -> dict[str, Any]:
    """A file of an agent; `visible` is its text in the agent's view."""
    return {
        "id": f"file_agent-{_xor_ids(agent_id, file.file.id)}",  # computed, so nobody has to store it
        **fields(file, file_id="file.id", file_name="path", folder_id="file.folder_id"),
        **fields(file, "folder_name", "is_open", last_accessed_at="used_at"),
        "visible_content": visible,
        "start_line": file.first_line if file.is_open else None,
        "end_line": file.last_line if file.is_open else None,
    }


def file_block_shape(agent_id: AgentId, file: AgentFile, visible: str | None) -> dict[str, Any]:
    """A file of an agent as a block of its memory; without a value while it is closed."""
    return {
        **agent_file_shape(agent_id, file, visible),
        **fields(file, label="path", source_id="file.folder_id"),
        "value": visible or "",
        "read_only": True,
        "metadata": {},
    }


def file_id_of(agent_id: AgentId, cursor: str) -> str:
    """The file's id, from the id of agent and file together. Any other text is returned as it is."""
    return f"file-{_xor_ids(agent_id, cursor)}" if cursor.startswith("file_agent-") else cursor


def _xor_ids(one: str, other: str) -> str:
    """The UUIDs of two ids, combined by xor. Combined with the one again, the result is the other.

    Where a text has no UUID, the other text is returned as it is.
    """
    try:
        numbers = [UUID(text.partition("-")[2]).int for text in (one, other)]
    except ValueError:
        return other
    return str(UUID(int=(numbers[0] ^ numbers[1]) & _FREE | _VERSION))
