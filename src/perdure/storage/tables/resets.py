"""`tx.resets`: the resets of conversations. The rows of messages stay, out of view.

A reset adds one row to `resetting`, which hides all earlier messages at once. `carry_out` then updates them in steps:
their `removed`, their words in the index, their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, MessageCounts, Reset
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, from_iso, iso
from perdure.storage.full_text import index as word_index
from perdure.storage.tables.message_filters import IN_VIEW
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.vector_queue import forget_texts
from perdure.storage.upkeep.deleted import within


class Resets:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def counted(self, agent_id: AgentId) -> MessageCounts:
        """Count messages for `add` beforehand, because it reads every message. Raises: NotFound."""
        params = {"agent_id": agent_id, "org_id": self._org_id}
        found = self._db.rows(
            "SELECT message_seq, settings_revision FROM agents WHERE id = :agent_id AND org_id = :org_id", params
        )
        if not found:
            raise NotFound("agent", agent_id)
        said = self._db.rows(
            "SELECT conversation_seq, COUNT(*) FROM messages WHERE agent_id = :agent_id AND seq < :next"
            f" AND kind = 'message' AND {IN_VIEW} GROUP BY conversation_seq",
            params | {"next": found[0][0]},
        )
        return MessageCounts(next_seq=found[0][0], settings_revision=found[0][1], said={row[0]: row[1] for row in said})

    def add(
        self, conversation: Conversation, *, author: Author, at: datetime, counted: MessageCounts | None = None
    ) -> Reset | None:
        """Take every message of a conversation out of view: none is listed, counted, found or in the next request.

        The rows stay, and so do past requests. The caller holds the agent's lock, has checked that no run of the
        conversation is active, and calls `carry_out` later. Returns None if no message is in view.

        Args:
            counted: the counts of earlier messages, so that only later ones are counted here.
        Raises: NotFound.
        """
        agent_id, seq = conversation.agent_id, conversation.seq
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "org_id": self._org_id, "at": iso(at)}
        found = self._db.rows(
            "SELECT a.message_seq, a.settings_revision, c.first_seq FROM agents a JOIN conversations c"
            " ON c.agent_id = a.id WHERE a.id = :agent_id AND a.org_id = :org_id AND c.seq = :seq",
            params,
        )
        if not found:
            raise NotFound("conversation", conversation.id)
        next_seq, settings_revision, first_seq = found[0]
        params |= {"next": next_seq, "upto": next_seq - 1, "first": first_seq}
        # All rows of the conversation from `first_seq` on are in view, except removed ones.
        shown = "agent_id = :agent_id AND conversation_seq = :seq AND removed = 0"
        source = f"messages{self._db.conversation_index}"
        if not self._db.rows(f"SELECT 1 FROM {source} WHERE {shown} AND seq >= :first LIMIT 1", params):
            return None
        known = 0
        # The counts are valid if no message was removed, which changes the settings revision, and no reset came since.
        if counted is not None and counted.settings_revision == settings_revision and first_seq < counted.next_seq:
            known = counted.said.get(seq, 0)
            params["first"] = counted.next_seq
        said = known + int(
            self._db.rows(
                f"SELECT COUNT(*) FROM {source} WHERE {shown} AND seq >= :first AND kind = 'message'", params
            )[0][0]
        )
        params["said"] = said
        self._db.run("UPDATE agents SET message_count = message_count - :said WHERE id = :agent_id", params)
        self._db.run(
            "UPDATE conversations SET first_seq = :next, prefix_seq = NULL, seen = '{}', view_tokens = 0, stubs = '{}',"
            " overcount = 0, updated_at = :at WHERE agent_id = :agent_id AND seq = :seq",
            params,
        )
        self._db.run(
            "INSERT INTO resetting (agent_id, conversation_seq, upto_seq, next_seq) VALUES (:agent_id, :seq, :upto,"
            " :from) ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET upto_seq = excluded.upto_seq",
            params | {"from": first_seq},
        )
        taken = self._db.rows(
            "INSERT INTO resets (agent_id, conversation_seq, number, upto_seq, message_count, author_kind, author_id,"
            " created_at) VALUES (:agent_id, :seq, (SELECT COALESCE(MAX(number) + 1, 1) FROM resets"
            " WHERE agent_id = :agent_id AND conversation_seq = :seq), :upto, :said, :author_kind, :author_id, :at)"
            " RETURNING number",
            params | {"author_kind": author.kind, "author_id": storable(author.id)},
        )
        return Reset(
            agent_id=agent_id,
            conversation_id=conversation.id,
            number=taken[0][0],
            upto_seq=next_seq - 1,
            message_count=said,
            author=author,
            created_at=at,
        )

    def carry_out(self, agent_id: AgentId, *, limit: int = 500, chars: int = 250_000) -> bool:
        """Remove the words and vectors of up to `limit` messages, of about `chars` characters, that resets took out of
        view. Returns whether some are left. Readers see no difference."""
        # The agent is locked, because a concurrent append may index the words of these messages.
        agents = self._db.rows(
            f"SELECT number, embedded FROM agents WHERE id = :agent_id AND org_id = :org_id{self._db.for_update}",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        found = agents and self._db.rows(
            "SELECT conversation_seq, next_seq, upto_seq FROM resetting WHERE agent_id = :agent_id"
            " ORDER BY conversation_seq LIMIT 1",
            {"agent_id": agent_id},
        )
        if not found:
            return False
        (number, embedded), (seq, first, upto) = agents[0], found[0]
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "first": first, "upto": upto, "limit": limit}
        source = f"messages{self._db.conversation_index}"
        rows = self._db.rows(
            f"SELECT seq, kind, LENGTH(parts) FROM {source} WHERE agent_id = :agent_id AND conversation_seq = :seq"
            " AND seq BETWEEN :first AND :upto ORDER BY seq LIMIT :limit",
            params,
        )
        more = len(rows) == limit
        if some := within(rows, chars):
            more, rows = more or len(some) < len(rows), some
            params["last"] = rows[-1][0]
            # The words are built from the rows, so the rows are updated last.
            words = list(indexed_words_of(self._db, agent_id, first, params["last"], conversation_seq=seq))
            word_index.unindex_words(self._db, "message_words", number, words)
            if embedded:
                forget_texts(self._db, number, [row[0] for row in rows if row[1] == "message"])
            self._db.run(
                f"UPDATE {source} SET removed = 2 WHERE agent_id = :agent_id AND conversation_seq = :seq"
                " AND seq BETWEEN :first AND :last AND removed = 0",
                params,
            )
        if more:
            self._db.run(
                "UPDATE resetting SET next_seq = :last + 1 WHERE agent_id = :agent_id AND conversation_seq = :seq",
                params,
            )
        else:
            self._db.run("DELETE FROM resetting WHERE agent_id = :agent_id AND conversation_seq = :seq", params)
        return bool(self._db.rows("SELECT 1 FROM resetting WHERE agent_id = :agent_id LIMIT 1", params))

    def unfinished(self, *, limit: int = 100) -> Sequence[AgentId]:
        """Agents with resets that are not carried out yet."""
        rows = self._db.rows(
            "SELECT DISTINCT r.agent_id FROM resetting r JOIN agents a ON a.id = r.agent_id"
            " WHERE a.org_id = :org_id ORDER BY r.agent_id LIMIT :limit",
            {"org_id": self._org_id, "limit": limit},
        )
        return [AgentId(row[0]) for row in rows]

    def out_of_view(self, agent_id: AgentId) -> dict[int, int]:
        """Conversation -> the last message out of view, of resets that are not carried out yet."""
        rows = self._db.rows(
            f"SELECT conversation_seq, upto_seq FROM resetting WHERE agent_id = :agent_id AND {OWN_AGENT}",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return {row[0]: row[1] for row in rows}

    def taken(self, agent_id: AgentId) -> dict[int, int]:
        """Conversation -> the last message out of view, of all its resets."""
        rows = self._db.rows(
            "SELECT seq, first_seq - 1 FROM conversations WHERE agent_id = :agent_id AND first_seq > 0"
            f" AND {OWN_AGENT}",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return {row[0]: row[1] for row in rows}

    def list(self, agent_id: AgentId, *, conversation_seq: int | None = None, limit: int = 100) -> Sequence[Reset]:
        """Resets in order of conversations, newest first within each."""
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
                author=Author(kind=row[4], id=restore(row[5])),
                created_at=from_iso(row[6]),
            )
            for row in rows
        ]
