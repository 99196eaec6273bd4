"""Names of tools in definitions: those of Perdure, patterns, and those that Claude Code has for the same."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perdure.core.features import Point
from perdure.core.text.tables import read_table
from perdure.storage.tx import Tx

UNUSED_TOOLS: Point[[Tx], Collection[str]] = Point("unused_tools")
"""The names of tools that can't be called, since what brings them is not in use."""

_MCP = "mcp__"
_DIGEST = re.compile(r"_[0-9a-f]{8}")
"""The end of a tool's name whose server's name has other characters than names of tools have."""


@dataclass(frozen=True, slots=True)
class ResolvedTools:
    """`found`: the available tools that are meant, sorted; `missing`: the names that mean none of them."""

    found: Sequence[str]
    missing: Sequence[str]


def resolve_tools(names: Iterable[str], available: Collection[str], *, plugin: str = "") -> ResolvedTools:
    """Return which of the available tools the names in a definition mean.

    A name is that of a tool, one of Claude Code's, `mcp__SERVER__TOOL`, or a pattern such as `memory_*`. One with a
    limit of arguments, such as `Bash(git add:*)`, means none, for such a limit can't be enforced.

    Args:
        plugin: the plug-in that brings the definition, which names its own servers without the plug-in's name.
    """
    return _resolve(tuple(names), frozenset(available), plugin)


def resolve_forbidden(names: Iterable[str], available: Collection[str], *, plugin: str = "") -> ResolvedTools:
    """As `resolve_tools`, of names that a definition takes away: one with a limit of arguments means the whole tool."""
    whole = {name.partition("(")[0].strip(): name for name in names}
    found = resolve_tools(whole, available, plugin=plugin)
    return ResolvedTools(found.found, [whole[name] for name in found.missing])


@functools.lru_cache(maxsize=4_096)
def _resolve(names: Sequence[str], available: Collection[str], plugin: str) -> ResolvedTools:
    """As `resolve_tools`. A list may have hundreds of names, and is looked at for each message."""
    found, missing = set[str](), list[str]()
    plain = {tool[:-9]: tool for tool in available if _DIGEST.fullmatch(tool[-9:])}
    for name in dict.fromkeys(names):
        meant = set[str]()
        for pattern in _patterns(name, plugin):
            if "*" in pattern:
                meant |= {tool for tool in available if _is_like(tool, pattern)}
            elif pattern in available:
                meant.add(pattern)
            elif name.startswith(_MCP) and pattern in plain:
                meant.add(plain[pattern])
        found |= meant
        if not meant:
            missing.append(name)
    return ResolvedTools(sorted(found), missing)


def names_elsewhere(tool: str, plugin: str = "") -> Sequence[str]:
    """The names by which definitions of Claude Code know a tool, its own among them; `plugin`: those of this plug-in,
    which names its own servers without its name, or as Claude Code does."""
    server = [_MCP + tool] if "__" in tool else []
    if server and plugin and tool.startswith(f"{plugin}-"):
        server += [f"{_MCP}{start}{tool.removeprefix(f'{plugin}-')}" for start in ("", f"plugin_{plugin}_")]
    return [tool, *(name for name, tools in _names().items() if tool in tools), *server]


def _patterns(name: str, plugin: str) -> Iterator[str]:
    """The patterns of the tools that a name in a definition of a plug-in, or of none, means."""
    yield from (name, *_names().get(name, ()))
    if not name.startswith(_MCP):
        return
    server, _, tool = name.removeprefix(_MCP).partition("__")
    servers = [server]
    if plugin:
        servers.append(f"{plugin}-{server.removeprefix(f'plugin_{plugin}_')}")
    for one in servers:
        yield f"{one}__{tool or '*'}"


def _is_like(tool: str, pattern: str) -> bool:
    """Whether a name fits a pattern, in which `*` is any text. To compile hundreds of patterns would take seconds."""
    first, *inner, last = pattern.split("*")
    at, end = len(first), len(tool) - len(last)
    if at > end or not tool.startswith(first) or not tool.endswith(last):
        return False
    for part in inner:
        if (at := tool.find(part, at, end)) < 0:
            return False
        at += len(part)
    return True


@functools.cache
def _names() -> Mapping[str, Sequence[str]]:
    """How Claude Code calls a tool -> the tools that do the same here."""
    return read_table(__file__)
