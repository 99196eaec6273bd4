"""What the tools do: each covers the memory of a project and the global one behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.core.blocks import Author, Block, append_text, replace_text, rewrite
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import FactId, PassageId, is_id
from perdure.core.models import EXTRACTIVE
from perdure.core.text.reprs import plural
from perdure.core.tools.arguments import fit_arguments
from perdure.domain.archives.passages import NewPassage
from perdure.features.facts.values.facts import FactHit
from perdure.features.mcp_server.context import MemoryReader, Readers
from perdure.features.mcp_server.lines import line_of, note_text
from perdure.features.mcp_server.listing import list_entity, list_kind, list_times
from perdure.features.mcp_server.outputs import OUTPUT_BYTES, Outputs, ask_output, describe_output
from perdure.features.mcp_server.specs import WRITING, MemoryToolSpec, tool_specs
from perdure.features.notes.nudges import NudgeLevel
from perdure.features.notes.projects import ProjectMemory
from perdure.features.notes.values import MemoryLevel
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

BUDGET_TOKENS, LIST_TOKENS = 1_500, 4_000
"""The most tokens of an answer: of tools whose caller may name another number, and of lists."""
ARGUMENT_CHARS, LIST_ITEMS = 100_000, 1_000
"""The longest text that an argument may have, besides outputs, and the most items of a list."""
_AUTHOR = Author(kind="agent", id="mcp")
"""Who changes blocks and undoes: the clients are agents, so protected blocks stay as they are."""
CALLS_WAITING = 32
UNDERSTOOD_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What a server of memory may do.

    Args:
        read_only: whether it offers no tool that changes something.
        nudges: when tool results end with a reminder to write a note.
        roots: more folders whose files may be indexed, besides the project's.
        reads_files: whether it is on the machine of its client, and files may be indexed at all.
    """

    read_only: bool = False
    nudges: NudgeLevel = "balanced"
    roots: Sequence[Path] = ()
    reads_files: bool = True


class MemoryTools:
    """The tools over one project's memory. Calls run one after the other, so that the changes of one client don't
    mix."""

    def __init__(self, perdure: AsyncPerdure, project: ProjectMemory, options: MemoryOptions) -> None:
        self._project, self._options = project, options
        own = () if project.folder is None else (project.folder,)
        self._outputs = Outputs(project.state, [*own, *options.roots], reads_files=options.reads_files)
        self._count = perdure.app.ports.counter
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def specs(self) -> Sequence[MemoryToolSpec]:
        """The tools that are offered."""
        return [spec for spec in tool_specs().values() if not (self._options.read_only and spec.name in WRITING)]

    async def wait_for_room(self) -> None:
        """Wait until few enough calls wait that one more may come."""
        await self._room.wait()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool; return what the model reads.

        Raises: NotFound, InvalidArguments, InvalidInput, and what the library raises.
        """
        spec = next((spec for spec in self.specs if spec.name == name), None)
        if spec is None:
            hint = "this server only reads" if name in tool_specs() else f"there are {', '.join(tool_specs())}"
            raise NotFound("tool", f"{name:.80}", hint=hint)
        fitted = fit_arguments(name, spec.schema, arguments)
        check_sizes(name, fitted)
        run: Callable[..., Awaitable[str]] = getattr(self, f"_{name}")
        self._count_waiting(1)
        try:
            async with self._turn:
                answer = await run(**fitted)
                nudge = "" if self._options.read_only else self._project.edits.take_nudge(self._options.nudges)
        finally:
            self._count_waiting(-1)
        return f"{answer}\n\n{nudge}" if nudge else answer

    def _count_waiting(self, more: int) -> None:
        self._waiting += more
        if self._waiting < CALLS_WAITING:
            self._room.set()
        else:
            self._room.clear()

    def _budget(self, tokens: int) -> Budget:
        return Budget(self._count, tokens)

    async def readers(self) -> Readers:
        """The agents that there are, the project's first. Raises: NotFound: there is no agent of the given name."""
        return await self._project.readers()

    async def _reader(self) -> MemoryReader:
        return MemoryReader(await self.readers(), self._count)

    async def _memory_context(self, *, about: str = "", budget_tokens: int = BUDGET_TOKENS) -> str:
        text = await (await self._reader()).context(budget_tokens, about)
        return text or "Nothing is remembered yet. memory_remember and note keep things for later sessions."

    async def _memory_search(self, *, query: str, budget_tokens: int = BUDGET_TOKENS) -> str:
        return await (await self._reader()).recall(query, budget_tokens) or "Nothing was found."

    async def _memory_remember(self, *, text: str, tags: Sequence[str] = (), level: MemoryLevel | None = None) -> str:
        level = level or self._project.own_level
        agent = await self._project.open(level)
        passage, correction = await agent.insert_passage(NewPassage(text=text, tags=tags))
        facts = await _understand(agent)
        understood = "".join(f"\nUnderstood: {hit.fact.text} ({hit.fact.id})" for hit in facts[:UNDERSTOOD_SHOWN])
        return f"Remembered as {passage.id} ({level}).{understood}\n{_how_to_undo(level, correction.number)}"

    async def _memory_forget(self, *, id: str = "", undo: str = "") -> str:
        id, undo = id.strip(), undo.strip()
        if bool(id) is bool(undo):
            raise InvalidInput("give either id, what to remove, or undo, what to take back")
        if undo:
            return await self._undo(undo)
        if not any(is_id(kind, id) for kind in ("passage", "fact", "message")):
            raise InvalidInput(
                f"id is {id!r:.80}: give the whole id of a passage, note, fact or message, which memory_search and"
                " memory_list show"
            )
        for level, agent in await self.readers():
            try:
                return await _forget(level, agent, id)
            except NotFound:
                continue
        raise NotFound("memory", id, hint="memory_search and memory_list show ids")

    async def _undo(self, undo: str) -> str:
        """Take a change back: `project:3`, the id of a fact, or `project:LABEL@VERSION` of a block."""
        level, _, what = undo.partition(":")
        for one, agent in await self.readers():
            if is_id("fact", undo):
                try:
                    await _get_own_fact(agent, undo)
                    hit = await agent.facts.restore(FactId(undo))
                except NotFound:
                    continue
                return f"Back ({one}): {hit.fact.text}"
            if level != one:
                continue
            label, _, version = what.rpartition("@")
            if not (version.isascii() and version.isdecimal() and len(version) < 10):
                break
            if label:
                block = await agent.blocks.restore(label, int(version), author=_AUTHOR)
                return f"Block {label} ({one}) is as before:\n{block.value}"
            result = await agent.undo(int(version), author=_AUTHOR)
            await _understand(agent)  # facts went with a text that is back now
            conflicts = "".join(f"\nNot taken back: {why}" for why in result.conflicts)
            restored = plural(result.restored, "thing")
            return f"Undone ({one}): {line_of(result.correction.text)}, {restored} as before.{conflicts}"
        raise InvalidInput(
            f"undo is {undo!r:.80}: give it as the answer of a change says it, such as project:3; "
            "memory_list(kind='changes') shows them"
        )

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
        edit = _block_edit(append, old, new, value)
        where, agent, found = await self._find_block(label, level)
        if not found:
            if old is not None:
                raise NotFound("block", label, hint="memory_list(kind='blocks') shows them")
            await agent.blocks.create(label)
        before = list[Block]()

        def change(block: Block) -> Mapping[str, Any]:
            before[:] = [block]
            return {"value": edit(block).value}

        # The block is read in the transaction that writes it: nothing of another session is lost.
        after = await agent.blocks.edit(label, change, author=_AUTHOR)
        return (
            f"Block {label} ({where}) is now:\n{after.value}\n"
            f"To undo: memory_forget(undo='{where}:{label}@{before[0].version}')."
        )

    async def _find_block(self, label: str, level: MemoryLevel | None) -> tuple[MemoryLevel, AsyncAgent, bool]:
        """Where a block is, or is to be made; and whether it is there."""
        for one, agent in await self.readers():
            if level in (None, one) and await _has_block(agent, label):
                return one, agent, True
        # The first write makes the agents, with their blocks: those of the user lie in the global one.
        levels: Sequence[MemoryLevel] = (level,) if level else (self._project.own_level, "global")
        for one in levels:
            agent = await self._project.open(one)
            if await _has_block(agent, label):
                return one, agent, True
        return levels[0], await self._project.open(levels[0]), False

    async def _memory_list(
        self, *, kind: str, note_kind: str | None = None, stale: bool = False, limit: int = 20
    ) -> str:
        if kind == "outputs":
            lines = [f"{one.handle} {one.title} ({one.lines:,} lines)" for one in self._outputs.list(limit)]
            return "\n".join(lines) or "No output is indexed."
        budget = self._budget(LIST_TOKENS)
        found = await list_kind(await self.readers(), kind, budget, note_kind=note_kind, stale=stale, limit=limit)
        return found or f"There are no {kind} yet."

    async def _memory_timeline(
        self, *, since: str | None = None, until: str | None = None, about: str = "", limit: int = 30
    ) -> str:
        budget = self._budget(LIST_TOKENS)
        found = await list_times(await self.readers(), budget, since=since, until=until, about=about, limit=limit)
        return found or "Nothing is known of that time."

    async def _memory_entity(self, *, name: str) -> str:
        found = await list_entity(await self.readers(), name, self._budget(LIST_TOKENS))
        return found or f"No facts about {name!r:.80}. memory_search also looks in messages and notes."

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
        if title is None and not fields and archive is None:
            raise InvalidInput("nothing is to be changed: give title, fields or archive with the id of a note")
        for level, agent in await self.readers():
            try:
                note = await agent.notes.get(id)
            except NotFound:
                continue
            ends = list[str]()
            if title is not None or fields:
                note, correction = await agent.notes.edit(id, title=title, fields=fields)
                self._project.edits.clear()
                ends.append(_how_to_undo(level, correction.number))
            if archive is not None and archive is not note.is_archived:
                note = await (agent.notes.archive(id) if archive else agent.notes.restore(id))
            if note.is_archived:
                ends.append(f"It is archived. To undo: note(id='{id}', archive=false).")
            return "\n".join([note_text(note), *ends])
        raise NotFound("note", f"{id:.80}", hint="memory_list(kind='notes') shows them")

    async def _index_output(self, *, path: str = "", text: str = "", title: str = "") -> str:
        if bool(path) is bool(text):
            raise InvalidInput("give either path, a file, or text")
        text = await asyncio.to_thread(self._outputs.read_file, path) if path else text
        output = await asyncio.to_thread(self._outputs.store, text, title or path)
        return describe_output(output, text)

    async def _search_output(self, *, output: str, budget_tokens: int = BUDGET_TOKENS, **asked: Any) -> str:
        text = await asyncio.to_thread(self._outputs.text, output)
        answer = await asyncio.to_thread(ask_output, text, asked, self._budget(budget_tokens))
        return answer or "Nothing was found."

    async def _track(self, *, files: Sequence[str]) -> str:
        for file in files:
            self._project.edits.count(file)
        edits, different = self._project.edits.totals()
        return f"{plural(edits, 'edit')} in {plural(different, 'file')} since the last note."


def check_sizes(tool: str, arguments: Mapping[str, Any]) -> None:
    """Check the sizes of a call's arguments. Raises: InvalidInput: a text is too long, or a list."""
    for name, value in arguments.items():
        limit = OUTPUT_BYTES if (tool, name) == ("index_output", "text") else ARGUMENT_CHARS
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,):
            if isinstance(one, str) and len(one) > limit:
                raise InvalidInput(f"{name} has {len(one):,} characters, the limit is {limit:,}. Nothing was done.")
        if isinstance(value, list | dict) and len(value) > LIST_ITEMS:
            raise InvalidInput(f"{name} has {len(value):,} items, the limit is {LIST_ITEMS:,}. Nothing was done.")


def _block_edit(append: str | None, old: str | None, new: str | None, value: str | None) -> Callable[[Block], Block]:
    """Return the change of a block that the arguments ask for. Raises: InvalidInput: none, or several."""
    if (append is not None) + (old is not None) + (value is not None) != 1 or (old is None) is not (new is None):
        raise InvalidInput("give one of: append; old and new; value")
    if append is not None:
        return lambda block: append_text(block, append)
    if old is not None and new is not None:
        return lambda block: replace_text(block, old, new)
    return lambda block: rewrite(block, value or "")


async def _understand(agent: AsyncAgent) -> Sequence[FactHit]:
    """Make facts of what waits to be read; return them. An agent with a model of its own reads it in the background:
    nobody waits for a model here."""
    return await agent.facts.extract() if agent.info.model == EXTRACTIVE else ()


async def _has_block(agent: AsyncAgent, label: str) -> bool:
    return any(block.label == label for block in await agent.blocks.list())


async def _get_own_fact(agent: AsyncAgent, id: str) -> FactHit:
    """Return a fact of the agent's graph. Raises: NotFound, also for another agent's."""
    hit, graph = await agent.facts.get(FactId(id)), await agent.facts.find_graph()
    if graph is None or hit.fact.graph_id != graph.id:
        raise NotFound("fact", id)
    return hit


async def _forget(level: MemoryLevel, agent: AsyncAgent, id: str) -> str:
    """Remove what an agent has under an id. Raises: NotFound."""
    if is_id("fact", id):
        hit = await _get_own_fact(agent, id)
        await agent.facts.delete(FactId(id))
        return f"Forgotten ({level}): {hit.fact.text}\nTo undo: memory_forget(undo='{id}')."
    if is_id("passage", id):
        passage = await agent.passage(PassageId(id))
        correction = await agent.delete_passages([passage.id])
        return f"Removed ({level}): {line_of(passage.text)}\n{_how_to_undo(level, correction.number)}"
    result = await agent.forget(id, author=_AUTHOR)
    if not result.total:
        raise NotFound("message", id)
    places = ", ".join(f"{count} in {place}" for place, count in result.counts.items() if count)
    undo = "" if result.correction is None else "\n" + _how_to_undo(level, result.correction.number)
    return f"Forgotten ({level}): {places}.{undo}"


def _how_to_undo(level: MemoryLevel, number: int) -> str:
    return f"To undo: memory_forget(undo='{level}:{number}')."
