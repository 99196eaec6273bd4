"""The checks of `perdure doctor` on what tables hold, on both databases."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perdure.app import NOT_DELETED
from perdure.cli.commands.checks import Check
from perdure.cli.views.fold import plural
from perdure.core.tools.pip_line import pip_line

Rows = Callable[..., Sequence[tuple[Any, ...]]]
"""The rows of a statement with `?` for each of the values after it."""


def mcp_checks(rows: Rows) -> Iterator[Check]:
    """The state of each MCP server; no server is contacted."""
    installed = importlib.util.find_spec("mcp") is not None
    for server_id, name, transport, listed_at, failure in rows(
        "SELECT id, name, transport, listed_at, failure FROM mcp_servers ORDER BY number"
    ):
        count, waiting, removed = rows(
            "SELECT count(*), count(CASE WHEN seen IS NOT NULL AND (pinned IS NULL OR pinned <> seen) THEN 1 END),"
            " count(CASE WHEN tool_id IS NOT NULL AND tool_id NOT IN (SELECT id FROM tools) THEN 1 END)"
            " FROM mcp_tools WHERE server_id = ?",
            server_id,
        )[0]
        text = f"{name} ({transport}): {plural(count, 'tool')}"
        text += f", {removed:,} of them removed here" if removed else ""
        if not installed:
            yield Check("mcp", "broken", f"{text}, which can't be called", pip_line("'perdure[mcp]'"))
        elif failure:
            yield Check("mcp", "note", f"{text}; the last try failed: {failure}", f"`perdure mcp refresh {name}`")
        elif waiting:
            yield Check("mcp", "note", f"{text}, {waiting:,} to approve", f"`perdure mcp approve {name}` shows them")
        else:
            yield Check("mcp", "ok", f"{text}, read {listed_at[:16]} UTC" if listed_at else f"{text}, not read yet")


def vectors_check(rows: Rows, *, models: str) -> Check | None:
    """How many texts have a vector, wait for one, or failed; None where nothing is embedded.

    Args:
        models: SQL that lists the distinct values of `model`.
    """
    scopes, embedded, listed = rows(
        f"SELECT count(*), coalesce(sum(row_count), 0), {models} FROM vector_scopes WHERE {NOT_DELETED}"
    )[0]
    if not scopes:
        return None
    living = f"number NOT IN (SELECT number FROM vector_scopes WHERE NOT ({NOT_DELETED}))"
    waiting, failed = rows(
        "SELECT count(CASE WHEN not_before < '9' THEN 1 END), count(CASE WHEN not_before = '9' THEN 1 END)"
        f" FROM embedding_queue WHERE {living}"
    )[0]
    without = rows(
        f"SELECT (SELECT coalesce(sum(message_count), 0) FROM agents WHERE embedded = 0 AND {NOT_DELETED})"
        f" + (SELECT coalesce(sum(passage_count), 0) FROM archives WHERE embedding IS NULL AND {NOT_DELETED})"
    )[0][0]
    text = f"{plural(embedded, 'text')} with a vector of {listed.replace(',', ', ')}"
    text += f", {waiting:,} waiting" if waiting else ""
    if failed:
        why = rows(f"SELECT failure FROM embedding_queue WHERE not_before = '9' AND {living} LIMIT 1")[0][0]
        return Check(
            "vectors", "note", f"{text}, {failed:,} given up: {why}", "`perdure store reindex` tries them again"
        )
    if without:
        text += f"; {without:,} texts are from before and have none"
        return Check("vectors", "note", text, "`perdure store reindex` embeds them")
    return Check("vectors", "ok", text)
