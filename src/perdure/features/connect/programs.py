"""The programs that can be connected, where their configuration is, and the server and hook entries in it."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.core.text.tables import read_table
from perdure.features.connect.own_command import own_command
from perdure.scratch import user_path
from perdure.settings import Settings

ADDRESS = "http://127.0.0.1:8283"
HOOK_TIMEOUT_S = 10
_QUOTED = r"'(?:[^']|'\"'\"')*"
_WORD = rf"(?:{_QUOTED}'|[\w@%+=:,./-]+)"
"""A word as `shlex` writes it into a command; the first: one that is quoted, without its end."""
_COMMAND = rf"(?:PERDURE_\w+={_WORD} )*(?:{_WORD} -P -m perdure|{_QUOTED}/perdure'|(?:[\w@%+=:,./-]*/)?perdure)"
"""How a hook starts this program, whole: a command of the user's may end with one of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that can be connected; `programs.toml` says what each value is."""

    name: str
    title: str
    source: str
    project: str = "."
    user_project: str = "."
    next: str = ""
    by_hand: str = ""
    config: Sequence[Mapping[str, Any]] = ()
    hooks: Mapping[str, Any] = field(default_factory=dict)
    starts_server: bool = True


@functools.cache
def programs() -> Mapping[str, Program]:
    """All programs by name."""
    return {name: Program(name=name, **table) for name, table in read_table(__file__, "programs.toml").items()}


def find_program(name: str) -> Program:
    """Return the program of this name. Raises: NotFound: it is not known."""
    if (found := programs().get(name)) is None:
        raise NotFound(
            "program", name, hint=f"there are {', '.join(programs())}; docs/connect.md has what to add by hand"
        )
    return found


def check_options(program: Program, options: Mapping[str, object]) -> None:
    """Check that the options that are given change something. Raises: InvalidInput: one does not, for this program."""
    useless = set() if program.starts_server else {"--project", "--read-only", "--no-hooks", "--nudges"}
    if program.by_hand:
        useless.add("--undo")
    if given := [name for name, one in options.items() if one and name in useless]:
        where = "by hand, and Perdure writes no file of it" if program.by_hand else "by the address of a server"
        raise InvalidInput(f"{program.title} is connected {where}: leave {' and '.join(given)} out")


def data_variables(*, shared: bool) -> dict[str, str]:
    """Return the variables that say where the data is, if they are set.

    Args:
        shared: whether they are for a place that others may read.
    Raises: InvalidInput: they can't be used; or the address of the store has a password, and the place is shared.
    """
    kept, settings = {}, Settings.from_environment()
    if settings.home:
        kept["PERDURE_HOME"] = str(settings.folder.absolute())
    if store := settings.store:
        kept["PERDURE_STORE"] = store if is_postgres(store) else str(settings.store_path.absolute())
        if shared and is_postgres(store) and without_password(store) != store:
            raise InvalidInput(
                "PERDURE_STORE has a password, which others could read in a file of a project, or in the command of a"
                " hook while it runs: put the password into ~/.pgpass, and leave it out of PERDURE_STORE"
            )
    return kept


def server_address() -> str:
    """Return the address of the server that PERDURE_BASE_URL names, else the usual one."""
    return os.environ.get("PERDURE_BASE_URL", "").strip().rstrip("/") or ADDRESS


def claude_folder() -> Path:
    """Return the folder of Claude Code's own files."""
    return user_path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def folders_of_programs(*, portable: bool = False) -> Mapping[str, Path]:
    """Return the folders that stand in paths: of this machine, or of any Linux machine, with ~ for the user's home."""
    home, variables, system = (Path("~"), {}, "linux") if portable else (Path.home(), os.environ, sys.platform)
    xdg = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    if system == "win32":
        xdg = Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
    return {
        "home": home,
        "xdg": xdg,
        "config": home / "Library" / "Application Support" if system == "darwin" else xdg,
        "codex": home / ".codex" if not (codex := variables.get("CODEX_HOME")) else user_path(codex),
        # With the variable also the file that is in the user's home otherwise is in that folder.
        "claude": home / ".claude" if portable else claude_folder(),
        "claude_home": claude_folder() if variables.get("CLAUDE_CONFIG_DIR") else home,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One entry in a program's configuration.

    Args:
        path: of the file.
        format: json, jsonc or toml.
        names: the place in the file.
        value: what stands there; None: nothing, and what was written there earlier is taken out.
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
    environment = data_variables(shared=folder is not None) if portable is None else portable
    folders = folders_of_programs(portable=portable is not None)

    def path_of(table: Mapping[str, Any]) -> Path:
        """Return the file of an entry: the user's, or the project's if a folder is given."""
        return Path(table["user"].format(**folders)) if folder is None else folder / table["project"]

    def value_of(table: Mapping[str, Any]) -> Any:
        """Return the value of an entry: how the program starts the server, or its address."""
        if (verb := table.get("starts")) is None:
            return address or server_address()
        words = [*command, verb, *arguments[verb]]
        started = {"command": words[0], "args": words[1:], **({"env": environment} if environment else {})}
        return {**table.get("value", {}), **started}

    entries = [
        ConfigEntry(path=path_of(one), format=one["format"], names=tuple(one["entry"]), value=value_of(one))
        for one in program.config
        if folder is None or "project" in one
    ]
    # Every user of the machine sees the words of a command that runs.
    variables = portable if portable is not None else data_variables(shared=True) if has_hooks else {}
    assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    for event, (verb, *matcher) in program.hooks.get("events", {}).items():
        words = [*command, "hook", verb, *(reminders if event == "PostToolUse" else [])]
        line = " ".join([*assignments, shlex.join(words)])
        hook = {"type": "command", "command": line, "timeout": HOOK_TIMEOUT_S}
        group = {**({"matcher": matcher[0]} if matcher else {}), "hooks": [hook]}
        mark = rf"{_COMMAND} hook {verb}(?: --nudges \w+)?"
        path, value = path_of(program.hooks), group if has_hooks else None
        entries.append(ConfigEntry(path=path, format="json", names=("hooks", event), value=value, mark=mark))
    return entries
