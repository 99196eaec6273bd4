"""Checksums of messages, their revisions, passages and versions of blocks.

A database reports a page that it can't read, but not a changed letter. Each row has a checksum of the columns that
never change, or change together with it. Rows from before checksums existed have none.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row


@dataclass(frozen=True, slots=True)
class ChecksumColumns:
    """A table whose rows have a checksum: the columns of its key, and the columns that the checksum covers."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]

    def of(self, row: Mapping[str, Any]) -> int:
        """The checksum of a stored row: CRC-32 of its values, separated by NUL, which no stored text contains."""
        return zlib.crc32("\0".join(str(row[column]) for column in self.columns).encode())


MESSAGES = ChecksumColumns(
    "messages",
    ("agent_id", "seq"),
    (
        *("agent_id", "seq", "id", "conversation_seq", "role", "kind", "parts", "run_seq", "run_id", "step_id"),
        *("name", "otid", "sender_id", "tokens", "created_at", "occurred_at"),
    ),
)
REVISIONS = ChecksumColumns(
    "message_revisions",
    ("agent_id", "seq", "revision"),
    ("agent_id", "seq", "revision", "parts", "settings_revision", "author_kind", "author_id", "created_at"),
)
PASSAGES = ChecksumColumns(
    "passages",
    ("archive_id", "seq"),
    ("archive_id", "seq", "id", "text", "tags", "metadata", "source", "created_at", "occurred_at"),
)
VERSIONS = ChecksumColumns(
    "block_versions",
    ("block_id", "version"),
    (
        *("block_id", "version", "label", "value", "diff", "author_kind", "author_id", "agent_id", "run_id"),
        *("message_id", "created_at"),
    ),
)


def check_rows(
    db: Database, what: ChecksumColumns, where: str, params: Mapping[str, Any], *, repair: bool
) -> tuple[list[Row], int]:
    """The keys of damaged rows, and how many rows have no checksum; `repair` adds the missing ones."""
    rows = db.rows(f"SELECT {', '.join(what.columns)}, checksum FROM {what.table} WHERE {where}", params)
    damaged: list[Row] = []
    without: list[dict[str, Any]] = []
    for *values, stored in rows:
        row = dict(zip(what.columns, values, strict=True))
        key = {column: row[column] for column in what.key}
        if stored is None:
            without.append({**key, "checksum": what.of(row)})
        elif stored != what.of(row):
            damaged.append([*key.values()])
    if repair and without:
        keys = " AND ".join(f"{column} = :{column}" for column in what.key)
        db.run_many(f"UPDATE {what.table} SET checksum = :checksum WHERE {keys}", without)
    return damaged, len(without)
