"""The programs that can be connected, and the changes of their configuration."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.incoming.addresses import is_postgres, without_password

ADDRESS = "http://127.0.0.1:8283"
_PORTABLE = {"home": "~", "xdg": "~/.config", "config": "~/.config", "codex": "~/.codex", "claude_home": "~"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One entry in a program's configuration.

    Args:
        path: of the file.
        format: json, jsonc or toml.
        names: the place in the file.
        value: what stands there.
        mark: not empty: the place is a list that others share, `value` an item of it, and an item with this mark is an
            earlier form of it.
    """

    path: Path
    format: str
    names: Sequence[str]
    value: Any
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that can be connected.

    Args:
        source: where the format of its configuration is documented.
        project: how a project's own configuration names the folder of the project.
        user_project: how the user's configuration does; empty: it can't.
        next: what a person does after it was connected.
        by_hand: what a person does where no file is written; empty: files are.
        config: its entries, as `programs.toml` has them.
    """

    name: str
    title: str
    source: str
    project: str = "."
    user_project: str = "."
    next: str = ""
    by_hand: str = ""
    config: Sequence[Mapping[str, Any]] = ()


@functools.cache
def programs() -> Mapping[str, Program]:
    """All programs by name."""
    tables = tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))
    return {name: Program(name=name, **table) for name, table in tables.items()}


def find_program(name: str) -> Program:
    """Return the program of this name. Raises: NotFound: it is not known."""
    if (found := programs().get(name)) is None:
        raise NotFound(
            "program", name, hint=f"there are {', '.join(programs())}; docs/connect.md has what to add by hand"
        )
    return found


def plan_entries(
    program: Program, *, folder: Path | None, read_only: bool = False, portable: bool = False
) -> Sequence[ConfigEntry]:
    """Return the entries to write.

    Args:
        folder: of a project, whose own configuration is changed; None: the user's.
        read_only: whether the server only reads.
        portable: for any Linux machine: `perdure` by its name, ~ for the user's home, nothing of this process.
    Raises: InvalidInput: a password would stand in a project's file.
    """
    project = program.user_project if folder is None else program.project
    arguments = ["mcp", *(["--project", project] if project else []), *(["--read-only"] if read_only else [])]
    command = ["perdure"] if portable else own_command()
    environment = {} if portable else kept_environment(shared=folder is not None)
    folders = _PORTABLE if portable else _folders()
    return [
        ConfigEntry(
            path=Path(table["user"].format(**folders)) if folder is None else folder / table["project"],
            format=table["format"],
            names=tuple(table["entry"]),
            value=_filled(table["value"], command, arguments, environment),
        )
        for table in program.config
        if folder is None or "project" in table
    ]


def own_command() -> list[str]:
    """Return how this program is started by another one, which may know no PATH and no environment of ours."""
    script = Path(sys.argv[0])
    if script.name == "perdure" and script.is_absolute() and os.access(script, os.X_OK):
        return [str(script)]
    if found := shutil.which("perdure"):
        return [str(Path(found).absolute())]
    return [sys.executable, "-P", "-m", "perdure"]  # -P: no module of the folder that it is started in


def kept_environment(*, shared: bool) -> dict[str, str]:
    """Return the variables that say where the data is, if they are set.

    Args:
        shared: whether they are for a file that others may read.
    Raises: InvalidInput: the address of the store has a password, and the file is shared.
    """
    kept = {}
    if home := os.environ.get("PERDURE_HOME", "").strip():
        kept["PERDURE_HOME"] = str(Path(home).expanduser().absolute())
    if store := os.environ.get("PERDURE_STORE", "").strip():
        kept["PERDURE_STORE"] = store if is_postgres(store) else str(Path(store).expanduser().absolute())
        if shared and is_postgres(store) and without_password(store) != store:
            raise InvalidInput(
                "PERDURE_STORE has a password, which would stand in a file of the project that others may read: connect"
                " without --project"
            )
    return kept


def claude_folder() -> Path:
    """Return the folder of Claude Code's own files."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude").expanduser()


def _folders() -> Mapping[str, Path]:
    """Return the folders of this machine that stand in paths."""
    home = Path.home()
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if sys.platform == "win32":
        xdg = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    return {
        "home": home,
        "xdg": xdg,
        "config": home / "Library" / "Application Support" if sys.platform == "darwin" else xdg,
        "codex": Path(os.environ.get("CODEX_HOME") or home / ".codex").expanduser(),
        # With the variable also the file that is in the user's home otherwise is in that folder.
        "claude_home": claude_folder() if os.environ.get("CLAUDE_CONFIG_DIR") else home,
    }


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
