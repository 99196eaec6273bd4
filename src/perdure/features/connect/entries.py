"""What `perdure connect` writes into the configuration of a program: entries of servers, and of hooks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.features.connect.programs import ADDRESS, Program, folders_of_programs, kept_environment, own_command

HOOK_TIMEOUT_S = 10
_QUOTED = r"'(?:[^']|'\"'\"')*"
_WORD = rf"(?:{_QUOTED}'|[\w@%+=:,./-]+)"
"""A word as `shlex` writes it into a command; the first: one that is quoted, without its end."""
_COMMAND = rf"(?:PERDURE_\w+={_WORD} )*(?:{_WORD} -P -m perdure|{_QUOTED}/perdure'|(?:[\w@%+=:,./-]*/)?perdure)"
"""How a hook starts this program, whole: a command of the user's may end with one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One entry in a program's configuration.

    Args:
        path: of the file.
        format: json, jsonc or toml.
        names: the place in the file.
        value: what stands there.
        mark: not empty: the place is a list that others share, `value` an item of it, and an item with this mark is an
            earlier form of it. It is a regular expression for the whole of a text.
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
    portable: Mapping[str, str] | None = None,
    address: str = "",
) -> Sequence[ConfigEntry]:
    """Return the entries to write; those of hooks come last.

    Args:
        folder: of a project, whose own configuration is changed; None: the user's.
        read_only: whether the server only reads; then there are no hooks.
        hooks: whether there are hooks, for a program that has some.
        nudges: the level of reminders; empty: the one of the server.
        portable: not None: for any Linux machine: `perdure` by its name, ~ for the user's home, and of this process no
            more than these variables.
        address: of the server, for programs that reach it over HTTP; empty: the usual one.
    Raises: InvalidInput: a password would stand where others may read it.
    """
    project = program.user_project if folder is None else program.project
    reminders = ["--nudges", nudges] if nudges else []
    has_hooks = bool(program.hooks) and hooks and not read_only
    server = [*(["--project", project] if project else []), *(["--read-only"] if read_only else [])]
    # Once in a session: a server doesn't know in which one its program is, so there the hooks remind alone.
    server += ["--nudges", "off"] if nudges == "light" and has_hooks else reminders
    arguments = {"mcp": server, "acp": []}
    command = own_command() if portable is None else ["perdure"]
    environment = kept_environment(shared=folder is not None) if portable is None else portable
    folders = folders_of_programs(portable=portable is not None)

    def path_of(table: Mapping[str, Any]) -> Path:
        return Path(table["user"].format(**folders)) if folder is None else folder / table["project"]

    def value_of(table: Mapping[str, Any]) -> Any:
        if (verb := table.get("starts")) is None:
            return address or os.environ.get("PERDURE_BASE_URL", ADDRESS)
        words = [*command, verb, *arguments[verb]]
        started = {"command": words[0], "args": words[1:], **({"env": environment} if environment else {})}
        return {**table.get("value", {}), **started}

    entries = [
        ConfigEntry(path=path_of(one), format=one["format"], names=tuple(one["entry"]), value=value_of(one))
        for one in program.config
        if folder is None or "project" in one
    ]
    if has_hooks:
        # Every user of the machine sees the words of a command that runs.
        variables = kept_environment(shared=True) if portable is None else portable
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        for event, (verb, *matcher) in program.hooks["events"].items():
            words = [*command, "hook", verb, *(reminders if event == "PostToolUse" else [])]
            line = " ".join([*assignments, shlex.join(words)])
            hook = {"type": "command", "command": line, "timeout": HOOK_TIMEOUT_S}
            group = {**({"matcher": matcher[0]} if matcher else {}), "hooks": [hook]}
            mark = rf"{_COMMAND} hook {verb}(?: --nudges \w+)?"
            names = ("hooks", event)
            entries.append(ConfigEntry(path=path_of(program.hooks), format="json", names=names, value=group, mark=mark))
    return entries
