"""Names of tools in definitions: those of Perdure, patterns, and those that Claude Code has for the same."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

_MCP = "mcp__"


@dataclass(frozen=True, slots=True)
class ResolvedTools:
    """`found`: the available tools that are meant, sorted; `missing`: the names that mean none of them."""

    found: Sequence[str]
    missing: Sequence[str]


def resolve_tools(names: Iterable[str], available: Collection[str]) -> ResolvedTools:
    """Return which of the available tools the names in a definition mean.

    A name is that of a tool, one of Claude Code's, `mcp__SERVER__TOOL`, or a pattern such as `memory_*`. One with a
    limit of arguments, such as `Bash(git add:*)`, means none, for such a limit can't be enforced.
    """
    found, missing = set[str](), list[str]()
    for name in names:
        meant = {tool for tool in available for pattern in _patterns(name) if fnmatchcase(tool, pattern)}
        found |= meant
        if not meant:
            missing.append(name)
    return ResolvedTools(sorted(found), missing)


def names_elsewhere(tool: str) -> Sequence[str]:
    """The names by which definitions of Claude Code know a tool, its own among them."""
    server = [_MCP + tool] if "__" in tool else []
    return [tool, *(name for name, tools in _names().items() if tool in tools), *server]


def _patterns(name: str) -> Sequence[str]:
    """The patterns of the tools that a name in a definition means."""
    if name.startswith(_MCP):
        rest = name.removeprefix(_MCP)
        return [name, rest if "__" in rest else f"{rest}__*"]
    return [name, *_names().get(name, ())]


@functools.cache
def _names() -> Mapping[str, Sequence[str]]:
    """How Claude Code calls a tool -> the tools that do the same here."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
