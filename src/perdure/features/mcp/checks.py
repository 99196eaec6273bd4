"""The checks of `perdure doctor` on MCP servers."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator

from perdure.cli.commands.store_checks import Check, Rows
from perdure.cli.views.view import plural
from perdure.core.text.pip_line import pip_line


def checks(rows: Rows, tables: Collection[str]) -> Iterator[Check]:
    """The state of each MCP server; no server is contacted."""
    if "mcp_servers" not in tables:
        return
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
