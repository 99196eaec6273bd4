"""Conditions of messages: in view, in a conversation, matching a filter."""

from __future__ import annotations

from typing import Any

from perdure.core.ids import AgentId
from perdure.core.messages import MessageFilter
from perdure.storage.database.base import iso


def being_reset(table: str) -> str:
    """The condition that a message is out of view by a reset that has not updated the message's row yet."""
    return (
        f"EXISTS (SELECT 1 FROM resetting x WHERE x.agent_id = {table}.agent_id"
        f" AND x.conversation_seq = {table}.conversation_seq AND x.upto_seq >= {table}.seq)"
    )


IN_VIEW = (
    "removed = 0 AND (NOT EXISTS (SELECT 1 FROM resetting WHERE agent_id = :agent_id)"
    f" OR NOT {being_reset('messages')})"
)
"""The condition that a message of `:agent_id` is in view. The first EXISTS reads `resetting`, nearly always empty, once
per statement."""

# The end is looked up in messages, not in runs: between two runs of a conversation an agent may have many of others. It
# is a scalar subquery without outer columns, so that the database does not scan all later messages.
BEFORE_NEXT_RUN = (
    "seq < COALESCE((SELECT n.seq FROM messages c CROSS JOIN messages n WHERE c.agent_id = :agent_id"
    " AND c.conversation_seq = :conversation AND c.seq > :own AND n.agent_id = c.agent_id AND n.seq = c.seq"
    " AND n.run_seq > :run_seq ORDER BY c.seq LIMIT 1), 9223372036854775807)"
)
"""The condition that a message precedes those of the run after `:run_seq`, whose own messages begin at `:own`."""


def in_view(reset: bool) -> str:
    """The condition that a message is in view; with `reset`, also one that a reset took out of view."""
    return "removed IN (0, 2)" if reset else IN_VIEW


def range_conditions(
    agent_id: AgentId, conversation_seq: int | None, after_seq: int | None, before_seq: int | None
) -> tuple[str, dict[str, Any]]:
    """The condition of messages of a conversation between two numbers, both excluded, and its parameters."""
    places = {"conversation_seq =": conversation_seq, "seq >": after_seq, "seq <": before_seq}
    given = {f"p{index}": (column, value) for index, (column, value) in enumerate(places.items()) if value is not None}
    where = "".join(f" AND {column} :{name}" for name, (column, _) in given.items())
    return f"agent_id = :agent_id{where}", {"agent_id": agent_id} | {name: value for name, (_, value) in given.items()}


def conditions_of(where: MessageFilter, table: str = "") -> tuple[str, dict[str, Any]]:
    """The conditions of a filter and their parameters; `table` is a prefix of the columns, such as `m.`."""
    clauses: list[str] = []
    params: dict[str, Any] = {}
    if where.conversation_seq is not None:
        clauses.append("conversation_seq = :w_conversation")
        params["w_conversation"] = where.conversation_seq
    if where.roles:
        clauses.append("role IN (" + ", ".join(f"'{role}'" for role in where.roles) + ")")
    if where.since is not None:
        clauses.append("occurred_at >= :w_since")
        params["w_since"] = iso(where.since)
    if where.until is not None:
        clauses.append("occurred_at <= :w_until")
        params["w_until"] = iso(where.until)
    if where.before_seq is not None:
        clauses.append("seq < :w_before")
        params["w_before"] = where.before_seq
    return "".join(f" AND {table}{clause}" for clause in clauses), params
