"""What the tools do: each covers the memory of a project and the global one behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.context.sections.expand import Budget
from perdure.core.blocks import Author, Block, append_text, replace_text, rewrite
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound, ToolError
from perdure.core.ids import AgentId, FactId, PassageId, is_id
from perdure.core.models import EXTRACTIVE
from perdure.core.text.credentials import value_without_credentials, without_credentials
from perdure.core.text.reprs import plural
from perdure.core.tools.arguments import fit_arguments
from perdure.domain.archives.passages import NewPassage
from perdure.features.facts.values.facts import Fact, FactHit
from perdure.features.mcp_server.context import MemoryReader
from perdure.features.mcp_server.listing import NOTES_HINT, line_of, list_entity, list_kind, list_times, note_text
from perdure.features.mcp_server.outputs import (
    OUTPUT_BYTES,
    Outputs,
    ShellRun,
    ask_output,
    mask_output,
    read_file,
    run_shell,
)
from perdure.features.mcp_server.specs import MemoryToolSpec, offered_specs, tool_specs
from perdure.features.notes.nudges import NudgeLevel
from perdure.features.notes.projects import ProjectMemory, find_note
from perdure.features.notes.values import MemoryLevel
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

BUDGET_TOKENS, LIST_TOKENS = 1_500, 4_000
"""The most tokens of an answer: of tools whose caller may name another number, and of lists."""
ARGUMENT_CHARS, LIST_ITEMS = 100_000, 1_000
"""The most characters of an argument, of all its items together, besides outputs; and the most items of a list."""
CALLS_WAITING, CHARS_WAITING = 1_000, 100_000_000
"""The most calls that wait, and the most characters of their arguments together: more are refused."""
_AUTHOR = Author(kind="agent", id="mcp")
"""Who changes blocks and undoes: the clients are agents, so protected blocks stay as they are."""
SESSION = os.urandom(8).hex()
"""Each start of a server is a session in which reminders are counted."""
UNDERSTOOD_SHOWN = 10
MASKED = "A credential was masked: keep it with `perdure secret`."
_CHANGE = re.compile(r"(project|global):(?:(.+)@)?([0-9]{1,9})")
"""What `memory_forget` takes back: `project:3`, or `project:LABEL@VERSION` of a block."""


async def _tell_nobody(tool: str, agent_id: AgentId) -> None:
    """Do nothing: there is no audit log of what people on this machine do to their own memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What a server of memory may do.

    Args:
        read_only: whether it offers no tool that changes something.
        nudges: when tool results end with a reminder to write a note.
        roots: more folders whose files may be indexed, besides the project's.
        reads_files: whether it is on the machine of its client, and files may be indexed at all.
        runs_commands: whether its client may run shell commands in the project's folder.
        check: is asked before a change, with method and path of a request to the API that needs the same scope; raises
            ScopeTooSmall.
        tell: is told after a change, by which tool it was, and of which agent; "agent": it was made.
    """

    read_only: bool = False
    nudges: NudgeLevel = "balanced"
    roots: Sequence[Path] = ()
    reads_files: bool = True
    runs_commands: bool = False
    check: Callable[[str, str], None] = lambda method, path: None
    tell: Callable[[str, AgentId], Awaitable[None]] = _tell_nobody


class MemoryTools:
    """The tools over one project's memory. Calls run one after the other, so that the changes of one client don't mix;
    beside them one shell command. Raises: InvalidInput: commands are to be run, and there is no project's folder."""

    def __init__(self, perdure: AsyncPerdure, project: ProjectMemory, options: MemoryOptions) -> None:
        if options.runs_commands and project.folder is None:
            raise InvalidInput("commands are run in the project's folder, and there is none: give it")
        self._project, self._options, self.readers = project, options, project.readers
        self.specs = offered_specs(read_only=options.read_only, runs_commands=options.runs_commands)
        self._roots = [*(() if project.folder is None else (project.folder,)), *options.roots]
        self._count, self._transfer = perdure.app.ports.counter, perdure.transfer
        self._turn, self._shell_turn = asyncio.Lock(), asyncio.Lock()
        self._waiting = self._waiting_chars = 0
        self._changed: AgentId | None = None  # by the call whose turn it is

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool; return what the model reads. Raises: NotFound, InvalidArguments, InvalidInput; ToolError: too
        many wait; and what the library raises."""
        spec = next((spec for spec in self.specs if spec.name == name), None)
        if spec is None:
            hint = "this server only reads" if name in tool_specs() else f"there are {', '.join(tool_specs())}"
            raise NotFound("tool", f"{name:.80}", hint=hint)
        check_sizes(name, arguments)  # at once: the schema looks at each item
        fitted = fit_arguments(name, spec.schema, arguments)
        chars = check_sizes(name, fitted)
        if self._waiting >= CALLS_WAITING or self._waiting_chars + chars > CHARS_WAITING:
            raise ToolError(f"{self._waiting:,} calls wait already: wait for answers. Nothing was done.")
        self._waiting, self._waiting_chars = self._waiting + 1, self._waiting_chars + chars
        try:
            if spec.request:
                self._options.check(*spec.request)
            if "command" in fitted:
                fitted["command"] = await self._run_command(**fitted)
            async with self._turn:
                return await self._run(spec, fitted)
        finally:
            self._waiting, self._waiting_chars = self._waiting - 1, self._waiting_chars - chars

    async def _run(self, spec: MemoryToolSpec, arguments: Mapping[str, Any]) -> str:
        """The answer of a tool, with the reminder that is due."""
        self._changed = None
        run: Callable[..., Awaitable[str]] = getattr(self, f"_{spec.name}")
        kept = {name: arguments[name] for name in spec.kept if name in arguments}
        masked = await asyncio.to_thread(value_without_credentials, kept)
        answer = await run(**{**arguments, **masked})
        if masked != kept:
            answer += f"\n{MASKED}"
        if self._changed is not None:
            await self._options.tell(spec.name, self._changed)
        if self._options.read_only:
            return answer
        nudge = (await self._project.edits()).take_nudge(self._options.nudges, SESSION)
        return f"{answer}\n\n{nudge}" if nudge else answer

    async def _open(self, level: MemoryLevel | None = None) -> AsyncAgent:
        """The agent of a level that the call changes, made if there is none. Raises: ScopeTooSmall: it can't be."""
        agent = await self._project.find(level)
        if agent is None:
            self._options.check("POST", "/v1/agents/")
            agent = await self._project.open(level)
            await self._options.tell("agent", agent.id)
        self._changed = agent.id
        return agent

    async def _memory_context(self, *, about: str = "", budget_tokens: int = BUDGET_TOKENS) -> str:
        """Return what is remembered for the project, for the beginning of a session."""
        text = await MemoryReader(await self.readers(), self._count).context(budget_tokens, about)
        return text or "Nothing is remembered yet. memory_remember and note keep things for later sessions."

    async def _memory_search(self, *, query: str, budget_tokens: int = BUDGET_TOKENS) -> str:
        """Return what memory holds about a query."""
        text = await MemoryReader(await self.readers(), self._count).recall(query, budget_tokens)
        return text or "Nothing was found."

    async def _memory_remember(self, *, text: str, tags: Sequence[str] = (), level: MemoryLevel | None = None) -> str:
        level = level or self._project.own_level
        agent = await self._open(level)
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
        if id.startswith("passage-") and not is_id("passage", id):  # a note's, as memory_context shows it
            id = (await find_note(await self.readers(), id, hint=NOTES_HINT))[2].id
        if not any(is_id(kind, id) for kind in ("passage", "fact", "message")):
            raise InvalidInput(
                f"id is {id!r:.80}: give the whole id of a passage, note, fact or message, which memory_search and"
                " memory_list show"
            )
        for level, agent in await self.readers():
            try:
                done = await _forget(level, agent, id)
            except NotFound:
                continue
            self._changed = agent.id
            return done
        raise NotFound("memory", id, hint="memory_search and memory_list show ids")

    async def _undo(self, undo: str) -> str:
        """Take a change back, or the removal of the fact with this id."""
        change = _CHANGE.fullmatch(undo)
        for level, agent in await self.readers():
            if is_id("fact", undo):
                with contextlib.suppress(NotFound):
                    await _get_own_fact(agent, undo)
                    hit = await agent.facts.restore(FactId(undo))
                    self._changed = agent.id
                    return f"Back ({level}): {hit.fact.text}"
            elif change is not None and change[1] == level:
                label, number = change[2], int(change[3])
                self._changed = agent.id
                if label:
                    block = await agent.blocks.restore(label, number, author=_AUTHOR)
                    return f"Block {label} ({level}) is as before:\n{block.value}"
                result = await agent.undo(number, author=_AUTHOR)
                await _understand(agent)  # facts went with a text that is back now
                conflicts = "".join(f"\nNot taken back: {why}" for why in result.conflicts)
                restored = plural(result.restored, "thing")
                return f"Undone ({level}): {line_of(result.correction.text)}, {restored} as before.{conflicts}"
        raise InvalidInput(
            f"undo is {undo!r:.80}: give it as the answer of a change says it, such as project:3; "
            "memory_list(kind='changes') shows them"
        )

    async def _memory_edit_block(self, *, label: str, level: MemoryLevel | None = None, **texts: str) -> str:
        edit = _block_edit(texts)
        where, agent, found = await self._find_block(label, level)
        if not found:
            if "old" in texts:
                raise NotFound("block", label, hint="memory_list(kind='blocks') shows them")
            self._options.check("POST", "/v1/blocks/")
            with contextlib.suppress(AlreadyExists):  # another session has just made it
                made = await agent.blocks.create(label, texts.get("append") or texts.get("value", ""))
                self._changed = agent.id
                undo = f"memory_edit_block(label='{label}', value='', level='{where}')"
                return f"Block {label} ({where}) is new:\n{made.value}\nTo undo: {undo}."
        self._changed = agent.id
        before = list[Block]()

        def change(block: Block) -> Mapping[str, Any]:
            """Return the new text of the block, and remember the old block."""
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
            agent = await self._open(one)
            if await _has_block(agent, label):
                return one, agent, True
        return levels[0], await self._open(levels[0]), False

    async def _memory_list(self, *, kind: str, limit: int = 20, **which: Any) -> str:
        """List remembered things of a kind."""
        if kind == "outputs":
            agent = await self._project.find()
            found = () if agent is None else await asyncio.to_thread((await self._outputs_of(agent)).list, limit)
            lines = [f"{one.handle} {one.title} ({one.lines:,} lines)" for one in found]
            return "\n".join(lines) or "No output is indexed."
        return await list_kind(await self.readers(), kind, Budget(self._count, LIST_TOKENS), limit=limit, **which)

    async def _memory_timeline(self, *, about: str = "", limit: int = 30, **times: str) -> str:
        budget = Budget(self._count, LIST_TOKENS)
        return await list_times(await self.readers(), budget, about=about, limit=limit, **times)

    async def _memory_entity(self, *, name: str) -> str:
        if not name.strip():
            raise InvalidInput("name is empty: give the name of a person or thing")
        return await list_entity(await self.readers(), name, Budget(self._count, LIST_TOKENS))

    async def _note(self, *, id: str = "", kind: str = "", level: MemoryLevel | None = None, **given: Any) -> str:
        if id:
            return await self._change_note(id, **given)
        if given.get("archive") is not None or given.get("keep"):
            raise InvalidInput("archive and keep are for a note that is there: give its id")
        level = level or self._project.own_level
        agent = await self._open(level)
        note, correction = await agent.notes.add(kind, given.get("title", ""), given.get("fields", {}))
        (await self._project.edits()).clear()
        return f"Written: {note.kind} {note.title!r}, {note.id} ({level}). {_how_to_undo(level, correction.number)}"

    async def _change_note(self, id: str, *, archive: bool | None = None, keep: bool = False, **changes: Any) -> str:
        """Change the title or fields of a note, put it away, or keep it; or with an id alone only show it."""
        is_edit = "title" in changes or bool(changes.get("fields"))
        if keep and (is_edit or archive is not None):
            raise InvalidInput("keep says that a note holds as it is: give it without title, fields and archive")
        level, agent, note = await find_note(await self.readers(), id, hint=NOTES_HINT)
        ends = list[str]()
        if is_edit or keep or archive is not None:
            self._changed = agent.id
        if is_edit:
            note, correction = await agent.notes.edit(note.id, archived=archive, **changes)
            (await self._project.edits()).clear()
            ends.append(_how_to_undo(level, correction.number))
        elif archive is not None:
            note = await (agent.notes.archive(note.id) if archive else agent.notes.restore(note.id))
        elif keep:
            note = await agent.notes.keep(note.id)
            ends.append("It still holds: its review begins anew.")
        if note.is_archived:
            ends.append(f"It is archived. To undo: note(id='{note.id}', archive=false).")
        return "\n".join([note_text(note), *ends])

    async def _outputs_of(self, agent: AsyncAgent) -> Outputs:
        return Outputs(self._project.state_of(agent), await self._transfer.list_forgotten(agent.id))

    async def _run_command(self, *, command: str, path: str = "", text: str = "", title: str = "") -> ShellRun:
        """Run the command of a call of index_output, while other calls take their turns."""
        if path or text or not command.strip():
            raise InvalidInput("give one of: path, a file; text; command")
        assert self._project.folder is not None, "no such argument is offered without one"
        async with self._shell_turn:
            return await run_shell(command, self._project.folder)

    async def _index_output(
        self, *, path: str = "", text: str = "", command: ShellRun | None = None, title: str = ""
    ) -> str:
        if command is not None:
            text, title = command.output, title or without_credentials(command.line)
            if not text.strip():
                return f"{command.end} It printed nothing, so nothing is stored."
        elif bool(path) is bool(text):
            raise InvalidInput("give either path, a file, or text")
        elif path and not self._options.reads_files:
            raise InvalidInput("this server reads no files: give the text")
        elif path:
            text, title = await asyncio.to_thread(read_file, path, self._roots), title or path
        masked = await asyncio.to_thread(mask_output, text)
        if command is not None:  # what was read of it is not lost because a note is longer than a credential
            masked = masked.encode()[:OUTPUT_BYTES].decode("utf-8", "ignore")
        output = await asyncio.to_thread((await self._outputs_of(await self._open())).store, masked, title)
        parts = ("" if command is None else command.end, output.describe(masked), MASKED * (masked != text))
        return "\n".join(filter(None, parts))

    async def _search_output(self, *, output: str, budget_tokens: int = BUDGET_TOKENS, **asked: Any) -> str:
        if (agent := await self._project.find()) is None:
            raise NotFound("output", f"{output:.80}", hint="none is indexed")
        text = await asyncio.to_thread((await self._outputs_of(agent)).text, output)
        answer = await asyncio.to_thread(ask_output, text, asked, Budget(self._count, budget_tokens))
        return answer or "Nothing was found."

    async def _track(self, *, files: Sequence[str]) -> str:
        """Count edits of files, for reminders to write a note."""
        await self._open()
        counter = await self._project.edits()
        for file in files:
            counter.count(file)
        edits, different = counter.totals()
        return f"{plural(edits, 'edit')} in {plural(different, 'file')} since the last note."


def check_sizes(tool: str, arguments: Mapping[str, Any]) -> int:
    """The characters of a call's arguments. Raises: InvalidInput: an argument has too many, or a list is too long."""
    sizes = dict[str, int]()
    for name, value in arguments.items():
        limit = OUTPUT_BYTES if (tool, name) == ("index_output", "text") else ARGUMENT_CHARS
        items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
        sizes[name] = sum(len(item) for item in items if isinstance(item, str))
        if sizes[name] > limit:
            raise InvalidInput(f"{name:.80} has {sizes[name]:,} characters, the limit is {limit:,}. Nothing was done.")
        if len(items) > LIST_ITEMS:
            raise InvalidInput(f"{name:.80} has {len(items):,} items, the limit is {LIST_ITEMS:,}. Nothing was done.")
    return sum(sizes.values())


def _block_edit(texts: Mapping[str, str]) -> Callable[[Block], Block]:
    """Return the change of a block that the arguments ask for. Raises: InvalidInput: none, or several."""
    match sorted(texts.items()):
        case [("append", text)] if text.strip():
            return lambda block: append_text(block, text)
        case [("new", new), ("old", old)]:
            return lambda block: replace_text(block, old, new)
        case [("value", text)]:
            return lambda block: rewrite(block, text)
    raise InvalidInput("give one of: append; old and new; value")


async def _understand(agent: AsyncAgent) -> Sequence[FactHit]:
    """Extract facts from waiting texts and return them; with a model of its own, an agent does it in background."""
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
        sources = (await agent.facts.history(FactId(id))).sources
        await agent.facts.delete(FactId(id))
        kept = "".join(f"\nIts source stays: {source.ref}" for source in sources if source.ref != source.id)
        return f"Forgotten ({level}): {hit.fact.text}{kept}\nTo undo: memory_forget(undo='{id}')."
    facts = await agent.facts.list_supported(id)
    if is_id("passage", id):
        passage = await agent.passage(PassageId(id))
        correction = await agent.delete_passages([passage.id])
        gone = await _gone_lines(agent, facts)
        return f"Removed ({level}): {line_of(passage.text)}{gone}\n{_how_to_undo(level, correction.number)}"
    result = await agent.forget(id, author=_AUTHOR)
    if not result.total:
        raise NotFound("message", id)
    places = ", ".join(f"{count} in {place}" for place, count in result.counts.items() if count)
    undo = "" if result.correction is None else "\n" + _how_to_undo(level, result.correction.number)
    return f"Forgotten ({level}): {places}.{await _gone_lines(agent, facts)}{undo}"


async def _gone_lines(agent: AsyncAgent, facts: Sequence[Fact]) -> str:
    """Return a line for each of the facts that is no longer believed."""
    newest = [(await agent.facts.get(fact.id)).fact for fact in facts]
    return "".join(f"\nForgotten with it: {fact.text} ({fact.id})" for fact in newest if fact.expired_at)


def _how_to_undo(level: MemoryLevel, number: int) -> str:
    return f"To undo: memory_forget(undo='{level}:{number}')."
