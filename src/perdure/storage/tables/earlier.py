"""`tx.gaps` and `tx.agent_revisions`: what a restore needs to bring back an earlier state of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.conversations import Conversation
from perdure.core.ids import AgentId, ToolId
from perdure.core.messages import is_embedded
from perdure.storage.database import full_text as word_index
from perdure.storage.database import row_format
from perdure.storage.tables.message_rows import words_of
from perdure.storage.tables.messages import indexed_words_of, read_messages
from perdure.storage.tables.table import OWN_AGENT, Table, first, parts
from perdure.storage.tables.turns import PART
from perdure.storage.tables.vectors import forget_texts, queue_texts

Gap = tuple[int, int]
"""The first and last number of messages that are out of view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRevision:
    """What shapes an agent's requests, up to and with one settings revision."""

    agent_type: str
    model: str
    follows_default: bool
    timezone: str
    system: str | None
    settings: dict[str, Any]
    tool_ids: tuple[ToolId, ...]


_REVISION = row_format.RowFormat(
    AgentRevision,
    {
        row_format.JSON: "settings",
        row_format.Codec(",".join, lambda text: tuple(text.split(",")) if text else ()): "tool_ids",
    },
)


class AgentRevisions(Table):
    """What agents were before their settings and tools changed; `keep_revision` writes it."""

    def find(self, agent_id: AgentId, revision: int) -> AgentRevision | None:
        """What the agent was at a settings revision; None: it is the same still, or nothing is known of it."""
        sql = (
            f"SELECT {_REVISION.columns} FROM agent_revisions WHERE agent_id = :agent_id AND revision >= :revision"
            f" AND {OWN_AGENT} ORDER BY revision LIMIT 1"
        )
        return self._one(_REVISION, sql, agent_id=agent_id, revision=revision)


class Gaps(Table):
    """The messages that restores took out of view. Their rows are as those of a reset (`removed` is 2), and each gap
    says from which settings revision of the agent on, and until which, requests were made without them."""

    def list(self, agent_id: AgentId, conversation_seq: int, *, revision: int | None = None) -> Sequence[Gap]:
        """The gaps of a conversation now, or at a settings revision."""
        at = "until_revision IS NULL"
        if revision is not None:
            at = "since_revision <= :revision AND (until_revision IS NULL OR until_revision > :revision)"
        sql = (
            "SELECT from_seq, upto_seq FROM view_gaps WHERE agent_id = :agent_id AND conversation_seq = :seq"
            f" AND {at} AND {OWN_AGENT} ORDER BY from_seq"
        )
        rows = self._rows(sql, agent_id=agent_id, seq=conversation_seq, revision=revision)
        return [(row[0], row[1]) for row in rows]

    def put_view(
        self, conversation: Conversation, *, first_seq: int, upto_seq: int, gaps: Sequence[Gap], revision: int
    ) -> None:
        """Leave in view only the messages of a conversation in [first_seq, upto_seq] that are in none of these gaps;
        those that a reset or an earlier restore took out of view come back. Removed messages stay removed.

        The caller holds the agent's lock, has checked that no run is active and that no reset waits to be carried out.

        Args:
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
            gaps.append((upto_seq + 1, next_seq - 1))
        shown = f"seq >= {int(first_seq)}"
        shown += "".join(f" AND NOT seq BETWEEN {int(start)} AND {int(end)}" for start, end in gaps)
        hidden = self._seqs(conversation, f"removed = 0 AND NOT ({shown})")
        if hidden:
            words = indexed_words_of(self._db, agent_id, min(hidden), max(hidden), conversation_seq=seq)
            word_index.unindex_words(self._db, "message_words", number, [one for one in words if one[0] in hidden])
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
        columns = "agent_id, conversation_seq, from_seq, since_revision, upto_seq"
        rows = [{**key, "from_seq": one[0], "upto_seq": one[1], "since_revision": revision} for one in gaps]
        self._db.run_many(row_format.insert_into("view_gaps", columns), rows)
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
                queue_texts(self._db, number, [one.seq for one in messages if is_embedded(one)])
