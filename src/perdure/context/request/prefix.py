"""The prefix, the part of a request that repeats: its texts, and when to rewrite it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.context.prompts import base_prompt
from perdure.context.request.authorship import REPLACEMENT, marker_section
from perdure.context.sections.blocks import blocks_xml
from perdure.core.blocks import Block
from perdure.core.runs import Prefix
from perdure.core.text.json_encoder import compact_json
from perdure.core.tools.spec import Tool, ToolSpec

MEMORY_PLACEHOLDER = "{CORE_MEMORY}"

COLD_AFTER = timedelta(hours=1)
"""Providers drop a cached prefix that is unused for longer, so a rewrite then costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of memory out of view. `tags` are the most used tags of the archive, most used first."""

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
    """Build the system text: base prompt, blocks, sections of tool rules, skills and files, counts, and the marker.

    A custom prompt with `{CORE_MEMORY}` gets memory there, any other prompt at the end. The same memory and marker give
    the same bytes.
    """
    sections = filter(None, (blocks_xml(blocks), rules, skills, directories, _metadata(counts)))
    memory = "\n\n".join(sections)
    if marker:
        memory = f"{memory.replace(marker, REPLACEMENT)}\n\n{marker_section(marker)}"
    base = base_prompt() if custom is None else custom
    if MEMORY_PLACEHOLDER in base:
        return base.replace(MEMORY_PLACEHOLDER, memory)
    return "\n\n".join(filter(None, (base, memory)))


def compile_tools(
    tools: Sequence[Tool], engine: Sequence[ToolSpec] = (), client: Sequence[ToolSpec] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Build the tools for the model: the agent's own by name, then those that the caller runs, then the engine's.

    An agent without tools gets none of the engine's: its model may not know how to call any. The agent's tool replaces
    an engine tool of the same name, and the caller's tool replaces any other.
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
    """Return the text by which the tokens of tools are counted."""
    return compact_json(tools) if tools else ""


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
    """Return why the prefix must be rewritten, or may be at no cost; None to send it again.

    Compaction rewrites it for other reasons, see `engine.compaction`.

    Args:
        seen_changed: memory differs from the prefix, so a rewrite would bring it up to date.
        last_used_at: when the agent's last model call began.
        client_tools: the key of the tools and skills that the caller of this run sent.
        reset: the conversation had a prefix before it was reset.
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
