"""The hooks that Claude Code runs: what its settings say of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.features.connect.programs import ConfigEntry, Program, claude_folder, kept_environment, own_command

TIMEOUT_S = 10
_EVENTS: Mapping[str, tuple[str, str]] = {
    "SessionStart": ("session-start", ""),
    "PostToolUse": ("post-tool-use", "Edit|Write|MultiEdit|NotebookEdit"),
    "Stop": ("stop", ""),
    "SessionEnd": ("session-end", ""),
}
"""Event -> the argument of `perdure hook`, and the tools that it is about; empty: it is about none."""


def hook_entries(program: Program, *, folder: Path | None) -> Sequence[ConfigEntry]:
    """Return the entries of the hooks of a program; empty: it has none.

    Args:
        folder: of a project, whose own settings are changed; None: the user's.
    """
    if program.name != "claude-code":
        return ()
    path = claude_folder() / "settings.json" if folder is None else folder / ".claude/settings.json"
    environment = kept_environment(shared=folder is not None)
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    entries = []
    for event, (name, matcher) in _EVENTS.items():
        words = " ".join([*variables, *_quoted(own_command()), "hook", name])
        hook: dict[str, Any] = {"type": "command", "command": words, "timeout": TIMEOUT_S}
        group = {**({"matcher": matcher} if matcher else {}), "hooks": [hook]}
        entries.append(
            ConfigEntry(path=path, format="json", names=("hooks", event), value=group, mark=f"perdure hook {name}")
        )
    return entries


def _quoted(command: Sequence[str]) -> Sequence[str]:
    """Return a command's words for a shell; the last one ends in `perdure` also if it has to be quoted."""
    *before, last = command
    folder, slash, name = last.rpartition("/")
    return [*map(shlex.quote, before), f"{shlex.quote(folder)}/{name}" if slash else shlex.quote(name)]
