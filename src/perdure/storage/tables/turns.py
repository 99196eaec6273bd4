"""`tx.turns`: what a search knows of every message of people and agents, packed.

The first search of a history needs it of all. So it is stored in parts, each when the messages of `PART` numbers are
there; what no part holds is read of the messages. A part stays as it is when a message is edited or removed later:
what searches read of an agent before stays, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.ids import AgentId, OrgId
from perdure.core.messages import TURN_FORMAT, Text, TurnPart, parts_to_json
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row, dump, from_iso, insert_into, load, restore
from perdure.storage.tables.message_rows import IN_VIEW
from perdure.storage.tables.table import OWN_AGENT, Table

PART, STORED_AT_ONCE = 1_024, 8
_TURN = struct.Struct(TURN_FORMAT)
_FORM_CHARS = len(parts_to_json([Text("")]))


class Turns(Table):
    def list(self, agent_id: AgentId, *, from_seq: int, before_seq: int) -> Sequence[TurnPart]:
        """What a search knows of the messages in [from_seq, before_seq) of people and agents that have text, in order:
        some stored parts, and what is read of the messages around them."""
        stored: dict[int, TurnPart] = {}
        if from_seq // PART < before_seq // PART:
            rows = self._db.rows_of_bytes(
                f"SELECT part, names, turns FROM turns WHERE {OWN_AGENT} AND agent_id = :agent_id AND part >= :first",
                {"agent_id": agent_id, "first": from_seq // PART, "org_id": self._org_id},
            )
            stored = {row[0]: TurnPart(tuple(load(row[1])), bytes(row[2])) for row in rows}
        found: list[TurnPart] = []
        while from_seq < before_seq:
            part = from_seq // PART if from_seq % PART == 0 else -1
            end = min(from_seq - from_seq % PART + PART, before_seq)
            found.append(stored[part] if part in stored else self._read(agent_id, from_seq, end))
            from_seq = end
        return found

    def _read(self, agent_id: AgentId, from_seq: int, before_seq: int) -> TurnPart:
        """The part of the messages in [from_seq, before_seq), read of the messages."""
        # Evaluated on the stored JSON: parsing it into messages takes ten times as long.
        rows = self._rows(
            "SELECT seq, conversation_seq, role, name, occurred_at, LENGTH(parts),"
            " CASE WHEN parts LIKE '%?%' OR parts LIKE '%？%' THEN 1 ELSE 0 END FROM messages"
            f" WHERE {OWN_AGENT} AND agent_id = :agent_id AND seq >= :from_seq AND seq < :before_seq"
            f" AND kind = 'message' AND {IN_VIEW} AND role IN ('user', 'assistant')"
            ' AND parts LIKE \'%"type":"text"%\' ORDER BY seq',
            agent_id=agent_id,
            from_seq=from_seq,
            before_seq=before_seq,
        )
        return pack_turns(rows)


def store_turns(db: Database, org_id: OrgId, agent_id: AgentId, *, before_seq: int) -> None:
    """Store the first `STORED_AT_ONCE` parts of an agent that are not stored yet and lie wholly before a message."""
    last = db.rows("SELECT COALESCE(MAX(part), -1) FROM turns WHERE agent_id = :agent_id", {"agent_id": agent_id})
    first: int = last[0][0] + 1
    for part in range(first, min(before_seq // PART, first + STORED_AT_ONCE)):
        (turns,) = Turns(db, org_id).list(agent_id, from_seq=part * PART, before_seq=part * PART + PART)
        row = {"agent_id": agent_id, "part": part, "names": dump(turns.names), "turns": turns.rows}
        db.run(insert_into("turns", ", ".join(row)), row)


def pack_turns(rows: Iterable[Row | Sequence[Any]]) -> TurnPart:
    """Pack rows of (number, conversation, role, name, time, characters of its parts, whether it asks something)."""
    names: dict[str, int] = {}
    packed = bytearray()
    for seq, conversation_seq, role, name, at, chars, asks in rows:
        speaker = -1 if name is None else names.setdefault(restore(name), len(names))
        time = from_iso(at).timestamp()
        text_chars = max(0, chars - _FORM_CHARS)
        packed += _TURN.pack(seq, time, conversation_seq, text_chars, speaker, role != "user", bool(asks))
    return TurnPart(tuple(names), bytes(packed))
