"""What a session should know now, and what is remembered about a question, in a given number of tokens; and what the
next session of a coding agent begins with, in a file: a person waits for its start, in which there is no time to open
the store."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from perdure.context.sections.expand import Budget, largest
from perdure.core.ids import AgentId
from perdure.core.messages import Message, text_of
from perdure.core.ports import TokenCounter
from perdure.core.text.json_strings import encodable
from perdure.core.text.tables import read_table
from perdure.features.mcp_server.listing import Readers, line_of, note_text, tags_text
from perdure.features.notes.folders import CONTEXT_FILE, make_folder, state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.features.notes.values import MemoryLevel
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.providers.extractive.language import CJK, Sentence, is_question, sentences_in
from perdure.scratch import replace_file
from perdure.search.ranking.hits import RecallSource

READ, READ_CHARS = 300, 1_000
"""So many of the user's newest messages are looked at, and so much of each."""
LEAST, WORDS, HAN = 2, 6, 10
"""The score of a statement; from so many words or Chinese characters on a sentence scores one more."""
_TABLE = read_table(__file__, "said.toml")
_WORDS = {name: re.compile(form, re.VERBOSE) for name, form in _TABLE.items()}
_HAN = re.compile(f"[{CJK}]")
BLOCKS, HANDOFF, KNOWN, TOLD, NOTES, LAST = 5, 3, 2, 3, 2, 1
"""The weights of a context's sections: where not all of them fit, each gets its share, and what others don't need."""
ABOUT_SHARE, KNOWN_SHARE, SECTION_TOKENS, SPACE_TOKENS = 0.4, 0.2, 40, 2
"""What is remembered about a task has at least this share of the tokens, what a level's facts say at most that one; the
last sections are left out of a context that has no room for so many tokens of each; between two are blank lines."""
NOTES_SHOWN, TOLD_SHOWN, LAST_SHOWN = 10, 10, 3
TASK_CHARS, TASK_TOKENS = 100, 100
"""What is remembered about a task is left out of a context that has less room for it."""
WORD_CHARS, ID_CHARS = 4, len("passage-12345678")
"""So much of a note's id is enough for the tools."""
_END_HEADINGS, _END_WORD = re.compile(r"(?:(?:\A|\n+)#[^\n]*)+\s*\Z"), re.compile(r"[!-~]+\Z")
SPLIT_TOKENS, OWN_SHARE, TEXT_SHARE = 300, 0.65, 0.75
"""An answer of more than so many tokens is split: at most this share is the project's, and of a level's part this is
text, the rest its sources."""
CONTEXT_TOKENS = 1_500
PAUSE_S = 0.5
"""At least so long between two times that a server prepares it."""
_log = logging.getLogger(__name__)


def told_lines(messages: Iterable[Message], limit: int) -> Sequence[str]:
    """Return the best of what these messages state, oldest first, each with its day."""
    best: dict[str, tuple[int, Message]] = {}
    for message in messages:
        sentences = sentences_in(text_of(message.parts), limit_chars=READ_CHARS)
        scores = [(_score(sentence), sentence.text.strip()) for sentence in sentences]
        if stated := " ".join(text for score, text in scores if score >= LEAST):
            best[stated] = max(score for score, _ in scores), message  # what is said again counts as new
    newest = sorted(best, key=lambda text: (best[text][0], best[text][1].occurred_at), reverse=True)[:limit]
    shown = sorted(newest, key=lambda text: best[text][1].occurred_at)
    return [f"- {best[text][1].occurred_at:%Y-%m-%d} {line_of(text)}" for text in shown]


def _score(sentence: Sentence) -> int:
    """Return how much a sentence tells; 0: it asks, or gives an order that is no rule."""
    text = sentence.masked.strip()
    text = text[lead.end() :] if (lead := _WORDS["lead"].match(text)) else text
    rules = _WORDS["rule"].search(text) is not None
    if is_question(sentence) or not (rules or (_WORDS["states"].search(text) and not _WORDS["order"].match(text))):
        return 0
    is_long = len(text.split()) >= WORDS or len(_HAN.findall(text)) >= HAN
    is_vague = _WORDS["unnamed"].match(text) is not None or _WORDS["order"].match(text) is not None
    return 1 + rules + bool(_WORDS["name"].search(text)) + is_long - is_vague


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """Reads what some agents remember; `counter` counts the tokens of answers."""

    readers: Readers
    counter: TokenCounter

    async def context(self, budget_tokens: int, about: str = "") -> str:
        """What to know now, in at most so many tokens: blocks, the newest handoff, what is known, titles of the newest
        notes, and what is remembered about a task, or without a task the newest texts, and what the user said; empty:
        nothing."""
        sections = [(BLOCKS, await self._blocks()), (HANDOFF, await self._handoff())]
        for level, agent in self.readers:
            known = await agent.facts.context(about, budget_tokens=max(1, int(KNOWN_SHARE * budget_tokens)))
            sections.append((KNOWN, f"## Known ({level})\n{known.text}" if known.text else ""))
        told, last = ("", "") if about.strip() else await self._user_statements()
        texts = "" if about.strip() else await self._passages()
        sections += (TOLD, told), (NOTES, await self._titles()), (NOTES, texts), (LAST, last)
        sections = [section for section in sections if section[1]]
        room, task = budget_tokens, ""
        if about.strip():
            others = self.counter.count("\n\n".join(text for _, text in sections))
            most = max(int(ABOUT_SHARE * room), room - others) - TASK_TOKENS // 4
            # What stands above is not said twice.
            if most > TASK_TOKENS and (found := await self.recall(about, most, blocks=False)):
                task = f"## About: {line_of(about)[:TASK_CHARS]}\n{found}"
                room -= self.counter.count(task)
        sections = sections[: max(1, room // SECTION_TOKENS)]
        parts = [
            self._cut(text, tokens) for (_, text), tokens in zip(sections, self._shares(sections, room), strict=True)
        ]
        return self._cut("\n\n".join(filter(None, [*parts, task])), budget_tokens)

    async def _blocks(self) -> str:
        """The blocks that have a text, each below its label."""
        blocks = [(level, block) for level, agent in self.readers for block in await agent.blocks.list()]
        return "\n\n".join(f"## {one.label} ({level})\n{text}" for level, one in blocks if (text := one.value.strip()))

    async def _handoff(self) -> str:
        """The newest handoff of the first agent that has one."""
        for _, agent in self.readers:
            for note in await agent.notes.list(kind="handoff", limit=1):
                return note_text(note)
        return ""

    async def _titles(self) -> str:
        """Titles of the newest notes, with the beginnings of their ids."""
        notes = [note for _, agent in self.readers for note in await agent.notes.list(limit=NOTES_SHOWN)]
        newest = sorted(notes, key=lambda note: note.created_at, reverse=True)[:NOTES_SHOWN]
        lines = [f"{note.id[:ID_CHARS]} {note.kind} {note.changed_at:%Y-%m-%d} {note.title}" for note in newest]
        return "\n".join(["## Notes, newest first", *lines]) if lines else ""

    async def _passages(self) -> str:
        """The newest texts that are no notes."""
        found = [one for _, agent in self.readers for one in await agent.notes.list_other_passages(NOTES_SHOWN)]
        newest = sorted(found, key=lambda one: one.created_at, reverse=True)[:NOTES_SHOWN]
        lines = [f"- {one.created_at:%Y-%m-%d} {line_of(one.text)}" for one in newest]
        return "\n".join(["## Remembered, newest first", *lines]) if lines else ""

    async def _user_statements(self) -> tuple[str, str]:
        """(What the user stated in the last sessions, the user's last words beside it), each oldest first."""
        found = [
            hit.message for _, agent in self.readers for hit in await agent.search("", roles=("user",), limit=READ)
        ]
        messages = sorted(found, key=lambda message: message.occurred_at)
        told = await asyncio.to_thread(told_lines, messages, TOLD_SHOWN)
        last = [f"- {one.occurred_at:%Y-%m-%d %H:%M} {line_of(text_of(one.parts))}" for one in messages[-LAST_SHOWN:]]
        return (
            "\n".join(["## The user said in earlier sessions", *told]) if told else "",
            "\n".join(["## The user said last", *last]) if last else "",
        )

    def _shares(self, sections: Sequence[tuple[int, str]], room: int) -> Sequence[int]:
        """Return how many tokens each section (weight, text) gets: what it needs, or a share of what others leave."""
        needs = [self.counter.count(text) + SPACE_TOKENS for _, text in sections]
        weights = [weight for weight, _ in sections]
        given, total = [0] * len(sections), sum(weights)
        # Whoever needs the least for its weight comes first: what it leaves is for those behind it.
        for place in sorted(range(len(sections)), key=lambda place: needs[place] / weights[place]):
            share = room * weights[place] // total
            given[place] = needs[place] if needs[place] <= share else share - SPACE_TOKENS
            room, total = room - min(needs[place], share), total - weights[place]
        return given

    async def recall(self, query: str, budget_tokens: int, *, blocks: bool = True) -> str:
        """What all agents remember about a query, with the sources, in at most so many tokens; empty: nothing.

        Args:
            blocks: whether it may quote blocks; it does if one has most words of the query.
        """
        parts = list[str]()
        too_long = False
        for place, (level, agent) in enumerate(self.readers):
            room = budget_tokens - self.counter.count("\n\n".join((*parts, ""))) - len(parts)
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
                part = _with_sources(head + found.text, [*map(_source_line, found.sources)], Budget(self.counter, room))
                return part, left_out or not part
            if not found.left_out:
                break
        return "", left_out

    def _cut(self, text: str, tokens: float) -> str:
        """Return as many lines of the beginning as fit in so many tokens, or a part of the first one below a heading:
        no heading alone, and no part of an id."""
        budget = Budget(self.counter, int(tokens))
        if budget.fits(text):
            return text
        part = budget.cut(text)
        lines = _END_HEADINGS.sub("", part[: max(0, part.rfind("\n"))])
        if len(lines) > len(part) // 2:
            return lines
        words = _END_HEADINGS.sub("", _END_WORD.sub("", part).rstrip())
        return max(words, lines, key=len)


async def _are_in_blocks(agent: AsyncAgent, query: str) -> bool:
    """Return whether half of a query's words are in one block: a recall quotes all blocks or none."""
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= WORD_CHARS}
    values = [block.value.casefold() for block in await agent.blocks.list()]
    return any(0 < len(words) <= 2 * sum(word in value for word in words) for value in values)


def _with_sources(text: str, lines: Sequence[str], budget: Budget) -> str:
    """Return a text with as many lines of its sources as fit; empty: not even the text does."""

    def shown(count: int) -> str:
        """Return the text with the first `count` sources behind it."""
        return f"{text}\nSources:\n" + "\n".join(lines[:count]) if count else text

    found = shown(largest(len(lines), lambda count: budget.fits(shown(count))))
    return found if budget.fits(found) else ""


def _source_line(source: RecallSource) -> str:
    label = f" {source.label}" if source.label else ""
    date = f", {source.occurred_at:%Y-%m-%d}" if source.occurred_at else ""
    return f"[{source.number}] {source.id}{label}{date}{tags_text(source.tags)}"


async def prepare_context(perdure: AsyncPerdure, project: ProjectMemory) -> None:
    """Write the context for a project's next session and for a new project's first session. Raises: OSError."""
    for memory in (project, ProjectMemory(perdure)):
        path = state_folder(memory.folder or "") / CONTEXT_FILE
        text = await MemoryReader(await memory.readers(), perdure.app.ports.counter).context(CONTEXT_TOKENS)
        if text:
            make_folder(path.parent)
            replace_file(path, encodable(f"What Perdure remembers of this project and its user:\n\n{text}\n").encode())
        else:
            path.unlink(missing_ok=True)


class NextSession:
    """What a project's next session begins with: after each change it is prepared, in the background."""

    def __init__(self, perdure: AsyncPerdure, project: ProjectMemory) -> None:
        self._perdure, self._project = perdure, project
        self._changed = asyncio.Event()

    async def tell(self, tool: str, agent_id: AgentId) -> None:
        """Note that memory has changed."""
        self._changed.set()

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Prepare while the block runs, and at its end for the last change."""
        background = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            background.cancel()
            await asyncio.wait([background])
            if self._changed.is_set():
                await self._prepare()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await self._prepare()
            await asyncio.sleep(PAUSE_S)

    async def _prepare(self) -> None:
        """Prepare the context of the next session; errors are logged."""
        self._changed.clear()
        try:
            await prepare_context(self._perdure, self._project)
        except asyncio.CancelledError:
            self._changed.set()
            raise
        except Exception:
            _log.warning("what the next session begins with could not be prepared", exc_info=True)
