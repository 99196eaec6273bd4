"""`tx.conversations`: the conversations of one transaction; `tx.captures`: up to which message each was captured as
passages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import ERROR_PATTERNS, PROTECTED, WORKING_CHECKPOINT
from perdure.core.conversations import (
    EPHEMERAL,
    Backlog,
    Conversation,
    ConversationFilter,
    ConversationKey,
    ConversationOrder,
    ConversationState,
    agent_in,
)
from perdure.core.features import find_features
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.runs import Prefix
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables import table
from perdure.storage.tables.agents import AGENT, AGENT_SOURCE, Agents
from perdure.storage.tables.blocks import shown_blocks
from perdure.storage.tables.message_rows import IN_VIEW, in_view_of, rows_in_view

_STUBS = row_format.Codec(
    row_format.dump, lambda text: {int(seq): chars for seq, chars in row_format.load(text).items()}
)
"""Row number -> characters."""

_CONVERSATION = row_format.RowFormat(Conversation, {_STUBS: "stubs"})
_C_COLUMNS = _CONVERSATION.columns_of("c")
_OWN_C = table.OWN_AGENT_OF.format("c")
_SHOWN = "kind IN ('message', 'compaction')"
_OWN = f"agent_id = :agent_id AND seq = :seq AND {table.OWN_AGENT}"

_ORDERS: dict[ConversationOrder, str] = {
    "created": "c.created_at",
    "last_message": "COALESCE(c.last_message_at, '')",
    "last_run": "COALESCE(r.ended_at, '')",
}

# One grouped look-up. One per conversation would read all runs of the agent for each of its conversations.
_LAST_RUNS = (
    " LEFT JOIN (SELECT agent_id, conversation_seq, MAX(ended_at) AS ended_at FROM runs WHERE org_id = :org_id{of}"
    " GROUP BY agent_id, conversation_seq) r ON r.agent_id = c.agent_id AND r.conversation_seq = c.seq"
)

OTHERS = 20
"""An agent's first conversations, in which `has_others` looks for messages: one with thousands costs no more."""

# Archives and what features have are other families of rows (`storage.distribution`): only their ids are read here.
_HAS = {
    name: condition.format(agent=":agent_id") for feature in find_features() for name, condition in feature.has.items()
}
_IS_RULE = f"b.label = '{ERROR_PATTERNS}' OR b.metadata LIKE '%\"{PROTECTED}\"%'"
"""The SQL condition of blocks whose lines the status counts."""
_AGENT_STATE = (
    f"SELECT {AGENT.columns}, a.run_seq, a.message_seq, a.embedded,"
    " (SELECT {archives} FROM agent_archives y WHERE y.agent_id = :agent_id)"
    f"{''.join(f', {condition}' for condition in _HAS.values())}"
    f" FROM {AGENT_SOURCE} WHERE a.id = :agent_id AND a.org_id = :org_id"
)
# In the order of the index: by number, the many that wait in a batch would all be read.
_CONVERSATION_STATE = (
    f"SELECT {_C_COLUMNS}, (SELECT r.seq FROM runs r{{unended}} WHERE r.agent_id = :agent_id"
    " AND r.conversation_id = c.id AND r.status IN ('queued', 'running')"
    " ORDER BY CASE r.status WHEN 'running' THEN -1 ELSE r.seq END LIMIT 1),"
    " EXISTS (SELECT 1 FROM (SELECT o.seq, o.last_message_at FROM conversations o WHERE o.agent_id = :agent_id"
    f" AND o.removed_at IS NULL ORDER BY o.seq LIMIT {OTHERS}) o WHERE o.seq <> :seq AND o.last_message_at IS NOT NULL)"
    " FROM conversations c WHERE c.agent_id = :agent_id AND c.seq = :seq AND c.removed_at IS NULL"
)


class Conversations(table.Table):
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
        conversation = Conversation(
            id=conversation_id,
            agent_id=agent_id,
            seq=self._take("agents", "conversation_seq", agent_id, "agent"),
            summary=summary,
            settings=settings or {},
            created_at=at,
            updated_at=at,
        )
        sql = row_format.insert_into(
            "conversations", "agent_id, seq, id, summary, settings, hidden, seen, created_at, updated_at"
        )
        self._run(sql, hidden=int(hidden), **_CONVERSATION.params(conversation))
        table.register(self._db, self._org_id, agent_id, [(conversation_id, conversation.seq)])
        return conversation

    def get(self, conversation_id: ConversationId) -> Conversation:
        """The conversation with this id. Raises: NotFound: it does not exist or was removed."""
        agent_id, seq = table.locate(self._db, self._org_id, "conversation", conversation_id)
        rows = self._rows(
            f"SELECT {_CONVERSATION.columns} FROM conversations WHERE agent_id = :agent_id AND seq = :seq"
            " AND removed_at IS NULL",
            agent_id=agent_id,
            seq=seq,
        )
        return _CONVERSATION.read(table.first(rows, "conversation", conversation_id, hint="it was deleted"))

    def get_agent(self, agent_id: AgentId, seq: int) -> Agent:
        """The agent with the model and settings that it has in this conversation. Raises: NotFound."""
        return agent_in(Agents(self._db, self._org_id).get(agent_id), self.get_by_seq(agent_id, seq))

    def put(self, conversation: Conversation, *, at: datetime, shapes_requests: bool = False) -> Conversation:
        """Update summary, settings and `archived_at`; `shapes_requests`: requests depend on them. Raises: NotFound."""
        if shapes_requests:
            table.revise_settings(self._db, table.own_agent(self._db, self._org_id, conversation.agent_id))
        conversation = replace(conversation, updated_at=at)
        self._update(conversation, "summary, settings, archived_at, updated_at", _CONVERSATION.params(conversation))
        return conversation

    def remove(self, conversation: Conversation, *, at: datetime) -> None:
        """Remove a conversation from `get` and all lists; its rows stay. Raises: NotFound."""
        own = {"agent_id": conversation.agent_id, "seq": conversation.seq}
        self._update(conversation, "removed_at", own | {"removed_at": row_format.iso(at)})

    def _update(self, conversation: Conversation, columns: str, params: Mapping[str, Any]) -> None:
        """Set columns of a conversation that was not removed; `params` are their values. Raises: NotFound."""
        sql = f"UPDATE conversations SET {row_format.assignments(columns)} WHERE {_OWN} AND removed_at IS NULL"
        self._change_one("conversation", conversation.id, sql, **params)

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
        conditions = Conditions(
            "a.org_id = :org_id", "a.id = c.agent_id", "c.seq > 0", "c.hidden = 0", "c.removed_at IS NULL"
        )
        source = "conversations c"
        if order == "last_run":
            source += _LAST_RUNS.format(of="" if where.agent_id is None else " AND agent_id = :agent_id")
        if where.agent_id is not None:
            conditions.clauses.append("c.agent_id = :agent_id")
            conditions.params["agent_id"] = where.agent_id
        if where.archived is not None:
            conditions.add(f"c.archived_at IS {'NOT ' if where.archived else ''}NULL")
        conditions.contain("c.summary", where.text)
        source += " CROSS JOIN agents a"  # in this order: SQLite would begin with all agents of the organisation
        # Agent and number decide between equal times, so that pages never overlap.
        columns = (_ORDERS[order], "c.agent_id", "c.seq")
        place: row_format.Row | None = None
        if after is not None:
            of_last = "c.agent_id = :last_agent AND c.seq = :last_seq AND a.id = c.agent_id"
            sql = f"SELECT {', '.join(columns)} FROM {source} WHERE {of_last}"
            last_agent, last_seq = table.locate(self._db, self._org_id, "conversation", after)  # also a removed one
            rows = self._rows(sql, last_agent=last_agent, last_seq=last_seq, **conditions.params)
            place = table.first(rows, "conversation", after)
        select = f"SELECT {_C_COLUMNS} FROM {source}"
        return self._page(_CONVERSATION, select, conditions, columns, (place, None), ascending=ascending, limit=limit)

    def list_view_ids(
        self, keys: Sequence[ConversationKey], *, limit: int = 100
    ) -> Mapping[ConversationKey, Sequence[MessageId]]:
        """Return conversation -> ids of the newest `limit` messages in view, oldest first, without the engine's own. If
        messages left the view, the message of the newest compaction, with their summary, comes first."""
        sql = (
            "SELECT c.agent_id, c.seq, COALESCE((SELECT messages.seq"
            f" FROM messages{self._db.by_index('messages_by_conversation')} WHERE messages.agent_id = c.agent_id"
            " AND messages.conversation_seq = c.seq AND messages.seq >= COALESCE(p.from_message_seq, 0)"
            f" AND {_SHOWN} AND {in_view_of('c.agent_id')} ORDER BY messages.seq DESC LIMIT 1 OFFSET :most),"
            " p.from_message_seq, 0) FROM conversations c LEFT JOIN prefixes p ON p.agent_id = c.agent_id"
            f" AND p.seq = c.prefix_seq WHERE {{keys}} AND {_OWN_C}"
        )
        starts = self._rows_of_each(sql, "c.agent_id = ? AND c.seq = ?", keys, most=limit - 1)
        begin = {key: rows[0][0] for key, rows in starts.items() if rows}
        found = rows_in_view(self._db, self._org_id, "id, kind", begin, _SHOWN)
        return {
            key: [
                *[id_ for id_, kind in rows if kind == "compaction"][-1:],
                *(id_ for id_, kind in rows if kind == "message"),
            ]
            for key, rows in ((key, found.get(key, ())) for key in keys)
        }

    def last_message_times(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, datetime]:
        """Agent -> when the newest message was added to one of its conversations; an agent without any is left out."""
        sql = (
            "SELECT c.agent_id, MAX(c.last_message_at) FROM conversations c"
            f" WHERE {{keys}} AND c.last_message_at IS NOT NULL AND {_OWN_C} GROUP BY c.agent_id"
        )
        found = self._rows_of_each(sql, "c.agent_id", agent_ids)
        return {agent_id: row_format.from_iso(rows[0][0]) for agent_id, rows in found.items() if rows}

    def list_by_keys(self, keys: Sequence[ConversationKey]) -> Sequence[Conversation]:
        """The conversations with these keys, in their order; a key that no conversation has is left out."""
        sql = f"SELECT agent_id, seq, {_CONVERSATION.columns} FROM conversations c WHERE {{keys}} AND {_OWN_C}"
        found = _CONVERSATION.read_each(self._rows_of_each(sql, "agent_id = ? AND seq = ?", keys))
        return [conversation for conversations in found.values() for conversation in conversations]

    def get_by_seq(self, agent_id: AgentId, seq: int) -> Conversation:
        """The agent's conversation with this number, also a removed one. Raises: NotFound."""
        # Every agent has its first conversation, so it is the agent that is not there.
        missing = ("conversation", f"{seq} of {agent_id}") if seq else ("agent", agent_id)
        return table.first(self.list_by_keys([(agent_id, seq)]), *missing)

    # The verbs live as long as their connection, so each statement is made once.
    @cached_property
    def _agent_state(self) -> str:
        return _AGENT_STATE.format(archives=self._db.concat("y.archive_id"))

    @cached_property
    def _conversation_state(self) -> str:
        return _CONVERSATION_STATE.format(unended=self._db.by_index("runs_unended"))

    def get_state(self, agent_id: AgentId, seq: int) -> ConversationState:
        """The state of a conversation and its agent. A caller that writes by it holds the agent's lock (`Agents.lock`).
        Raises: NotFound: also for a conversation that was removed."""
        state = table.first(self._rows(self._agent_state, agent_id=row_format.storable(agent_id)), "agent", agent_id)
        next_run_seq, next_message_seq, embedded, archives, *has = state[-4 - len(_HAS) :]
        agent = AGENT.read(state)
        rows = self._rows(self._conversation_state, agent_id=agent.id, seq=seq)
        name = "" if rows else self.get_by_seq(agent.id, seq).id
        row = table.first(rows, "conversation", name, hint="it was deleted")
        conversation = _CONVERSATION.read(row)
        blocks = shown_blocks(self._db, self._org_id, f"b.id, b.version, b.label, {_IS_RULE}", [agent.id], seq)[
            agent.id
        ]
        return ConversationState(
            agent=agent_in(agent, conversation),
            message_count=agent.message_count,
            conversation=conversation,
            active_run_seq=row[-2],
            next_run_seq=next_run_seq,
            next_message_seq=next_message_seq,
            embedded=bool(embedded),
            blocks={row[0]: row[1] for row in blocks},
            passages=self._count_passages(archives.split(",")) if archives else 0,
            has={name: found for name, found in zip(_HAS, has, strict=True) if found},
            has_notes=WORKING_CHECKPOINT in [row[2] for row in blocks],
            has_rules=any(row[3] for row in blocks),
            has_others=bool(row[-1]),
        )

    def _count_passages(self, archives: Sequence[str]) -> int:
        """How many passages these archives have together. A deleted one, whose links stay for a while, counts none."""
        where = Conditions(table.BY_ID.format(""))
        where.among("id", archives)
        return int(self._rows(f"SELECT SUM(passage_count) FROM archives WHERE {where}", **where.params)[0][0] or 0)

    def list(self, agent_id: AgentId, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """The agent's conversations with numbers above `after_seq`, in order."""
        return self._all(
            _CONVERSATION,
            f"SELECT {_CONVERSATION.columns} FROM conversations WHERE agent_id = :agent_id AND seq > :after"
            f" AND removed_at IS NULL AND {table.OWN_AGENT} ORDER BY seq LIMIT :limit",
            agent_id=agent_id,
            after=after_seq,
            limit=limit,
        )

    def put_seen_versions(
        self, agent_id: AgentId, seq: int, seen: Mapping[str, int], *, prefix: Prefix | None = None
    ) -> None:
        """Store which versions of blocks, folders and files the model has seen (id -> version) and, if given, the new
        prefix, whose rows' tokens are then counted again."""
        params: dict[str, Any] = {"agent_id": agent_id, "seq": seq, "seen": row_format.dump(seen)}
        changes = "seen = :seen"
        if prefix is not None:
            # Only here, where the view begins elsewhere, is the sum counted again; appending keeps it up to date.
            changes += (
                ", prefix_seq = :prefix_seq, view_tokens = (SELECT COALESCE(SUM(tokens), 0) FROM"
                f" messages{self._db.by_index('messages_by_conversation')}"
                " WHERE agent_id = :agent_id AND conversation_seq = :seq"
                f" AND seq >= :from_seq AND {IN_VIEW})"
            )
            params |= {"prefix_seq": prefix.seq, "from_seq": prefix.from_message_seq}
        self._run(f"UPDATE conversations SET {changes} WHERE {_OWN}", **params)

    def remove_prefix(self, agent_id: AgentId, seq: int) -> None:
        """Let the next request have a new prefix, as the first one has."""
        self._set("conversations", {"agent_id": agent_id, "seq": seq}, prefix_seq=None)

    def put_pending(self, agent_id: AgentId, seq: int, *, run_seq: int | None, from_seq: int | None = None) -> None:
        """Store the numbers of the run whose calls wait for an answer, and of their message; None: no call waits."""
        key = {"agent_id": agent_id, "seq": seq}
        self._set("conversations", key, pending_run_seq=run_seq, pending_from=from_seq)

    def list_pending(self, agent_id: AgentId | None = None, *, limit: int = 100) -> Sequence[Conversation]:
        """Conversations with waiting calls, of one agent or of all, in order of agents and their numbers."""
        where = Conditions("c.pending_run_seq IS NOT NULL", "a.org_id = :org_id")
        where.equal("c.agent_id", agent_id)
        return self._all(
            _CONVERSATION,
            # CROSS JOIN: SQLite reads them in this order, so that it begins with the few that wait.
            f"SELECT {_C_COLUMNS} FROM conversations c CROSS JOIN agents a"
            f" WHERE a.id = c.agent_id AND {where} ORDER BY a.number, c.seq LIMIT :limit",
            limit=limit,
            **where.params,
        )

    def count_pending(self) -> int:
        """How many conversations have calls that wait."""
        conditions = "a.id = c.agent_id AND c.pending_run_seq IS NOT NULL AND a.org_id = :org_id"
        return int(self._value(f"SELECT COUNT(*) FROM conversations c CROSS JOIN agents a WHERE {conditions}"))

    def find_unused(self, *, before: datetime, after: int) -> tuple[ConversationId, int] | None:
        """(id, number of its agent) of the first ephemeral conversation without a message since `before`, among agents
        with numbers above `after`; None: there is none."""
        rows = self._rows(
            "SELECT c.id, a.number FROM agents a JOIN conversations c ON c.agent_id = a.id"
            " WHERE a.org_id = :org_id AND a.hidden = 1 AND a.number > :after AND c.hidden = 1 AND c.removed_at IS NULL"
            " AND COALESCE(c.last_message_at, c.created_at) < :before AND c.settings LIKE :mark"
            " ORDER BY a.number LIMIT 1",
            after=after,
            before=row_format.iso(before),
            mark=f"%{row_format.dump({EPHEMERAL: True})[1:-1]}%",
        )
        return (ConversationId(rows[0][0]), rows[0][1]) if rows else None

    def put_view(
        self, agent_id: AgentId, seq: int, *, view_tokens: int, stubs: Mapping[int, int], overcount: int
    ) -> None:
        """Store how the rows in view are shown from now on, and their tokens. `stubs`: number of a row -> how many
        characters of it are shown, of others all. `overcount`: by how many tokens the estimate of a request is too
        high; negative: too low."""
        key, shown = {"agent_id": agent_id, "seq": seq}, row_format.dump(stubs)
        self._set("conversations", key, view_tokens=view_tokens, stubs=shown, overcount=overcount)


_OF_CONVERSATION = f"agent_id = :agent_id AND conversation_seq = :conversation_seq AND {table.OWN_AGENT}"


class Captures(table.Table):
    """Up to which message each conversation was captured, that is, stored as passages."""

    def last_seq(self, agent_id: AgentId, conversation_seq: int) -> int:
        """The number of the last row that capture has processed; -1: none."""
        sql = f"SELECT upto_seq FROM captures WHERE {_OF_CONVERSATION}"
        found = self._value(sql, agent_id=agent_id, conversation_seq=conversation_seq)
        return -1 if found is None else int(found)

    def put(self, agent_id: AgentId, conversation_seq: int, upto_seq: int, *, at: datetime) -> None:
        """Set the number of the last processed row. Raises: NotFound: no such agent."""
        self._put_upto("captures", "captured_at", agent_id, conversation_seq, upto_seq, at)

    def get_backlog(
        self, agent_id: AgentId, conversation_seq: int, *, after_seq: int | None = None, before_seq: int | None = None
    ) -> Backlog:
        """How much users and assistants said, in view, after row `after_seq`, or with None after the last row that was
        captured, and before row `before_seq`."""
        by_conversation = self._db.by_index("messages_by_conversation")
        below = "" if before_seq is None else " AND seq < :before_seq"
        ((tokens, last, turns),) = self._rows(
            "SELECT COALESCE(SUM(tokens), 0), COALESCE(MAX(seq), -1), COUNT(*)"
            f" FROM messages{by_conversation} WHERE {_OF_CONVERSATION} AND seq > :upto_seq{below}"
            f" AND kind = 'message' AND role IN ('user', 'assistant') AND parts LIKE :with_text AND {IN_VIEW}",
            with_text='%"type":"text"%',  # not calls alone, whose results say what they did
            agent_id=agent_id,
            conversation_seq=conversation_seq,
            upto_seq=self.last_seq(agent_id, conversation_seq) if after_seq is None else after_seq,
            before_seq=before_seq,
        )
        return Backlog(int(tokens), int(last), int(turns))
