"""What fills the window: how many tokens of it go to what, as the engine estimates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.ports import TokenCounter

__all__ = ["ContextOverview", "ContextPart", "PartName", "overview"]

PartName = Literal["system prompt", "memory blocks", "tools", "messages", "status"]

_BLOCKS_BEGIN, _BLOCKS_END = "<memory_blocks>", "</memory_blocks>"


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of a request, in the order of the request, with its estimated tokens."""

    name: PartName
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOverview:
    """How a conversation's window is filled: the parts, what is kept free for the answer, and what is left.

    `parts` + `reserve_tokens` + `free_tokens` are `window_tokens`, unless more is in view than fits: then
    `free_tokens` is 0 and `over_tokens` says how much has to go before the next request.

    Args:
        model: the agent's model.
        sent: the prefix is the one that was sent last; False: it is what the next request would begin with.
    """

    model: str
    window_tokens: int
    reserve_tokens: int
    parts: tuple[ContextPart, ...]
    sent: bool

    @property
    def used_tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def free_tokens(self) -> int:
        return max(0, self.window_tokens - self.reserve_tokens - self.used_tokens)

    @property
    def over_tokens(self) -> int:
        return max(0, self.used_tokens + self.reserve_tokens - self.window_tokens)


def overview(
    *,
    model: str,
    window_tokens: int,
    reserve_tokens: int,
    system: str,
    tools: Sequence[Mapping[str, Any]],
    message_tokens: int,
    status: str,
    sent: bool,
    counter: TokenCounter,
) -> ContextOverview:
    """The overview of a request of these pieces.

    Args:
        reserve_tokens: what is kept free for the answer at most; of a small window it is a quarter.
        system: the system text, memory section included; tools: as the model sees them.
        message_tokens: of the messages in view, as they were counted when they were written.
        status: the volatile tail.
    """
    blocks = _blocks(system)
    whole = counter.count(system)
    block_tokens = min(whole, counter.count(blocks)) if blocks else 0
    parts = (
        # The rest, not a count of its own: so the parts sum to what the engine counted for the prefix.
        ContextPart("system prompt", whole - block_tokens),
        ContextPart("memory blocks", block_tokens),
        ContextPart("tools", counter.count(str(tuple(tools))) if tools else 0),
        ContextPart("messages", message_tokens),
        ContextPart("status", counter.count(status)),
    )
    return ContextOverview(
        model=model,
        window_tokens=window_tokens,
        reserve_tokens=min(reserve_tokens, window_tokens // 4),
        parts=parts,
        sent=sent,
    )


def _blocks(system: str) -> str:
    """The memory section of a system text. A block can't hold its closing tag, so the last one is the section's."""
    end = system.rfind(_BLOCKS_END)
    start = system.find(_BLOCKS_BEGIN)
    return system[start : end + len(_BLOCKS_END)] if 0 <= start < end else ""
