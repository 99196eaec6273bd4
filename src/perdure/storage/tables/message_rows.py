"""A message as a row of the table of messages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.ids import AgentId
from perdure.core.messages import (
    Message,
    Part,
    ToolResult,
    parts_from_json,
    parts_to_json,
    text_of,
    text_of_json,
)
from perdure.core.text.words import index_words, restore, storable
from perdure.core.tools.spec import REPEATING_TOOLS
from perdure.storage.database.base import DAMAGED_HELPS, Database, Row, from_iso, iso
from perdure.storage.upkeep.checksums import MESSAGES

COLUMNS = (
    "id, agent_id, seq, conversation_seq, role, kind, parts, run_seq, run_id, step_id, name, otid, sender_id, tokens,"
    " created_at, occurred_at, revision"
)
_NO_PARTS = (ValueError, KeyError, TypeError, AttributeError)
_UNREADABLE = f"the store is damaged: a message in it can't be read: {DAMAGED_HELPS}"

NULLABLE = ("run_seq", "run_id", "step_id", "name", "otid", "sender_id")


@functools.cache
def insert_statement(non_null: frozenset[str]) -> str:
    """The insert statement for rows in which only these of the nullable columns have a value.

    A None parameter takes as long as ten others, because `sqlite3` looks for an adapter of its class.
    """
    columns = [column.strip() for column in COLUMNS.split(",")]
    present = [column for column in columns if column != "revision" and (column not in NULLABLE or column in non_null)]
    present.append("checksum")
    return f"INSERT INTO messages ({', '.join(present)}) VALUES ({', '.join(f':{column}' for column in present)})"


def params_of(message: Message) -> dict[str, Any]:
    row = {
        "id": message.id,
        "agent_id": message.agent_id,
        "seq": message.seq,
        "conversation_seq": message.conversation_seq,
        "role": message.role,
        "kind": message.kind,
        "parts": storable(parts_to_json(message.parts)),
        "run_seq": message.run_seq,
        "run_id": message.run_id,
        "step_id": message.step_id,
        "name": None if message.name is None else storable(message.name),
        "otid": None if message.otid is None else storable(message.otid),
        "sender_id": None if message.sender_id is None else storable(message.sender_id),
        "tokens": message.tokens,
        "created_at": iso(message.created_at),
        "occurred_at": iso(message.occurred_at),
    }
    row["checksum"] = MESSAGES.of(row)
    return row


def parts_of(stored: str) -> tuple[Part, ...]:
    """Parse the stored parts of a message. Raises: StoreDamaged."""
    try:
        return parts_from_json(restore(stored))
    except _NO_PARTS as error:
        raise StoreDamaged(_UNREADABLE) from error


def row_text(stored: str) -> str:
    """The text of a message, from its stored parts. Raises: StoreDamaged."""
    try:
        return text_of_json(restore(stored))
    except _NO_PARTS as error:
        raise StoreDamaged(_UNREADABLE) from error


def message_of(row: Row) -> Message:
    return Message(
        id=row[0],
        agent_id=row[1],
        seq=row[2],
        conversation_seq=row[3],
        role=row[4],
        kind=row[5],
        parts=parts_of(row[6]),
        run_seq=row[7],
        run_id=row[8],
        step_id=row[9],
        name=None if row[10] is None else restore(row[10]),
        otid=None if row[11] is None else restore(row[11]),
        sender_id=None if row[12] is None else restore(row[12]),
        tokens=row[13],
        created_at=from_iso(row[14]),
        occurred_at=from_iso(row[15]),
        revision=row[16],
    )


def words_of(message: Message) -> tuple[int, str, str] | None:
    """The full-text row of a message; None for the engine's messages and for texts without words."""
    if message.kind != "message":
        return None
    words = words_in(message.parts)
    return (message.seq, message.role, words) if words else None


def words_in(parts: Sequence[Part]) -> str:
    """The words of these parts for the full-text index."""
    return index_words(text_of([part for part in parts if not _repeats(part)]))


def _repeats(part: Part) -> bool:
    return isinstance(part, ToolResult) and part.name in REPEATING_TOOLS


def read_rows(db: Database, where: str, params: dict[str, Any], *, of_conversation: bool = False) -> Sequence[Message]:
    source = f"messages{db.conversation_index if of_conversation else ''}"
    messages = [message_of(row) for row in db.rows(f"SELECT {COLUMNS} FROM {source} WHERE {where}", params)]
    if any(message.revision for message in messages):
        return [_revised(db, message) if message.revision else message for message in messages]
    return messages


def _revised(db: Database, message: Message) -> Message:
    return replace(message, parts=parts_of(revised_parts(db, message.agent_id, message.seq, message.revision)))


def revised_parts(db: Database, agent_id: AgentId, seq: int, revision: int) -> str:
    rows = db.rows(
        "SELECT parts FROM message_revisions WHERE agent_id = :agent_id AND seq = :seq AND revision = :revision",
        {"agent_id": agent_id, "seq": seq, "revision": revision},
    )
    text: str = rows[0][0]
    return text


def as_of_settings(db: Database, message: Message, settings_revision: int) -> Message | None:
    """The message as a request with this settings revision showed it; None if it was removed before."""
    rows = db.rows(
        "SELECT revision, parts FROM message_revisions WHERE agent_id = :agent_id AND seq = :seq"
        " AND settings_revision <= :settings_revision ORDER BY revision DESC LIMIT 1",
        {"agent_id": message.agent_id, "seq": message.seq, "settings_revision": settings_revision},
    )
    if not rows:
        return replace(message, revision=0)
    revision, parts = rows[0]
    return None if parts is None else replace(message, revision=revision, parts=parts_of(parts))
