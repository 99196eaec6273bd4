"""`tx.messages`: the message verbs of one transaction.

A row is never changed but for `revision` and `removed`: they point at its newest revision, which holds the parts to
show instead, or say that it is out of view since its conversation was reset. A reset changes its rows some at a time;
those that it has still to change are out of view by its row in `resetting`, which `SHOWN` looks at.

Words enter the full-text index some messages at a time: what it writes for one row costs as much as for ten. The last
few of an agent, from its `words_seq` on, are searched as they stand in their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author
from perdure.core.conversations import ConversationState
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, MessageId, OrgId, StepId
from perdure.core.messages import (
    Draft,
    Message,
    MessageFilter,
    Part,
    Text,
    Turn,
    check_same_calls,
    is_embedded,
    parts_to_json,
)
from perdure.core.runs import Run
from perdure.core.text.words import Matches, Query, index_words, restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, from_iso, iso
from perdure.storage.full_text import index as word_index
from perdure.storage.full_text.candidates import matches
from perdure.storage.tables.message_filters import BEFORE_NEXT_RUN, SHOWN, being_reset, conditions_of, listed, shown
from perdure.storage.tables.message_ids import place_of, places_of, register_others
from perdure.storage.tables.message_rows import (
    COLUMNS,
    NULLABLE,
    as_of_settings,
    insert_statement,
    message_of,
    params_of,
    parts_of,
    read_rows,
    revised_parts,
    row_text,
    words_in,
    words_of,
)
from perdure.storage.tables.vector_queue import forget_texts, queue_texts
from perdure.storage.upkeep.checksums import REVISIONS

__all__ = ["Messages", "embedded_texts_of", "indexed_words_of", "message_words_of", "read_messages"]

_FORM_CHARS = len(parts_to_json([Text("")]))

WAITING_ROWS = 8
"""At every so many of an agent's rows the index takes in those that wait for it."""
WAITING_CHARS = 1_000
"""Longer ones, in their stored form, don't wait: a search takes the words of all that do."""


class Messages:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def append(
        self,
        agent_id: AgentId,
        drafts: Sequence[Draft],
        *,
        conversation_seq: int,
        at: datetime,
        tokens: Sequence[int],
        run: Run | None = None,
        step_id: StepId | None = None,
        overcount: int | None = None,
        opening: ConversationState | None = None,
    ) -> Sequence[Message]:
        """The messages with their numbers, consecutive, at once searchable. Raises: NotFound: no such agent.

        Args:
            overcount: what the request before these messages taught of the conversation's estimate
                (`Conversation.overcount`); None: nothing.
            opening: what the `run` was added to in this transaction; it has taken the numbers for these messages,
                and they are found by their ids already.
        """
        if opening is not None:
            if (opening.agent.id, opening.agent.org_id) != (agent_id, self._org_id):
                raise NotFound("agent", agent_id)
            first, number, embedded = opening.next_message_seq, opening.agent.number, opening.embedded
        else:
            first, number, embedded = self._take_numbers(agent_id, drafts)
        messages = [
            Message(
                id=draft.id,
                agent_id=agent_id,
                seq=first + index,
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
        rows = [params_of(message) for message in messages]
        given = frozenset([name for row in rows for name in NULLABLE if row[name] is not None])
        self._db.run_many(insert_statement(given), rows)
        if opening is None:  # else the run has registered them with itself
            register_others(self._db, self._org_id, agent_id, run.id if run else None, messages)
        learned = "" if overcount is None else ", overcount = :overcount"
        self._db.run(
            f"UPDATE conversations SET last_message_at = :at, view_tokens = view_tokens + :tokens{learned}"
            " WHERE agent_id = :agent_id AND seq = :seq",
            {
                "at": iso(at),
                "tokens": sum(tokens),
                "overcount": overcount,
                "agent_id": agent_id,
                "seq": conversation_seq,
            },
        )
        size = sum([len(row["parts"]) for row in rows])
        if size > WAITING_CHARS or first // WAITING_ROWS != (first + len(rows)) // WAITING_ROWS:
            self._index(agent_id, number, messages)
        if embedded:
            queue_texts(self._db, number, [message.seq for message in messages if is_embedded(message)])
        return messages

    def _index(self, agent_id: AgentId, number: int, newest: Sequence[Message]) -> None:
        """Take the words of all that wait into the index; `newest` are the last of these."""
        waiting = message_words_of(self._db, agent_id, _words_seq(self._db, agent_id), newest[0].seq - 1)
        word_index.index_words(self._db, "message_words", number, [*waiting, *filter(None, map(words_of, newest))])
        self._db.run("UPDATE agents SET words_seq = :next WHERE id = :id", {"next": newest[-1].seq + 1, "id": agent_id})

    def _take_numbers(self, agent_id: AgentId, drafts: Sequence[Draft]) -> tuple[int, int, bool]:
        """The number of the first of these messages, the agent's own, and whether its messages get vectors."""
        said = sum([draft.kind == "message" for draft in drafts])
        advanced = self._db.update(
            "agents",
            "message_seq = message_seq + :rows, message_count = message_count + :said",
            "id = :id AND org_id = :org_id",
            {"rows": len(drafts), "said": said, "id": agent_id, "org_id": self._org_id},
            returning="message_seq - :rows, number, embedded",
        )
        if not advanced:
            raise NotFound("agent", agent_id)
        return advanced[0][0], advanced[0][1], bool(advanced[0][2])

    def get(self, message_id: MessageId) -> Message:
        """Raises: NotFound."""
        agent_id, seq = self.place(message_id)
        found = self.by_seqs(agent_id, [seq])
        if not found:
            raise NotFound("message", message_id, hint="it was removed")
        return found[0]

    def place(self, message_id: MessageId) -> tuple[AgentId, int]:
        """Whose message it is, and its number; also of one that is out of view. Raises: NotFound."""
        return place_of(self._db, self._org_id, message_id)

    def known(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """Those that are taken, also by messages that were removed from view."""
        return set(places_of(self._db, self._org_id, ids))

    def reset_among(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """Those that a reset took out of view."""
        found: dict[AgentId, list[int]] = {}
        for agent_id, seq in places_of(self._db, self._org_id, ids).values():
            found.setdefault(agent_id, []).append(seq)
        reset: set[MessageId] = set()
        for agent_id, seqs in found.items():
            source, condition, params = self._db.select_numbers("messages", "seq", "seqs", seqs)
            rows = self._db.rows(
                f"SELECT id FROM {source} WHERE agent_id = :agent_id AND {condition}"
                f" AND (removed = 2 OR removed = 0 AND {being_reset('messages')})",
                {"agent_id": agent_id, **params},
            )
            reset |= {MessageId(row[0]) for row in rows}
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
        engine_kinds: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page in order of `seq`; the engine's own messages are left out unless asked for, and so are those that a
        `reset` took out of view."""
        where, params = listed(agent_id, conversation_seq, after_seq, before_seq)
        if not engine_kinds:
            where += " AND kind IN ('message', 'approval')"
        order = "DESC" if newest_first else "ASC"
        return self._read(
            f"{where} AND {shown(reset)} ORDER BY seq {order} LIMIT :limit",
            params | {"limit": limit},
            of_conversation=conversation_seq is not None,
        )

    def view(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        from_seq: int,
        upto_seq: int,
        settings_revision: int | None = None,
    ) -> Sequence[Message]:
        """Every row of a conversation in [from_seq, upto_seq], the engine's own included: what a model is shown. With a
        settings revision, as it was shown then, whatever was revised or removed since."""
        where = "agent_id = :agent_id AND conversation_seq = :conversation AND seq >= :from_seq AND seq <= :upto_seq"
        params = {"agent_id": agent_id, "conversation": conversation_seq, "from_seq": from_seq, "upto_seq": upto_seq}
        if settings_revision is None:
            return self._read(f"{where} AND {SHOWN} ORDER BY seq", params, of_conversation=True)
        sql = f"SELECT {COLUMNS} FROM messages{self._db.conversation_index} WHERE {OWN_AGENT} AND {where} ORDER BY seq"
        rows = map(message_of, self._db.rows(sql, params | {"org_id": self._org_id}))
        shown = (as_of_settings(self._db, row, settings_revision) if row.revision else row for row in rows)
        return [message for message in shown if message is not None]

    def of_run(self, run: Run, *, reset: bool = False) -> Sequence[Message]:
        """The run's input and everything that followed from it; what a `reset` took out of view is left out unless
        asked for."""
        # By the conversation's index, from the run's first message to the next run's. An index by run would cost every
        # message something for the sake of runs long ended.
        until = f" AND {BEFORE_NEXT_RUN}" if run.ended else ""
        # A run that goes on with answered calls begins with those, which stand in the log of the one before.
        of = "run_seq = :run_seq" if run.resumes is None else "run_seq IN (:run_seq, :resumes)"
        return self._read(
            f"agent_id = :agent_id AND conversation_seq = :conversation AND seq >= :first AND {of}"
            f"{until} AND {shown(reset)} ORDER BY seq",
            {
                "agent_id": run.key.agent_id,
                "run_seq": run.key.seq,
                "conversation": run.conversation_seq,
                "first": run.begins_at if run.begins_at is not None else run.first_message_seq or 0,
            }
            | ({"own": run.first_message_seq or 0} if run.ended else {})
            | ({} if run.resumes is None else {"resumes": run.resumes}),
            of_conversation=True,
        )

    def count(self, agent_id: AgentId) -> int:
        """How many messages the agent's history has, the engine's own left out."""
        rows = self._db.rows(
            "SELECT message_count FROM agents WHERE id = :id AND org_id = :org_id",
            {"id": agent_id, "org_id": self._org_id},
        )
        return int(rows[0][0]) if rows else 0

    def count_after(self, agent_id: AgentId, seq: int, *, conversation_seq: int | None = None) -> int:
        """How many of those that `list` gives have higher numbers."""
        where, params = listed(agent_id, conversation_seq, seq, None)
        found = f"{where} AND kind IN ('message', 'approval') AND {SHOWN} AND {OWN_AGENT}"
        index = "" if conversation_seq is None else self._db.conversation_index
        sql = f"SELECT COUNT(*) FROM messages{index} WHERE {found}"
        return int(self._db.rows(sql, params | {"org_id": self._org_id})[0][0])

    def match(self, agent_id: AgentId, query: Query, *, where: MessageFilter, limit: int) -> Matches:
        """Candidates of a full-text search."""
        found = self._db.rows(
            "SELECT number, words_seq, message_seq, EXISTS (SELECT 1 FROM resetting WHERE agent_id = :id) FROM agents"
            " WHERE id = :id AND org_id = :org_id",
            {"id": agent_id, "org_id": self._org_id},
        )
        if not found or not query.clauses:
            return Matches()
        number, words_seq, next_seq, resetting = found[0]
        below = next_seq if where.before_seq is None else min(where.before_seq, next_seq)
        waiting = self._waiting(agent_id, words_seq, below - 1, where) if words_seq < below else ()
        # The index knows roles and numbers, and a removed message is not in it; the rest is asked of the message, also
        # whether a reset took it out of view that is still carried out.
        rest = replace(where, roles=(), before_seq=None)
        conditions, params = conditions_of(rest, "m.")
        if resetting:
            conditions += f" AND NOT {being_reset('m')}"
        return matches(
            self._db,
            "message_words",
            number,
            query,
            limit=limit,
            labels=where.roles,
            below=min(below, words_seq),
            waiting=waiting,
            join="JOIN messages m ON m.agent_id = :agent_id AND m.seq = {key}" if conditions else "",
            conditions=conditions,
            params={"agent_id": agent_id, **params} if conditions else None,
        )

    def _waiting(self, agent_id: AgentId, first: int, last: int, where: MessageFilter) -> Sequence[tuple[int, str]]:
        """Number and words of those between two numbers that the filter lets through, the newest first."""
        conditions, params = conditions_of(where)
        rows = read_rows(
            self._db,
            f"agent_id = :agent_id AND seq BETWEEN :first AND :last AND {SHOWN}{conditions} ORDER BY seq DESC",
            {"agent_id": agent_id, "first": first, "last": last, **params},
        )
        return [(seq, words) for seq, _, words in filter(None, map(words_of, rows))]

    def next_seq(self, agent_id: AgentId) -> int:
        """The number that the agent's next message will get. Raises: NotFound."""
        rows = self._db.rows(
            "SELECT message_seq FROM agents WHERE id = :id AND org_id = :org_id",
            {"id": agent_id, "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("agent", agent_id)
        return int(rows[0][0])

    def turns(self, agent_id: AgentId, *, from_seq: int, limit: int) -> Sequence[Turn]:
        """What users and assistants said from `from_seq` on, in order; rows without text are left out."""
        # Asked of the stored form as it is: reading it as messages would take ten times as long.
        rows = self._db.rows(
            "SELECT seq, conversation_seq, role, name, occurred_at, LENGTH(parts),"
            " CASE WHEN parts LIKE '%?%' OR parts LIKE '%？%' THEN 1 ELSE 0 END FROM messages"
            f" WHERE {OWN_AGENT} AND agent_id = :agent_id AND seq >= :from_seq AND kind = 'message' AND {SHOWN}"
            " AND role IN ('user', 'assistant') AND parts LIKE '%\"type\":\"text\"%' ORDER BY seq LIMIT :limit",
            {"agent_id": agent_id, "org_id": self._org_id, "from_seq": from_seq, "limit": limit},
        )
        return [
            Turn(
                row[0],
                row[1],
                row[2],
                None if row[3] is None else restore(row[3]),
                from_iso(row[4]).timestamp(),
                max(0, row[5] - _FORM_CHARS),
                bool(row[6]),
            )
            for row in rows
        ]

    def texts(self, agent_id: AgentId, seqs: Sequence[int]) -> dict[int, str]:
        """Number -> text of those that were not removed."""
        if not seqs:
            return {}
        source, condition, params = self._db.select_numbers("messages", "seq", "seqs", seqs)
        rows = self._db.rows(
            f"SELECT seq, parts, revision FROM {source} WHERE {OWN_AGENT} AND agent_id = :agent_id AND {SHOWN}"
            f" AND {condition}",
            {"agent_id": agent_id, "org_id": self._org_id, **params},
        )
        found = {row[0]: row_text(row[1]) for row in rows if not row[2]}
        if revised := [row[0] for row in rows if row[2]]:
            found |= {message.seq: message.text for message in self.by_seqs(agent_id, revised)}
        return found

    def newest(self, agent_id: AgentId, *, where: MessageFilter, limit: int) -> Sequence[Message]:
        conditions, params = conditions_of(where)
        return self._read(
            f"agent_id = :agent_id AND kind = 'message' AND {SHOWN}{conditions} ORDER BY seq DESC LIMIT :limit",
            {"agent_id": agent_id, "limit": limit} | params,
        )

    def by_seqs(self, agent_id: AgentId, seqs: Sequence[int]) -> Sequence[Message]:
        found = read_messages(self._db, self._org_id, agent_id, seqs)
        return [found[seq] for seq in seqs if seq in found]

    def revise(self, message_id: MessageId, parts: Sequence[Part] | None, *, author: Author, at: datetime) -> None:
        """Show other parts from now on, or None to remove from view; the row itself stays.

        Raises: NotFound; InvalidInput: a call or result would be torn from its other half.
        """
        before = self.get(message_id)
        check_same_calls(before, parts)
        params = {"agent_id": before.agent_id, "seq": before.seq}
        revision = before.revision + 1
        # A request that showed the old parts must not be built on: the settings revision makes the prefix new, and
        # tells which of the message's revisions a recorded request showed.
        number, settings_revision, embedded, words_seq = self._db.rows(
            "UPDATE agents SET settings_revision = settings_revision + 1 WHERE id = :id"
            " RETURNING number, settings_revision, embedded, words_seq",
            {"id": before.agent_id},
        )[0]
        row = params | {
            "revision": revision,
            "parts": None if parts is None else storable(parts_to_json(parts)),
            "settings_revision": settings_revision,
            "author_kind": author.kind,
            "author_id": storable(author.id),
            "created_at": iso(at),
        }
        self._db.run(
            "INSERT INTO message_revisions (agent_id, seq, revision, parts, settings_revision, author_kind, author_id,"
            " created_at, checksum) VALUES (:agent_id, :seq, :revision, :parts, :settings_revision, :author_kind,"
            " :author_id, :created_at, :checksum)",
            row | {"checksum": REVISIONS.of(row)},
        )
        self._db.run(
            "UPDATE messages SET revision = :revision, removed = :removed WHERE agent_id = :agent_id AND seq = :seq",
            params | {"revision": revision, "removed": int(parts is None)},
        )
        indexed = before.seq < words_seq
        if indexed and (old := words_of(before)):
            word_index.unindex_words(self._db, "message_words", number, [old])
        after: Message | None = None
        if parts is None:
            self._db.run(
                "UPDATE agents SET message_count = message_count - :said WHERE id = :id",
                {"said": int(before.kind == "message"), "id": before.agent_id},
            )
        elif (new := words_of(after := self.get(message_id))) and indexed:
            word_index.index_words(self._db, "message_words", number, [new])
        if embedded:
            forget_texts(self._db, number, [before.seq])
            if after is not None and is_embedded(after):
                queue_texts(self._db, number, [before.seq])

    def _read(self, where: str, params: dict[str, Any], *, of_conversation: bool = False) -> Sequence[Message]:
        params = params | {"org_id": self._org_id}
        return read_rows(self._db, f"{OWN_AGENT} AND {where}", params, of_conversation=of_conversation)


def read_messages(
    db: Database, org_id: OrgId, agent_id: AgentId, seqs: Sequence[int], *, reset: bool = False
) -> dict[int, Message]:
    """seq -> message, without the removed ones, and without those of before a reset unless asked for."""
    if not seqs:
        return {}
    condition, params = db.in_numbers("seq", "seqs", seqs)
    found = read_rows(
        db,
        f"agent_id = :agent_id AND {condition} AND {shown(reset)} AND {OWN_AGENT}",
        {"agent_id": agent_id, "org_id": org_id, **params},
    )
    return {message.seq: message for message in found}


def _words_seq(db: Database, agent_id: AgentId) -> int:
    rows = db.rows("SELECT words_seq FROM agents WHERE id = :id", {"id": agent_id})
    return int(rows[0][0]) if rows else 0


def indexed_words_of(
    db: Database, agent_id: AgentId, first: int = 0, last: int = 1 << 32, conversation_seq: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """What the full-text index holds of an agent, made again from the messages; also of one conversation. Those that a
    reset took out of view are in it until it is carried out."""
    return message_words_of(db, agent_id, first, min(last, _words_seq(db, agent_id) - 1), conversation_seq)


def message_words_of(
    db: Database, agent_id: AgentId, first: int = 0, last: int = 1 << 32, conversation_seq: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """The full-text rows of an agent's messages, also of those that wait for it."""
    where = "agent_id = :agent_id AND seq BETWEEN :first AND :last AND removed = 0 AND kind = 'message'"
    params: dict[str, Any] = {"agent_id": agent_id, "first": first, "last": last}
    source = "messages"
    if conversation_seq is not None:
        where, params = f"{where} AND conversation_seq = :conversation", params | {"conversation": conversation_seq}
        source += db.conversation_index
    for seq, role, parts, revision in db.rows(f"SELECT seq, role, parts, revision FROM {source} WHERE {where}", params):
        stored = revised_parts(db, agent_id, seq, revision) if revision else parts
        # Parts are made only of what may hold some that search leaves out: most messages are one text.
        words = words_in(parts_of(stored)) if '"tool_result"' in stored else index_words(row_text(stored))
        if words:
            yield seq, role, words


def embedded_texts_of(db: Database, kind: str, owner_id: str, first: int, last: int) -> list[int]:
    """The numbers of an owner's texts that should have a vector."""
    params = {"agent_id": owner_id, "first": first, "last": last}
    if kind == "archive":
        sql = "SELECT seq FROM passages WHERE archive_id = :agent_id AND seq BETWEEN :first AND :last"
        return [row[0] for row in db.rows(sql, params)]
    where = "agent_id = :agent_id AND seq BETWEEN :first AND :last AND removed = 0 AND kind = 'message'"
    return [message.seq for message in read_rows(db, where, params) if is_embedded(message)]
