"""`tx.steps` and `tx.prefixes`: the record of each model call, and the stable first part of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId, StepId, run_of
from perdure.core.models import Exchange
from perdure.core.runs import (
    Failure,
    Prefix,
    Recipe,
    Run,
    RunKey,
    Step,
    StepStatus,
    StopReason,
    Usage,
    usage_to_json,
)
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import (
    OWN_AGENT,
    Database,
    Row,
    dump,
    find,
    find_run_of,
    from_iso,
    iso,
    load,
    register,
)
from perdure.storage.tables.conversations import load_stubs
from perdure.storage.tables.run_rows import load_failure, load_usage

_STEP = (
    "id, agent_id, run_seq, step_index, status, model, recipe, lease_number, usage, stop_reason, failure,"
    " created_at, ended_at"
)
_PREFIX = (
    "agent_id, seq, conversation_seq, reason, system, tools, seen, from_message_seq, settings_revision, tokens,"
    " created_at, summary, nodes, pinned, client_tools, marker"
)


class Steps:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(
        self,
        run: Run,
        step_id: StepId,
        *,
        index: int,
        model: str,
        recipe: Recipe,
        at: datetime,
        held: bool = False,
    ) -> Step:
        """A step that is about to be asked.

        Args:
            held: the run was added, claimed or held in this transaction, so that it is known to be there.
        Raises: NotFound: there is no such run.
        """
        agent_id = run.key.agent_id
        # A run of another organisation, or none, gets no step. Looked up by a statement of its own: INSERT ... SELECT
        # could fail after some rows, so SQLite copies every page that it touches, which takes longer than both.
        if not held and not self._db.rows(
            f"SELECT 1 FROM runs WHERE agent_id = :agent_id AND seq = :run_seq AND {OWN_AGENT}",
            {"agent_id": agent_id, "run_seq": run.key.seq, "org_id": self._org_id},
        ):
            raise NotFound("run", f"{run.key.seq} of {agent_id}")
        self._db.run(
            f"INSERT INTO steps ({_STEP}) VALUES (:id, :agent_id, :run_seq, :index, 'pending', :model, :recipe,"
            " :lease_number, NULL, NULL, NULL, :at, NULL)",
            {
                "id": step_id,
                "agent_id": agent_id,
                "run_seq": run.key.seq,
                "index": index,
                "model": storable(model),
                "recipe": dump(_recipe_shape(recipe)),
                "lease_number": run.lease_number,
                "at": iso(at),
            },
        )
        if run_of(step_id) != run.id:
            register(self._db, self._org_id, agent_id, [(step_id, run.key.seq)])
        return Step(
            id=step_id,
            agent_id=agent_id,
            run_seq=run.key.seq,
            index=index,
            status="pending",
            model=model,
            recipe=recipe,
            lease_number=run.lease_number,
            created_at=at,
        )

    def get(self, step_id: StepId) -> Step:
        """Raises: NotFound."""
        place = find(self._db, self._org_id, "step", step_id) or find_run_of(self._db, self._org_id, step_id)
        if place is not None and (
            found := self._read(
                "agent_id = :agent_id AND run_seq = :run_seq AND id = :id",
                {"agent_id": place[0], "run_seq": place[1], "id": storable(step_id)},
            )
        ):
            return found[0]
        raise NotFound("step", step_id)

    def of_run(self, key: RunKey) -> Sequence[Step]:
        return self._read(
            "agent_id = :agent_id AND run_seq = :run_seq ORDER BY step_index",
            {"agent_id": key.agent_id, "run_seq": key.seq},
        )

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        limit: int = 100,
        before: Step | None = None,
    ) -> Sequence[Step]:
        """The steps of an agent or of one conversation, newest first; with `before`, those older than it."""
        params: dict[str, Any] = {"agent_id": agent_id, "limit": limit}
        where = "agent_id = :agent_id"
        if conversation_seq is not None:
            where += (
                " AND EXISTS (SELECT 1 FROM runs r WHERE r.agent_id = steps.agent_id AND r.seq = steps.run_seq"
                " AND r.conversation_seq = :conversation_seq)"
            )
            params["conversation_seq"] = conversation_seq
        if before is not None:
            where += " AND (run_seq, step_index) < (:run_seq, :index)"
            params |= {"run_seq": before.run_seq, "index": before.index}
        return self._read(f"{where} ORDER BY run_seq DESC, step_index DESC LIMIT :limit", params)

    def last_at(self, agent_id: AgentId) -> datetime | None:
        """The start time of the agent's last model call."""
        rows = self._db.rows(
            f"SELECT created_at FROM steps WHERE agent_id = :agent_id AND {OWN_AGENT}"
            " ORDER BY run_seq DESC, step_index DESC LIMIT 1",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return from_iso(rows[0][0]) if rows else None

    def end(
        self,
        step: Step,
        *,
        status: StepStatus,
        at: datetime,
        usage: Usage | None = None,
        stop_reason: StopReason | None = None,
        failure: Failure | None = None,
    ) -> Step:
        why = "NULL" if failure is None else ":failure"  # a parameter that is None takes as long as ten that are not
        self._db.run(
            f"UPDATE steps SET status = :status, usage = :usage, stop_reason = :stop_reason, failure = {why},"
            " ended_at = :at WHERE agent_id = :agent_id AND run_seq = :run_seq AND step_index = :index"
            f" AND {OWN_AGENT}",
            {
                "org_id": self._org_id,
                "agent_id": step.agent_id,
                "run_seq": step.run_seq,
                "index": step.index,
                "status": status,
                "usage": usage_to_json(usage) if usage else None,
                "stop_reason": stop_reason,
                "failure": dump({"kind": failure.kind, "message": failure.message}) if failure else None,
                "at": iso(at),
            },
        )
        return replace(
            step, status=status, usage=usage or Usage(), stop_reason=stop_reason, failure=failure, ended_at=at
        )

    def factor(self, model: str) -> float:
        """The tokens that the model's provider counts for each estimated one, at least 1."""
        rows = self._db.rows(
            "SELECT factor FROM token_factors WHERE org_id = :org_id AND model = :model",
            {"org_id": self._org_id, "model": storable(model)},
        )
        return float(rows[0][0]) if rows else 1.0

    def learn_factor(self, model: str, factor: float) -> None:
        """Store the factor of a model."""
        self._db.run(
            "INSERT INTO token_factors (org_id, model, factor) VALUES (:org_id, :model, :factor)"
            " ON CONFLICT (org_id, model) DO UPDATE SET factor = excluded.factor",
            {"org_id": self._org_id, "model": storable(model), "factor": factor},
        )

    def put_exchange(self, step: Step, exchange: Exchange) -> None:
        """Store a step's request and response as sent; a second exchange replaces the first."""
        self._db.run(
            "INSERT INTO step_exchanges (agent_id, run_seq, step_index, request, response, attempts)"
            f" SELECT :agent_id, :run_seq, :index, :request, :response, :attempts WHERE {OWN_AGENT}"
            " ON CONFLICT (agent_id, run_seq, step_index) DO UPDATE SET request = excluded.request,"
            " response = excluded.response, attempts = excluded.attempts",
            self._own(step)
            | {
                "request": dump(exchange.request),
                "response": dump(exchange.response),
                "attempts": exchange.attempts,
            },
        )

    def exchange(self, step: Step) -> Exchange | None:
        rows = self._db.rows(
            "SELECT request, response, attempts FROM step_exchanges"
            f" WHERE agent_id = :agent_id AND run_seq = :run_seq AND step_index = :index AND {OWN_AGENT}",
            self._own(step),
        )
        return Exchange(request=load(rows[0][0]), response=load(rows[0][1]), attempts=rows[0][2]) if rows else None

    def _own(self, step: Step) -> dict[str, Any]:
        return {"org_id": self._org_id, "agent_id": step.agent_id, "run_seq": step.run_seq, "index": step.index}

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[Step]:
        sql = f"SELECT {_STEP} FROM steps WHERE {OWN_AGENT} AND {where}"
        return [_step(row) for row in self._db.rows(sql, params | {"org_id": self._org_id})]


class Prefixes:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, prefix: Prefix) -> Prefix:
        """Add a prefix, and return it with its number. Raises: NotFound: no such agent."""
        prefix = replace(prefix, seq=_advance(self._db, self._org_id, prefix.agent_id, "prefix_seq"))
        self._db.run(
            f"INSERT INTO prefixes ({_PREFIX}) VALUES (:agent_id, :seq, :conversation, :reason, :system, :tools, :seen,"
            " :from_seq, :settings_revision, :tokens, :at, :summary, :nodes, :pinned, :client_tools, :marker)",
            {
                "agent_id": prefix.agent_id,
                "seq": prefix.seq,
                "conversation": prefix.conversation_seq,
                "reason": prefix.reason,
                "system": storable(prefix.system),
                "tools": dump(prefix.tools),
                "seen": dump(prefix.seen),
                "from_seq": prefix.from_message_seq,
                "settings_revision": prefix.settings_revision,
                "tokens": prefix.tokens,
                "at": iso(prefix.created_at),
                "summary": storable(prefix.summary),
                "nodes": dump(prefix.nodes),
                "pinned": dump(prefix.pinned),
                "client_tools": prefix.client_tools,
                "marker": prefix.marker,
            },
        )
        return prefix

    def at(self, agent_id: AgentId, seq: int) -> Prefix:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"SELECT {_PREFIX} FROM prefixes WHERE agent_id = :agent_id AND seq = :seq AND {OWN_AGENT}",
            {"agent_id": agent_id, "seq": seq, "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("prefix", f"{seq} of {agent_id}")
        row = rows[0]
        return Prefix(
            agent_id=row[0],
            seq=row[1],
            conversation_seq=row[2],
            reason=row[3],
            system=restore(row[4]),
            tools=tuple(load(row[5])),
            seen=load(row[6]),
            from_message_seq=row[7],
            settings_revision=row[8],
            tokens=row[9],
            created_at=from_iso(row[10]),
            summary=restore(row[11]),
            nodes=tuple(load(row[12])),
            pinned=tuple(load(row[13])),
            client_tools=row[14],
            marker=row[15],
        )


def _advance(db: Database, org_id: OrgId, agent_id: AgentId, counter: str) -> int:
    rows = db.rows(
        f"UPDATE agents SET {counter} = {counter} + 1 WHERE id = :id AND org_id = :org_id RETURNING {counter} - 1",
        {"id": agent_id, "org_id": org_id},
    )
    if not rows:
        raise NotFound("agent", agent_id)
    return int(rows[0][0])


def _recipe_shape(recipe: Recipe) -> dict[str, Any]:
    """The fields of the recipe that differ from their defaults."""
    shape: dict[str, Any] = {
        "prefix_seq": recipe.prefix_seq,
        "upto_message_seq": recipe.upto_message_seq,
        "tail": recipe.tail,
        "settings_revision": recipe.settings_revision,
        "digest": recipe.digest,
        "tokens": recipe.tokens,
    }
    if recipe.estimator != 1:
        shape["estimator"] = recipe.estimator
    if recipe.stubs:
        shape["stubs"] = recipe.stubs
    if recipe.overcount:
        shape["overcount"] = recipe.overcount
    if recipe.tool_choice is not None:
        shape["tool_choice"] = recipe.tool_choice
    if recipe.single_calls:
        shape["single_calls"] = True
    return shape


def _recipe(shape: dict[str, Any]) -> Recipe:
    if isinstance(choice := shape.get("tool_choice"), list):
        shape["tool_choice"] = tuple(choice)
    return Recipe(**shape | {"stubs": load_stubs(shape.get("stubs", {}))})


def _step(row: Row) -> Step:
    return Step(
        id=row[0],
        agent_id=row[1],
        run_seq=row[2],
        index=row[3],
        status=row[4],
        model=restore(row[5]),
        recipe=_recipe(load(row[6])),
        lease_number=row[7],
        usage=load_usage(row[8]),
        stop_reason=row[9],
        failure=load_failure(row[10]),
        created_at=from_iso(row[11]),
        ended_at=from_iso(row[12]),
    )
