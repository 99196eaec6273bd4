"""What the tools do: each covers the memory of a project and the global one behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import FactId, PassageId, is_id
from perdure.core.messages import Message, text_of
from perdure.core.passages import Passage
from perdure.core.text.reprs import plural
from perdure.core.tools.arguments import fit_arguments
from perdure.domain.archives.passages import NewPassage
from perdure.features.mcp_server.outputs import Outputs, ask_output, describe_output
from perdure.features.mcp_server.specs import WRITING, MemoryToolSpec, tool_specs
from perdure.features.notes.nudges import NudgeLevel
from perdure.features.notes.projects import ProjectMemory
from perdure.features.notes.values import NOTE_TAG, MemoryLevel, Note
from perdure.library.agent import AsyncAgent
from perdure.library.memory.search import period
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

BLOCKS_SHARE, HANDOFF_SHARE, FACTS_SHARE = 0.4, 0.25, 0.3
"""The most of a context's tokens that blocks, the newest handoff, and facts take."""
NOTES_SHOWN, SAID_SHOWN, FACTS_MAX, LINE_CHARS = 10, 5, 100, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What a server of memory may do.

    Args:
        read_only: whether it offers no tool that changes something.
        nudges: when tool results end with a reminder to write a note.
        roots: more folders whose files may be indexed, besides the project's.
    """

    read_only: bool = False
    nudges: NudgeLevel = "balanced"
    roots: Sequence[Path] = ()


class MemoryTools:
    """The tools over one project's memory."""

    def __init__(self, perdure: AsyncPerdure, project: ProjectMemory, options: MemoryOptions) -> None:
        self._perdure, self._project, self._options = perdure, project, options
        own = () if project.folder is None else (project.folder,)
        self._outputs = Outputs(project.state, [*own, *options.roots])
        self._count = perdure.app.ports.counter

    @property
    def specs(self) -> Sequence[MemoryToolSpec]:
        """The tools that are offered."""
        return [spec for spec in tool_specs().values() if not (self._options.read_only and spec.name in WRITING)]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool; return what the model reads.

        Raises: NotFound, InvalidArguments, and what the library raises.
        """
        spec = next((spec for spec in self.specs if spec.name == name), None)
        if spec is None:
            hint = "this server only reads" if name in tool_specs() else f"there are {', '.join(tool_specs())}"
            raise NotFound("tool", name, hint=hint)
        run: Callable[..., Awaitable[str]] = getattr(self, f"_{name}")
        answer = await run(**fit_arguments(name, spec.schema, arguments))
        nudge = "" if self._options.read_only else self._project.edits.take_nudge(self._options.nudges)
        return f"{answer}\n\n{nudge}" if nudge else answer

    def _budget(self, tokens: float) -> Budget:
        return Budget(self._count, int(tokens))

    async def readers(self) -> Sequence[tuple[MemoryLevel, AsyncAgent]]:
        """The agents that there are, the project's first."""
        return await self._project.readers()

    async def _memory_context(self, *, about: str = "", budget_tokens: int = 1_500) -> str:
        text = await self.context(budget_tokens, about)
        return text or "Nothing is remembered yet. memory_remember and note keep things for later sessions."

    async def context(self, budget_tokens: int, about: str = "") -> str:
        """What to know now, in at most so many tokens; empty: nothing is remembered.

        It has blocks, the newest handoff, what is known, titles of the newest notes, and what is remembered about a
        task; without a task what the user said last.
        """
        readers, parts = await self.readers(), list[str]()

        def left() -> int:
            return budget_tokens - self._count.count("\n\n".join(parts))

        blocks = [
            f"## {block.label} ({level})\n{block.value.strip()}"
            for level, agent in readers
            for block in await agent.blocks.list()
            if block.value.strip()
        ]
        if blocks:
            parts.append(self._budget(BLOCKS_SHARE * budget_tokens).cut("\n\n".join(blocks)))
        for _, agent in readers:
            handoffs = await agent.notes.list(kind="handoff", limit=1)
            if handoffs:
                parts.append(self._budget(HANDOFF_SHARE * budget_tokens).cut(_note_text(handoffs[0])))
                break
        for level, agent in readers:
            known = await agent.facts.context(about, budget_tokens=max(1, int(FACTS_SHARE * left())))
            if known.text:
                parts.append(f"## Known ({level})\n{known.text}")
        titles = [
            _note_line(note, level) for level, agent in readers for note in await agent.notes.list(limit=NOTES_SHOWN)
        ]
        if titles:
            parts.append("## Notes, newest first\n" + "\n".join(titles[:NOTES_SHOWN]))
        if about.strip() and (room := left()) > 100:
            parts.append(f"## About: {about.strip()[:LINE_CHARS]}\n" + await self._recall(about, room))
        elif said := [_said_line(one) for _, agent in readers for one in await _last_said(agent)]:
            parts.append("## The user said last\n" + "\n".join(said[:SAID_SHOWN]))
        return self._budget(budget_tokens).cut("\n\n".join(filter(None, parts)))

    async def _memory_search(self, *, query: str, budget_tokens: int = 1_500) -> str:
        return await self._recall(query, budget_tokens) or "Nothing was found."

    async def _recall(self, query: str, budget_tokens: int) -> str:
        """What all levels remember about a query, with the sources; empty: nothing."""
        parts, readers = list[str](), await self.readers()
        for place, (level, agent) in enumerate(readers):
            room = budget_tokens - self._count.count("\n\n".join(parts))
            # The last level gets what is left; a quarter of the tokens is for the lines with the sources.
            share = room if place == len(readers) - 1 else int(room * 0.65)
            if share < 50:
                break
            found = await agent.recall(query, budget_tokens=max(1, int(share * 0.75)))
            if not found.sources:
                continue
            sources = "\n".join(
                f"[{one.number}] {one.kind} {one.id}"
                + (f" {one.label}" if one.label else "")
                + (f", {one.occurred_at:%Y-%m-%d}" if one.occurred_at else "")
                for one in found.sources
            )
            parts.append(self._budget(share).cut(f"# {level}: {agent.name}\n{found.text}\n\nSources:\n{sources}"))
        return "\n\n".join(parts)

    async def _memory_remember(self, *, text: str, tags: Sequence[str] = (), level: MemoryLevel | None = None) -> str:
        level = level or self._project.own_level
        agent = await self._project.open(level)
        passage, correction = await agent.insert_passage(NewPassage(text=text, tags=tags))
        facts = await agent.facts.extract()
        understood = "".join(f"\nUnderstood: {hit.fact.text} ({hit.fact.id})" for hit in facts)
        return f"Remembered as {passage.id} ({level}).{understood}\n{_how_to_undo(level, correction.number)}"

    async def _memory_forget(self, *, id: str = "", undo: str = "") -> str:
        if bool(id.strip()) is bool(undo.strip()):
            raise InvalidInput("give either id, what to remove, or undo, what to take back")
        if undo.strip():
            return await self._undo(undo.strip())
        for level, agent in await self.readers():
            try:
                return await self._forget(level, agent, id.strip())
            except NotFound:
                continue
        raise NotFound("memory", id, hint="memory_search and memory_list show ids")

    async def _forget(self, level: MemoryLevel, agent: AsyncAgent, id: str) -> str:
        """Remove what an agent has under an id. Raises: NotFound."""
        if is_id("fact", id):
            hit = await agent.facts.get(FactId(id))
            graph = await agent.facts.find_graph()
            if graph is None or hit.fact.graph_id != graph.id:
                raise NotFound("fact", id)
            await agent.facts.delete(FactId(id))
            return f"Forgotten ({level}): {hit.fact.text}\nTo undo: memory_forget(undo='{id}')."
        if is_id("passage", id):
            passage = await agent.passage(PassageId(id))
            correction = await agent.delete_passages([passage.id])
            return f"Removed ({level}): {_line(passage.text)}\n{_how_to_undo(level, correction.number)}"
        result = await agent.forget(id)
        if not result.total:
            raise NotFound("memory", id)
        places = ", ".join(f"{count} in {place}" for place, count in result.counts.items() if count)
        undo = "" if result.correction is None else "\n" + _how_to_undo(level, result.correction.number)
        return f"Forgotten ({level}): {places or 'nothing was in view'}.{undo}"

    async def _undo(self, undo: str) -> str:
        """Take a change back: `project:3`, or the id of a fact."""
        level, _, number = undo.rpartition(":")
        for one, agent in await self.readers():
            if is_id("fact", undo):
                try:
                    hit = await agent.facts.restore(FactId(undo))
                except NotFound:
                    continue
                return f"Back ({one}): {hit.fact.text}"
            if number.isascii() and number.isdecimal() and len(number) < 10 and level in ("", one):
                result = await agent.undo(int(number))
                conflicts = "".join(f"\nNot taken back: {why}" for why in result.conflicts)
                restored = plural(result.restored, "thing")
                return f"Undone ({one}): {result.correction.text}, {restored} as before.{conflicts}"
        raise InvalidInput(f"undo is {undo!r:.80}: give it as the answer of a change says it, such as project:3")

    async def _memory_edit_block(
        self,
        *,
        label: str,
        append: str | None = None,
        old: str | None = None,
        new: str | None = None,
        value: str | None = None,
        level: MemoryLevel | None = None,
    ) -> str:
        ways = [append is not None, old is not None, value is not None]
        if sum(ways) != 1 or (old is None) is not (new is None):
            raise InvalidInput("give one of: append; old and new; value")
        where, agent, before = await self._find_block(label, level)
        if before is None and old is not None:
            raise NotFound("block", label, hint="memory_list(kind='blocks') shows them")
        text = before or ""
        if append is not None:
            after = f"{text.rstrip()}\n{append}".lstrip("\n")
        elif value is not None:
            after = value
        else:
            assert old is not None and new is not None
            if not old or (times := text.count(old)) != 1:
                found = 0 if not old else times
                raise InvalidInput(f"old stands {found} times in block {label!r}: give a part that stands there once")
            after = text.replace(old, new)
        if before is None:
            await agent.blocks.create(label, after)
        else:
            await agent.blocks.update(label, after)
        return (
            f"Block {label} ({where}) is now:\n{after}\nThe dashboard and `perdure memory history` keep every version."
        )

    async def _find_block(self, label: str, level: MemoryLevel | None) -> tuple[MemoryLevel, AsyncAgent, str | None]:
        """Where a block is, with its value; None: there is none, and it is to be made there."""
        for one, agent in await self.readers():
            values = {block.label: block.value for block in await agent.blocks.list()}
            if label in values and level in (None, one):
                return one, agent, values[label]
        # The first write makes the agents, with their blocks: those of the user lie in the global one.
        levels: Sequence[MemoryLevel] = (level,) if level else (self._project.own_level, "global")
        for one in levels:
            agent = await self._project.open(one)
            values = {block.label: block.value for block in await agent.blocks.list()}
            if label in values:
                return one, agent, values[label]
        return levels[0], await self._project.open(levels[0]), None

    async def _memory_list(
        self, *, kind: str, note_kind: str | None = None, stale: bool = False, limit: int = 20
    ) -> str:
        if kind == "outputs":
            lines = [f"{one.handle} {one.title} ({one.lines:,} lines)" for one in self._outputs.list(limit)]
            return "\n".join(lines) or "No output is indexed."
        found = list[str]()
        for level, agent in await self.readers():
            listed = await self._list_of(agent, level, kind, note_kind, stale, limit)
            if listed:
                found.append(f"# {level}: {agent.name}\n" + "\n".join(listed))
        return "\n\n".join(found) or f"There are no {kind} yet."

    async def _list_of(
        self, agent: AsyncAgent, level: MemoryLevel, kind: str, note_kind: str | None, stale: bool, limit: int
    ) -> Sequence[str]:
        """The lines of a list of one agent."""
        match kind:
            case "blocks":
                return [f"## {one.label} ({one.description})\n{one.value}" for one in await agent.blocks.list()]
            case "notes":
                notes = (
                    await agent.notes.review(limit=limit)
                    if stale
                    else await agent.notes.list(kind=note_kind, limit=limit)
                )
                return [_note_line(note, level) for note in notes]
            case "passages":
                page = await agent.list_passages(Page(limit, ascending=False))
                return [
                    f"{one.id} {one.created_at:%Y-%m-%d} {_line(one.text)}" for one in page if NOTE_TAG not in one.tags
                ]
            case "facts":
                facts = await agent.facts.page(Page(limit, ascending=False))
                return [_fact_line(hit.fact) for hit in facts]
            case "messages":
                messages = await agent.messages(limit=limit)
                return [
                    f"{one.id} {one.created_at:%Y-%m-%d %H:%M} {one.role}: {_line(text_of(one.parts))}"
                    for one in messages
                ]
            case _:
                changes = await agent.corrections(limit=limit)
                return [
                    f"{level}:{one.number} {one.created_at:%Y-%m-%d %H:%M} {one.text}"
                    + " (undone)" * bool(one.undone_at)
                    for one in changes
                ]

    async def _memory_timeline(
        self, *, since: str | None = None, until: str | None = None, about: str = "", limit: int = 30
    ) -> str:
        rows = list[tuple[datetime, str]]()
        for level, agent in await self.readers():
            first, last = period(since, until, agent.info.timezone)
            try:
                events = await agent.timeline(first, last, limit=limit, newest_first=True, entity=about or None)
                rows += [
                    (
                        event.at,
                        f"{event.at:%Y-%m-%d} {event.fact.text}" + (" (until then)" if event.kind == "end" else ""),
                    )
                    for event in events
                ]
            except NotFound:
                pass
            written = await agent.search_archive(about, since=first, until=last, limit=limit)
            rows += [(hit.passage.occurred_at, _passage_line(hit.passage, level)) for hit in written]
        lines = [line for _, line in sorted(rows, key=lambda row: row[0])[-limit:]]
        return "\n".join(lines) or "Nothing is known of that time."

    async def _memory_entity(self, *, name: str) -> str:
        parts = list[str]()
        for level, agent in await self.readers():
            try:
                hits = await agent.facts.list(entity=name, limit=FACTS_MAX)
            except NotFound:
                continue
            if not hits:
                continue
            entity = next(
                (one for hit in hits for one in (hit.subject, hit.object) if one.name.casefold() == name.casefold()),
                None,
            )
            head = (
                name
                if entity is None
                else f"{entity.name} ({entity.type}){': ' + entity.summary if entity.summary else ''}"
            )
            parts.append("\n".join([f"# {level}: {head}", *(_fact_line(hit.fact) for hit in hits)]))
        if parts:
            return "\n\n".join(parts)
        return f"No facts about {name!r:.80}. memory_search also looks in messages and notes."

    async def _note(
        self,
        *,
        kind: str = "",
        title: str | None = None,
        fields: Mapping[str, str] | None = None,
        level: MemoryLevel | None = None,
        id: str = "",
        archive: bool | None = None,
    ) -> str:
        if id:
            return await self._change_note(PassageId(id), title, fields, archive)
        level = level or self._project.own_level
        agent = await self._project.open(level)
        note, correction = await agent.notes.add(kind, title or "", fields or {})
        self._project.edits.clear()
        return f"Written: {note.kind} {note.title!r}, {note.id} ({level}). {_how_to_undo(level, correction.number)}"

    async def _change_note(
        self, id: PassageId, title: str | None, fields: Mapping[str, str] | None, archive: bool | None
    ) -> str:
        for level, agent in await self.readers():
            try:
                note = await agent.notes.get(id)
            except NotFound:
                continue
            undo = ""
            if title is not None or fields:
                note, correction = await agent.notes.edit(id, title=title, fields=fields)
                self._project.edits.clear()
                undo = _how_to_undo(level, correction.number)
            if archive is not None:
                note = await (agent.notes.archive(id) if archive else agent.notes.restore(id))
            state = " It is archived." if note.is_archived else ""
            return f"{_note_text(note)}\n{undo}{state}".rstrip()
        raise NotFound("note", id, hint="memory_list(kind='notes') shows them")

    async def _index_output(self, *, path: str = "", text: str = "", title: str = "") -> str:
        if bool(path) is bool(text):
            raise InvalidInput("give either path, a file, or text")
        text = self._outputs.read_file(path) if path else text
        return describe_output(self._outputs.store(text, title or path), text)

    async def _search_output(self, *, output: str, budget_tokens: int = 1_500, **asked: Any) -> str:
        return ask_output(self._outputs.text(output), asked, self._budget(budget_tokens)) or "Nothing was found."

    async def _track(self, *, files: Sequence[str]) -> str:
        for file in files:
            self._project.edits.count(file)
        edits, different = self._project.edits.totals()
        return f"{plural(edits, 'edit')} in {plural(different, 'file')} since the last note."


async def _last_said(agent: AsyncAgent) -> Sequence[Message]:
    """The newest messages of the user, oldest first."""
    newest = await agent.search("", roles=("user",), limit=SAID_SHOWN)
    return [hit.message for hit in newest][::-1]


def _said_line(message: Message) -> str:
    return f"- {message.occurred_at:%Y-%m-%d %H:%M} {_line(text_of(message.parts))}"


def _how_to_undo(level: MemoryLevel, number: int) -> str:
    return f"To undo: memory_forget(undo='{level}:{number}')."


def _line(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def _note_text(note: Note) -> str:
    return f"## {note.kind}, {note.changed_at:%Y-%m-%d} ({note.id})\n{note.text}"


def _note_line(note: Note, level: MemoryLevel) -> str:
    return f"{note.id} {note.kind} {note.changed_at:%Y-%m-%d} {note.title} ({level})"


def _passage_line(passage: Passage, level: MemoryLevel) -> str:
    return f"{passage.occurred_at:%Y-%m-%d} {_line(passage.text)} ({passage.id}, {level})"


def _fact_line(fact: Any) -> str:
    since = f" since {fact.valid_at:%Y-%m-%d}" if fact.valid_at else ""
    until = f" until {fact.invalid_at:%Y-%m-%d}" if fact.invalid_at else ""
    return f"{fact.id} {fact.text}{since}{until}"
