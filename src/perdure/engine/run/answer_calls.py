"""The calls of a model's answer as they are stored: under ids that are unique in the run, and not too long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.ports import TokenCounter

ID_CHARS_MAX = 200
"""Longer ids are cut; those of models have up to 64 characters."""

CALLS_SHARE = 0.25
"""The share of the window for the arguments of one answer's calls: they stay whole in the view until their results
come."""

NAME_CHARS_MAX = 200
"""Characters of a tool's name: no tool has a longer one."""

ARGUMENTS_KEPT_CHARS = 200
"""Characters that stay of arguments that are too long."""

TOKENS_PER_CHAR_MAX = 4
"""Arguments that fit even at this rate are not counted: each character stands for a token."""


@dataclass(slots=True)
class CallIds:
    """The ids of one answer's calls, each unique within the run: some models number their calls anew in each answer.

    Args:
        used: the ids of the run's other calls.
        by_index: number of a call in the answer's deltas -> (the model's id, the id in use).
    """

    used: set[str]
    by_index: dict[int, tuple[str, str]] = field(default_factory=dict)

    def id_of_delta(self, index: int, call_id: str | None, *, avoid: Collection[str] = ()) -> str:
        """Return the id of the call with this number in the answer's deltas; all its deltas get the same.

        Args:
            avoid: ids that this call may not have either.
        """
        if index not in self.by_index:
            self.by_index[index] = (call_id or "", self._add(call_id, avoid))
        return self.by_index[index][1]

    def apply(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts of the whole answer without empty ones; its calls have the ids of their deltas."""
        streamed = list(self.by_index.values())
        kept: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                known = next((ids for ids in streamed if ids[0] == part.call_id), None)
                if known is not None:
                    streamed.remove(known)
                kept.append(replace(part, call_id=self._add(part.call_id) if known is None else known[1]))
            elif isinstance(part, Text | Reasoning) and not part.text and getattr(part, "signature", None) is None:
                continue  # but reasoning that is only a signature has to go back to its provider
            else:
                kept.append(part)
        return tuple(kept)

    def _add(self, call_id: str | None, avoid: Collection[str] = ()) -> str:
        """Use the model's id, or one like it that no other call has; return it."""
        base = (call_id or "call")[:ID_CHARS_MAX]
        unique, count = base, 1
        while unique in self.used or unique in avoid:
            count += 1
            unique = f"{base}-{count}"
        self.used.add(unique)
        return unique


def shorten_calls(
    parts: Sequence[Part], *, counter: TokenCounter, most_tokens: int
) -> tuple[tuple[Part, ...], Mapping[str, str]]:
    """The parts of an answer with the beginnings of calls that are too long; and call id -> why it is not executed, in
    words for the model."""
    kept: list[Part] = []
    refused: dict[str, str] = {}
    budget = most_tokens
    for part in parts:
        if not isinstance(part, ToolCall):
            kept.append(part)
            continue
        if len(part.name) > NAME_CHARS_MAX:
            part = replace(part, name=f"{part.name[:NAME_CHARS_MAX]}…")
        size = len(part.arguments)
        tokens = size if size * TOKENS_PER_CHAR_MAX <= budget else counter.count(part.arguments)
        if tokens <= budget:
            budget -= tokens
        else:
            limit = size * budget // tokens
            refused[part.call_id] = (
                f"arguments too long: {size:,} characters, limit {limit:,}; the tool was not run. Give less at once, or"
                " do it in several calls"
            )
            part = replace(part, arguments=f"{part.arguments[:ARGUMENTS_KEPT_CHARS]}… [cut: {size:,} characters]")
        kept.append(part)
    return tuple(kept), refused
