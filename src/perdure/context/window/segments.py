"""The segments of a request: what each part of it takes, as its certificate and the overview tell it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perdure.context.request.assemble import View, recalled_in
from perdure.context.request.prefix import tools_text
from perdure.context.retrieval.stubs import row_tokens
from perdure.context.sections.directories import directories_section
from perdure.context.window.budget import Segment
from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.ports import TokenCounter

__all__ = ["blocks_section", "segments", "summary_tokens"]

_BLOCKS_BEGIN, _BLOCKS_END = "<memory_blocks>", "</memory_blocks>"


def segments(
    view: View, *, stubs: Mapping[int, int], status: str, run_seq: int | None, counter: TokenCounter
) -> tuple[Segment, ...]:
    """The segments in the order of the request; their sum is what the engine counts for it.

    Args:
        status: the volatile tail.
        run_seq: the run whose rows are the newest turn; None: there is none.
    """
    prefix = view.prefix
    tools = counter.count(tools_text(prefix.tools))
    summary = summary_tokens(prefix.summary, counter)
    text = max(0, prefix.tokens - tools - summary)
    blocks = min(text, counter.count(blocks_section(prefix.system)))
    section = directories_section(prefix.system)
    files = min(text - blocks, counter.count(section))
    newest = older = 0
    for message in (*view.pinned, *view.rows):
        tokens = row_tokens(message, stubs, counter)
        if run_seq is not None and message.run_seq == run_seq:
            newest += tokens
        else:
            older += tokens
    return (
        Segment("tools", tools),
        Segment("system prompt", text - blocks - files),
        Segment("memory blocks", blocks),
        *((Segment("files", files),) if section else ()),
        Segment("summary", summary),
        Segment("messages", older),
        Segment("newest turn", newest),
        *_tail_segments(status, counter),
    )


def _tail_segments(status: str, counter: TokenCounter) -> tuple[Segment, ...]:
    """The status, and apart from it what was recalled, if anything was."""
    tokens = counter.count(status)
    recalled = recalled_in(status)
    if not recalled:
        return (Segment("status", tokens),)
    shown = min(tokens, counter.count(json.dumps(recalled, ensure_ascii=False)))
    return (Segment("status", tokens - shown), Segment("recalled", shown))


def summary_tokens(summary: str, counter: TokenCounter) -> int:
    """The tokens of a summary section, which is a message of its own."""
    return counter.count(summary) + MESSAGE_OVERHEAD_TOKENS if summary else 0


def blocks_section(system: str) -> str:
    """The memory section of a system text. A block can't hold its closing tag, so the last one is the section's."""
    end = system.rfind(_BLOCKS_END)
    start = system.find(_BLOCKS_BEGIN)
    return system[start : end + len(_BLOCKS_END)] if 0 <= start < end else ""
