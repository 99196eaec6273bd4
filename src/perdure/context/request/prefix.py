"""The prefix: the part of a request that repeats. When it is written anew, and what it then says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.context.prompts import base_prompt
from perdure.context.request.authorship import marker_section, without_marker
from perdure.context.sections.blocks import blocks_xml
from perdure.core.blocks import Block
from perdure.core.runs import Prefix
from perdure.core.tools.spec import Tool, ToolSpec

__all__ = ["MEMORY_PLACEHOLDER", "Counts", "compile_system", "compile_tools", "rewrite_reason", "tools_text"]

MEMORY_PLACEHOLDER = "{CORE_MEMORY}"

COLD_AFTER = timedelta(hours=1)
"""No provider keeps a cached prefix that was not used for longer, so a rewrite costs nothing then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much there is out of view. `tags` are the most used tags of the archive, most used first."""

    messages: int = 0
    passages: int = 0
    tags: tuple[str, ...] = ()


def compile_system(
    custom: str | None,
    blocks: Sequence[Block],
    counts: Counts,
    directories: str = "",
    rules: str = "",
    skills: str = "",
    marker: str = "",
) -> str:
    """The system text: base prompt, blocks, the sections of tool rules, skills and files, counts as of now, and what
    the marker means.

    A custom prompt that contains `{CORE_MEMORY}` gets memory there; any other, and Perdure's own, gets it at the end.
    No clock and no ids: the same memory and marker give the same bytes.
    """
    sections = filter(None, (blocks_xml(blocks), rules, skills, directories, _metadata(counts)))
    memory = without_marker("\n\n".join(sections), marker)
    if marker:
        memory = f"{memory}\n\n{marker_section(marker)}"
    base = base_prompt() if custom is None else custom
    if MEMORY_PLACEHOLDER in base:
        return base.replace(MEMORY_PLACEHOLDER, memory)
    return "\n\n".join(filter(None, (base, memory)))


def compile_tools(
    tools: Sequence[Tool], engine: Sequence[ToolSpec] = (), client: Sequence[ToolSpec] = ()
) -> tuple[Mapping[str, Any], ...]:
    """The tools as the model sees them: the agent's own sorted by name, then those that the caller runs, then those
    that the engine offers.

    An agent without tools gets none of the engine's: its model may not know how to call any. One of its own with the
    name of an engine's takes its place, and one of the caller's that of any other.
    """
    theirs = {spec.name: spec for spec in client}
    own = sorted((tool.spec for tool in tools if tool.spec.name not in theirs), key=lambda spec: spec.name)
    own += [theirs[name] for name in sorted(theirs)]
    names = {spec.name for spec in own}
    offered = [spec for spec in engine if spec.name not in names] if own else []
    return tuple(
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        for spec in (*own, *offered)
    )


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as their tokens are counted."""
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":")) if tools else ""


def rewrite_reason(
    prefix: Prefix | None,
    *,
    settings_revision: int,
    seen_changed: bool,
    last_used_at: datetime | None,
    now: datetime,
    client_tools: str | None = None,
    reset: bool = False,
) -> str | None:
    """Why the prefix must, or may at no cost, be written anew; None to send it once more as it is. That the request
    does not fit is another matter (`compaction`).

    Args:
        seen_changed: memory differs from what the prefix shows, so a rewrite would fold something in.
        last_used_at: when the agent's last model call began.
        client_tools: the set of tools and skills that the caller of this run brought along.
        reset: there was a prefix, before the conversation was reset.
    """
    if prefix is None:
        return "reset" if reset else "first"
    if prefix.settings_revision != settings_revision:
        return "settings"
    if prefix.client_tools != client_tools:
        return "tools"
    if not prefix.marker:
        return "marker"
    if seen_changed and (last_used_at is None or now - last_used_at > COLD_AFTER):
        return "cache_cold"
    return None


def _metadata(counts: Counts) -> str:
    lines = [
        f"- {counts.messages} messages are in recall memory (conversation_search finds them)",
        f"- {counts.passages} passages are in archival memory (archival_memory_search finds them)",
    ]
    if counts.tags:
        lines.append("- archival memory tags: " + ", ".join(counts.tags))
    return "\n".join(("<memory_metadata>", *lines, "</memory_metadata>"))
