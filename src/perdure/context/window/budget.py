"""The token budget of a request: its segments, and the certificate that they fit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.context.sections.assemble import View, parse_recalled, tools_text
from perdure.context.sections.stubs import row_tokens
from perdure.context.sections.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.ports import TokenCounter

RETRY_SHARE = 0.75
"""The size of the next request, relative to one that the provider refused as too large."""

SegmentName = Literal[
    "tools", "system prompt", "memory blocks", "files", "summary", "messages", "newest turn", "status", "recalled"
]
"""The parts of a request, in its order. `files` needs folders, `recalled` a recall that returned something."""

PLAUSIBLE = (0.4, 2.5)
"""The plausible range of measured tokens, relative to the estimate. Some servers omit cached tokens or report none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a request, in the order of the request, with the upper estimate of its tokens."""

    name: SegmentName
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The tokens that a request takes of a window.

    Args:
        overcount: by how much the sum of the segments is too high; negative if it is too low.
        factor: multiplies the corrected sum after a provider refused a certified request.
        reserve_tokens: free room for the answer.
        fixed_at_least: the least tokens, by any tokenizer, of what no plan can make smaller, where a request may be
            tried that only an estimate finds too large; None: none may.
        was_refused: the provider has just refused a request of the run as too large.
    """

    window_tokens: int
    reserve_tokens: int
    segments: tuple[Segment, ...]
    overcount: int = 0
    factor: float = 1.0
    fixed_at_least: int | None = None
    was_refused: bool = False

    @property
    def estimated_tokens(self) -> int:
        """The upper estimate, not corrected."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def tokens(self) -> int:
        """The corrected estimate."""
        return math.ceil((self.estimated_tokens - self.overcount) * self.factor)

    @property
    def budget_tokens(self) -> int:
        """The window without the reserve."""
        return self.window_tokens - self.reserve_tokens

    @property
    def over_tokens(self) -> int:
        """How many tokens are over the budget; 0 if the request fits."""
        return max(0, self.tokens - self.budget_tokens)

    @property
    def fits(self) -> bool:
        """Whether the corrected estimate is within the budget."""
        return self.tokens <= self.budget_tokens


def measure_overcount(estimated: int, measured: int, *, window_tokens: int, before: Sequence[int] = ()) -> int | None:
    """Return by how much a request was overestimated; None if `measured` is no plausible size of the whole request:
    above the window, far from the estimate, or below the tokens of `before`, earlier requests that it extends."""
    low, high = PLAUSIBLE
    if measured > window_tokens or not estimated * low <= measured <= estimated * high:
        return None
    return None if before and measured < max(before) else estimated - measured


def factor_after_overflow(budget_tokens: int, refused_tokens: int) -> float:
    """Return the factor for the token estimate after a provider refused a request, so that `RETRY_SHARE` of that
    request just fits. It is right whether the estimate was too low or the window is smaller than known. 1: the request
    was known not to fit, so the provider has said the true size."""
    if refused_tokens > budget_tokens:
        return 1.0
    return max(1.0, budget_tokens / (RETRY_SHARE * max(1, refused_tokens)))


def reduce_overcount(overcount: int, *, estimated: int, dropped: int, dropped_at_least: int) -> int:
    """Return the overcount after a part of the measured request leaves; it never underestimates the rest.

    The part takes between `dropped_at_least` and `dropped` tokens. With U estimated and M measured for the whole, the
    rest takes at most min(U - dropped, M - dropped_at_least). A negative overcount shrinks in proportion, so that one
    wrong measurement does not burden a conversation for ever.
    """
    if overcount < 0:
        return -math.ceil(-overcount * max(0.0, 1 - dropped / max(1, estimated)))
    return max(0, overcount - max(0, dropped - dropped_at_least))


_BLOCKS_BEGIN, _BLOCKS_END = "<memory_blocks>", "</memory_blocks>"


def directories_section(system: str) -> str:
    """Return the section of files in a system text. It is behind the blocks; nothing in it holds its closing tag."""
    start = system.find("<directories>\n<file_limits>", system.rfind(_BLOCKS_END) + 1)
    end = system.find("</directories>", start)
    return system[start : end + len("</directories>")] if 0 <= start < end else ""


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
    summary = summary_tokens(counter, prefix.summary)
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


def summary_tokens(counter: TokenCounter, *texts: str) -> int:
    """Return the tokens of a summary section, or of other texts that are messages of their own."""
    return sum(counter.count(text) + MESSAGE_OVERHEAD_TOKENS for text in texts if text)


def blocks_section(system: str) -> str:
    """Return the memory section of a system text. A block can't hold its closing tag, so the last one ends it."""
    end = system.rfind(_BLOCKS_END)
    start = system.find(_BLOCKS_BEGIN)
    return system[start : end + len(_BLOCKS_END)] if 0 <= start < end else ""
