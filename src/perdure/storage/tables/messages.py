"""`tx.messages`: the messages of one transaction. Only `revision` and `removed` of a row change. `revision` is the
number of its newest revision, which holds the parts to show instead; `removed` is 1 for a removed message and 2 for
one of before a reset. A reset updates its rows in steps; until then its row in `resetting` hides them, which
`IN_VIEW` checks.

The full-text index takes several messages at a time, because writing one row costs as much as ten. The last few of an
agent, from its `words_seq` on, are searched in their rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author
from perdure.core.conversations import ConversationKey, ConversationState
from perdure.core.errors import NotFound
from perdure.core.features import find_features
from perdure.core.ids import AgentId, MessageId, OrgId, StepId, run_of
from perdure.core.messages import (
    HISTORY_KINDS,
    Draft,
    Message,
    MessageFilter,
    MessageKind,
    MessageScope,
    Part,
    check_same_calls,
    is_embedded,
)
from perdure.core.runs import Run
from perdure.core.text.words import Matches, Query, index_words
from perdure.storage.database import full_text as word_index
from perdure.storage.database.base import Database, WordRows
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.full_text import matches
from perdure.storage.database.row_format import insert_into, iso, storable
from perdure.storage.tables.message_rows import (
    BEFORE_NEXT_RUN,
    IN_VIEW,
    MESSAGE,
    MESSAGE_CHECKSUMS,
    PARTS,
    REVISION_CHECKSUMS,
    conditions_of,
    in_view_sql,
    load_revision,
    parts_of,
    place_of,
    places_of,
    read_rows,
    reset_pending,
    revised_parts,
    row_text,
    rows_in_view,
    with_revisions,
    words_in,
    words_of,
)
from perdure.storage.tables.sources import add_draft_sources
from perdure.storage.tables.table import BY_ID, OWN_AGENT, OWN_AGENT_OF, Table, first, register
from perdure.storage.tables.turns import PART, store_turns
from perdure.storage.tables.vectors import forget_texts, queue_texts

_INSERT = insert_into("messages", f"{MESSAGE.columns}, checksum")

_IN_GAP = (
    "EXISTS (SELECT 1 FROM view_gaps g WHERE g.agent_id = :agent_id AND g.conversation_seq = :conversation"
    " AND messages.seq BETWEEN g.from_seq AND g.upto_seq AND g.since_revision <= :revision"
    " AND (g.until_revision IS NULL OR g.until_revision > :revision))"
)
"""True for a message that a restore had taken out of view at a settings revision."""

WAITING_ROWS = 8
"""The index takes an agent's waiting rows at every multiple of this number."""
WAITING_CHARS = 1_000
"""Longer messages, in their stored form, don't wait: each search splits the waiting ones into words."""

_GRAPH = next((feature.has["graph"] for feature in find_features() if "graph" in feature.has), "NULL")


class Messages(Table):
    def append(
        self,
        to: Run | tuple[AgentId, int],
        drafts: Sequence[Draft],
        tokens: Sequence[int],
        *,
        at: datetime,
        step_id: StepId | None = None,
        overcount: int | None = None,
        opening: ConversationState | None = None,
    ) -> Sequence[Message]:
        """Append messages of so many tokens each; return them with consecutive numbers. Searches find them at once.

        Args:
            to: the run that brings them, or else their conversation (agent, number).
            step_id: the step that brought them, or whose calls they answer.
            overcount: the new `Conversation.overcount`; None: unchanged.
            opening: the state that the run was added to in this transaction; it has reserved the numbers and
                registered the ids of these messages.
        Raises: NotFound: no such agent.
        """
        run = to if isinstance(to, Run) else None
        agent_id, conversation_seq = (to.key.agent_id, to.conversation_seq) if isinstance(to, Run) else to
        if opening is None:
            rows = self._rows(
                "UPDATE agents SET message_seq = message_seq + :rows, message_count = message_count + :count"
                " WHERE id = :id AND org_id = :org_id RETURNING message_seq - :rows, number, embedded",
                id=agent_id,
                rows=len(drafts),
                count=sum([draft.kind == "message" for draft in drafts]),
            )
            first_seq, number, embedded = first(rows, "agent", agent_id)
        elif (opening.agent.id, opening.agent.org_id) == (agent_id, self._org_id):
            first_seq, number, embedded = opening.next_message_seq, opening.agent.number, opening.embedded
        else:
            raise NotFound("agent", agent_id)
        messages = [
            Message(
                id=draft.id,
                agent_id=agent_id,
                seq=first_seq + index,
                conversation_seq=conversation_seq,
                role=draft.role,
                parts=draft.parts,
                kind=draft.kind,
                run_seq=run.key.seq if run else None,
                run_id=run.id if run else None,
                step_id=step_id,
                name=draft.name,
                otid=draft.otid,
                sender_id=draft.sender_id,
                tokens=tokens[index],
                created_at=at,
                occurred_at=draft.occurred_at or at,
            )
            for index, draft in enumerate(drafts)
        ]
        stored = [MESSAGE.params(message) for message in messages]
        self._db.run_many(_INSERT, [row | {"checksum": MESSAGE_CHECKSUMS.of(row)} for row in stored])
        unlinked = [(one.id, one.seq) for one in messages if run is None or run_of(one.id) != run.id]
        if unlinked and opening is None:  # else `runs.add` has registered them
            register(self._db, self._org_id, agent_id, unlinked)
        add_draft_sources(self._db, agent_id, conversation_seq, first_seq, drafts)
        self._run(
            "UPDATE conversations SET last_message_at = :at, view_tokens = view_tokens + :tokens,"
            " overcount = COALESCE(:overcount, overcount) WHERE agent_id = :agent_id AND seq = :seq",
            at=iso(at),
            tokens=sum(tokens),
            overcount=overcount,
            agent_id=agent_id,
            seq=conversation_seq,
        )
        size = sum([len(row["parts"]) for row in stored])
        if size > WAITING_CHARS or first_seq // WAITING_ROWS != (first_seq + len(stored)) // WAITING_ROWS:
            self._index(agent_id, number, messages)
        if first_seq // PART != (first_seq + len(stored)) // PART:
            store_turns(self._db, self._org_id, agent_id, before_seq=first_seq + len(stored))
        if embedded:
            queue_texts(self._db, number, [message.seq for message in messages if is_embedded(message)])
        return messages

    def _index(self, agent_id: AgentId, number: int, newest: Sequence[Message]) -> None:
        """Add all messages that wait for it to the full-text index, under the agent's number; `newest` are the last."""
        backlog = message_words_of(self._db, agent_id, _words_seq(self._db, agent_id), newest[0].seq - 1)
        word_index.index_words(self._db, "message_words", number, [*backlog, *filter(None, map(words_of, newest))])
        self._run("UPDATE agents SET words_seq = :next WHERE id = :id", next=newest[-1].seq + 1, id=agent_id)

    def get(self, message_id: MessageId) -> Message:
        """The message in view with this id. Raises: NotFound."""
        agent_id, seq = self.place(message_id)
        return first(self.list_by_seqs(agent_id, [seq]), "message", message_id, hint="it was removed")

    def place(self, message_id: MessageId) -> tuple[AgentId, int]:
        """Return the agent and number of a message, in view or not. Raises: NotFound."""
        return place_of(self._db, self._org_id, message_id)

    def find_existing(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """The ids that a message has, also one out of view."""
        return set(places_of(self._db, self._org_id, ids))

    def find_reset(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """The ids of messages that a reset took out of view."""
        seqs_by_agent: dict[AgentId, list[int]] = {}
        for agent_id, seq in places_of(self._db, self._org_id, ids).values():
            seqs_by_agent.setdefault(agent_id, []).append(seq)
        reset: set[MessageId] = set()
        for agent_id, seqs in seqs_by_agent.items():
            condition, params = self._db.in_numbers("seq", "seqs", seqs)
            gone = f"(removed = 2 OR removed = 0 AND {reset_pending('messages')})"
            sql = f"SELECT id FROM messages WHERE agent_id = :agent_id AND {condition} AND {gone}"
            reset |= {MessageId(row[0]) for row in self._rows(sql, agent_id=agent_id, **params)}
        return reset & set(ids)

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
        kinds: Sequence[MessageKind] | None = ("message", "approval"),
        reset: bool = False,
        since: datetime | None = None,
    ) -> Sequence[Message]:
        """The messages of an agent or a conversation between two numbers, both excluded, in their order, of these kinds
        (None: of all) and that occurred since a time. `reset`: also those that a reset took out of view."""
        where = _range(conversation_seq, after_seq, before_seq)
        where.add(in_view_sql(reset))
        where.add("occurred_at >= ?", since and iso(since))
        if kinds is not None:
            where.add(_of_kinds_sql(kinds))
        return self._read(
            f"{where} ORDER BY seq {'DESC' if newest_first else 'ASC'} LIMIT :limit",
            of_conversation=conversation_seq is not None,
            agent_id=agent_id,
            limit=limit,
            **where.params,
        )

    def list_of_all_agents(
        self,
        *,
        after: tuple[AgentId, int] | None = None,
        before: tuple[AgentId, int] | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[Message]:
        """Messages of all agents (`HISTORY_KINDS`), in order of storing, between two places (agent, number)."""
        in_view_sql = f"removed = 0 AND NOT {reset_pending('messages', agent='messages.agent_id')}"
        where = Conditions(OWN_AGENT_OF.format("messages"), _of_kinds_sql(HISTORY_KINDS), in_view_sql)
        params: dict[str, Any] = {"limit": limit, "org_id": self._org_id}
        for name, sign, place in (("after", ">", after), ("before", "<", before)):
            if place is not None:
                at = f"(SELECT created_at FROM messages WHERE agent_id = :{name}_agent AND seq = :{name}_seq)"
                where.add(f"(created_at, agent_id, seq) {sign} ({at}, :{name}_agent, :{name}_seq)")
                params |= {f"{name}_agent": place[0], f"{name}_seq": place[1]}
        way = "DESC" if newest_first else "ASC"
        order = f"ORDER BY created_at {way}, agent_id {way}, seq {way} LIMIT :limit"
        return read_rows(self._db, f"{where} {order}", params)

    def view(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        from_seq: int,
        upto_seq: int,
        settings_revision: int | None = None,
    ) -> Sequence[Message]:
        """The messages of a conversation in [from_seq, upto_seq] that a model is shown, also those that the engine
        wrote. With a settings revision, as they were shown then, without later revisions and removals."""
        where = "agent_id = :agent_id AND conversation_seq = :conversation AND seq >= :from_seq AND seq <= :upto_seq"
        params = {"agent_id": agent_id, "conversation": conversation_seq, "from_seq": from_seq, "upto_seq": upto_seq}
        if settings_revision is None:
            return self._read(f"{where} AND {IN_VIEW} ORDER BY seq", of_conversation=True, **params)
        source = f"messages{self._db.by_index('messages_by_conversation')}"
        sql = f"SELECT {MESSAGE.columns} FROM {source} WHERE {OWN_AGENT} AND {where} AND NOT {_IN_GAP} ORDER BY seq"
        params["revision"] = settings_revision
        messages = (load_revision(self._db, one, settings_revision) for one in self._all(MESSAGE, sql, **params))
        return [message for message in messages if message is not None]

    def views(self, starts: Mapping[ConversationKey, int]) -> Mapping[ConversationKey, Sequence[Message]]:
        """Conversation -> the messages that a model is shown, from the one whose number `starts` has on."""
        found = MESSAGE.read_each(rows_in_view(self._db, self._org_id, MESSAGE.columns, starts))
        return {key: with_revisions(self._db, messages) for key, messages in found.items()}

    def list_by_run(self, run: Run, *, reset: bool = False) -> Sequence[Message]:
        """The run's input and all its other messages; `reset` includes those that a reset took out of view."""
        # By the conversation's index, from the run's first message to the next run's. An index by run would cost every
        # message something for the sake of runs long ended.
        until = f" AND {BEFORE_NEXT_RUN}" if run.ended else ""
        # A run that goes on with answered calls begins with those, which stand in the log of the one before.
        return self._read(
            "agent_id = :agent_id AND conversation_seq = :conversation AND seq >= :first"
            f" AND run_seq IN (:run_seq, :resumes){until} AND {in_view_sql(reset)} ORDER BY seq",
            of_conversation=True,
            agent_id=run.key.agent_id,
            run_seq=run.key.seq,
            resumes=run.key.seq if run.resumes is None else run.resumes,
            conversation=run.conversation_seq,
            first=run.begins_at if run.begins_at is not None else run.first_message_seq or 0,
            own=run.first_message_seq or 0,
        )

    def count(self, agent_id: AgentId) -> int:
        """How many messages the agent's history has, without the engine's own."""
        sql = "SELECT message_count FROM agents WHERE id = :id AND org_id = :org_id"
        return int(self._value(sql, id=agent_id) or 0)

    def scopes(self, agent_ids: Sequence[AgentId], *, where: MessageFilter) -> dict[AgentId, MessageScope]:
        """Agent -> what a search with this filter begins with; an agent that does not exist is left out."""
        among = Conditions()
        among.among("id", agent_ids)
        rows = self._rows(
            "SELECT a.id, a.number, a.words_seq, a.message_seq, a.message_count,"
            f" EXISTS (SELECT 1 FROM resetting x WHERE x.agent_id = a.id AND x.agent_{among}),"
            f" {_GRAPH.format(agent=f'a.id AND h.agent_{among}')}"
            f" FROM agents a WHERE a.{among} AND {BY_ID.format('a.')}",
            **among.params,
        )
        scopes = {row[0]: MessageScope(*row[1:]) for row in rows}
        last = math.inf if where.before_seq is None else where.before_seq
        ends = {id_: (scope.words_seq, min(last, scope.next_seq)) for id_, scope in scopes.items()}
        if ranges := [(id_, begin, int(end)) for id_, (begin, end) in ends.items() if begin < end]:
            conditions = conditions_of(where)
            conditions.any_of("agent_id = ? AND seq >= ? AND seq < ?", ranges)
            conditions.add("removed = 0")
            if any(scope.is_resetting for scope in scopes.values()):
                conditions.add(f"NOT {reset_pending('messages', agent='messages.agent_id')}")
            for message in read_rows(self._db, f"{conditions} ORDER BY seq DESC", conditions.params):
                if words := words_of(message):
                    scopes[message.agent_id].waiting.append((message.seq, words[2]))
        return scopes

    def match(
        self, agent_id: AgentId, query: Query, *, where: MessageFilter, limit: int, known: MessageScope | None = None
    ) -> Matches:
        """The best `limit` candidates of a search. `known`: what `scopes` returned for the agent and filter."""
        scope = known or self.scopes([agent_id], where=where).get(agent_id)
        if scope is None or not query.clauses:
            return Matches()
        below = scope.words_seq if where.before_seq is None else min(where.before_seq, scope.words_seq)
        # The index has roles and numbers, and no removed messages; the message's row has the rest, also whether a reset
        # that is still carried out took it out of view.
        conditions = conditions_of(replace(where, roles=(), before_seq=None), "m.")
        if scope.is_resetting:
            conditions.add(f"NOT {reset_pending('m')}")
        conditions.params["agent_id"] = agent_id
        return matches(
            self._db,
            WordRows("message_words", scope.number, where.roles, below=below),
            query,
            limit=limit,
            waiting=scope.waiting,
            join="JOIN messages m ON m.agent_id = :agent_id AND m.seq = {key}",
            where=conditions,
        )

    def next_seq(self, agent_id: AgentId) -> int:
        """The number of the agent's next message. Raises: NotFound."""
        rows = self._rows("SELECT message_seq FROM agents WHERE id = :id AND org_id = :org_id", id=agent_id)
        return int(first(rows, "agent", agent_id)[0])

    def texts(self, agent_id: AgentId, seqs: Sequence[int]) -> dict[int, str]:
        """Number -> text, for those of these messages that are in view."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        where = f"{OWN_AGENT} AND agent_id = :agent_id AND {IN_VIEW} AND {condition}"
        rows = self._rows(f"SELECT seq, parts, revision FROM messages WHERE {where}", agent_id=agent_id, **params)
        texts = {row[0]: row_text(row[1]) for row in rows if not row[2]}
        if revised := [row[0] for row in rows if row[2]]:
            texts |= {message.seq: message.text for message in self.list_by_seqs(agent_id, revised)}
        return texts

    def newest(self, agent_id: AgentId, *, where: MessageFilter, limit: int) -> Sequence[Message]:
        """The newest messages in view that match the filter, newest first."""
        conditions = conditions_of(where)
        shown = f"agent_id = :agent_id AND kind = 'message' AND {IN_VIEW}"
        sql = f"{shown} AND {conditions} ORDER BY seq DESC LIMIT :limit"
        return self._read(sql, agent_id=agent_id, limit=limit, **conditions.params)

    def list_by_seqs(self, agent_id: AgentId, seqs: Sequence[int]) -> Sequence[Message]:
        """The messages with these numbers that are in view, in the order of `seqs`."""
        messages = read_messages(self._db, self._org_id, agent_id, seqs)
        return [messages[seq] for seq in seqs if seq in messages]

    def revise(
        self,
        message_id: MessageId,
        parts: Sequence[Part] | None,
        *,
        author: Author,
        at: datetime,
        name: str | None = None,
    ) -> None:
        """Replace the parts that are shown, or remove the message from view with None; the row itself stays. `name`:
        that of the speaker, if it is another. Raises: NotFound; InvalidInput: a call would lose its result, or a result
        its call."""
        before = self.get(message_id)
        check_same_calls(before, parts)
        # The settings revision makes the next request build a new prefix, and tells which revisions a request showed.
        number, settings_revision, embedded, words_seq = self._rows(
            "UPDATE agents SET settings_revision = settings_revision + 1, message_count = message_count - :count"
            " WHERE id = :id RETURNING number, settings_revision, embedded, words_seq",
            id=before.agent_id,
            count=int(parts is None and before.kind == "message"),
        )[0]
        row: dict[str, Any] = {
            "agent_id": before.agent_id,
            "seq": before.seq,
            "revision": before.revision + 1,
            "parts": None if parts is None else PARTS.store(parts),
            "settings_revision": settings_revision,
            "author_kind": author.kind,
            "author_id": storable(author.id),
            "created_at": iso(at),
            "name": storable(before.name if name is None else name) if before.name else None,
        }
        self._run(
            insert_into("message_revisions", f"{', '.join(row)}, checksum"), checksum=REVISION_CHECKSUMS.of(row), **row
        )
        self._run(
            "UPDATE messages SET revision = :revision, removed = :removed WHERE agent_id = :agent_id AND seq = :seq",
            removed=int(parts is None),
            **row,
        )
        after = None if parts is None else self.get(message_id)
        if before.seq < words_seq:
            if words := words_of(before):
                word_index.unindex_words(self._db, "message_words", number, [words])
            if after is not None and (words := words_of(after)):
                word_index.index_words(self._db, "message_words", number, [words])
        if embedded:
            forget_texts(self._db, number, [before.seq])
            if after is not None and is_embedded(after):
                queue_texts(self._db, number, [before.seq])

    def _read(self, where: str, *, of_conversation: bool = False, **params: Any) -> Sequence[Message]:
        """As `read_rows`, for an agent `agent_id` of this organisation."""
        params["org_id"] = self._org_id
        return read_rows(self._db, f"{OWN_AGENT} AND {where}", params, of_conversation=of_conversation)


def _of_kinds_sql(kinds: Sequence[MessageKind]) -> str:
    """Return SQL that is true for messages of one of these kinds."""
    return "kind IN ({})".format(", ".join(f"'{kind}'" for kind in kinds))


def _range(conversation_seq: int | None, above: int | None, below: int | None) -> Conditions:
    """The conditions of an agent's messages, or those of a conversation, between two numbers, both excluded."""
    where = Conditions("agent_id = :agent_id")
    where.equal("conversation_seq", conversation_seq)
    where.between("seq", above, below)
    return where


def read_messages(
    db: Database, org_id: OrgId, agent_id: AgentId, seqs: Sequence[int], *, reset: bool = False
) -> dict[int, Message]:
    """Number -> message, of those in view; `reset`: also of those that a reset took out of view."""
    if not seqs:
        return {}
    condition, params = db.in_numbers("seq", "seqs", seqs)
    where = f"agent_id = :agent_id AND {condition} AND {in_view_sql(reset)} AND {OWN_AGENT}"
    found = read_rows(db, where, {"agent_id": agent_id, "org_id": org_id, **params})
    return {message.seq: message for message in found}


def _words_seq(db: Database, agent_id: AgentId) -> int:
    """The number of the agent's first message that the full-text index does not have yet; 0: there is no agent."""
    return next((int(row[0]) for row in db.rows("SELECT words_seq FROM agents WHERE id = :id", {"id": agent_id})), 0)


def indexed_words_of(
    db: Database, agent_id: AgentId, first: int = 0, last: int = 1 << 32, conversation_seq: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Rebuild from the messages the rows (number, role, words) that the full-text index has of an agent's messages from
    `first` to `last`, or of those of a conversation. The index keeps what a reset took out of view until the reset is
    carried out."""
    return message_words_of(db, agent_id, first, min(last, _words_seq(db, agent_id) - 1), conversation_seq)


def message_words_of(
    db: Database, agent_id: AgentId, first: int = 0, last: int = 1 << 32, conversation_seq: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Yield (number, role, words) of an agent's messages from `first` to `last`; the index may not have them yet."""
    where = "agent_id = :agent_id AND seq BETWEEN :first AND :last AND removed = 0 AND kind = 'message'"
    params: dict[str, Any] = {"agent_id": agent_id, "first": first, "last": last}
    source = "messages"
    if conversation_seq is not None:
        where, params = f"{where} AND conversation_seq = :conversation", params | {"conversation": conversation_seq}
        source += db.by_index("messages_by_conversation")
    for seq, role, parts, revision in db.rows(f"SELECT seq, role, parts, revision FROM {source} WHERE {where}", params):
        stored = revised_parts(db, agent_id, seq, revision) if revision else parts
        # Only messages with tool results are parsed, because search skips some of these; most messages are one text.
        words = words_in(parts_of(stored)) if '"tool_result"' in stored else index_words(row_text(stored))
        if words:
            yield seq, role, words
