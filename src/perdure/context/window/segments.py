"""The segments of a request: the tokens of each part, for its certificate and the overview."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perdure.context.request.assemble import View, parse_recalled
from perdure.context.request.prefix import tools_text
from perdure.context.retrieval.stubs import row_tokens
from perdure.context.sections.directories import directories_section
from perdure.context.window.budget import Segment
from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.ports import TokenCounter

_BLOCKS_BEGIN, _BLOCKS_END = "<memory_blocks>", "</memory_blocks>"


def segments(
    view: View, *, stubs: Mapping[int, int], status: str, run_seq: int | None, counter: TokenCounter
) -> tuple[Segment, ...]:
    """Return the segments in the order of the request; their sum is the request's estimate.

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
    """Return the segment of the status, and one of the recalled text, if any."""
    tokens = counter.count(status)
    recalled = parse_recalled(status)
    if not recalled:
        return (Segment("status", tokens),)
    recalled_tokens = min(tokens, counter.count(json.dumps(recalled, ensure_ascii=False)))
    return (Segment("status", tokens - recalled_tokens), Segment("recalled", recalled_tokens))


def summary_tokens(summary: str, counter: TokenCounter) -> int:
    """Return the tokens of a summary section, which is a message of its own."""
    return counter.count(summary) + MESSAGE_OVERHEAD_TOKENS if summary else 0


def blocks_section(system: str) -> str:
    """Return the memory section of a system text. A block can't hold its closing tag, so the last one ends it."""
    end = system.rfind(_BLOCKS_END)
    start = system.find(_BLOCKS_BEGIN)
    return system[start : end + len(_BLOCKS_END)] if 0 <= start < end else ""
