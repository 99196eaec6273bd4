"""Rows of runs as values, and filters of runs as conditions."""

from __future__ import annotations

from typing import Any

from perdure.core.runs import (
    NO_USAGE,
    Failure,
    Run,
    RunFilter,
    RunKey,
    Usage,
)
from perdure.storage.database.base import Row, from_iso, load

RUN_COLUMNS = (
    "id, agent_id, seq, conversation_seq, conversation_id, status, stop_reason, failure, background, max_steps,"
    " first_message_seq, lease_owner, lease_number, lease_until, cancel_requested, usage, step_count,"
    " created_at, started_at, ended_at, hook_context, resumes, begins_at, turn_from, input_waits, client_tools"
)


def load_usage(text: str | None) -> Usage:
    return NO_USAGE if text is None else Usage(**load(text))


def load_failure(text: str | None) -> Failure | None:
    return None if text is None else Failure(**load(text))


def run_conditions(where: RunFilter) -> tuple[list[str], dict[str, Any]]:
    conditions: list[str] = []
    params: dict[str, Any] = {}
    for column, values in (("agent_id", where.agent_ids), ("status", where.statuses)):
        if values:
            names = {f"{column}{index}": value for index, value in enumerate(values)}
            conditions.append(f"r.{column} IN ({', '.join(f':{name}' for name in names)})")
            params |= names
    for column, value in (
        ("conversation_id", where.conversation_id),
        ("conversation_seq", where.conversation_seq),
        ("stop_reason", where.stop_reason),
        ("background", None if where.background is None else int(where.background)),
    ):
        if value is not None:
            conditions.append(f"r.{column} = :{column}")
            params[column] = value
    return conditions, params


def run_of_row(row: Row) -> Run:
    return Run(
        id=row[0],
        key=RunKey(row[1], row[2]),
        conversation_seq=row[3],
        conversation_id=row[4],
        status=row[5],
        stop_reason=row[6],
        failure=load_failure(row[7]),
        background=bool(row[8]),
        max_steps=row[9],
        first_message_seq=row[10],
        lease_owner=row[11],
        lease_number=row[12],
        lease_until=from_iso(row[13]),
        cancel_requested=bool(row[14]),
        usage=load_usage(row[15]),
        step_count=row[16],
        created_at=from_iso(row[17]),
        started_at=from_iso(row[18]),
        ended_at=from_iso(row[19]),
        context=tuple(load(row[20])) if row[20] else (),
        resumes=row[21],
        begins_at=row[22],
        turn_from=row[23],
        input_waits=bool(row[24]),
        client_tools=row[25],
    )
