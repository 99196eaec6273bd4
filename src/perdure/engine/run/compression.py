"""What tools return is compressed once, before it is stored: the log has the whole text beside what the model sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perdure.context.retrieval.stubs import UNNUMBERED_HANDLE
from perdure.context.tool_output.compress import compress
from perdure.context.tool_output.pipeline import Compressed, Level
from perdure.core.ports import TokenCounter
from perdure.core.tools.spec import ToolOutcome, ToolSpec
from perdure.domain.agents.tool_output import output_level

AT_ONCE_CHARS = 50_000
"""A longer text is compressed in a thread, so that other runs do not wait for it."""
CHARS_PER_TOKEN = 3
"""For the limit of a tool, which is in characters: a shortened text that is still longer would be cut."""


async def compress_outcome(
    outcome: ToolOutcome, spec: ToolSpec, settings: Mapping[str, Any], counter: TokenCounter
) -> ToolOutcome:
    """Return the outcome with what the model sees of it. The text of an error stays as it is."""
    level = output_level(settings, spec.name)
    if level == "off" or outcome.status == "error" or outcome.shown_text is not None:
        return outcome
    work = (outcome.text, level, spec.return_limit_chars, counter)
    if len(outcome.text) <= AT_ONCE_CHARS:
        shown_text, whole_tokens = _show(*work)
    else:
        shown_text, whole_tokens = await asyncio.to_thread(_show, *work)
    return outcome if shown_text is None else replace(outcome, shown_text=shown_text, whole_tokens=whole_tokens)


def _show(text: str, level: Level, limit_chars: int, counter: TokenCounter) -> tuple[str | None, int]:
    """Return what the model sees of a text, None: the text, and the tokens of the text."""
    compressed = _compress(text, level, limit_chars, counter)
    return (None, 0) if compressed.form == "whole" else (compressed.text, counter.count(text))


def _compress(text: str, level: Level, limit_chars: int, counter: TokenCounter) -> Compressed:
    compressed = compress(text, level=level, handle=UNNUMBERED_HANDLE, count=counter.count)
    if level == "lossless" or len(compressed.text) <= limit_chars:
        return compressed
    budget = limit_chars // CHARS_PER_TOKEN
    return compress(text, level=level, budget=budget, handle=UNNUMBERED_HANDLE, count=counter.count)
