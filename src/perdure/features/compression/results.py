"""What tools return is compressed once, before it is stored: the log has the whole text beside what the model sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Event
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.nodes import UNNUMBERED_HANDLE
from perdure.core.specs import ToolOutcome
from perdure.engine.ports import Ports
from perdure.features.compression.compress import compress
from perdure.features.compression.pipeline import LEVELS, Level

TOOL_OUTPUT = "tool_output"
OTHERS = "*"
"""The name in the setting that stands for all tools without a level of their own."""
AT_ONCE_CHARS = 4_000
"""A longer text is compressed in a thread, so that other runs do not wait for it: 50,000 characters take 0.1 s."""
BUDGET_S = 10.0
"""A text that takes longer stays uncompressed: its writer may have made it to keep the reader busy."""


def output_level(settings: Mapping[str, Any], tool: str, default: str) -> Level:
    """Return the level at which an agent's settings have the output of a tool compressed, else `default`."""
    value = settings.get(TOOL_OUTPUT) or default
    if isinstance(value, Mapping):
        value = value.get(tool) or value.get(OTHERS) or default
    return next(level for level in LEVELS if level == value)


def check_levels(settings: Mapping[str, Any]) -> None:
    """Check the field `tool_output` in an agent's settings, which has to be there. Raises: InvalidInput."""
    value = settings[TOOL_OUTPUT]
    levels = list(value.values()) if isinstance(value, Mapping) else [value]
    if any(level not in LEVELS for level in levels):
        raise InvalidInput(
            f"{TOOL_OUTPUT} is {value!r:.80}: give {', '.join(LEVELS)}, or an object from names of tools to these, in"
            f' which "{OTHERS}" is any other tool'
        )


async def compress_outcome(
    outcome: ToolOutcome, tool: str, settings: Mapping[str, Any], limit_chars: int, ports: Ports
) -> ToolOutcome:
    """Return the outcome of a tool with the compressed text that the model sees; an error within the limit stays whole.

    Args:
        settings: those of the agent.
        limit_chars: the most characters that the model sees.
    """
    text, level = outcome.text, output_level(settings, tool, ports.settings.tool_output)
    is_short_error = outcome.status == "error" and len(text) <= limit_chars
    if level == "off" or outcome.shown_text is not None or is_short_error:
        return outcome
    over = Event()
    work = (outcome, level, limit_chars, ports.counter.count, over.is_set)
    if len(text) <= AT_ONCE_CHARS:
        return _compress(*work)
    try:
        async with asyncio.timeout(BUDGET_S):
            return await asyncio.to_thread(_compress, *work)
    except TimeoutError:
        return outcome
    finally:
        over.set()  # a thread can't be ended: it stops where it looks


def _compress(
    outcome: ToolOutcome, level: Level, limit_chars: int, count: Callable[[str], int], is_over: Callable[[], bool]
) -> ToolOutcome:
    """Return the outcome with its text at a level, shortened to the limit if it is longer; see `compress`."""
    text, handle = outcome.text, UNNUMBERED_HANDLE
    shown = compress(text, level=level, handle=handle, count=count, is_over=is_over)
    if len(shown.text) > limit_chars:
        shown = compress(text, budget=limit_chars, handle=handle, count=len, is_over=is_over)
    return outcome if shown.form == "whole" else replace(outcome, shown_text=shown.text, whole_tokens=count(text))
