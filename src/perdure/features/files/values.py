"""Folders and the files in them: documents as lines that agents read, and as passages that search finds.

A file's text never changes: a changed file is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import ArchiveId, FileId, FolderId, OrgId
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr

FileStatus = Literal["pending", "parsing", "embedding", "completed", "error", "deleted"]
"""The processing status of a file, in the wire's words. `embedding`: search finds its words, and its vectors are being
made. `deleted` is our own: no folder has it, and its rows are still to be removed."""

IfExists = Literal["skip", "error", "suffix", "replace"]
"""What to do when a file's name is taken in its folder: keep the existing file; refuse; name the new one `name_(1)`;
replace the existing one."""

PART_CHARS = 64_000
"""The most characters of one stored part of a file's text; lines are read without the other parts."""


def file_tag(file_id: FileId) -> str:
    """Return the tag of all passages of a file."""
    return f"file:{file_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name")
class Folder:
    """A collection of files that is attached to agents as a whole. Its name is unique within an organisation.

    Args:
        instructions: a text for agents on how to use it.
        archive_id: the archive with the passages of its files; no list of archives shows it.
        version: grows when a file becomes readable or is deleted.
        file_count: files of every status.
    """

    __repr__ = short_repr("id", "name", "file_count")

    id: FolderId
    org_id: OrgId
    number: int = 0
    name: str
    description: str | None = None
    instructions: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    archive_id: ArchiveId
    version: int = 0
    file_count: int = 0
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a folder, numbered by the folder's own count.

    Args:
        name: its path in its folder, `notes/plan.md`; unique within the folder.
        original_name: its name before the upload.
        digest: the SHA-256 of its bytes, in hexadecimal digits.
        kind: its `FileKind`; empty before it is known.
        problem: why it has no text.
        done, total: the progress of its processing, without unit; total 0: not begun.
        page_count, line_count, char_count, chunk_count: of its text; pages are 0 where there are none.
        tries: how often its processing began.
        object_key: the key of its bytes in the object store; empty: they are not there.
        lease_owner, lease_until: the worker that processes it, and until when.
    """

    __repr__ = short_repr("id", "name", "status", "size_bytes", "problem")

    id: FileId
    org_id: OrgId
    folder_id: FolderId
    number: int = 0
    name: str
    original_name: str = ""
    media_type: str = ""
    size_bytes: int = 0
    digest: str = ""
    kind: str = ""
    status: FileStatus = "pending"
    problem: str = ""
    title: str = ""
    warnings: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    page_count: int = 0
    line_count: int = 0
    char_count: int = 0
    chunk_count: int = 0
    tries: int = 0
    object_key: str = ""
    lease_owner: str | None = None
    lease_until: datetime | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def ended(self) -> bool:
        """Whether its processing has ended, with a text or an error."""
        return self.status in ("completed", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a file's text, numbered from 0. The parts' texts, one after the other, are the whole.

    Args:
        first_line: the number of the line that it begins in, from 1.
        first_char: where in that line it begins, from 0; above 0 only within a line that no part could hold.
    """

    seq: int
    first_line: int
    first_char: int = 0
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """A file as one agent has it.

    Args:
        first_line, last_line: its lines in view while it is open, both included.
        used: grows with every use by this agent, so that the least recently used file has the lowest; 0: never.
        version: of the view; no two views of one file have the same.
    """

    __repr__ = short_repr("file", "folder_name", "is_open")

    file: File
    folder_name: str
    is_open: bool = False
    first_line: int = 1
    last_line: int = 0
    used: int = 0
    version: int = 0
    used_at: datetime | None = None

    @property
    def path(self) -> str:
        """The name for agents: `folder/name`."""
        return f"{self.folder_name}/{self.file.name}"
