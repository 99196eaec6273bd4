"""Lists of what is stored: by kind, in order of time, about one entity; and notes, facts and passages as lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from perdure.context.sections.expand import Budget, largest
from perdure.core.blocks import BlockVersion
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.messages import Message, text_of
from perdure.core.passages import Passage
from perdure.core.text.reprs import plural
from perdure.features.facts.values.facts import Fact
from perdure.features.notes.projects import find_note
from perdure.features.notes.values import NOTE_TAG, MemoryLevel, Note, note_kinds
from perdure.library.agent import AsyncAgent
from perdure.library.memory.search import period
from perdure.library.parts.checks import Page

LINE_CHARS = 300
Readers = Sequence[tuple[MemoryLevel, AsyncAgent]]
"""The agents that are read, each with its level."""
NOTES_HINT = "memory_list(kind='notes') shows them"
_WHAT = {"forget": "forgotten: ", "revert": "taken back: "}
"""Kind of a correction -> what stands before its text."""
FACTS_MAX = 100
NAMING_MAX = 20
"""The most passages, and the most messages, of an agent that are shown because they name something."""


def line_of(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def line_around(text: str, match: re.Match[str]) -> str:
    """Return the part of a text around a match on one line."""
    start = max(0, match.start() - LINE_CHARS // 3)
    return f"{'…' if start else ''}{line_of(text[start:])}"


def tags_text(tags: Sequence[str]) -> str:
    """Return the tags that a writer gave a passage as an end of its line; those of notes are their kind."""
    own = [tag for tag in tags if NOTE_TAG not in tags or tag not in (NOTE_TAG, *note_kinds())]
    return f" [{line_of(', '.join(own))}]" if own else ""


def note_text(note: Note) -> str:
    """Return a whole note below a heading with its id."""
    return f"## {note.kind}, {note.changed_at:%Y-%m-%d} ({note.id})\n{note.text}"


def note_line(note: Note, level: MemoryLevel) -> str:
    """Return a note's id, kind, date, title, tags and level."""
    return f"{note.id} {note.kind} {note.changed_at:%Y-%m-%d} {note.title}{tags_text(note.tags)} ({level})"


def passage_line(passage: Passage, level: MemoryLevel) -> str:
    """Return a passage's date, text, tags, id and level."""
    tags = tags_text(passage.tags)
    return f"{passage.occurred_at:%Y-%m-%d} {line_of(passage.text)}{tags} ({passage.id}, {level})"


def message_line(message: Message, text: str) -> str:
    """Return a message's id, time and role, and a part of its text."""
    return f"{message.id} {message.created_at:%Y-%m-%d %H:%M} {message.role}: {line_of(text)}"


def fact_line(fact: Fact) -> str:
    """Return a fact's id and text, and since and until when it is true."""
    since = f" since {fact.valid_at:%Y-%m-%d}" if fact.valid_at else ""
    until = f" until {fact.invalid_at:%Y-%m-%d}" if fact.invalid_at else ""
    return f"{fact.id} {line_of(fact.text)}{since}{until}"


def fit_parts(parts: Sequence[str], budget: Budget, separator: str = "\n") -> str:
    """Return as many parts of the beginning as fit, with a last line that says how many were left out."""
    if budget.fits(whole := separator.join(parts)):
        return whole

    def shorter(count: int) -> str:
        return separator.join([*parts[:count], f"[{count} of {len(parts)} are shown: there is no room for more]"])

    if count := largest(len(parts) - 1, lambda count: budget.fits(shorter(count))):
        return shorter(count)
    return budget.cut(whole)


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
        return note_text((await find_note(readers, id, hint=NOTES_HINT))[2])
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
            return [message_line(message, text_of(message.parts)) for message in await agent.messages(limit=limit)]
        case _:
            changes = sorted(await _changes_of(agent, level, limit), reverse=True)[:limit]
            return [f"{undo} {at:%Y-%m-%d %H:%M} {line_of(what)}" for at, undo, what in changes]


async def _changes_of(agent: AsyncAgent, level: MemoryLevel, limit: int) -> list[tuple[datetime, str, str]]:
    """The newest changes of an agent's texts, blocks and facts: when, what `undo` takes back, what it was."""
    found = [
        (
            correction.created_at,
            f"{level}:{correction.number}",
            f"{_WHAT.get(correction.kind, '')}{correction.text}" + " (undone)" * bool(correction.undone_at),
        )
        for correction in await agent.corrections(limit=limit)
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
    """What was true or written down in a time, the newest last. Raises: InvalidInput: a time that can't be read."""
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
    """Return the facts about an entity; without any, what mentions the name: passages, notes, messages."""
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
