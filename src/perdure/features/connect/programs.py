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

from perdure.core.errors import NotFound

ADDRESS = "http://127.0.0.1:8283"
_KEPT = ("PERDURE_HOME", "PERDURE_STORE")
"""Variables that the started command needs as they are now: an editor starts it without this shell's."""


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
        project: how its configuration names the folder of the project.
        next: what a person does after it was connected.
        by_hand: what a person does where no file is written; empty: files are.
        config: its entries, as `programs.toml` has them.
    """

    name: str
    title: str
    project: str = "."
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


def plan_entries(program: Program, *, folder: Path | None, read_only: bool = False) -> Sequence[ConfigEntry]:
    """Return the entries to write.

    Args:
        folder: of a project, whose own configuration is changed; None: the user's.
        read_only: whether the server only reads.
    """
    arguments = ["mcp", "--project", program.project, *(["--read-only"] if read_only else [])]
    entries = []
    for table in program.config:
        if (name := table.get("user" if folder is None else "project")) is None:
            continue
        path = Path(name.replace("{config}", str(config_folder()))).expanduser()
        entries.append(
            ConfigEntry(
                path=path if folder is None else folder / path,
                format=table["format"],
                names=tuple(table["entry"]),
                value=_filled(table["value"], arguments),
            )
        )
    return entries


def own_command() -> list[str]:
    """Return how this program is started by another one, which may know no PATH and no environment of ours."""
    script = Path(sys.argv[0])
    if script.name == "perdure" and script.is_absolute() and os.access(script, os.X_OK):
        return [str(script)]
    if found := shutil.which("perdure"):
        return [str(Path(found).absolute())]
    return [sys.executable, "-m", "perdure"]


def kept_environment() -> dict[str, str]:
    """Return the variables that say where the data is, if they are set."""
    return {name: value for name in _KEPT if (value := os.environ.get(name, "").strip())}


def config_folder() -> Path:
    """Return the user's folder of settings of programs."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _filled(value: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the value of an entry with the command, its arguments and what it needs of the environment."""
    command, *before = own_command()
    filled: dict[str, Any] = {}
    for name, one in value.items():
        if one == "{command}":
            filled[name] = command
        elif isinstance(one, list):
            filled[name] = [*before, *(["acp"] if one == ["{acp}"] else arguments)]
        else:
            filled[name] = one
    if environment := kept_environment():
        filled["env"] = environment
    return filled
