"""What tools return is compressed once, before it is stored: the log has the whole text beside what the model sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from perdure.context.tool_output.compress import compress
from perdure.context.tool_output.pipeline import Level
from perdure.core.nodes import UNNUMBERED_HANDLE
from perdure.core.ports import TokenCounter
from perdure.core.tools.spec import ToolOutcome, ToolSpec
from perdure.domain.agents.options import output_level
from perdure.engine.ports import Ports

AT_ONCE_CHARS = 4_000
"""A longer text is compressed in a thread, so that other runs do not wait for it: 50,000 characters take 0.1 s."""
BUDGET_S = 10.0
"""After so long a text stands as it is: whoever wrote it may have made it to keep the reader busy."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model sees of a text, and the tokens of the text."""

    text: str
    whole_tokens: int


async def compress_outcome(
    outcome: ToolOutcome, spec: ToolSpec, settings: Mapping[str, Any], ports: Ports
) -> ToolOutcome:
    """Return the outcome with what the model sees of it. The text of an error stays as it is up to the limit.

    Args:
        settings: of the agent.
    """
    text, limit = outcome.text, spec.return_limit_chars
    if outcome.shown_text is not None or (outcome.status == "error" and len(text) <= limit):
        return outcome
    shown = await show_result(text, spec.name, settings, ports, limit_chars=limit)
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
    over = Event()
    work = (text, level, limit_chars, ports.counter, over.is_set)
    if len(text) <= AT_ONCE_CHARS:
        return _show(*work)
    try:
        async with asyncio.timeout(BUDGET_S):
            return await asyncio.to_thread(_show, *work)
    except TimeoutError:
        return None
    finally:
        over.set()  # a thread can't be ended: it stops where it looks


def _show(
    text: str, level: Level, limit_chars: int, counter: TokenCounter, is_over: Callable[[], bool]
) -> Shown | None:
    """Return what the model sees of a text; None: the text itself."""
    handle = UNNUMBERED_HANDLE
    compressed = compress(text, level=level, handle=handle, count=counter.count, is_over=is_over)
    if len(compressed.text) > limit_chars:
        compressed = compress(text, budget=limit_chars, handle=handle, count=len, is_over=is_over)
    return None if compressed.form == "whole" else Shown(compressed.text, counter.count(text))
