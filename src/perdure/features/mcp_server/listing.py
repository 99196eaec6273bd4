"""Lists of what is stored: by kind, in order of time, about one entity."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from perdure.context.sections.expand import Budget
from perdure.core.blocks import BlockVersion
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.messages import text_of
from perdure.core.text.reprs import plural
from perdure.features.mcp_server.context import Readers
from perdure.features.mcp_server.lines import (
    fact_line,
    fit_parts,
    line_around,
    line_of,
    message_line,
    note_line,
    note_text,
    passage_line,
    tags_text,
)
from perdure.features.notes.values import MemoryLevel, Note
from perdure.library.agent import AsyncAgent
from perdure.library.memory.search import period
from perdure.library.parts.checks import Page

_WHAT = {"forget": "forgotten: ", "revert": "taken back: "}
"""Kind of a correction -> what stands before its text."""
FACTS_MAX = 100
NAMING_MAX = 20
"""The most passages, and the most messages, of an agent that are shown because they name something."""


async def list_kind(
    readers: Readers,
    kind: str,
    budget: Budget,
    *,
    note_kind: str | None = None,
    stale: bool = False,
    archived: bool = False,
    id: str = "",
    limit: int = 20,
) -> str:
    """Return what there is of a kind, the newest of each agent first; or one note whole. Raises: InvalidInput: an
    argument for notes where there is no list of them, or `stale` with `archived`; NotFound: there is no such note."""
    if kind != "notes" and (note_kind or stale or archived or id):
        raise InvalidInput(f"note_kind, stale, archived and id are for kind='notes', and kind is {kind!r}")
    if id:
        return note_text((await find_note(readers, id))[2])
    if stale and archived:
        raise InvalidInput("archived notes are not reviewed: give stale or archived")
    found = list[str]()
    for level, agent in readers:
        if kind != "notes":
            listed = await _list_of(agent, level, kind, limit)
        elif stale:
            listed = [note_line(note, level) for note in await agent.notes.review(kind=note_kind, limit=limit)]
        else:
            notes = await agent.notes.list(kind=note_kind, archived=archived, limit=limit)
            listed = [note_line(note, level) for note in notes]
        if listed:
            found += [f"# {level}: {agent.name}\n{listed[0]}", *listed[1:]]
    which = "stale " * stale + "archived " * archived + f"{note_kind} " * bool(note_kind)
    return fit_parts(found, budget) or (f"There are no {which}{kind}." if which else f"There are no {kind} yet.")


async def find_note(readers: Readers, id: str) -> tuple[MemoryLevel, AsyncAgent, Note]:
    """Return the note whose id begins so, or that has this title, with whose it is. Raises: NotFound; InvalidInput:
    several notes of an agent do."""
    for level, agent in readers:
        with suppress(NotFound):
            return level, agent, await agent.notes.find(id)
    raise NotFound("note", f"{id:.80}", hint="memory_list(kind='notes') shows them")


async def _list_of(agent: AsyncAgent, level: MemoryLevel, kind: str, limit: int) -> list[str]:
    """The lines of a list of one agent."""
    match kind:
        case "blocks":
            return [f"## {one.label} ({one.description or level})\n{one.value}" for one in await agent.blocks.list()]
        case "passages":
            passages = await agent.notes.list_other_passages(limit)
            return [f"{one.id} {one.created_at:%Y-%m-%d} {line_of(one.text)}{tags_text(one.tags)}" for one in passages]
        case "facts":
            return [fact_line(hit.fact) for hit in await agent.facts.page(Page(limit, ascending=False))]
        case "messages":
            return [message_line(one, text_of(one.parts)) for one in await agent.messages(limit=limit)]
        case _:
            changes = sorted(await _changes_of(agent, level, limit), reverse=True)[:limit]
            return [f"{undo} {at:%Y-%m-%d %H:%M} {line_of(what)}" for at, undo, what in changes]


async def _changes_of(agent: AsyncAgent, level: MemoryLevel, limit: int) -> list[tuple[datetime, str, str]]:
    """The newest changes of an agent's texts, blocks and facts: when, what `undo` takes back, what it was."""
    found = [
        (
            one.created_at,
            f"{level}:{one.number}",
            f"{_WHAT.get(one.kind, '')}{one.text}" + " (undone)" * bool(one.undone_at),
        )
        for one in await agent.corrections(limit=limit)
    ]
    for block in await agent.blocks.list():
        found += [
            (one.created_at, f"{level}:{block.label}@{one.version - 1}", _edit_of(one))
            for one in await agent.blocks.history(block.label, limit=limit)
            if one.version and one.diff
        ]
    deleted = await agent.facts.list_deleted(limit=limit)
    return found + [(fact.created_at, fact.id, f"forgotten fact: {fact.text}") for fact in deleted]


def _edit_of(version: BlockVersion) -> str:
    """Return how much an edit of a block changed. Its texts are not quoted: some may have been forgotten since."""
    signs = [line[0] for line in version.diff.splitlines() if line[1:].strip()]
    return f"block {version.label}: {plural(signs.count('+'), 'line')} added, {signs.count('-')} removed"


async def list_times(
    readers: Readers, budget: Budget, *, about: str, limit: int, since: str | None = None, until: str | None = None
) -> str:
    """Return what was true or written down in a time, the newest last. Raises: InvalidInput: a time that can't be
    read."""
    rows = list[tuple[datetime, str]]()
    for level, agent in readers:
        first, last = period(since, until, agent.info.timezone)
        with suppress(NotFound):  # an entity that no fact names
            for event in await agent.timeline(first, last, limit=limit, newest_first=True, entity=about or None):
                text = line_of(event.fact.text) + " (until then)" * (event.kind == "end")
                rows.append((event.at, f"{event.at:%Y-%m-%d} {text} ({event.fact.id}, {level})"))
        written = await agent.search_archive(about, since=first, until=last, limit=limit)
        rows += [(hit.passage.occurred_at, passage_line(hit.passage, level)) for hit in written]
    newest = [line for _, line in sorted(rows, key=lambda row: row[0], reverse=True)[:limit]]
    if not newest:
        return "Nothing is known of that time."
    return fit_parts(newest, budget) if not budget.fits("\n".join(newest)) else "\n".join(reversed(newest))


async def list_entity(readers: Readers, name: str, budget: Budget) -> str:
    """Return the facts about what has this name; without any, the passages, notes and messages that name it, the best
    first."""
    parts = list[str]()
    for level, agent in readers:
        with suppress(NotFound):
            if not (hits := await agent.facts.list(entity=name, limit=FACTS_MAX)):
                continue
            entities = (one for hit in hits for one in (hit.subject, hit.object))
            entity = next((one for one in entities if one.name.casefold() == name.strip().casefold()), None)
            head = name if entity is None else f"{entity.name} ({entity.type})"
            if entity is not None and entity.summary:
                head += f": {entity.summary}"
            parts += [f"# {level}: {head}", *(fact_line(hit.fact) for hit in hits)]
    return fit_parts(parts, budget) if parts else await _list_naming(readers, name, budget)


async def _list_naming(readers: Readers, name: str, budget: Budget) -> str:
    """Return the passages, notes and messages that name something, the best first."""
    words, parts = re.compile(rf"(?<!\w){re.escape(name.strip())}(?!\w)", re.IGNORECASE), list[str]()
    for level, agent in readers:
        for hit in await agent.search_archive(name, limit=NAMING_MAX):
            if match := words.search(hit.passage.text):
                shown = replace(hit.passage, text=line_around(hit.passage.text, match))
                parts.append(passage_line(shown, level))
        for found in await agent.search(name, limit=NAMING_MAX):
            if match := words.search(text := text_of(found.message.parts)):
                parts.append(message_line(found.message, line_around(text, match)))
    if not parts:
        return f"Nothing names {name!r:.80}. memory_search also finds other words for it."
    return fit_parts([f"No facts about {line_of(name)!r}. It is named in:", *parts], budget)
