"""What `perdure connect` writes into the configuration of a program: entries of servers, and of hooks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.features.connect.programs import (
    ADDRESS,
    PORTABLE_FOLDERS,
    Program,
    folders_of_programs,
    kept_environment,
    own_command,
)

HOOK_TIMEOUT_S = 10
_HOOKS: Mapping[str, tuple[str, str]] = {
    "SessionStart": ("session-start", ""),
    "PostToolUse": ("post-tool-use", "Edit|Write|MultiEdit|NotebookEdit"),
    "PreCompact": ("pre-compact", ""),
    "Stop": ("stop", ""),
    "SessionEnd": ("session-end", ""),
}
"""Event -> the argument of `perdure hook`, and the tools that it is about; empty: it is about none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One entry in a program's configuration.

    Args:
        path: of the file.
        format: json, jsonc or toml.
        names: the place in the file.
        value: what stands there.
        mark: not empty: the place is a list that others share, `value` an item of it, and an item with this mark is an
            earlier form of it. It is a regular expression for the end of a text.
    """

    path: Path
    format: str
    names: Sequence[str]
    value: Any
    mark: str = ""


def plan_entries(
    program: Program,
    *,
    folder: Path | None,
    read_only: bool = False,
    hooks: bool = True,
    nudges: str = "",
    portable: bool = False,
    address: str = "",
) -> Sequence[ConfigEntry]:
    """Return the entries to write; those of hooks come last.

    Args:
        folder: of a project, whose own configuration is changed; None: the user's.
        read_only: whether the server only reads; then there are no hooks.
        hooks: whether there are hooks, for a program that has some.
        nudges: the level of reminders; empty: the one of the server.
        portable: for any Linux machine: `perdure` by its name, ~ for the user's home, nothing of this process.
        address: of the server, for programs that reach it over HTTP; empty: the usual one.
    Raises: InvalidInput: a password would stand where others may read it.
    """
    project = program.user_project if folder is None else program.project
    reminders = ["--nudges", nudges] if nudges else []
    arguments = [
        "mcp",
        *(["--project", project] if project else []),
        *(["--read-only"] if read_only else []),
        *reminders,
    ]
    command = ["perdure"] if portable else own_command()
    environment = {} if portable else kept_environment(shared=folder is not None)
    folders = PORTABLE_FOLDERS if portable else folders_of_programs()

    def path_of(table: Mapping[str, Any]) -> Path:
        return Path(table["user"].format(**folders)) if folder is None else folder / table["project"]

    entries = [
        ConfigEntry(
            path=path_of(table),
            format=table["format"],
            names=tuple(table["entry"]),
            value=table["value"].format(address=address or os.environ.get("PERDURE_BASE_URL", ADDRESS))
            if isinstance(table["value"], str)
            else _filled(table["value"], command, arguments, environment),
        )
        for table in program.config
        if folder is None or "project" in table
    ]
    if program.hooks and hooks and not read_only:
        # Every user of the machine sees the words of a command that runs.
        variables = {} if portable else kept_environment(shared=True)
        entries += _hook_entries(path_of(program.hooks), command, variables, reminders)
    return entries


def _hook_entries(
    path: Path, command: Sequence[str], environment: Mapping[str, str], reminders: Sequence[str]
) -> Iterator[ConfigEntry]:
    """Yield the entries of Claude Code's hooks."""
    *before, last = command
    folder, slash, name = last.rpartition("/")
    # The last word ends in `perdure` also if it has to be quoted.
    words = [*map(shlex.quote, before), f"{shlex.quote(folder)}/{name}" if slash else shlex.quote(name)]
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    for event, (verb, matcher) in _HOOKS.items():
        options = reminders if event == "PostToolUse" else []
        line = " ".join([*variables, *words, "hook", verb, *options])
        hook: dict[str, Any] = {"type": "command", "command": line, "timeout": HOOK_TIMEOUT_S}
        yield ConfigEntry(
            path=path,
            format="json",
            names=("hooks", event),
            value={**({"matcher": matcher} if matcher else {}), "hooks": [hook]},
            mark=rf"perdure hook {verb}(?: --nudges \w+)?",
        )


def _filled(
    value: Mapping[str, Any], words: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the value of an entry with the words of the command, its arguments and what it needs of the
    environment."""
    command, *before = words
    filled: dict[str, Any] = {}
    for name, one in value.items():
        if one == "{command}":
            filled[name] = command
        elif isinstance(one, list):
            filled[name] = [*before, *(["acp"] if one == ["{acp}"] else arguments)]
        else:
            filled[name] = one
    if environment:
        filled["env"] = dict(environment)
    return filled
