"""The setting of an agent for the compression of what its tools return: a level, or one for each tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.context.tool_output.pipeline import LEVELS, Level
from perdure.core.errors import InvalidInput

TOOL_OUTPUT = "tool_output"
OTHERS = "*"
"""Stands for the tools that have no level of their own."""
DEFAULT_LEVEL: Level = "full"


def output_level(settings: Mapping[str, Any], tool: str, default: str = DEFAULT_LEVEL) -> Level:
    """Return how what a tool returns is compressed. `default`: for agents and tools that say nothing of it."""
    value = settings.get(TOOL_OUTPUT) or default
    if isinstance(value, Mapping):
        value = value.get(tool) or value.get(OTHERS) or default
    return next(level for level in LEVELS if level == value)


def check_tool_output(settings: Mapping[str, Any]) -> None:
    """Check the setting. Raises: InvalidInput."""
    value = settings.get(TOOL_OUTPUT)
    levels = list(value.values()) if isinstance(value, Mapping) else [] if value is None else [value]
    if any(level not in LEVELS for level in levels):
        raise InvalidInput(
            f"{TOOL_OUTPUT} is {value!r:.80}: give {', '.join(LEVELS)}, or an object from names of tools to these, in"
            f' which "{OTHERS}" is any other tool'
        )
