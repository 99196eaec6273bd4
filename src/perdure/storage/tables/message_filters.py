"""Conditions of messages: in view, in a conversation, matching a filter."""

from __future__ import annotations

from perdure.core.messages import MessageFilter
from perdure.storage.database.row_format import iso
from perdure.storage.tables.conditions import Conditions


def reset_pending(table: str) -> str:
    """The condition that a message is out of view by a reset that has not updated the message's row yet."""
    return (
        f"EXISTS (SELECT 1 FROM resetting x WHERE x.agent_id = {table}.agent_id"
        f" AND x.conversation_seq = {table}.conversation_seq AND x.upto_seq >= {table}.seq)"
    )


IN_VIEW = (
    "removed = 0 AND (NOT EXISTS (SELECT 1 FROM resetting WHERE agent_id = :agent_id)"
    f" OR NOT {reset_pending('messages')})"
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


def conditions_of(where: MessageFilter, table: str = "") -> Conditions:
    """The conditions of a filter; `table` is a prefix of the columns, such as `m.`."""
    conditions = Conditions()
    conditions.equal(f"{table}conversation_seq", where.conversation_seq)
    conditions.among(f"{table}role", where.roles or None)
    conditions.add(f"{table}occurred_at >= ?", where.since and iso(where.since))
    conditions.add(f"{table}occurred_at <= ?", where.until and iso(where.until))
    conditions.between(f"{table}seq", None, where.before_seq)
    return conditions
