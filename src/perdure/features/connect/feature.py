"""One command that gives a program, such as Claude Code, Perdure's memory; and the hooks that such programs run."""

from __future__ import annotations

from perdure.core.features import Feature

FEATURE = Feature(name="connect", uses=("mcp_server", "notes"))
