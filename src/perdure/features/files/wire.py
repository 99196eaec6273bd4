"""Folders and files on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast
from uuid import UUID

from typing_extensions import TypedDict

from perdure.core.ids import AgentId
from perdure.core.ports import Embedder
from perdure.features.files import folder_service as sizes
from perdure.features.files import values as files
from perdure.features.files.file_service import FileState
from perdure.features.files.units import NAME_CHARS, FolderChanges
from perdure.features.files.views import limits_of
from perdure.library.agents.agents import FullAgent
from perdure.server.wire.archives import filled_embedding_config
from perdure.server.wire.base import ORG_ID, WireRequest, fields, nulls
from perdure.server.wire.fields import JsonObject, keywords
from perdure.server.wire.shapes import Object, StampedShape, WireShape, computed

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


class Folder(
    StampedShape,
    of=files.Folder,
    fields="name description instructions metadata id embedding_config",
    unlisted={"organization_id": ORG_ID, "vector_db_provider": "native"},
):
    """A folder with files."""

    metadata: Object | None = computed(lambda folder: dict(folder.metadata) or None)
    embedding_config: Object


def folder_shape(folder: files.Folder, embedder: Embedder | None) -> Folder:
    """The folder with all fields of the wire."""
    return Folder.make(folder, embedding_config=filled_embedding_config(embedder))


def agent_fields(state: FullAgent, window_tokens: int, embedder: Embedder | None) -> Object:
    """The fields of an agent that are about folders and files."""
    limits = limits_of(state.agent, window_tokens)
    return {
        "sources": [folder_shape(folder, embedder) for folder in state.of_features["folders"]],
        "max_files_open": limits.max_open,
        "per_file_view_window_char_limit": limits.view_chars,
    }


class FileSize(WireShape, of=files.File, file_id="id", file_name="name", file_size="size_bytes"):
    """A file by its size."""


class FolderSize(
    WireShape,
    of=sizes.FolderSize,
    fields="file_count",
    source_id="folder.id",
    source_name="folder.name",
    total_size="size_bytes",
):
    """How much there is in a folder."""

    files: list[FileSize]


class FolderSizes(
    WireShape,
    of=sizes.FolderSizes,
    total_sources="folder_count",
    total_files="file_count",
    total_size="size_bytes",
    sources="folders",
):
    """How much there is in all folders, and in each."""

    sources: list[FolderSize]


class File(
    StampedShape,
    of=FileState,
    fields="file.created_at file.updated_at source_id file_name original_file_name file_type file_size"
    " processing_status error_message warnings progress total_chunks chunks_embedded content file.id",
    source_id="file.folder_id",
    file_name="file.name",
    original_file_name="file.original_name",
    file_type="file.media_type",
    file_size="file.size_bytes",
    processing_status="file.status",
    content="text",
    unlisted=nulls("file_path", "file_creation_date", "file_last_modified_date") | {"organization_id": ORG_ID},
):
    """A file of a folder."""

    processing_status: Literal["pending", "parsing", "embedding", "completed", "error"]
    error_message: str | None = computed(lambda state: state.file.problem or None)
    warnings: list[str] = computed(lambda state: list(state.file.warnings))
    progress: int = computed(  # in percent
        lambda state: 100 if state.file.status == "completed" else 100 * state.file.done // max(1, state.file.total)
    )
    total_chunks: int | None = computed(  # once they are known
        lambda state: state.file.chunk_count if state.file.ended or state.file.status == "embedding" else None
    )
    # Without an embedder none waits: they are found by words.
    chunks_embedded: int | None = computed(lambda state: state.file.chunk_count - state.waiting)


class AgentFile(
    WireShape,
    of=files.AgentFile,
    fields="id file_id file_name folder_id folder_name is_open",
    file_id="file.id",
    file_name="path",
    folder_id="file.folder_id",
    last_accessed_at="used_at",
):
    """A file of an agent; `visible_content` is its text in the agent's view."""

    id: str
    visible_content: str | None
    start_line: int | None = computed(lambda file: file.first_line if file.is_open else None)
    end_line: int | None = computed(lambda file: file.last_line if file.is_open else None)


class AgentFiles(TypedDict):
    files: list[AgentFile]
    next_cursor: str | None
    has_more: bool


def agent_file_shape(agent_id: AgentId, file: files.AgentFile, visible: str | None) -> AgentFile:
    """A file of an agent with its text in view. The id, of agent and file together, is computed, not stored."""
    return AgentFile.make(file, id=f"file_agent-{_xor_ids(agent_id, file.file.id)}", visible_content=visible)


def file_block_shape(agent_id: AgentId, file: files.AgentFile, visible: str | None) -> dict[str, Any]:
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
    """Combine the UUIDs of two ids by xor; combined with `one` again, the result is `other`.

    Where a text has no UUID, the other text is returned as it is.
    """
    try:
        numbers = [UUID(text.partition("-")[2]).int for text in (one, other)]
    except ValueError:
        return other
    return str(UUID(int=(numbers[0] ^ numbers[1]) & _FREE | _VERSION))
