"""`tx.conversations`: the conversations of one transaction."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.conversations import Conversation, ConversationFilter, ConversationOrder, ConversationState
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId, MessageId, OrgId
from perdure.core.runs import Prefix
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, Row, dump, from_iso, iso, load, locate, register
from perdure.storage.tables.agents import Agents, contains, pattern_of
from perdure.storage.tables.message_filters import IN_VIEW

_COLUMNS = (
    "id, agent_id, seq, summary, settings, seen, prefix_seq, view_tokens, archived_at, created_at, updated_at,"
    " last_message_at, stubs, overcount, pending_run_seq, pending_from, first_seq"
)


_ORDERS: dict[ConversationOrder, tuple[str, ...]] = {
    "created": ("c.created_at",),
    "last_message": ("COALESCE(c.last_message_at, '')",),
    "last_run": ("COALESCE(r.ended_at, '')",),
}

# All at once: looked up for each conversation, its agent's runs would be gone through as often as it has conversations.
_LAST_RUNS = (
    " LEFT JOIN (SELECT agent_id, conversation_seq, MAX(ended_at) AS ended_at FROM runs WHERE org_id = :org_id{of}"
    " GROUP BY agent_id, conversation_seq) r ON r.agent_id = c.agent_id AND r.conversation_seq = c.seq"
)

_C_COLUMNS = ", ".join(f"c.{column.strip()}" for column in _COLUMNS.split(","))


@functools.cache
def _opening(versions: str) -> str:
    """The statement of `opening`. It checks the organisation of each attached thing, because deleted ones keep their
    links for a while."""
    return (
        f"SELECT {_C_COLUMNS.replace(' c.agent_id, c.seq,', '')}, a.run_seq, a.message_seq, (SELECT r.seq FROM runs r"
        " WHERE r.conversation_id = c.id AND r.status IN ('queued', 'running') ORDER BY r.seq LIMIT 1), a.embedded,"
        " a.message_count,"
        f" (SELECT {versions} FROM agent_blocks x JOIN blocks b ON b.id = x.block_id WHERE x.agent_id = a.id"
        " AND b.org_id = a.org_id), (SELECT COALESCE(SUM(p.passage_count), 0) FROM agent_archives y"
        " JOIN archives p ON p.id = y.archive_id WHERE y.agent_id = a.id AND p.org_id = a.org_id),"
        " EXISTS (SELECT 1 FROM agent_folders f JOIN folders d ON d.id = f.folder_id WHERE f.agent_id = a.id"
        " AND d.org_id = a.org_id)"
        " FROM agents a LEFT JOIN conversations c ON c.agent_id = a.id AND c.seq = :seq AND c.removed_at IS NULL"
        " WHERE a.id = :agent_id AND a.org_id = :org_id"
    )


class Conversations:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id
        self._agents = Agents(db, org_id)
        self._opening = _opening(db.concat("b.id || ':' || b.version"))

    def add(
        self,
        agent_id: AgentId,
        conversation_id: ConversationId,
        *,
        at: datetime,
        summary: str | None = None,
        settings: Mapping[str, Any] | None = None,
        hidden: bool = False,
    ) -> Conversation:
        """Add a conversation. An agent's first one has number 0 and is its default; `hidden` ones are in no page."""
        rows = self._db.rows(
            "UPDATE agents SET conversation_seq = conversation_seq + 1 WHERE id = :id AND org_id = :org_id"
            " RETURNING conversation_seq - 1",
            {"id": agent_id, "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("agent", agent_id)
        seq = int(rows[0][0])
        self._db.run(
            "INSERT INTO conversations (agent_id, seq, id, summary, settings, hidden, seen, created_at, updated_at)"
            " VALUES (:agent_id, :seq, :id, :summary, :settings, :hidden, '{}', :at, :at)",
            {
                "agent_id": agent_id,
                "seq": seq,
                "id": conversation_id,
                "summary": None if summary is None else storable(summary),
                "settings": dump(settings or {}),
                "hidden": int(hidden),
                "at": iso(at),
            },
        )
        register(self._db, self._org_id, agent_id, [(conversation_id, seq)])
        return Conversation(
            id=conversation_id,
            agent_id=agent_id,
            seq=seq,
            summary=summary,
            settings=settings or {},
            created_at=at,
            updated_at=at,
        )

    def get(self, conversation_id: ConversationId) -> Conversation:
        """Raises: NotFound: it does not exist or was removed."""
        agent_id, seq = locate(self._db, self._org_id, "conversation", conversation_id)
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM conversations WHERE agent_id = :agent_id AND seq = :seq AND removed_at IS NULL",
            {"agent_id": agent_id, "seq": seq},
        )
        if not rows:
            raise NotFound("conversation", conversation_id, hint="it was deleted")
        return _conversation(rows[0])

    def put(self, conversation: Conversation, *, at: datetime) -> Conversation:
        """Update summary, settings and `archived_at`. Raises: NotFound."""
        self._change(
            conversation,
            "summary = :summary, settings = :settings, archived_at = :archived_at, updated_at = :at",
            {
                "summary": None if conversation.summary is None else storable(conversation.summary),
                "settings": dump(conversation.settings),
                "archived_at": None if conversation.archived_at is None else iso(conversation.archived_at),
                "at": iso(at),
            },
        )
        return replace(conversation, updated_at=at)

    def remove(self, conversation: Conversation, *, at: datetime) -> None:
        """Remove a conversation from `get` and all lists; its rows stay. Raises: NotFound."""
        self._change(conversation, "removed_at = :at", {"at": iso(at)})

    def _change(self, conversation: Conversation, changes: str, params: Mapping[str, Any]) -> None:
        own = {"agent_id": conversation.agent_id, "seq": conversation.seq, "org_id": self._org_id}
        where = f"agent_id = :agent_id AND seq = :seq AND removed_at IS NULL AND {OWN_AGENT}"
        if not self._db.run(f"UPDATE conversations SET {changes} WHERE {where}", own | dict(params)):
            raise NotFound("conversation", conversation.id)

    def page(
        self,
        where: ConversationFilter,
        *,
        order: ConversationOrder = "created",
        ascending: bool = False,
        limit: int = 50,
        after: ConversationId | None = None,
    ) -> Sequence[Conversation]:
        """A page of conversations without the agents' first ones; `after` is the last one of the previous page."""
        conditions = ["a.org_id = :org_id", "c.seq > 0", "c.hidden = 0", "c.removed_at IS NULL"]
        params: dict[str, Any] = {"org_id": self._org_id, "limit": limit}
        if where.agent_id is not None:
            conditions.append("c.agent_id = :agent_id")
            params["agent_id"] = where.agent_id
        if where.archived is not None:
            conditions.append(f"c.archived_at IS {'NOT ' if where.archived else ''}NULL")
        if where.text:
            conditions.append(contains("c.summary", "text"))
            params["text"] = pattern_of(where.text)
        # The numbers decide between equal times, so that pages never overlap.
        columns = (*_ORDERS[order], "a.number", "c.seq")
        source = "conversations c JOIN agents a ON a.id = c.agent_id"
        if order == "last_run":
            source += _LAST_RUNS.format(of="" if where.agent_id is None else " AND agent_id = :agent_id")
        if after is not None:
            sign = ">" if ascending else "<"
            conditions.append(
                f"({', '.join(columns)}) {sign} (SELECT {', '.join(columns)} FROM {source} WHERE c.id = :after)"
            )
            params["after"] = self.get(after).id
        direction = "ASC" if ascending else "DESC"
        rows = self._db.rows(
            f"SELECT {_C_COLUMNS} FROM {source} WHERE {' AND '.join(conditions)}"
            f" ORDER BY {', '.join(f'{column} {direction}' for column in columns)} LIMIT :limit",
            params,
        )
        return [_conversation(row) for row in rows]

    def shown(self, agent_id: AgentId, seq: int, *, limit: int = 100) -> Sequence[MessageId]:
        """The newest messages in the model's view of the conversation, oldest first, without the engine's own."""
        rows = self._db.rows(
            f"SELECT id FROM messages{self._db.conversation_index}"
            " WHERE agent_id = :agent_id AND conversation_seq = :seq"
            " AND seq >= COALESCE((SELECT p.from_message_seq FROM conversations c JOIN prefixes p"
            " ON p.agent_id = c.agent_id AND p.seq = c.prefix_seq WHERE c.agent_id = :agent_id AND c.seq = :seq), 0)"
            f" AND kind = 'message' AND {IN_VIEW} AND {OWN_AGENT} ORDER BY seq DESC LIMIT :limit",
            {"agent_id": agent_id, "seq": seq, "org_id": self._org_id, "limit": limit},
        )
        return [row[0] for row in reversed(rows)]

    def at(self, agent_id: AgentId, seq: int) -> Conversation:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM conversations WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}",
            {"agent_id": agent_id, "seq": seq, "org_id": self._org_id},
        )
        if not rows:
            # Every agent has its first conversation, so it is the agent that is not there.
            raise NotFound("agent", agent_id) if seq == 0 else NotFound("conversation", f"{seq} of {agent_id}")
        return _conversation(rows[0])

    def opening(self, agent_id: AgentId, seq: int) -> ConversationState:
        """Who means to write by it holds the agent's lock (`Agents.lock`).

        Raises: NotFound: also for a conversation that was removed.
        """
        rows = self._db.rows(self._opening, {"agent_id": storable(agent_id), "seq": seq, "org_id": self._org_id})
        if not rows:
            raise NotFound("agent", agent_id)
        row = rows[0]
        if row[0] is None:
            raise NotFound("conversation", f"{seq} of {agent_id}")
        count, blocks, passages, has_folders = row[19:]
        return ConversationState(
            agent=self._agents.get(agent_id),
            message_count=count,
            conversation=_conversation((row[0], agent_id, seq, *row[1:15])),
            active_run_seq=row[17],
            next_run_seq=row[15],
            next_message_seq=row[16],
            embedded=bool(row[18]),
            blocks=_versions(blocks),
            passages=int(passages),
            has_folders=bool(has_folders),
        )

    def list(self, agent_id: AgentId, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM conversations WHERE agent_id = :agent_id AND seq > :after AND removed_at IS NULL"
            f" AND {OWN_AGENT} ORDER BY seq LIMIT :limit",
            {"agent_id": agent_id, "after": after_seq, "limit": limit, "org_id": self._org_id},
        )
        return [_conversation(row) for row in rows]

    def show(self, agent_id: AgentId, seq: int, seen: Mapping[str, int], *, prefix: Prefix | None = None) -> None:
        """Record which block versions the conversation's log now shows, and its new prefix if there is one.

        With a prefix, the tokens of the view are counted anew, over all the rows that follow it.
        """
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "seen": dump(seen), "org_id": self._org_id}
        changes = "seen = :seen"
        if prefix is not None:
            # The sum is made anew only here, when the view begins elsewhere; appending keeps it up to date.
            changes += (
                ", prefix_seq = :prefix_seq, view_tokens = (SELECT COALESCE(SUM(tokens), 0) FROM"
                f" messages{self._db.conversation_index} WHERE agent_id = :agent_id AND conversation_seq = :seq"
                f" AND seq >= :from_seq AND {IN_VIEW})"
            )
            params |= {"prefix_seq": prefix.seq, "from_seq": prefix.from_message_seq}
        self._db.run(
            f"UPDATE conversations SET {changes} WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}", params
        )

    def wait(self, agent_id: AgentId, seq: int, *, run_seq: int | None, from_seq: int | None = None) -> None:
        """Record the run whose calls wait for an answer, and the message with these calls; None: no call waits."""
        self._db.run(
            "UPDATE conversations SET pending_run_seq = :run_seq, pending_from = :from_seq"
            f" WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}",
            {"agent_id": agent_id, "seq": seq, "run_seq": run_seq, "from_seq": from_seq, "org_id": self._org_id},
        )

    def waiting(self, agent_id: AgentId | None = None, *, limit: int = 100) -> Sequence[Conversation]:
        """Conversations with waiting calls, of one agent or of all, in order of agents and their numbers."""
        of = "" if agent_id is None else " AND c.agent_id = :agent_id"
        rows = self._db.rows(
            f"SELECT {_C_COLUMNS} FROM conversations c JOIN agents a ON a.id = c.agent_id"
            f" WHERE c.pending_run_seq IS NOT NULL AND a.org_id = :org_id{of}"
            " ORDER BY a.number, c.seq LIMIT :limit",
            {"org_id": self._org_id, "limit": limit} | ({} if agent_id is None else {"agent_id": agent_id}),
        )
        return [_conversation(row) for row in rows]

    def fit(self, agent_id: AgentId, seq: int, *, view_tokens: int, stubs: Mapping[int, int], overcount: int) -> None:
        """Store how the rows in view are shown from now on, and the estimate of their tokens."""
        self._db.run(
            "UPDATE conversations SET view_tokens = :view_tokens, stubs = :stubs, overcount = :overcount"
            f" WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}",
            {
                "agent_id": agent_id,
                "seq": seq,
                "view_tokens": view_tokens,
                "stubs": dump(stubs),
                "overcount": overcount,
                "org_id": self._org_id,
            },
        )


def _conversation(row: Row) -> Conversation:
    return Conversation(
        id=row[0],
        agent_id=row[1],
        seq=row[2],
        summary=None if row[3] is None else restore(row[3]),
        settings=load(row[4]),
        seen=_load_seen(row[5]),
        prefix_seq=row[6],
        view_tokens=row[7],
        archived_at=from_iso(row[8]),
        created_at=from_iso(row[9]),
        updated_at=from_iso(row[10]),
        last_message_at=from_iso(row[11]),
        stubs=_stubs(row[12]),
        overcount=row[13],
        pending_run_seq=row[14],
        pending_from=row[15],
        first_seq=row[16],
    )


# Each message of a conversation parses the same texts again; the cached results must not be changed.
@functools.lru_cache(maxsize=512)
def _load_seen(text: str) -> Mapping[str, int]:
    found: Mapping[str, int] = load(text)
    return found


@functools.lru_cache(maxsize=512)
def _versions(text: str | None) -> Mapping[str, int]:
    """Block id -> version, of `<id>:<version>,...`."""
    pairs = [one.rpartition(":") for one in text.split(",")] if text else []
    return {block_id: int(version) for block_id, _, version in pairs}


@functools.lru_cache(maxsize=512)
def _stubs(text: str) -> Mapping[int, int]:
    return load_stubs(load(text))


def load_stubs(stored: Mapping[str, int]) -> dict[int, int]:
    """Row number -> characters."""
    return {int(seq): chars for seq, chars in stored.items()}
