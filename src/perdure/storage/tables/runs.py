"""`tx.runs`: the runs of one transaction. Single statements decide which process may work on a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.conversations import ConversationState
from perdure.core.errors import LeaseLost, NotFound
from perdure.core.ids import AgentId, OrgId, RunId, run_of
from perdure.core.messages import Draft
from perdure.core.runs import (
    Failure,
    Run,
    RunFilter,
    RunKey,
    StopReason,
    Usage,
    status_of,
    usage_to_json,
)
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, OwnId, dump, from_iso, iso, load, locate, register
from perdure.storage.tables.run_rows import RUN_COLUMNS, load_usage, run_conditions, run_of_row

_COLUMNS_OF_R = ", ".join(f"r.{column.strip()}" for column in RUN_COLUMNS.split(","))
# A run belongs to its agent's organisation. Its own `org_id` is not checked: the runs of a deleted agent keep theirs
# until they are removed.
_OWN_RUN = f"agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}"
_OWN_RUN_OF_R = "EXISTS (SELECT 1 FROM agents a WHERE a.id = r.agent_id AND a.org_id = :org_id)"

_UNENDED = "status IN ('queued', 'running')"

# Only the oldest unended run of a conversation may run. But a run that resumes with answered calls precedes all others,
# and while calls wait for an answer no other run begins. The look-up is by conversation id: by the agent's id SQLite
# would read all the agent's runs instead of the few in the partial index.
_OLDEST = (
    "(r.resumes IS NOT NULL OR NOT (EXISTS (SELECT 1 FROM runs o WHERE o.conversation_id = r.conversation_id"
    " AND (o.seq < r.seq OR o.resumes IS NOT NULL) AND o.seq <> r.seq AND o.status IN ('queued', 'running'))"
    " OR EXISTS (SELECT 1 FROM conversations c WHERE c.agent_id = r.agent_id AND c.seq = r.conversation_seq"
    " AND c.pending_run_seq IS NOT NULL)))"
)


_INSERT_WITH_INPUT = (
    "INSERT INTO runs (agent_id, seq, id, org_id, conversation_seq, conversation_id, status, background, max_steps,"
    " first_message_seq, waiting_input, lease_owner, lease_number, lease_until, created_at, started_at) VALUES"
    " (:agent_id, :seq, :id, :org_id, :conversation_seq, :conversation_id, :status, :background, :max_steps, :first,"
    " :waiting_input, :lease_owner, :lease_number, :lease_until, :at, :started_at)"
)
# Without the nullable column: a None parameter takes as long as ten others.
_INSERT_WITHOUT_INPUT = _INSERT_WITH_INPUT.replace(" waiting_input,", "").replace(" :waiting_input,", "")


class Runs:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(
        self,
        opening: ConversationState,
        run_id: RunId,
        *,
        drafts: Sequence[Draft] = (),
        at: datetime,
        max_steps: int,
        background: bool,
        running: bool = False,
        lease_owner: str | None,
        lease_until: datetime | None,
        waiting_input: str | None,
    ) -> Run:
        """Add a queued run, reserved for the process that accepted it until `lease_until`; or with `running` one that
        this process holds under its first lease.

        Args:
            drafts: the run's input. Their numbers are reserved and their ids registered; the caller appends them.
            waiting_input: the encoded input of a run that waits behind another; it becomes messages at the claim.
        Raises: NotFound: the agent.
        """
        agent_id, conversation = opening.agent.id, opening.conversation
        advanced = self._db.run(
            "UPDATE agents SET run_seq = :run_seq + 1, message_seq = :message_seq + :rows,"
            " message_count = message_count + :said, last_run_at = :at WHERE id = :id AND org_id = :org_id",
            {
                "id": agent_id,
                "org_id": self._org_id,
                "run_seq": opening.next_run_seq,
                "message_seq": opening.next_message_seq,
                "rows": len(drafts),
                "said": sum([draft.kind == "message" for draft in drafts]),
                "at": iso(at),
            },
        )
        if not advanced:
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
        )
        self._db.run(
            _INSERT_WITHOUT_INPUT if waiting_input is None else _INSERT_WITH_INPUT,
            {
                "agent_id": agent_id,
                "seq": run.key.seq,
                "id": run_id,
                "org_id": self._org_id,
                "conversation_seq": conversation.seq,
                "conversation_id": conversation.id,
                "status": run.status,
                "background": int(background),
                "max_steps": max_steps,
                "first": run.first_message_seq,
                "waiting_input": None if waiting_input is None else storable(waiting_input),
                "lease_owner": lease_owner,
                "lease_number": run.lease_number,
                "lease_until": None if lease_until is None else iso(lease_until),
                "at": iso(at),
                "started_at": iso(at) if running else None,
            },
        )
        input_ids = [(draft.id, opening.next_message_seq + index) for index, draft in enumerate(drafts)]
        others = [one for one in input_ids if run_of(one[0]) != run_id]
        register(self._db, self._org_id, agent_id, [(run_id, run.key.seq), *others])
        return run

    def get(self, run_id: RunId) -> Run:
        """Raises: NotFound."""
        agent_id, seq = locate(self._db, self._org_id, "run", run_id)
        return self.at(RunKey(AgentId(agent_id), seq))

    def at(self, key: RunKey) -> Run:
        """Raises: NotFound."""
        rows = self._read("r.agent_id = :agent_id AND r.seq = :seq", self._own(key))
        if not rows:
            raise NotFound("run", f"{key.seq} of {key.agent_id}")
        return rows[0]

    def list(self, agent_id: AgentId, *, limit: int = 100, before_seq: int | None = None) -> Sequence[Run]:
        """The runs of an agent, newest first."""
        older = "" if before_seq is None else "AND r.seq < :before"
        return self._read(
            f"r.agent_id = :agent_id {older} ORDER BY r.seq DESC LIMIT :limit",
            {"agent_id": agent_id, "limit": limit} | ({} if before_seq is None else {"before": before_seq}),
        )

    def page(
        self,
        where: RunFilter,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: Run | None = None,
        before: Run | None = None,
    ) -> Sequence[Run]:
        """A page of the runs of all agents, in the order asked for: by number for one agent, by time for several.

        `after` and `before` are relative to that order; with `before` alone the page leads up to it.
        """
        # One agent's runs are in the order of their numbers. Several agents have no number in common: time decides.
        columns = ("r.seq",) if len(where.agent_ids) == 1 else ("r.created_at", "r.agent_id", "r.seq")
        conditions, params = run_conditions(where)
        backwards = before is not None and after is None
        for name, run, following in (("after", after, True), ("before", before, False)):
            if run is not None:
                place = (run.key.seq,) if len(columns) == 1 else (iso(run.created_at), run.key.agent_id, run.key.seq)
                names = [f"{name}{index}" for index in range(len(place))]
                sign = "<" if following == newest_first else ">"
                conditions.append(f"({', '.join(columns)}) {sign} ({', '.join(f':{one}' for one in names)})")
                params |= dict(zip(names, place, strict=True))
        direction = "DESC" if newest_first != backwards else "ASC"
        order = ", ".join(f"{column} {direction}" for column in columns)
        runs = self._read(
            f"{' AND '.join(conditions) or '1 = 1'} ORDER BY {order} LIMIT :limit", params | {"limit": limit}
        )
        return runs[::-1] if backwards else runs

    def active(self, agent_id: AgentId, conversation_seq: int) -> Run | None:
        """The only run of a conversation that may be claimed: one that goes on with answered calls, else the oldest
        that has not ended, unless calls wait for an answer."""
        # Most often there is none, and a statement takes its time by the columns it names, found or not.
        found = self._db.rows(
            "SELECT r.seq FROM runs r WHERE r.conversation_id = (SELECT c.id FROM conversations c"
            f" WHERE c.agent_id = :agent_id AND c.seq = :conversation) AND r.{_UNENDED} AND {OWN_AGENT}"
            " ORDER BY r.resumes IS NULL, r.seq LIMIT 1",
            {"agent_id": agent_id, "conversation": conversation_seq, "org_id": self._org_id},
        )
        return self.at(RunKey(agent_id, found[0][0])) if found else None

    def claimable(self, *, at: datetime, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation whose lease has run out, or is held by nobody; the oldest first,
        those of the same moment by agent and number."""
        return self._read(
            f"r.{_UNENDED} AND (r.lease_until IS NULL OR r.lease_until < :at) AND {_OLDEST}"
            " ORDER BY r.created_at, r.agent_id, r.seq LIMIT :limit",
            {"at": iso(at), "limit": limit},
        )

    def held(self, *, limit: int = 32) -> Sequence[Run]:
        """The oldest unended run of every conversation, whoever holds it; in the same order."""
        return self._read(
            f"r.{_UNENDED} AND {_OLDEST} ORDER BY r.created_at, r.agent_id, r.seq LIMIT :limit",
            {"limit": limit},
        )

    # A reservation made at acceptance is the holder's own to claim; a running lease, also of the same owner, must have
    # run out, or its holder be known as gone.
    _CLAIM = f"""
        UPDATE runs AS r SET status = 'running', lease_owner = :owner, lease_number = lease_number + 1,
            lease_until = :until, started_at = COALESCE(started_at, :at)
        WHERE r.agent_id = :agent_id AND r.seq = :seq AND r.{_UNENDED} AND {_OLDEST}
          AND {OWN_AGENT}
          AND (r.lease_owner IS NULL OR r.lease_until < :at OR (r.lease_owner = :owner AND r.status = 'queued')
               OR r.lease_owner = :dead_owner)
        RETURNING {RUN_COLUMNS}
    """

    def claim(
        self, key: RunKey, *, owner: str, at: datetime, until: datetime, dead_owner: str | None = None
    ) -> Run | None:
        """Claim a run under a new lease of `owner`. None: it has ended, is not the oldest of its conversation, or
        another lease holds. `dead_owner`: a process known to be dead, whose lease does not count."""
        rows = self._db.rows(
            self._CLAIM,
            self._own(key) | {"owner": owner, "at": iso(at), "until": iso(until), "dead_owner": dead_owner or ""},
        )
        return run_of_row(rows[0]) if rows else None

    _LEASE_HOLDS = (
        "agent_id = :agent_id AND seq = :seq AND status = 'running' AND lease_owner = :owner"
        f" AND lease_number = :number AND {OWN_AGENT}"
    )

    def hold(self, run: Run, *, until: datetime | None = None) -> Run:
        """Check that the run's lease still holds, and extend it to `until` if given; no other process can claim the run
        within this transaction. The result has what others may have changed since `run` was read.

        Raises: LeaseLost: another lease holds, or the run has ended.
        """
        columns = "cancel_requested, usage, lease_until"
        params = self._own(run.key) | {"owner": run.lease_owner, "number": run.lease_number}
        if until is None:
            rows = self._db.rows(f"SELECT {columns} FROM runs WHERE {self._LEASE_HOLDS}{self._db.for_update}", params)
        else:
            rows = self._db.update(
                "runs", "lease_until = :until", self._LEASE_HOLDS, params | {"until": iso(until)}, returning=columns
            )
        if not rows:
            raise LeaseLost(f"{run.id} is no longer held by {run.lease_owner} ({run.lease_number})")
        cancelled, spent, held_until = rows[0]
        return replace(run, cancel_requested=bool(cancelled), usage=load_usage(spent), lease_until=from_iso(held_until))

    def release(self, owner: str) -> int:
        """Release every unended run that this owner holds or has reserved; return how many."""
        return self._db.run(
            "UPDATE runs AS r SET lease_owner = NULL, lease_until = NULL"
            f" WHERE lease_owner = :owner AND {_UNENDED} AND {_OWN_RUN_OF_R}",
            {"org_id": self._org_id, "owner": owner},
        )

    def begin_input(self, key: RunKey, *, first_message_seq: int) -> None:
        """Set the number of the run's first message."""
        self._db.run(
            f"UPDATE runs SET first_message_seq = :first, waiting_input = NULL, input_waits = 0 WHERE {_OWN_RUN}",
            self._own(key) | {"first": first_message_seq},
        )

    def waiting_input(self, key: RunKey) -> str | None:
        rows = self._db.rows(
            f"SELECT waiting_input FROM runs WHERE {_OWN_RUN}",
            self._own(key),
        )
        return restore(rows[0][0]) if rows and rows[0][0] is not None else None

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
        """Turn a new run into one that resumes with answered calls; see `Run`. `answer` holds the answers,
        `waiting_input` the encoded messages that came with them."""
        self._db.run(
            "UPDATE runs SET resumes = :resumes, begins_at = :begins_at, turn_from = :turn_from, answer = :answer,"
            f" waiting_input = :waiting, input_waits = :waits WHERE {_OWN_RUN}",
            self._own(run.key)
            | {
                "resumes": resumes,
                "begins_at": begins_at,
                "turn_from": turn_from,
                "answer": dump(answer),
                "waiting": None if waiting_input is None else storable(waiting_input),
                "waits": int(waiting_input is not None),
            },
        )
        return replace(
            run,
            resumes=resumes,
            begins_at=begins_at,
            turn_from=turn_from,
            input_waits=waiting_input is not None,
        )

    def answers(self, agent_id: AgentId, conversation_seq: int, *, limit: int) -> Sequence[tuple[RunKey, Any]]:
        """The runs of a conversation that resumed with answers, and these answers; newest first."""
        rows = self._db.rows(
            "SELECT seq, answer FROM runs WHERE conversation_id = (SELECT c.id FROM conversations c"
            " WHERE c.agent_id = :agent_id AND c.seq = :conversation) AND resumes IS NOT NULL"
            f" AND {OWN_AGENT} ORDER BY seq DESC LIMIT :limit",
            {"agent_id": agent_id, "conversation": conversation_seq, "org_id": self._org_id, "limit": limit},
        )
        return [(RunKey(agent_id, row[0]), load(row[1])) for row in rows]

    def put_client_tools(self, run: Run, digest: str, tools: Sequence[Mapping[str, Any]]) -> Run:
        """Store the tools that the caller of a new run executes. Each set is stored once per agent."""
        self._db.run(
            f"INSERT INTO client_tools (agent_id, digest, tools) SELECT :agent_id, :digest, :tools WHERE {OWN_AGENT}"
            " ON CONFLICT (agent_id, digest) DO NOTHING",
            {"agent_id": run.key.agent_id, "digest": digest, "tools": dump(list(tools)), "org_id": self._org_id},
        )
        self._db.run(
            f"UPDATE runs SET client_tools = :digest WHERE {_OWN_RUN}",
            self._own(run.key) | {"digest": digest},
        )
        return replace(run, client_tools=digest)

    def client_tools(self, agent_id: AgentId, digest: str) -> Sequence[Mapping[str, Any]]:
        """The set of client tools with this digest; empty if there is none."""
        rows = self._db.rows(
            f"SELECT tools FROM client_tools WHERE agent_id = :agent_id AND digest = :digest AND {OWN_AGENT}",
            {"agent_id": agent_id, "digest": digest, "org_id": self._org_id},
        )
        found: list[Mapping[str, Any]] = load(rows[0][0]) if rows else []
        return found

    def request_cancel(self, key: RunKey) -> bool:
        """Request a run's end. Whether the run was unended and had no such request yet."""
        return bool(
            self._db.run(
                "UPDATE runs SET cancel_requested = 1 WHERE agent_id = :agent_id AND seq = :seq"
                f" AND cancel_requested = 0 AND {_UNENDED} AND {OWN_AGENT}",
                self._own(key),
            )
        )

    def set_context(self, run: Run, context: Sequence[str]) -> Run:
        """Replace the hooks' context that waits for the run's next request."""
        self._db.run(
            f"UPDATE runs SET hook_context = :context WHERE {_OWN_RUN}",
            self._own(run.key) | {"context": dump(list(context)) if context else None},
        )
        return replace(run, context=tuple(context))

    def spend(self, key: RunKey, usage: Usage) -> None:
        """Add usage from outside the run's steps to its usage."""
        run = self.at(key)
        # The look-up has found the run in this organisation.
        self._db.run(
            "UPDATE runs SET usage = :usage WHERE agent_id = :agent_id AND seq = :seq",
            {"agent_id": OwnId(run.key.agent_id), "seq": run.key.seq, "usage": usage_to_json(run.usage + usage)},
        )

    def end(
        self, run: Run, *, reason: StopReason, usage: Usage, step_count: int, failure: Failure | None, at: datetime
    ) -> Run:
        """End a run that this transaction has read. One that has ended already stays as it is. Raises: NotFound."""
        failure_value = "NULL" if failure is None else ":failure"  # a None parameter takes as long as ten others
        ended = self._db.run(
            f"UPDATE runs SET status = :status, stop_reason = :reason, failure = {failure_value}, usage = :usage,"
            " step_count = :step_count, lease_owner = NULL, lease_until = NULL, ended_at = :at"
            f" WHERE {_OWN_RUN} AND {_UNENDED}",
            self._own(run.key)
            | {
                "status": status_of(reason),
                "reason": reason,
                "failure": dump({"kind": failure.kind, "message": failure.message}) if failure else None,
                "usage": usage_to_json(usage),
                "step_count": step_count,
                "at": iso(at),
            },
        )
        if not ended:
            return self.at(run.key)
        return replace(
            run,
            status=status_of(reason),
            stop_reason=reason,
            failure=failure,
            usage=usage,
            step_count=step_count,
            lease_owner=None,
            lease_until=None,
            ended_at=at,
        )

    def cancel_stopped(self, key: RunKey) -> Run:
        """Cancel a run that stopped at calls which wait for an answer; any other run stays as it is. Raises:
        NotFound."""
        self._db.run(
            "UPDATE runs SET status = 'cancelled', stop_reason = 'cancelled' WHERE agent_id = :agent_id AND seq = :seq"
            f" AND stop_reason = 'requires_approval' AND {OWN_AGENT}",
            self._own(key),
        )
        return self.at(key)

    def remember_key(self, key: RunKey, conversation_seq: int, idempotency_key: str, *, digest: str) -> None:
        self._db.run(
            "INSERT INTO idempotency_keys (agent_id, conversation_seq, idempotency_key, run_seq, digest)"
            " SELECT agent_id, :conversation, :key, seq, :digest FROM runs"
            f" WHERE {_OWN_RUN}",
            self._own(key) | {"conversation": conversation_seq, "key": storable(idempotency_key), "digest": digest},
        )

    def find_by_key(self, agent_id: AgentId, conversation_seq: int, idempotency_key: str) -> tuple[Run, str] | None:
        """The run with this idempotency key, and the digest of its input."""
        rows = self._db.rows(
            "SELECT run_seq, digest FROM idempotency_keys"
            " WHERE agent_id = :agent_id AND conversation_seq = :conversation AND idempotency_key = :key"
            f" AND {OWN_AGENT}",
            {
                "org_id": self._org_id,
                "agent_id": agent_id,
                "conversation": conversation_seq,
                "key": storable(idempotency_key),
            },
        )
        return (self.at(RunKey(agent_id, rows[0][0])), rows[0][1]) if rows else None

    def start_calls(self, run: Run, call_ids: Sequence[str], *, at: datetime) -> None:
        """Record that external calls are about to run under the run's lease."""
        self._db.run_many(
            "INSERT INTO call_starts (agent_id, run_seq, call_id, lease_number, started_at)"
            f" SELECT agent_id, seq, :call_id, :lease, :at FROM runs WHERE {_OWN_RUN}",
            [
                self._own(run.key) | {"call_id": storable(call_id), "lease": run.lease_number, "at": iso(at)}
                for call_id in call_ids
            ],
        )

    def started_calls(self, key: RunKey) -> Mapping[str, int]:
        """call id -> number of the lease under which it was last started."""
        rows = self._db.rows(
            "SELECT call_id, MAX(lease_number) FROM call_starts WHERE agent_id = :agent_id AND run_seq = :seq"
            f" AND {OWN_AGENT} GROUP BY call_id",
            self._own(key),
        )
        return {restore(row[0]): row[1] for row in rows}

    def _own(self, key: RunKey) -> dict[str, Any]:
        return {"agent_id": key.agent_id, "seq": key.seq, "org_id": self._org_id}

    def _read(self, where: str, params: Mapping[str, Any]) -> Sequence[Run]:
        sql = f"SELECT {_COLUMNS_OF_R} FROM runs r WHERE {_OWN_RUN_OF_R} AND {where}"
        return [run_of_row(row) for row in self._db.rows(sql, {**params, "org_id": self._org_id})]
