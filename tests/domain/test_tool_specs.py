"""The built-in memory tools as a set."""

from __future__ import annotations

from perdure.core.tools.engine_specs import (
    ARCHIVAL_TOOLS,
    CONTEXT_TOOL_SPECS,
    DEFAULT_TOOLS,
    MEMORY_TOOL_SPECS,
    REPEATING_TOOLS,
)


def test_no_result_of_a_memory_tool_is_found_as_history() -> None:
    """A new tool must not be forgotten where search leaves them out."""
    assert {*MEMORY_TOOL_SPECS, *CONTEXT_TOOL_SPECS, "index_output"} == REPEATING_TOOLS


def test_every_default_tool_is_there() -> None:
    """An agent type can't name a tool that does not exist."""
    named = {name for names in DEFAULT_TOOLS.values() for name in names} | set(ARCHIVAL_TOOLS)

    assert named <= set(MEMORY_TOOL_SPECS)
