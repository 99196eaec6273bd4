"""Lists of what is stored: by kind, in order of time, about one entity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.context.sections.expand import Budget
from perdure.core.errors import NotFound
from perdure.core.messages import text_of
from perdure.features.mcp_server.context import Readers
from perdure.features.mcp_server.lines import fact_line, fit_parts, line_of, note_line, passage_line
from perdure.features.notes.values import NOTE_TAG, MemoryLevel
from perdure.library.agent import AsyncAgent
from perdure.library.memory.search import period
from perdure.library.parts.checks import Page

FACTS_MAX = 100


async def list_kind(
    readers: Readers, kind: str, budget: Budget, *, note_kind: str | None, stale: bool, limit: int
) -> str:
    """Return what there is of a kind, the newest of each agent first; empty: nothing."""
    found = list[str]()
    for level, agent in readers:
        if listed := await _list_of(agent, level, kind, note_kind, stale, limit):
            found += [f"# {level}: {agent.name}\n{listed[0]}", *listed[1:]]
    return fit_parts(found, budget)


async def _list_of(
    agent: AsyncAgent, level: MemoryLevel, kind: str, note_kind: str | None, stale: bool, limit: int
) -> Sequence[str]:
    """The lines of a list of one agent."""
    match kind:
        case "blocks":
            return [f"## {one.label} ({one.description or level})\n{one.value}" for one in await agent.blocks.list()]
        case "notes":
            listed = agent.notes.review(limit=limit) if stale else agent.notes.list(kind=note_kind, limit=limit)
            return [note_line(note, level) for note in await listed]
        case "passages":
            page = await agent.list_passages(Page(limit, ascending=False))
            return [
                f"{one.id} {one.created_at:%Y-%m-%d} {line_of(one.text)}" for one in page if NOTE_TAG not in one.tags
            ]
        case "facts":
            facts = await agent.facts.page(Page(limit, ascending=False))
            return [fact_line(hit.fact) for hit in facts]
        case "messages":
            messages = await agent.messages(limit=limit)
            return [
                f"{one.id} {one.created_at:%Y-%m-%d %H:%M} {one.role}: {line_of(text_of(one.parts))}"
                for one in messages
            ]
        case _:
            changes = await agent.corrections(limit=limit)
            return [
                f"{level}:{one.number} {one.created_at:%Y-%m-%d %H:%M} {line_of(one.text)}"
                + " (undone)" * bool(one.undone_at)
                for one in changes
            ]


async def list_times(
    readers: Readers, budget: Budget, *, since: str | None, until: str | None, about: str, limit: int
) -> str:
    """Return what was true or written down in a time, the newest last; empty: nothing. Raises: InvalidInput: a time
    that can't be read."""
    rows = list[tuple[datetime, str]]()
    for level, agent in readers:
        first, last = period(since, until, agent.info.timezone)
        try:
            events = await agent.timeline(first, last, limit=limit, newest_first=True, entity=about or None)
        except NotFound:
            events = ()
        for event in events:
            end = " (until then)" if event.kind == "end" else ""
            rows.append((event.at, f"{event.at:%Y-%m-%d} {line_of(event.fact.text)}{end} ({event.fact.id}, {level})"))
        written = await agent.search_archive(about, since=first, until=last, limit=limit)
        rows += [(hit.passage.occurred_at, passage_line(hit.passage, level)) for hit in written]
    newest = [line for _, line in sorted(rows, key=lambda row: row[0], reverse=True)[:limit]]
    return fit_parts(newest, budget) if not budget.fits("\n".join(newest)) else "\n".join(reversed(newest))


async def list_entity(readers: Readers, name: str, budget: Budget) -> str:
    """Return the facts about what has this name; empty: there are none."""
    parts = list[str]()
    for level, agent in readers:
        try:
            hits = await agent.facts.list(entity=name, limit=FACTS_MAX)
        except NotFound:
            continue
        if not hits:
            continue
        entities = (one for hit in hits for one in (hit.subject, hit.object))
        entity = next((one for one in entities if one.name.casefold() == name.strip().casefold()), None)
        head = name if entity is None else f"{entity.name} ({entity.type})"
        if entity is not None and entity.summary:
            head += f": {entity.summary}"
        parts += [f"# {level}: {head}", *(fact_line(hit.fact) for hit in hits)]
    return fit_parts(parts, budget)
