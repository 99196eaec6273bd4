"""`tx.passes`: the passes of companions; `tx.queues`: how much work waits, for those who watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.features import feature_tables
from perdure.core.groups.group import Pass, PassOutcome
from perdure.core.ids import AgentId, GroupId, MessageId, RunId
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import FLAG, TIME, RowFormat, insert_into, iso
from perdure.storage.tables.table import OWN_AGENT, Table, own_agent

_PASS = RowFormat(
    Pass,
    "agent_id, number, group_id, companion_id, cause, from_seq, upto_seq, last_message_id, upto_run_seq, is_full,"
    " failures, run_id, outcome, created_at, ended_at",
    {FLAG: "is_full", TIME: "created_at ended_at"},
)
_SELECT = f"SELECT {_PASS.columns_of('p')} FROM companion_passes p"
_OWN = "EXISTS (SELECT 1 FROM agents a WHERE a.id = p.agent_id AND a.org_id = :org_id)"
RUNS_MAX = 10_000
"""The newest runs of an agent among which its turns are counted."""


class Passes(Table):
    def add(self, pass_: Pass) -> Pass:
        """Add a pass, and return it with its number. The caller has locked the agent. Raises: NotFound: the agent."""
        rows = self._rows(
            "SELECT COALESCE(MAX(number), 0) + 1 FROM companion_passes WHERE agent_id = :agent_id",
            agent_id=own_agent(self._db, self._org_id, pass_.agent_id),
        )
        pass_ = replace(pass_, number=int(rows[0][0]))
        self._run(insert_into("companion_passes", _PASS.columns), **_PASS.params(pass_))
        return pass_

    def end(self, pass_: Pass, outcome: PassOutcome, *, at: datetime) -> Pass | None:
        """End a pass, and return it as it is stored; None: it has ended already, or is gone with its agent."""
        return self._one(
            _PASS,
            "UPDATE companion_passes SET outcome = :outcome, ended_at = :at"
            " WHERE agent_id = :agent_id AND number = :number AND ended_at IS NULL"
            f" AND {OWN_AGENT} RETURNING {_PASS.columns}",
            outcome=outcome,
            at=iso(at),
            agent_id=pass_.agent_id,
            number=pass_.number,
        )

    def ask(self, pass_: Pass) -> Pass:
        """Note that a person asks for a pass that goes on."""
        self._run(
            "UPDATE companion_passes SET cause = 'request'"
            f" WHERE agent_id = :agent_id AND number = :number AND ended_at IS NULL AND {OWN_AGENT}",
            agent_id=pass_.agent_id,
            number=pass_.number,
        )
        return replace(pass_, cause="request")

    def narrow(self, pass_: Pass, *, upto_seq: int, last_message_id: MessageId) -> Pass:
        """Have a pass that goes on read fewer messages than it began with."""
        self._run(
            "UPDATE companion_passes SET upto_seq = :upto_seq, last_message_id = :last_message_id, is_full = 1"
            f" WHERE agent_id = :agent_id AND number = :number AND ended_at IS NULL AND {OWN_AGENT}",
            upto_seq=upto_seq,
            last_message_id=last_message_id,
            agent_id=pass_.agent_id,
            number=pass_.number,
        )
        return replace(pass_, upto_seq=upto_seq, last_message_id=last_message_id, is_full=True)

    def find_last(self, agent_id: AgentId, group_id: GroupId) -> Pass | None:
        """The newest pass of a group."""
        found = self._read("p.agent_id = :agent_id AND p.group_id = :group_id", 1, agent_id=agent_id, group_id=group_id)
        return found[0] if found else None

    def find_by_run(self, run_id: RunId) -> Pass | None:
        """The pass whose run this is."""
        found = self._read("p.run_id = :run_id", 1, run_id=run_id)
        return found[0] if found else None

    def list(
        self, agent_id: AgentId, *, limit: int, before: int | None = None, since: datetime | None = None
    ) -> Sequence[Pass]:
        """The passes for an agent, newest first: those with a number below `before`, that ended after `since`."""
        where = Conditions("p.agent_id = :agent_id")
        where.add("p.number < ?", before)
        where.add("p.ended_at > ?", since and iso(since))
        return self._read(str(where), limit, agent_id=agent_id, **where.params)

    def list_unended(self, *, limit: int, until: datetime | None = None) -> Sequence[Pass]:
        """Passes of all agents that go on, oldest first; only those that began before `until`."""
        where = Conditions("p.ended_at IS NULL", _OWN)
        where.add("p.created_at < ?", until and iso(until))
        order = "p.created_at, p.agent_id, p.number"
        return self._all(_PASS, f"{_SELECT} WHERE {where} ORDER BY {order} LIMIT :limit", limit=limit, **where.params)

    def list_apart(self, agent_id: AgentId) -> frozenset[int]:
        """The numbers of the agent's conversations that have blocks of their own: what is said there is not meant for
        the blocks of the others. Working notes don't count."""
        rows = self._rows(
            "SELECT DISTINCT conversation_seq FROM conversation_blocks"
            f" WHERE agent_id = :agent_id AND label <> :notes AND {OWN_AGENT}",
            agent_id=agent_id,
            notes=WORKING_CHECKPOINT,
        )
        return frozenset(row[0] for row in rows)

    def count_turns(self, agent_id: AgentId, *, from_seq: int, after_run_seq: int) -> int:
        """How many runs of the agent were answered whose messages begin at `from_seq` or later, in conversations that a
        companion reads."""
        rows = self._rows(
            "SELECT r.conversation_seq, COUNT(*) FROM (SELECT conversation_seq, first_message_seq, status, stop_reason"
            " FROM runs WHERE agent_id = :agent_id AND seq > :after ORDER BY seq DESC LIMIT :most) r"
            " WHERE r.first_message_seq >= :from_seq AND r.status = 'completed'"
            f" AND r.stop_reason <> 'requires_approval' AND {OWN_AGENT} GROUP BY r.conversation_seq",
            agent_id=agent_id,
            after=after_run_seq,
            from_seq=from_seq,
            most=RUNS_MAX,
        )
        apart = self.list_apart(agent_id) if rows else frozenset()
        return sum(row[1] for row in rows if row[0] not in apart)

    def last_run_seq(self, agent_id: AgentId) -> int:
        """The number of the agent's newest run; -1: it has none."""
        sql = "SELECT run_seq - 1 FROM agents WHERE id = :agent_id AND org_id = :org_id"
        rows = self._rows(sql, agent_id=agent_id)
        return int(rows[0][0]) if rows else -1

    def _read(self, where: str, limit: int, **params: object) -> Sequence[Pass]:
        """Passes, newest first."""
        sql = f"{_SELECT} WHERE {where} AND {_OWN} ORDER BY p.number DESC LIMIT :limit"
        return self._all(_PASS, sql, limit=limit, **params)


COUNT_MAX = 10_000
"""How far a queue is counted: it is asked every few seconds, and what is longer is too long anyway."""

_OWN_AGENT = "EXISTS (SELECT 1 FROM agents a WHERE a.id = t.agent_id AND a.org_id = :org_id)"
_QUEUES: Mapping[str, str] = {
    "embeddings": "embedding_queue t WHERE EXISTS"
    " (SELECT 1 FROM vector_scopes s WHERE s.number = t.number AND s.org_id = :org_id)",
    "files": "files t WHERE t.org_id = :org_id AND t.status NOT IN ('completed', 'error', 'deleted')",
    "runs_queued": f"runs t WHERE t.status = 'queued' AND {_OWN_AGENT}",
    "runs_running": f"runs t WHERE t.status = 'running' AND {_OWN_AGENT}",
    **{
        name: f"{table.name} t WHERE {condition} AND {_OWN_AGENT}"
        for table in feature_tables()
        for name, condition in table.queues.items()
    },
    "callbacks": f"runs t WHERE t.callback_due_at <= :at AND t.status NOT IN ('queued', 'running') AND {_OWN_AGENT}",
}
"""Queue -> the rows that are in it. The indexes of their workers serve them."""


class Queues(Table):
    """The lengths of the organisation's queues."""

    def lengths(self, *, at: datetime) -> Mapping[str, int]:
        """Queue -> how many wait in it, at most `COUNT_MAX`. Schedules and reports count from when they are due."""
        lengths = {}
        for name, rows in _QUEUES.items():
            times = {"at": iso(at)} if ":at" in rows else {}
            counted = f"SELECT COUNT(*) FROM (SELECT 1 FROM {rows} LIMIT {COUNT_MAX}) c"
            lengths[name] = int(self._rows(counted, **times)[0][0])
        return lengths
