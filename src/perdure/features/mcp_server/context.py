"""What a session should know now, and what is remembered about a question, in a given number of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.sections.expand import Budget, largest
from perdure.core.messages import text_of
from perdure.core.ports import TokenCounter
from perdure.features.mcp_server.lines import line_of, note_line, note_text, tags_text
from perdure.features.notes.values import MemoryLevel
from perdure.library.agent import AsyncAgent
from perdure.search.ranking.hits import Source

Readers = Sequence[tuple[MemoryLevel, AsyncAgent]]
"""The agents that are read, each with its level."""

BLOCKS_SHARE, HANDOFF_SHARE, FACTS_SHARE = 0.4, 0.25, 0.3
"""The most of a context's tokens that blocks, the newest handoff, and facts take."""
NOTES_SHOWN, SAID_SHOWN = 10, 5
WORD_CHARS = 4
TASK_TOKENS = 100
"""What is remembered about a task is left out of a context that has less room for it."""
SPLIT_TOKENS, OWN_SHARE, TEXT_SHARE = 300, 0.65, 0.75
"""An answer of more than so many tokens is split: at most this share is the project's, and of a level's part this is
text, the rest its sources."""


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """Reads what some agents remember; `counter` counts the tokens of answers."""

    readers: Readers
    counter: TokenCounter

    async def context(self, budget_tokens: int, about: str = "") -> str:
        """What to know now, in at most so many tokens: blocks, the newest handoff, what is known, titles of the newest
        notes, and what is remembered about a task, or without a task what the user said last; empty: nothing."""
        parts = list[str]()

        def left() -> int:
            return budget_tokens - self.counter.count("\n\n".join(parts))

        blocks = [
            f"## {block.label} ({level})\n{block.value.strip()}"
            for level, agent in self.readers
            for block in await agent.blocks.list()
            if block.value.strip()
        ]
        if blocks:
            parts.append(self._cut("\n\n".join(blocks), BLOCKS_SHARE * budget_tokens))
        for _, agent in self.readers:
            handoffs = await agent.notes.list(kind="handoff", limit=1)
            if handoffs:
                parts.append(self._cut(note_text(handoffs[0]), HANDOFF_SHARE * budget_tokens))
                break
        for level, agent in self.readers:
            known = await agent.facts.context(about, budget_tokens=max(1, int(FACTS_SHARE * left())))
            if known.text:
                parts.append(f"## Known ({level})\n{known.text}")
        titles = [
            note_line(note, level)
            for level, agent in self.readers
            for note in await agent.notes.list(limit=NOTES_SHOWN)
        ]
        if titles:
            parts.append("## Notes, newest first\n" + "\n".join(titles[:NOTES_SHOWN]))
        if about.strip() and (room := left()) > TASK_TOKENS:
            # What stands above is not said twice.
            if found := await self.recall(about, room - TASK_TOKENS // 4, blocks=False):
                parts.append(f"## About: {line_of(about)[:TASK_TOKENS]}\n{found}")
        elif not about.strip():
            said = [line for _, agent in self.readers for line in await _last_said(agent)]
            if said:
                parts.append("## The user said last\n" + "\n".join(said[:SAID_SHOWN]))
        return self._cut("\n\n".join(filter(None, parts)), budget_tokens)

    async def recall(self, query: str, budget_tokens: int, *, blocks: bool = True) -> str:
        """What all agents remember about a query, with the sources, in at most so many tokens; empty: nothing.

        Args:
            blocks: whether it may quote blocks; it does if one has most words of the query.
        """
        parts = list[str]()
        too_long = False
        for place, (level, agent) in enumerate(self.readers):
            room = budget_tokens - self.counter.count("\n\n".join(parts)) - len(parts)
            is_last = place == len(self.readers) - 1 or room <= SPLIT_TOKENS
            part, is_cut = await self._recall_of(level, agent, query, int(room * (1 if is_last else OWN_SHARE)), blocks)
            too_long |= is_cut
            if part:
                parts.append(part)
        if not parts and too_long:
            return self._cut("Something was found, but does not fit: give more budget_tokens.", budget_tokens)
        return "\n\n".join(parts)

    async def _recall_of(
        self, level: MemoryLevel, agent: AsyncAgent, query: str, room: int, blocks: bool
    ) -> tuple[str, bool]:
        """(What an agent remembers, empty if that is nothing or does not fit; whether something did not fit)."""
        head = f"# {level}: {agent.name}\n"
        budget = Budget(self.counter, room - self.counter.count(head))
        left_out, blocks = False, blocks and await _are_in_blocks(agent, query)
        for share in (TEXT_SHARE, 1.0):  # sources are left out rather than the text
            if (tokens := int(budget.tokens * share)) < 1:
                continue
            found = await agent.recall(query, budget_tokens=tokens, blocks=blocks)
            left_out |= bool(found.left_out)
            if found.sources:
                part = _with_sources(found.text, [_source_line(one) for one in found.sources], budget)
                return (head + part, left_out) if part else ("", True)
            if not found.left_out:
                break
        return "", left_out

    def _cut(self, text: str, tokens: float) -> str:
        """Return as many lines of the beginning as fit in so many tokens, or a part of the first."""
        budget = Budget(self.counter, int(tokens))
        if budget.fits(text):
            return text
        part = budget.cut(text)
        line_end = part.rfind("\n")
        return part[:line_end] if line_end > len(part) // 2 else part


async def _are_in_blocks(agent: AsyncAgent, query: str) -> bool:
    """Return whether half of a query's words stand in one block: a recall quotes all blocks or none, and sessions start
    with them."""
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= WORD_CHARS}
    values = [block.value.casefold() for block in await agent.blocks.list()]
    return any(0 < len(words) <= 2 * sum(word in value for word in words) for value in values)


def _with_sources(text: str, lines: Sequence[str], budget: Budget) -> str:
    """Return a text with as many lines of its sources as fit; empty: not even the text does."""

    def shown(count: int) -> str:
        return f"{text}\nSources:\n" + "\n".join(lines[:count]) if count else text

    found = shown(largest(len(lines), lambda count: budget.fits(shown(count))))
    return found if budget.fits(found) else ""


def _source_line(source: Source) -> str:
    label = f" {source.label}" if source.label else ""
    date = f", {source.occurred_at:%Y-%m-%d}" if source.occurred_at else ""
    return f"[{source.number}] {source.id}{label}{date}{tags_text(source.tags)}"


async def _last_said(agent: AsyncAgent) -> Sequence[str]:
    """The newest messages of the user as lines, oldest first."""
    newest = [hit.message for hit in await agent.search("", roles=("user",), limit=SAID_SHOWN)]
    return [f"- {one.occurred_at:%Y-%m-%d %H:%M} {line_of(text_of(one.parts))}" for one in reversed(newest)]
