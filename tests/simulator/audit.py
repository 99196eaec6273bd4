"""What must hold of each transaction of a history, looked at before it is committed.

A history that ends well says little about the way: a run that two processes worked on may look the same as one that was
taken over. So triggers note which rows a transaction touched, and each is judged by who wrote it and when.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from perdure.core.events import Event, RowsCut, RunCancelRequested, RunEnded, ViewCompacted, ViewFull
from perdure.core.ids import AgentId
from perdure.core.runs import Run, RunKey, status_of
from perdure.engine.log.run_log import open_calls_in
from perdure.storage.database.row_format import iso
from perdure.storage.tx import Tx
from tests.simulator.invariants import Violation, check_resets, was_taken_back

_EVERYTHING = 1_000_000

_TRIGGERS = """
CREATE TEMP TABLE touched (what TEXT, agent_id TEXT, number INTEGER, old, new);
CREATE TEMP TRIGGER run_added AFTER INSERT ON main.runs BEGIN
    INSERT INTO touched VALUES ('added', NEW.agent_id, NEW.seq, NULL, NEW.lease_owner);
END;
CREATE TEMP TRIGGER run_changed AFTER UPDATE ON main.runs BEGIN
    INSERT INTO touched VALUES ('changed', NEW.agent_id, NEW.seq,
        json_object('status', OLD.status, 'reason', OLD.stop_reason, 'owner', OLD.lease_owner,
            'number', OLD.lease_number, 'until', OLD.lease_until, 'cancelled', OLD.cancel_requested),
        json_object('status', NEW.status, 'reason', NEW.stop_reason, 'owner', NEW.lease_owner,
            'number', NEW.lease_number, 'until', NEW.lease_until, 'cancelled', NEW.cancel_requested));
END;
CREATE TEMP TRIGGER event_added AFTER INSERT ON main.events BEGIN
    INSERT INTO touched VALUES ('event', NEW.agent_id, NEW.run_seq, NULL, NEW.seq);
END;
CREATE TEMP TRIGGER message_added AFTER INSERT ON main.messages WHEN NEW.run_seq IS NOT NULL BEGIN
    INSERT INTO touched VALUES ('message', NEW.agent_id, NEW.run_seq, NULL, NEW.seq);
END;
CREATE TEMP TRIGGER step_added AFTER INSERT ON main.steps BEGIN
    INSERT INTO touched VALUES ('step', NEW.agent_id, NEW.run_seq, NULL, NEW.lease_number);
END;
CREATE TEMP TRIGGER call_started AFTER INSERT ON main.call_starts BEGIN
    INSERT INTO touched VALUES ('start', NEW.agent_id, NEW.run_seq, NEW.call_id, NEW.lease_number);
END;
CREATE TEMP TRIGGER reset_added AFTER INSERT ON main.resets BEGIN
    INSERT INTO touched VALUES ('reset', NEW.agent_id, NEW.conversation_seq, NULL, NULL);
END;
CREATE TEMP TRIGGER line_changed AFTER UPDATE OF prefix_seq, stubs ON main.conversations BEGIN
    INSERT INTO touched VALUES ('view', NEW.agent_id, NEW.seq, json_array(OLD.prefix_seq, OLD.stubs), NULL);
END;
CREATE TEMP TRIGGER block_edited AFTER INSERT ON main.block_versions WHEN NEW.run_id IS NOT NULL BEGIN
    INSERT INTO touched SELECT 'edit', r.agent_id, r.seq, NULL, NEW.label FROM main.runs r WHERE r.id = NEW.run_id;
END;
"""


@dataclass
class Facts:
    """What is known of a history beside its store; it outlives every process.

    Args:
        dead: the owners that are gone.
        planned: run -> what its newest plan of making room was made of: settings, prefix, stubs.
    """

    dead: set[str] = field(default_factory=set)
    planned: dict[RunKey, Any] = field(default_factory=dict)


@dataclass
class _Touched:
    """What a transaction did to one run."""

    added: bool = False
    changes: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    rows: list[tuple[str, Any, Any]] = field(default_factory=list)


class Audit:
    """The transactions of one process.

    Args:
        connection: of the store that writes them.
        owner: what the process is called in leases.
    """

    def __init__(self, connection: sqlite3.Connection, owner: str, facts: Facts, *, now: Callable[[], Any]) -> None:
        self._connection, self._owner, self._facts, self._now = connection, owner, facts, now
        self.reset = False
        """Whether the last transaction reset a conversation."""
        connection.executescript(_TRIGGERS)

    @contextmanager
    def of(self, tx: Tx) -> Iterator[list[Callable[[], None]]]:
        """Judges what is done to `tx` inside the block; gives what is to be called once it is committed.

        Raises: Violation.
        """
        self._connection.execute("DELETE FROM touched")
        committed: list[Callable[[], None]] = []
        yield committed
        rows = self._connection.execute(
            "SELECT what, agent_id, number, old, new FROM touched ORDER BY rowid"
        ).fetchall()
        runs: defaultdict[RunKey, _Touched] = defaultdict(_Touched)
        views: dict[tuple[AgentId, int], Any] = {}
        resets: set[AgentId] = set()
        for what, agent, number, old, new in rows:
            agent_id = AgentId(agent)
            if what == "reset":
                resets.add(agent_id)
            elif what == "view":
                views.setdefault((agent_id, number), old)
            elif what == "added":
                runs[RunKey(agent_id, number)].added = True
            elif what == "changed":
                runs[RunKey(agent_id, number)].changes.append((json.loads(old), json.loads(new)))
            else:
                runs[RunKey(agent_id, number)].rows.append((what, old, new))
        for key, touched in runs.items():
            self._check_run(tx, key, touched, views, committed)
        self.reset = bool(resets)
        for agent_id in resets:
            check_resets(tx, agent_id)

    def _check_run(
        self,
        tx: Tx,
        key: RunKey,
        touched: _Touched,
        views: Mapping[tuple[AgentId, int], Any],
        committed: list[Callable[[], None]],
    ) -> None:
        run = tx.runs.get_by_key(key)
        events = self._events(tx, key, touched)
        for before, after in touched.changes:
            self._check_claim(run, before, after)
        if not touched.added:
            before = touched.changes[0][0] if touched.changes else _state(run)
            self._check_held(run, before, touched, events)
            self._check_cancelled(run, before, touched)
        for what, _, number in touched.rows:
            if what in ("step", "start") and number != run.lease_number:
                raise Violation(
                    f"a {what} of run {key.seq} has lease {number}, and the run is held by {run.lease_number}"
                )
        if run.ended and any(isinstance(event, RunEnded) for event in events):
            self._check_end(tx, run)
        self._check_plan(tx, run, events, views, committed)

    def _events(self, tx: Tx, key: RunKey, touched: _Touched) -> list[Event]:
        upto = [number for what, _, number in touched.rows if what == "event"]
        if not upto:
            return []
        before = self._connection.execute(
            "SELECT COALESCE(MAX(seq), 0) FROM events WHERE agent_id = ? AND run_seq = ? AND seq < ?",
            (key.agent_id, key.seq, min(upto)),
        ).fetchone()[0]
        return [one.event for one in tx.events.list(key, after=before, limit=_EVERYTHING)]

    def _check_claim(self, run: Run, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """A run is taken only by who takes it, and only when nobody living holds it."""
        if after["owner"] in (None, before["owner"]) and after["number"] == before["number"]:
            return
        if after["owner"] != self._owner:
            raise Violation(f"{self._owner} gave run {run.key.seq} to {after['owner']}")
        owner, until = before["owner"], before["until"]
        free = owner in (None, self._owner) or owner in self._facts.dead or until < iso(self._now())
        if not free:
            raise Violation(f"{self._owner} took run {run.key.seq}, which {owner} holds until {until}")

    def _check_held(self, run: Run, before: Mapping[str, Any], touched: _Touched, events: list[Event]) -> None:
        """Only who holds a run works on it; but anybody may ask it to stop, or answer calls at which it has stopped."""
        if before["reason"] == "requires_approval" or (before["status"] == "queued" and was_taken_back(run)):
            return
        asked = all(isinstance(event, RunCancelRequested) for event in events)
        worked = not asked or any(what != "event" for what, _, _ in touched.rows)
        worked = worked or any(old["status"] != new["status"] for old, new in touched.changes)
        worked = worked or any(old["owner"] != new["owner"] for old, new in touched.changes)
        if not worked:
            return
        if before["status"] not in ("queued", "running"):
            raise Violation(f"run {run.key.seq} has ended ({before['reason']}), and {self._owner} went on with it")
        holders = [before, *(new for _, new in touched.changes)]
        if not any(state["owner"] == self._owner for state in holders):
            raise Violation(f"{self._owner} worked on run {run.key.seq}, which {before['owner']} holds")

    def _check_cancelled(self, run: Run, before: Mapping[str, Any], touched: _Touched) -> None:
        """Nothing is begun of a run that was asked to stop."""
        if not before["cancelled"]:
            return
        for what, old, new in touched.rows:
            if what in ("start", "edit", "step"):
                raise Violation(f"run {run.key.seq} was asked to stop, and then came: {what} {old or new}")

    def _check_end(self, tx: Tx, run: Run) -> None:
        """An ended run leaves no call open, unless somebody outside has to answer it, and no model call pending."""
        if run.stop_reason is None or status_of(run.stop_reason) != run.status or run.lease_owner is not None:
            raise Violation(f"run {run.key.seq} ended as {run.status}, {run.stop_reason}, held by {run.lease_owner}")
        open_ids = [call.call.call_id for call in open_calls_in(tx.messages.list_by_run(run))]
        if open_ids and run.stop_reason != "requires_approval":
            raise Violation(f"run {run.key.seq} ended ({run.stop_reason}) and left open: {open_ids}")
        if any(step.status == "pending" for step in tx.steps.list_by_run(run.key)):
            raise Violation(f"run {run.key.seq} ended ({run.stop_reason}) with a pending step")

    def _check_plan(
        self,
        tx: Tx,
        run: Run,
        events: list[Event],
        views: Mapping[tuple[AgentId, int], Any],
        committed: list[Callable[[], None]],
    ) -> None:
        """What makes room was planned on what is there now."""
        line = (run.key.agent_id, run.conversation_seq)
        row = self._connection.execute(
            "SELECT a.settings_revision, c.prefix_seq, c.stubs FROM agents a JOIN conversations c ON c.agent_id = a.id"
            " WHERE a.id = ? AND c.seq = ?",
            line,
        ).fetchone()
        if any(isinstance(event, ViewFull) for event in events):
            now = (row[0], row[1], row[2])
            committed.append(lambda: self._facts.planned.__setitem__(run.key, now))
            return
        if not any(isinstance(event, (ViewCompacted, RowsCut)) for event in events):
            return
        before = json.loads(views[line]) if line in views else [row[1], row[2]]
        if (found := (row[0], *before)) != (planned := self._facts.planned.get(run.key)):
            raise Violation(f"room was made in conversation {line[1]} on {found}, planned on {planned}")
        if run.cancel_requested:
            raise Violation(f"room was made for run {run.key.seq}, which was asked to stop")


def _state(run: Run) -> Mapping[str, Any]:
    """What `touched` has of a run that was changed."""
    return {
        "status": run.status,
        "reason": run.stop_reason,
        "owner": run.lease_owner,
        "number": run.lease_number,
        "until": None if run.lease_until is None else iso(run.lease_until),
        "cancelled": int(run.cancel_requested),
    }
