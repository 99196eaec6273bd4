"""One command that gives a program, such as Claude Code, Perdure's memory; and the hooks that such programs run."""

from __future__ import annotations

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="connect",
    uses=("mcp_server", "notes"),
    sections={"connections": "pages:SECTION"},
    verbs={"connect": Noun(modules=("commands",), help="Connect a program, such as Claude Code, to memory.")},
    quick_verbs={
        f"hook {name}": "hook_command:run"
        for name in ("session-start", "post-tool-use", "pre-compact", "stop", "session-end", "work")
    },
)
