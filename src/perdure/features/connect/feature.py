"""One command that gives a program, such as Claude Code, Perdure's memory; and the hooks that such programs run."""

from __future__ import annotations

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="connect",
    uses=("mcp_server", "notes"),
    verbs={"connect": Noun(modules=("commands",), help="Give a program, such as Claude Code or Cursor, this memory.")},
    quick_verbs={"hook": "hook:run"},
)
