"""`tx.runs`: the runs of one transaction. Single statements decide which process may work on a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.conversations import ConversationState
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BatchId, RunId, run_of
from perdure.core.messages import Draft
from perdure.core.runs import (
    NO_OPTIONS,
    NO_USAGE,
    Failure,
    Run,
    RunFilter,
    RunKey,
    RunOptions,
    StopReason,
    Usage,
    status_of,
    usage_to_json,
)
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.batches import CALLBACK
from perdure.storage.tables.leases import RELEASED, UNENDED, LeasedTable
from perdure.storage.tables.table import BY_ID, OWN_AGENT, OWN_AGENT_OF, first, locate, register

USAGE = row_format.Codec(usage_to_json, lambda text: Usage(**row_format.load(text)), null=NO_USAGE)
FAILURE = row_format.Codec(row_format.dump_fields, lambda text: Failure(**row_format.load(text)))
_CONTEXT = row_format.JSON_TUPLE._replace(null=())
_OPTIONS = row_format.Codec(
    lambda options: row_format.dump(options.values), lambda text: RunOptions(**row_format.load(text)), null=NO_OPTIONS
)


_RUN = row_format.RowFormat(
    Run,
    {FAILURE: "failure", USAGE: "usage", _CONTEXT: "hook_context", _OPTIONS: "options", CALLBACK: "callback"},
    columns="id, agent_id, seq, conversation_seq, conversation_id, status, stop_reason, failure, background, max_steps,"
    " first_message_seq, lease_owner, lease_number, lease_until, cancel_requested, usage, step_count, created_at,"
    " started_at, ended_at, hook_context, resumes, begins_at, turn_from, input_waits, client_tools, hidden,"
    " options, callback, batch_id",
    attributes={"agent_id": "key.agent_id", "seq": "key.seq", "hook_context": "context"},
    build=lambda agent_id, seq, hook_context, **columns: Run(
        key=RunKey(agent_id, seq), context=hook_context, **columns
    ),
)

_SELECT = f"SELECT {_RUN.columns_of('r')} FROM runs r"
_NEW_COLUMNS = (
    "id, agent_id, seq, conversation_seq, conversation_id, status, background, max_steps, first_message_seq,"
    " lease_owner, lease_number, lease_until, created_at, started_at, options,"
    " batch_id"
)
_INSERT = row_format.insert_into("runs", f"{_NEW_COLUMNS}, org_id, waiting_input, origin_id")

# A run belongs to its agent's organisation. Its own `org_id` is not checked: the runs of a deleted agent keep theirs
# until they are removed.
_OWN_RUN = f"agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}"
_OWN_RUN_OF_R = OWN_AGENT_OF.format("r")

# Only the oldest unended run of a conversation may run. But a run that resumes with answered calls precedes all others,
# and while calls wait for an answer no other run begins. The look-up is by conversation id, and SQLite is told so: by
# the agent's id it would read all the agent's runs instead of the few in the partial index `{unended}`.
_OLDEST = (
    "(r.resumes IS NOT NULL OR NOT (EXISTS (SELECT 1 FROM runs o{unended} WHERE o.agent_id = {agent}"
    " AND o.conversation_id = r.conversation_id AND (o.seq < r.seq OR o.resumes IS NOT NULL) AND o.seq <> r.seq"
    " AND o.status IN ('queued', 'running'))"
    " OR EXISTS (SELECT 1 FROM conversations c WHERE c.agent_id = r.agent_id AND c.seq = r.conversation_seq"
    " AND c.pending_run_seq IS NOT NULL)))"
)
_OF_CONVERSATION = (
    "r.agent_id = :agent_id AND r.conversation_id = (SELECT c.id FROM conversations c"
    f" WHERE c.agent_id = :agent_id AND c.seq = :conversation) AND {OWN_AGENT}"
)


class Runs(LeasedTable[Run]):
    _table, _format, _key, _own, _own_of = "runs", _RUN, "agent_id, seq", _OWN_RUN, _OWN_RUN_OF_R
    _oldest = _OLDEST.replace("{agent}", ":agent_id")

    def add(
        self,
        opening: ConversationState,
        run_id: RunId,
        *,
        drafts: Sequence[Draft] = (),
        at: datetime,
        max_steps: int,
        background: bool = False,
        running: bool = False,
        lease_owner: str | None = None,
        lease_until: datetime | None = None,
        waiting_input: str | None = None,
        options: RunOptions = NO_OPTIONS,
        batch_id: BatchId | None = None,
    ) -> Run:
        """Add a queued run, reserved for the process that accepted it until `lease_until`; or with `running` one that
        this process holds under its first lease.

        Args:
            drafts: the run's input. Their numbers are reserved and their ids registered; the caller appends them.
            waiting_input: the encoded input of a run that waits behind another; it becomes messages at the claim.
        Raises: NotFound: the agent.
        """
        agent_id, conversation = opening.agent.id, opening.conversation
        if not self._run_counted(
            "UPDATE agents SET run_seq = :run_seq + 1, message_seq = :message_seq + :rows,"
            " message_count = message_count + :count, last_run_at = :at WHERE id = :id AND org_id = :org_id",
            id=agent_id,
            run_seq=opening.next_run_seq,
            message_seq=opening.next_message_seq,
            rows=len(drafts),
            count=sum([draft.kind == "message" for draft in drafts]),
            at=row_format.iso(at),
        ):
            raise NotFound("agent", agent_id)
        run = Run(
            id=run_id,
            key=RunKey(agent_id, opening.next_run_seq),
            conversation_seq=conversation.seq,
            conversation_id=conversation.id,
            status="running" if running else "queued",
            background=background,
            max_steps=max_steps,
            first_message_seq=opening.next_message_seq if waiting_input is None else None,
            lease_owner=lease_owner,
            lease_number=int(running),
            lease_until=lease_until,
            created_at=at,
            started_at=at if running else None,
            options=options,
            batch_id=batch_id,
        )
        waiting = None if waiting_input is None else row_format.storable(waiting_input)
        self._run(_INSERT, waiting_input=waiting, origin_id=options.origin, **_RUN.params(run, _NEW_COLUMNS))
        ids = [(one.id, seq) for seq, one in enumerate(drafts, opening.next_message_seq) if run_of(one.id) != run_id]
        register(self._db, self._org_id, agent_id, [(run_id, run.key.seq), *ids])
        return run

    def get(self, run_id: RunId, *, hidden: bool = False) -> Run:
        """The run of this id. Raises: NotFound, also for a hidden run, unless `hidden`."""
        agent_id, seq = locate(self._db, self._org_id, "run", run_id)
        run = self.get_by_key(RunKey(AgentId(agent_id), seq))
        if run.hidden and not hidden:
            raise NotFound("run", run_id)
        return run

    def get_by_key(self, key: RunKey) -> Run:
        """The run of this key, also a hidden one. Raises: NotFound."""
        return first([*self.list_by_keys([key]).values()], "agent", key.agent_id)  # its runs go with it

    def list_by_keys(self, keys: Sequence[RunKey]) -> Mapping[RunKey, Run]:
        """Key -> run; a key that no run has is left out."""
        sql = f"SELECT r.agent_id, r.seq, {_RUN.columns_of('r')} FROM runs r WHERE {{keys}} AND {_OWN_RUN_OF_R}"
        found = _RUN.read_each(self._rows_of_each(sql, "r.agent_id = ? AND r.seq = ?", keys))
        return {run.key: run for runs in found.values() for run in runs}

    def list_newest(self, agent_ids: Sequence[AgentId], *, limit: int) -> Mapping[AgentId, Sequence[Run]]:
        """Agent -> its newest `limit` runs, newest first."""
        sql = (
            f"SELECT r.agent_id, {_RUN.columns_of('r')} FROM agents a CROSS JOIN runs r WHERE {{keys}}"
            f" AND {BY_ID.format('a.')} AND r.agent_id = a.id AND r.seq >= a.run_seq - :limit ORDER BY r.seq DESC"
        )
        return _RUN.read_each(self._rows_of_each(sql, "a.id", agent_ids, limit=limit))

    def count_by_origin(self, origin: RunId) -> int:
        """How many runs were caused, through messages between agents, by this run."""
        sql = f"SELECT COUNT(*) FROM runs r WHERE r.origin_id = :origin AND {_OWN_RUN_OF_R}"
        return int(self._value(sql, origin=origin))

    def list_by_origin(self, origin: RunId) -> Sequence[Run]:
        """The runs that were caused, through messages between agents, by this run, oldest first."""
        return self._read("r.origin_id = :origin ORDER BY r.created_at, r.id", origin=origin)

    def list(self, agent_id: AgentId, *, limit: int = 100, before_seq: int | None = None) -> Sequence[Run]:
        """The runs of an agent, newest first."""
        where = Conditions("r.agent_id = :agent_id")
        where.add("r.seq < ?", before_seq)
        return self._read(f"{where} ORDER BY r.seq DESC LIMIT :limit", agent_id=agent_id, limit=limit, **where.params)

    def page(
        self,
        where: RunFilter,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: Run | datetime | None = None,
        before: Run | datetime | None = None,
    ) -> Sequence[Run]:
        """Return a page of the matching runs: by number for one agent, by time for several. With `before` alone the
        page ends there. A time as cursor stands before all runs of that time."""
        # One agent's runs are in the order of their numbers. Several agents have no number in common: time decides.
        columns = ("r.seq",) if len(where.agent_ids) == 1 else ("r.created_at", "r.agent_id", "r.seq")
        places = [None if place is None else _list_position(place)[-len(columns) :] for place in (after, before)]
        return self._page(_RUN, _SELECT, _conditions(where), columns, places, ascending=not newest_first, limit=limit)

    def find_active(self, agent_id: AgentId, conversation_seq: int) -> Run | None:
        """The only run of a conversation that may be claimed: one that goes on with answered calls, else the oldest
        that has not ended, unless calls wait for an answer."""
        where = f"{_OF_CONVERSATION} AND r.{UNENDED} ORDER BY r.resumes IS NULL, r.seq LIMIT 1"
        runs = self._read(where, index="runs_unended", agent_id=agent_id, conversation=conversation_seq)
        return runs[0] if runs else None

    def list_oldest(self, *, free_at: datetime | None = None, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation, oldest first, those of the same moment by agent and number.
        `free_at`: only those without a lease that holds at this time."""
        free = "" if free_at is None else " AND (r.lease_until IS NULL OR r.lease_until < :at)"
        oldest = _OLDEST.format(agent="r.agent_id", unended=self._db.by_index("runs_unended"))
        sql = f"r.{UNENDED}{free} AND {oldest} ORDER BY r.created_at, r.agent_id, r.seq LIMIT :limit"
        return self._read(sql, at=free_at and row_format.iso(free_at), limit=limit)

    def give_back(self, key: RunKey, owner: str) -> bool:
        """Release one run, if the process `owner` has claimed it; return whether it had."""
        self._db.signal("runs")
        sql = f"UPDATE runs SET {RELEASED} WHERE {_OWN_RUN} AND lease_owner = :owner"
        return bool(self._run_counted(f"{sql} AND {UNENDED}", owner=owner, **key._asdict()))

    def begin_input(self, key: RunKey, *, first_message_seq: int | None) -> None:
        """Set the number of the run's first message; None: its input is dropped."""
        self._set("runs", key._asdict(), first_message_seq=first_message_seq, waiting_input=None, input_waits=0)

    def waiting_input(self, key: RunKey) -> str | None:
        """The encoded input of a run that waits behind another; None: it is in the log, or there is no such run."""
        text = self._value(f"SELECT waiting_input FROM runs WHERE {_OWN_RUN}", **key._asdict())
        return None if text is None else row_format.restore(text)

    def resume(
        self,
        run: Run,
        *,
        resumes: int,
        begins_at: int,
        turn_from: int,
        answer: Mapping[str, Any],
        waiting_input: str | None,
    ) -> Run:
        """Turn a new run into one that continues another, which stopped at calls that are answered now; return it.

        Args:
            resumes: the number of the run that stopped.
            begins_at: the number of the message with the calls; `turn_from`: see `Run`.
            answer: the answers; `waiting_input`: the encoded messages that came with them.
        """
        resumed = replace(
            run, resumes=resumes, begins_at=begins_at, turn_from=turn_from, input_waits=waiting_input is not None
        )
        waiting = None if waiting_input is None else row_format.storable(waiting_input)
        columns = _RUN.params(resumed, "resumes, begins_at, turn_from, input_waits")
        self._set("runs", run.key._asdict(), answer=row_format.dump(answer), waiting_input=waiting, **columns)
        return resumed

    def answers(self, agent_id: AgentId, conversation_seq: int, *, limit: int) -> Sequence[tuple[RunKey, Any]]:
        """(key, answers) of the runs of a conversation that resumed with answers, newest first."""
        rows = self._rows(
            f"SELECT r.seq, r.answer FROM runs r{self._db.by_index('runs_resuming')} WHERE {_OF_CONVERSATION}"
            " AND r.resumes IS NOT NULL ORDER BY r.seq DESC LIMIT :limit",
            agent_id=agent_id,
            conversation=conversation_seq,
            limit=limit,
        )
        return [(RunKey(agent_id, row[0]), row_format.load(row[1])) for row in rows]

    def put_client_tools(self, run: Run, digest: str, tools: Sequence[Mapping[str, Any]]) -> Run:
        """Store the tools that the caller of a new run executes, each set once per agent; return the run."""
        self._run(
            f"INSERT INTO client_tools (agent_id, digest, tools) SELECT :agent_id, :digest, :tools WHERE {OWN_AGENT}"
            " ON CONFLICT (agent_id, digest) DO NOTHING",
            agent_id=run.key.agent_id,
            digest=digest,
            tools=row_format.dump(list(tools)),
        )
        self._set("runs", run.key._asdict(), client_tools=digest)
        return replace(run, client_tools=digest)

    def client_tools(self, agent_id: AgentId, digest: str) -> Sequence[Mapping[str, Any]]:
        """The set of client tools with this digest; empty if there is none."""
        sql = f"SELECT tools FROM client_tools WHERE agent_id = :agent_id AND digest = :digest AND {OWN_AGENT}"
        return list(row_format.load(self._value(sql, agent_id=agent_id, digest=digest) or "[]"))

    def set_context(self, run: Run, context: Sequence[str]) -> Run:
        """Replace the texts that hooks add to the run's next request; return the run with them."""
        self._set("runs", run.key._asdict(), hook_context=_CONTEXT.store(context))
        return replace(run, context=tuple(context))

    def spend(self, key: RunKey, usage: Usage) -> None:
        """Add what was used for a run outside its steps to its usage."""
        self._set("runs", key._asdict(), usage=usage_to_json(self.get_by_key(key).usage + usage))

    def end(
        self, run: Run, *, reason: StopReason, usage: Usage, step_count: int, failure: Failure | None, at: datetime
    ) -> Run:
        """End a run that this transaction has read. One that has ended already stays as it is. Raises: NotFound."""
        fields: dict[str, Any] = {"status": status_of(reason), "stop_reason": reason, "failure": failure}
        fields |= {"usage": usage, "step_count": step_count}
        return self._end(run, "usage, step_count", at=at, **fields) or self.get_by_key(run.key)

    def cancel_stopped(self, key: RunKey) -> Run:
        """Cancel a run that stopped at calls which still wait; other runs stay as they are. Raises: NotFound."""
        self._run(
            "UPDATE runs SET status = 'cancelled', stop_reason = 'cancelled'"
            f" WHERE {_OWN_RUN} AND stop_reason = 'requires_approval'",
            **key._asdict(),
        )
        return self.get_by_key(key)

    def remember_key(self, key: RunKey, conversation_seq: int, idempotency_key: str, *, digest: str) -> None:
        """Store the key of a run, with its input's digest; another run of the conversation loses the same key."""
        self._run(
            "INSERT INTO idempotency_keys (agent_id, conversation_seq, idempotency_key, run_seq, digest)"
            f" SELECT agent_id, :conversation, :key, seq, :digest FROM runs WHERE {_OWN_RUN}"
            " ON CONFLICT (agent_id, conversation_seq, idempotency_key)"
            " DO UPDATE SET run_seq = excluded.run_seq, digest = excluded.digest",
            conversation=conversation_seq,
            key=row_format.storable(idempotency_key),
            digest=digest,
            **key._asdict(),
        )

    def find_by_key(self, agent_id: AgentId, conversation_seq: int, idempotency_key: str) -> tuple[Run, str] | None:
        """(run with this idempotency key, digest of its input); None: there is none."""
        rows = self._rows(
            "SELECT run_seq, digest FROM idempotency_keys WHERE agent_id = :agent_id"
            f" AND conversation_seq = :conversation AND idempotency_key = :key AND {OWN_AGENT}",
            agent_id=agent_id,
            conversation=conversation_seq,
            key=row_format.storable(idempotency_key),
        )
        return (self.get_by_key(RunKey(agent_id, rows[0][0])), rows[0][1]) if rows else None

    def start_calls(self, run: Run, call_ids: Sequence[str], *, at: datetime) -> None:
        """Store that calls of a run, to tools outside the store, are about to begin under its lease."""
        for call_id in call_ids:
            self._run(
                "INSERT INTO call_starts (agent_id, run_seq, call_id, lease_number, started_at)"
                f" SELECT agent_id, seq, :call_id, :lease, :at FROM runs WHERE {_OWN_RUN}",
                call_id=row_format.storable(call_id),
                lease=run.lease_number,
                at=row_format.iso(at),
                **run.key._asdict(),
            )

    def hide(self, key: RunKey) -> None:
        """Hide a run from lists and look-ups by id."""
        self._set("runs", key._asdict(), hidden=1)

    def get_call_starts(self, key: RunKey) -> Mapping[str, tuple[datetime, int]]:
        """Id of a call -> (when it was last started, number of the lease under which it was)."""
        rows = self._rows(
            "SELECT call_id, MAX(started_at), MAX(lease_number) FROM call_starts WHERE agent_id = :agent_id"
            f" AND run_seq = :seq AND {OWN_AGENT} GROUP BY call_id",
            **key._asdict(),
        )
        return {row_format.restore(row[0]): (row_format.from_iso(row[1]), row[2]) for row in rows}

    def _read(self, where: str, *, index: str = "", **params: Any) -> Sequence[Run]:
        """The runs `r` for which `where` is true: SQL, with any ORDER BY and LIMIT; `index`: the index to use."""
        sql = f"{_SELECT}{index and self._db.by_index(index)} WHERE {_OWN_RUN_OF_R} AND {where}"
        return self._all(_RUN, sql, **params)


def _list_position(cursor: Run | datetime) -> tuple[str, str, int]:
    """Return a run's position among all agents' runs: (time, agent, number); a time is before its runs."""
    if isinstance(cursor, datetime):
        return row_format.iso(cursor), "", -1
    return row_format.iso(cursor.created_at), *cursor.key


def _conditions(where: RunFilter) -> Conditions:
    """The conditions of a filter, on the table `runs r`."""
    conditions = Conditions(_OWN_RUN_OF_R, "r.hidden = 0")
    conditions.among("r.agent_id", where.agent_ids or None)
    conditions.among("r.status", where.statuses or None)
    conditions.equal("r.conversation_id", where.conversation_id)
    conditions.equal("r.conversation_seq", where.conversation_seq)
    conditions.equal("r.stop_reason", where.stop_reason)
    conditions.equal("r.background", where.background)
    conditions.equal("r.batch_id", where.batch_id)
    if where.waiting:
        conditions.equal("r.stop_reason", "requires_approval")
        conditions.clauses.append(
            "EXISTS (SELECT 1 FROM conversations c WHERE c.agent_id = r.agent_id AND c.seq = r.conversation_seq"
            " AND c.pending_run_seq = r.seq)"
        )
    model = None if where.model is None else row_format.storable(where.model)
    steps = "SELECT 1 FROM steps s WHERE s.agent_id = r.agent_id AND s.run_seq = r.seq AND s.model = ?"
    conditions.add(f"EXISTS ({steps})", model)
    conditions.add("r.created_at >= ?", where.since and row_format.iso(where.since))
    conditions.add("r.created_at < ?", where.until and row_format.iso(where.until))
    return conditions
