"""What tools return is compressed once, before it is stored: the log has the whole text beside what the model sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure.context.tool_output.compress import compress
from perdure.context.tool_output.pipeline import Compressed, Level
from perdure.core.nodes import UNNUMBERED_HANDLE
from perdure.core.ports import TokenCounter
from perdure.core.tools.spec import ToolOutcome, ToolSpec
from perdure.domain.agents.tool_output import output_level
from perdure.engine.ports import Ports

AT_ONCE_CHARS = 50_000
"""A longer text is compressed in a thread, so that other runs do not wait for it."""
CHARS_PER_TOKEN = 3
"""For the limit of a tool, which is in characters: a shortened text that is still longer would be cut."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model sees of a text, and the tokens of the text."""

    text: str
    whole_tokens: int


async def compress_outcome(
    outcome: ToolOutcome, spec: ToolSpec, settings: Mapping[str, Any], ports: Ports
) -> ToolOutcome:
    """Return the outcome with what the model sees of it. The text of an error stays as it is.

    Args:
        settings: of the agent.
    """
    if outcome.status == "error" or outcome.shown_text is not None:
        return outcome
    shown = await show_result(outcome.text, spec.name, settings, ports, limit_chars=spec.return_limit_chars)
    return outcome if shown is None else replace(outcome, shown_text=shown.text, whole_tokens=shown.whole_tokens)


async def show_result(
    text: str, tool: str, settings: Mapping[str, Any], ports: Ports, *, limit_chars: int
) -> Shown | None:
    """Return what the model sees of what a tool returned; None: the text itself.

    Args:
        limit_chars: the most characters that it sees.
    """
    level = output_level(settings, tool, ports.settings.tool_output)
    if level == "off":
        return None
    work = (text, level, limit_chars, ports.counter)
    return _show(*work) if len(text) <= AT_ONCE_CHARS else await asyncio.to_thread(_show, *work)


def _show(text: str, level: Level, limit_chars: int, counter: TokenCounter) -> Shown | None:
    """Return what the model sees of a text; None: the text itself."""
    compressed = _compress(text, level, limit_chars, counter)
    return None if compressed.form == "whole" else Shown(compressed.text, counter.count(text))


def _compress(text: str, level: Level, limit_chars: int, counter: TokenCounter) -> Compressed:
    compressed = compress(text, level=level, handle=UNNUMBERED_HANDLE, count=counter.count)
    if level == "lossless" or len(compressed.text) <= limit_chars:
        return compressed
    budget = limit_chars // CHARS_PER_TOKEN
    return compress(text, level=level, budget=budget, handle=UNNUMBERED_HANDLE, count=counter.count)
