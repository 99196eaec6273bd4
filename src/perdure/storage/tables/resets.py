"""`tx.resets`: the resets of conversations, and `tx.gaps`: what restores hide. The rows of messages stay, out of view.

A reset adds one row to `resetting`, which hides all earlier messages at once. `carry_out` then updates them in steps:
their `removed`, their words in the index, their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, MessageCounts, Reset
from perdure.core.ids import AgentId
from perdure.core.messages import is_embedded
from perdure.storage.database import full_text as word_index
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TEXT, RowFormat, insert_into, iso, storable
from perdure.storage.tables.deleted import first_rows_within
from perdure.storage.tables.message_rows import IN_VIEW, words_of
from perdure.storage.tables.messages import indexed_words_of, read_messages
from perdure.storage.tables.table import OWN_AGENT, Table, first, parts
from perdure.storage.tables.turns import PART
from perdure.storage.tables.vectors import forget_texts, queue_texts

_RESET = RowFormat(
    Reset,
    {TEXT: "author_id"},
    columns="agent_id, conversation_id, number, upto_seq, message_count, author_kind, author_id, created_at",
    build=lambda author_kind, author_id, **columns: Reset(author=Author(kind=author_kind, id=author_id), **columns),
)


class Resets(Table):
    def count_messages(self, agent_id: AgentId) -> MessageCounts:
        """Count messages for `add` beforehand, because it reads every message. Raises: NotFound."""
        rows = self._rows(
            "SELECT message_seq, settings_revision FROM agents WHERE id = :agent_id AND org_id = :org_id",
            agent_id=agent_id,
        )
        next_seq, settings_revision = first(rows, "agent", agent_id)
        counts = self._rows(
            "SELECT conversation_seq, COUNT(*) FROM messages WHERE agent_id = :agent_id AND seq < :next"
            f" AND kind = 'message' AND {IN_VIEW} GROUP BY conversation_seq",
            agent_id=agent_id,
            next=next_seq,
        )
        return MessageCounts(
            next_seq=next_seq, settings_revision=settings_revision, counts={row[0]: row[1] for row in counts}
        )

    def add(
        self, conversation: Conversation, *, author: Author, at: datetime, counts: MessageCounts | None = None
    ) -> Reset | None:
        """Take every message of a conversation out of view: none is listed, counted, found or in the next request.

        The rows stay, and so do past requests. The caller holds the agent's lock, has checked that no run of the
        conversation is active, and calls `carry_out` later. Returns None if no message is in view.

        Args:
            counts: the counts of earlier messages, so that only later ones are counted here.
        Raises: NotFound.
        """
        agent_id, seq = conversation.agent_id, conversation.seq
        agents = self._rows(
            "SELECT a.message_seq, a.settings_revision, c.first_seq FROM agents a JOIN conversations c"
            " ON c.agent_id = a.id WHERE a.id = :agent_id AND a.org_id = :org_id AND c.seq = :seq",
            agent_id=agent_id,
            seq=seq,
        )
        next_seq, settings_revision, first_seq = first(agents, "conversation", conversation.id)
        # All rows of the conversation from `first_seq` on are in view, except removed ones.
        source = f"messages{self._db.by_index('messages_by_conversation')}"
        in_view = "agent_id = :agent_id AND conversation_seq = :seq AND seq >= :first AND removed = 0"
        any_in_view = f"SELECT 1 FROM {source} WHERE {in_view} LIMIT 1"
        if not self._rows(any_in_view, agent_id=agent_id, seq=seq, first=first_seq):
            return None
        count, count_from = 0, first_seq
        # The counts are valid if no message was removed, which changes the settings revision, and no reset came since.
        if counts is not None and counts.settings_revision == settings_revision and first_seq < counts.next_seq:
            count, count_from = counts.counts.get(seq, 0), counts.next_seq
        later = f"SELECT COUNT(*) FROM {source} WHERE {in_view} AND kind = 'message'"
        count += int(self._rows(later, agent_id=agent_id, seq=seq, first=count_from)[0][0])
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "at": iso(at), "count": count}
        params |= {"next": next_seq, "upto": next_seq - 1, "first": first_seq}
        self._run("UPDATE agents SET message_count = message_count - :count WHERE id = :agent_id", **params)
        self._run(
            "UPDATE conversations SET first_seq = :next, prefix_seq = NULL, seen = '{}', view_tokens = 0, stubs = '{}',"
            " overcount = 0, updated_at = :at WHERE agent_id = :agent_id AND seq = :seq",
            **params,
        )
        self._run(
            "INSERT INTO resetting (agent_id, conversation_seq, upto_seq, next_seq) VALUES (:agent_id, :seq, :upto,"
            " :first) ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET upto_seq = excluded.upto_seq",
            **params,
        )
        numbers = self._rows(
            "INSERT INTO resets (agent_id, conversation_seq, number, upto_seq, message_count, author_kind, author_id,"
            " created_at) VALUES (:agent_id, :seq, (SELECT COALESCE(MAX(number) + 1, 1) FROM resets"
            " WHERE agent_id = :agent_id AND conversation_seq = :seq), :upto, :count, :author_kind, :author_id, :at)"
            " RETURNING number",
            author_kind=author.kind,
            author_id=storable(author.id),
            **params,
        )
        return Reset(
            agent_id=agent_id,
            conversation_id=conversation.id,
            number=numbers[0][0],
            upto_seq=next_seq - 1,
            message_count=count,
            author=author,
            created_at=at,
        )

    def carry_out(self, agent_id: AgentId, *, limit: int = 500, chars: int = 250_000) -> bool:
        """Remove the words and vectors of up to `limit` messages, of about `chars` characters, that resets took out of
        view. Returns whether some are left. Readers see no difference."""
        # The agent is locked, because a concurrent append may index the words of these messages.
        agents = self._rows(
            f"SELECT number, embedded FROM agents WHERE id = :agent_id AND org_id = :org_id{self._db.for_update}",
            agent_id=agent_id,
        )
        resets = agents and self._rows(
            "SELECT conversation_seq, next_seq, upto_seq FROM resetting WHERE agent_id = :agent_id"
            " ORDER BY conversation_seq LIMIT 1",
            agent_id=agent_id,
        )
        if not resets:
            return False
        (number, is_embedded), (seq, first_seq, upto_seq) = agents[0], resets[0]
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "first": first_seq, "upto": upto_seq}
        source = f"messages{self._db.by_index('messages_by_conversation')}"
        rows = self._rows(
            f"SELECT seq, kind, LENGTH(parts) FROM {source} WHERE agent_id = :agent_id AND conversation_seq = :seq"
            " AND seq BETWEEN :first AND :upto ORDER BY seq LIMIT :limit",
            limit=limit,
            **params,
        )
        messages = first_rows_within(rows, chars)
        is_more = len(rows) == limit or len(messages) < len(rows)
        if messages:
            params["last"] = messages[-1][0]
            # The words are built from the rows, so the rows are updated last.
            words = list(indexed_words_of(self._db, agent_id, first_seq, params["last"], conversation_seq=seq))
            word_index.unindex_words(self._db, "message_words", number, words)
            if is_embedded:
                forget_texts(self._db, number, [row[0] for row in messages if row[1] == "message"])
            self._run(
                f"UPDATE {source} SET removed = 2 WHERE agent_id = :agent_id AND conversation_seq = :seq"
                " AND seq BETWEEN :first AND :last AND removed = 0",
                **params,
            )
        conversation = "WHERE agent_id = :agent_id AND conversation_seq = :seq"
        if is_more:
            self._run(f"UPDATE resetting SET next_seq = :last + 1 {conversation}", **params)
        else:
            self._run(f"DELETE FROM resetting {conversation}", **params)
        return bool(self._rows("SELECT 1 FROM resetting WHERE agent_id = :agent_id LIMIT 1", agent_id=agent_id))

    def list_agents(self, *, limit: int = 100) -> Sequence[AgentId]:
        """The ids of agents with resets that are not carried out yet, in order."""
        rows = self._rows(
            "SELECT DISTINCT r.agent_id FROM resetting r JOIN agents a ON a.id = r.agent_id"
            " WHERE a.org_id = :org_id ORDER BY r.agent_id LIMIT :limit",
            limit=limit,
        )
        return [AgentId(row[0]) for row in rows]

    def get_pending_seqs(self, agent_id: AgentId) -> dict[int, int]:
        """Number of a conversation -> the number of its last message out of view, for resets not carried out yet."""
        sql = f"SELECT conversation_seq, upto_seq FROM resetting WHERE agent_id = :agent_id AND {OWN_AGENT}"
        return {row[0]: row[1] for row in self._rows(sql, agent_id=agent_id)}

    def get_last_seqs(self, agent_id: AgentId) -> dict[int, int]:
        """Number of a conversation that was reset -> the number of the last message that this took out of view."""
        sql = "SELECT seq, first_seq - 1 FROM conversations WHERE agent_id = :agent_id AND first_seq > 0"
        return {row[0]: row[1] for row in self._rows(f"{sql} AND {OWN_AGENT}", agent_id=agent_id)}

    def list(self, agent_id: AgentId, *, conversation_seq: int | None = None, limit: int = 100) -> Sequence[Reset]:
        """The resets of an agent, or of one conversation; by conversations, newest first within each."""
        where = Conditions("r.agent_id = :agent_id", OWN_AGENT)
        where.equal("r.conversation_seq", conversation_seq)
        return self._all(
            _RESET,
            "SELECT r.agent_id, c.id, r.number, r.upto_seq, r.message_count, r.author_kind, r.author_id, r.created_at"
            " FROM resets r JOIN conversations c ON c.agent_id = r.agent_id AND c.seq = r.conversation_seq"
            f" WHERE {where} ORDER BY r.conversation_seq, r.number DESC LIMIT :limit",
            agent_id=agent_id,
            limit=limit,
            **where.params,
        )


Gap = tuple[int, int, int, int]
"""The first and last number of messages that are out of view, and of the summaries that were made meanwhile."""


class Gaps(Table):
    """The messages that restores took out of view. Their rows are as those of a reset (`removed` is 2), and each gap
    says from which settings revision of the agent on, and until which, requests were made without them."""

    def list(self, agent_id: AgentId, conversation_seq: int, *, revision: int | None = None) -> Sequence[Gap]:
        """The gaps of a conversation now, or at a settings revision."""
        at = "until_revision IS NULL"
        if revision is not None:
            at = "since_revision <= :revision AND (until_revision IS NULL OR until_revision > :revision)"
        sql = (
            "SELECT from_seq, upto_seq, from_node, upto_node FROM view_gaps"
            f" WHERE agent_id = :agent_id AND conversation_seq = :seq AND {at} AND {OWN_AGENT} ORDER BY from_seq"
        )
        rows = self._rows(sql, agent_id=agent_id, seq=conversation_seq, revision=revision)
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def put_view(
        self,
        conversation: Conversation,
        *,
        first_seq: int,
        upto_seq: int,
        next_node: int,
        gaps: Sequence[Gap],
        revision: int,
    ) -> None:
        """Leave in view only the messages of a conversation in [first_seq, upto_seq] that are in none of these gaps;
        those that a reset or an earlier restore took out of view come back. Removed messages stay removed.

        The caller holds the agent's lock, has checked that no run is active and that no reset waits to be carried out.

        Args:
            next_node: the first number of summaries that were not there yet: these are not used.
            revision: the settings revision of the agent's next request, which no request has had.
        """
        agent_id, seq = conversation.agent_id, conversation.seq
        number, embedded, words_seq, next_seq = first(
            self._rows(
                "SELECT number, embedded, words_seq, message_seq FROM agents WHERE id = :id AND org_id = :org_id",
                id=agent_id,
            ),
            "agent",
            agent_id,
        )
        gaps = [gap for gap in gaps if gap[0] <= upto_seq]
        if upto_seq < next_seq - 1:
            last_node = "SELECT MAX(seq) FROM summary_nodes WHERE agent_id = :agent_id AND conversation_seq = :seq"
            found = self._value(last_node, agent_id=agent_id, seq=seq)
            gaps.append((upto_seq + 1, next_seq - 1, next_node, -1 if found is None else int(found)))
        shown = f"seq >= {int(first_seq)}"
        shown += "".join(f" AND NOT seq BETWEEN {int(start)} AND {int(end)}" for start, end, *_ in gaps)
        hidden = self._seqs(conversation, f"removed = 0 AND NOT ({shown})")
        if hidden:
            words = indexed_words_of(self._db, agent_id, min(hidden), max(hidden), conversation_seq=seq)
            word_index.unindex_words(self._db, "message_words", number, [word for word in words if word[0] in hidden])
            if embedded:
                forget_texts(self._db, number, [*hidden])
        self._remove(conversation, [*hidden], 2)
        if back := self._seqs(conversation, f"removed = 2 AND {shown}"):
            self._remove(conversation, [*back], 0)
            self._index(agent_id, number, words_seq, [*back], embedded=embedded)
            self._run(
                "DELETE FROM turns WHERE agent_id = :agent_id AND part >= :part",
                agent_id=agent_id,
                part=min(back) // PART,
            )
        self._run(
            "UPDATE agents SET message_count = message_count + :count WHERE id = :id",
            id=agent_id,
            count=sum(back.values()) - sum(hidden.values()),
        )
        key = {"agent_id": agent_id, "conversation_seq": seq}
        self._run(
            "UPDATE view_gaps SET until_revision = :revision WHERE agent_id = :agent_id"
            " AND conversation_seq = :conversation_seq AND until_revision IS NULL",
            revision=revision,
            **key,
        )
        columns = "from_seq, upto_seq, from_node, upto_node"
        rows = [{**key, "since_revision": revision, **dict(zip(columns.split(", "), gap, strict=True))} for gap in gaps]
        self._db.run_many(insert_into("view_gaps", f"agent_id, conversation_seq, since_revision, {columns}"), rows)
        self._set("conversations", {"agent_id": agent_id, "seq": seq}, first_seq=first_seq)

    def _seqs(self, conversation: Conversation, where: str) -> dict[int, bool]:
        """Number -> whether it counts, of the conversation's messages for which SQL is true."""
        rows = self._rows(
            f"SELECT seq, kind FROM messages{self._db.by_index('messages_by_conversation')}"
            f" WHERE agent_id = :agent_id AND conversation_seq = :seq AND {where}",
            agent_id=conversation.agent_id,
            seq=conversation.seq,
        )
        return {row[0]: row[1] == "message" for row in rows}

    def _remove(self, conversation: Conversation, seqs: Sequence[int], removed: int) -> None:
        """Set `removed` of these messages."""
        for some in parts(seqs):
            condition, params = self._db.in_numbers("seq", "seqs", some)
            sql = f"UPDATE messages SET removed = :removed WHERE agent_id = :agent_id AND {condition}"
            self._run(sql, agent_id=conversation.agent_id, removed=removed, **params)

    def _index(self, agent_id: AgentId, number: int, words_seq: int, seqs: Sequence[int], *, embedded: bool) -> None:
        """Let searches find messages that are back in view."""
        for some in parts(seqs):
            messages = read_messages(self._db, self._org_id, agent_id, some).values()
            words = [words_of(one) for one in messages if one.seq < words_seq]
            word_index.index_words(self._db, "message_words", number, [*filter(None, words)])
            if embedded:
                queue_texts(self._db, number, [message.seq for message in messages if is_embedded(message)])
