"""All tools of the engine by name, and those of them that have a trait."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.tools.builtin_specs import BUILTIN_TOOL_SPECS
from perdure.core.tools.memory_specs import CONTEXT_TOOL_SPECS, MEMORY_TOOL_SPECS
from perdure.core.tools.spec import ToolSpec, ToolTrait

ENGINE_TOOL_SPECS: Mapping[str, ToolSpec] = {**MEMORY_TOOL_SPECS, **CONTEXT_TOOL_SPECS, **BUILTIN_TOOL_SPECS}
"""Name -> spec."""


def tools_with(trait: ToolTrait) -> tuple[str, ...]:
    """Return the tools that have a trait."""
    return tuple(spec.name for spec in ENGINE_TOOL_SPECS.values() if trait in spec.traits)


def tool_writes_memory(name: str) -> bool:
    """Return whether a tool of the engine keeps a text beyond its conversation; one that nobody described does."""
    spec = ENGINE_TOOL_SPECS.get(name)
    return spec is None or spec.writes_memory


REPEATING_TOOLS = frozenset(tools_with("repeats"))
"""Built-in tools whose results only repeat blocks or hits of searches, or say that they worked. The search of history
excludes their results, or it would find earlier searches and edits instead of the messages. It also excludes outputs of
megabytes, which `search_output` searches."""
