"""The texts of the prefix, the part of a request that repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.context.sections.blocks import blocks_in_words, blocks_xml
from perdure.context.sections.envelopes import MARKER_RULE, marker_line, without_marker
from perdure.core.blocks import Block
from perdure.core.ids import AgentId
from perdure.core.text.json_strings import compact_json
from perdure.core.text.markup import escape_tags
from perdure.core.tools.spec import Tool, ToolSpec

MEMORY_PLACEHOLDER = "{CORE_MEMORY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of memory out of view. `tags` are the most used tags of the archive, most used first."""

    messages: int = 0
    passages: int = 0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a prefix is sent: the agent, the conversation (`default` is the agent's first), and when it was compiled,
    in the agent's time zone."""

    agent_id: AgentId
    conversation: str
    compiled_at: datetime


def compile_system(
    base: str,
    blocks: Sequence[Block],
    directories: str = "",
    rules: str = "",
    skills: str = "",
    marker: str = "",
    addition: str = "",
    in_words: bool = False,
) -> str:
    """Build the system text: base prompt, blocks, sections of tool rules, skills and files, what the context engine
    adds, and what a marker means. It is the same in all conversations of an agent.

    A base prompt with `{CORE_MEMORY}` gets memory there, any other at the end.

    Args:
        marker: of the engine's messages; empty: they have none.
        in_words: for a model that the engine speaks to in sentences.
    """
    shown = blocks_in_words(blocks) if in_words else blocks_xml(blocks)
    memory = "\n\n".join(filter(None, (shown, rules, skills, directories, addition_section(addition))))
    if marker:
        memory = "\n\n".join(filter(None, (without_marker(memory, marker), MARKER_RULE)))
    if MEMORY_PLACEHOLDER in base:
        return base.replace(MEMORY_PLACEHOLDER, memory)
    return "\n\n".join(filter(None, (base, memory)))


def compile_opening(counts: Counts, place: Place, *, marker: str) -> str:
    """Build what begins a conversation and differs from one to the next: its place, counts and marker."""
    if counts.tags:
        tags = [without_marker(tag, marker) if marker else tag for tag in counts.tags]
        counts = replace(counts, tags=tuple(tags))
    return _metadata(counts, place, marker)


def addition_section(addition: str) -> str:
    """Return what a context engine adds to the system text; empty if that is nothing."""
    return f"<context_engine>\n{escape_tags(addition)}\n</context_engine>" if addition else ""


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


def _metadata(counts: Counts, place: Place, marker: str) -> str:
    lines = [
        *_place_lines(place),
        f"- {counts.messages} messages are in recall memory (conversation_search finds them)",
        f"- {counts.passages} passages are in archival memory (archival_memory_search finds them)",
    ]
    if counts.tags:
        lines.append("- archival memory tags: " + ", ".join(counts.tags))
    if marker:
        lines.append(marker_line(marker))
    return "\n".join(("<memory_metadata>", *lines, "</memory_metadata>"))


def _place_lines(place: Place) -> list[str]:
    at = place.compiled_at
    # `%I` and `%p` of `strftime` would use the process's locale.
    hour, half = (at.hour - 1) % 12 + 1, "AM" if at.hour < 12 else "PM"
    time = f"{at.date().isoformat()} {hour:02}:{at.minute:02}:{at.second:02} {half} {at:%Z%z}"
    return [
        f"- AGENT_ID: {place.agent_id}",
        f"- CONVERSATION_ID: {place.conversation}",
        f"- System prompt last recompiled: {time}",
    ]
