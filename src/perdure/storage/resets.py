"""`tx.resets`: the resets of conversations. The rows of messages stay; `removed` says that they are out of view."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, Reset
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId
from perdure.core.text import restored, storable
from perdure.storage.database import OWN_AGENT, Database, from_iso, iso
from perdure.storage.messages import indexed_words_of
from perdure.storage.vectors import forget_texts

__all__ = ["Resets"]


class Resets:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, conversation: Conversation, *, author: Author, at: datetime) -> Reset | None:
        agent_id, seq = conversation.agent_id, conversation.seq
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "org_id": self._org_id, "at": iso(at)}
        found = self._db.rows(
            "SELECT a.number, a.message_seq, a.embedded FROM agents a JOIN conversations c ON c.agent_id = a.id"
            " WHERE a.id = :agent_id AND a.org_id = :org_id AND c.seq = :seq",
            params,
        )
        if not found:
            raise NotFound("conversation", conversation.id)
        number, next_seq, embedded = found[0]
        shown = "agent_id = :agent_id AND conversation_seq = :seq AND removed = 0"
        said = [row[0] for row in self._db.rows(f"SELECT seq FROM messages WHERE {shown} AND kind = 'message'", params)]
        # The words are taken from the rows as they are shown, so these go last.
        words = list(indexed_words_of(self._db, agent_id, conversation.first_seq, conversation_seq=seq))
        if not self._db.run(f"UPDATE messages SET removed = 2 WHERE {shown}", params):
            return None
        self._db.unindex_words("message_words", number, words)
        if embedded:
            forget_texts(self._db, number, said)
        self._db.run(
            "UPDATE agents SET message_count = message_count - :said WHERE id = :agent_id", params | {"said": len(said)}
        )
        self._db.run(
            "UPDATE conversations SET first_seq = :next, prefix_seq = NULL, seen = '{}', view_tokens = 0, stubs = '{}',"
            " overcount = 0, updated_at = :at WHERE agent_id = :agent_id AND seq = :seq",
            params | {"next": next_seq},
        )
        taken = self._db.rows(
            "INSERT INTO resets (agent_id, conversation_seq, number, upto_seq, message_count, author_kind, author_id,"
            " created_at) VALUES (:agent_id, :seq, (SELECT COALESCE(MAX(number) + 1, 1) FROM resets"
            " WHERE agent_id = :agent_id AND conversation_seq = :seq), :upto, :said, :author_kind, :author_id, :at)"
            " RETURNING number",
            params
            | {
                "upto": next_seq - 1,
                "said": len(said),
                "author_kind": author.kind,
                "author_id": storable(author.id),
            },
        )
        return Reset(
            agent_id=agent_id,
            conversation_id=conversation.id,
            number=taken[0][0],
            upto_seq=next_seq - 1,
            message_count=len(said),
            author=author,
            created_at=at,
        )

    def list(self, agent_id: AgentId, *, conversation_seq: int | None = None, limit: int = 100) -> Sequence[Reset]:
        of = "" if conversation_seq is None else " AND r.conversation_seq = :seq"
        rows = self._db.rows(
            "SELECT c.id, r.number, r.upto_seq, r.message_count, r.author_kind, r.author_id, r.created_at FROM resets r"
            " JOIN conversations c ON c.agent_id = r.agent_id AND c.seq = r.conversation_seq"
            f" WHERE r.agent_id = :agent_id AND {OWN_AGENT}{of}"
            " ORDER BY r.conversation_seq, r.number DESC LIMIT :limit",
            {"agent_id": agent_id, "org_id": self._org_id, "limit": limit}
            | ({} if conversation_seq is None else {"seq": conversation_seq}),
        )
        return [
            Reset(
                agent_id=agent_id,
                conversation_id=row[0],
                number=row[1],
                upto_seq=row[2],
                message_count=row[3],
                author=Author(kind=row[4], id=restored(row[5])),
                created_at=from_iso(row[6]),
            )
            for row in rows
        ]
