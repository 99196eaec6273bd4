"""Checksums of what was said and remembered: of messages, their revisions, passages and versions of blocks.

A database tells a page that it can't read, and not one where a letter is another one than was written. Each row has the
checksum of its columns that never change, or change together with it; rows of before there were any have none.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.storage.database.base import Database, Row

__all__ = ["MESSAGES", "PASSAGES", "REVISIONS", "VERSIONS", "Summed", "check_rows", "checksum"]


@dataclass(frozen=True, slots=True)
class Summed:
    """A table whose rows have a checksum: the columns of its key, and those that the checksum is of."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]

    def of(self, row: Mapping[str, Any]) -> int:
        """The checksum of a row, as it is written."""
        return checksum([row[column] for column in self.columns])


MESSAGES = Summed(
    "messages",
    ("agent_id", "seq"),
    (
        *("agent_id", "seq", "id", "conversation_seq", "role", "kind", "parts", "run_seq", "run_id", "step_id"),
        *("name", "otid", "sender_id", "tokens", "created_at", "occurred_at"),
    ),
)
REVISIONS = Summed(
    "message_revisions",
    ("agent_id", "seq", "revision"),
    ("agent_id", "seq", "revision", "parts", "settings_revision", "author_kind", "author_id", "created_at"),
)
PASSAGES = Summed(
    "passages",
    ("archive_id", "seq"),
    ("archive_id", "seq", "id", "text", "tags", "metadata", "source", "created_at", "occurred_at"),
)
VERSIONS = Summed(
    "block_versions",
    ("block_id", "version"),
    (
        *("block_id", "version", "label", "value", "diff", "author_kind", "author_id", "agent_id", "run_id"),
        *("message_id", "created_at"),
    ),
)


def checksum(values: Sequence[Any]) -> int:
    """CRC-32 of the values as they are stored; no stored text holds the character between them. 2 us for a message."""
    return zlib.crc32("\0".join(map(str, values)).encode())


def check_rows(
    db: Database, what: Summed, where: str, params: Mapping[str, Any], *, repair: bool
) -> tuple[list[Row], int]:
    """The keys of rows that are not as they were written, and how many have no checksum; `repair` gives them one."""
    rows = db.rows(f"SELECT {', '.join(what.columns)}, checksum FROM {what.table} WHERE {where}", params)
    places = [what.columns.index(column) for column in what.key]
    damaged: list[Row] = []
    bare: list[dict[str, Any]] = []
    for row in rows:
        *values, kept = row
        key = [values[place] for place in places]
        if kept is None:
            bare.append({**dict(zip(what.key, key, strict=True)), "checksum": checksum(values)})
        elif kept != checksum(values):
            damaged.append(key)
    if repair and bare:
        keys = " AND ".join(f"{column} = :{column}" for column in what.key)
        db.run_many(f"UPDATE {what.table} SET checksum = :checksum WHERE {keys}", bare)
    return damaged, len(bare)
