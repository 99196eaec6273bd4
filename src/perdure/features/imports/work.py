"""One import, planned or carried out: item by item of its source, in small transactions."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain, groupby, islice, takewhile
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from perdure.app import App
from perdure.core.agents import AgentFilter
from perdure.core.errors import AlreadyExists, ApprovalPending, ConversationBusy, InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId, PassageId
from perdure.core.incoming.addresses import is_postgres
from perdure.core.passages import Passage
from perdure.core.sources import Source, WriteSource
from perdure.domain.archives.passages import check_passage
from perdure.domain.conversations.importing import ImportedMessage, message_ids
from perdure.domain.values import batches
from perdure.engine.records.leases import is_dead, process_owner
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.features.imports import units
from perdure.features.imports.common.forgotten import ForgottenTexts
from perdure.features.imports.common.values import BUSY, DELETED, FORGOTTEN, TOO_LONG, ImportReport
from perdure.features.imports.sources import reader_of
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    ImportSource,
    Omission,
    SourceAgent,
    SourceConversation,
    SourceItem,
    SourceMemory,
)
from perdure.features.imports.sources.letta_db import read_server
from perdure.features.imports.sources.plain import hash_of
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure

Place = str | Path | BinaryIO
"""A file, folder, ZIP file, the address of a database, or an open file."""
Progress = Callable[[int], None]

DELETED_MEMORIES = "memories that were deleted here"
RESET = "messages that a reset took out of view, of conversations that go on here"

ITEMS_AT_ONCE = 50
PIECE_CHARS = 8_000
"""A longer memory becomes several passages, of whole paragraphs where these are not longer."""
_UNFINISHED = " - being imported by process"
_LEFT = re.compile(rf".*{_UNFINISHED} (\d+) (\S+) (\w+) \w+", re.DOTALL)
ABANDONED_AFTER, ABANDONED_AT_ONCE = timedelta(minutes=15), 100
_NOT_IN_NAME = re.compile(r"[^\w '-]+")
_NAME_CHARS = 150


def read_items(source: ImportSource, place: Place, label: str) -> Generator[SourceItem]:
    """Yield what a source holds. Raises: InvalidInput."""
    if source == "letta-db" and isinstance(place, str) and is_postgres(place):
        yield from read_server(str(place))
        return
    with closing(SourceFiles(place, label)) as files:
        yield from reader_of(source)(files)


class ImportWork:
    """One import: `dry` only counts. `agent`: the name or id of the agent that gets what belongs to none at the source,
    or that the only agent of the source gets."""

    def __init__(
        self,
        app: App,
        source: ImportSource,
        agent: str | None,
        *,
        dry: bool,
        facts: bool = False,
        progress: Progress = lambda done: None,
    ) -> None:
        self._app, self._store, self._source, self._dry, self._facts = app, app.ports.store, source, dry, facts
        self._library, self._named, self._progress = AsyncPerdure(app), agent, progress
        self._agents: dict[str, AgentId] = {}
        self._seen: dict[tuple[str, str], Counter[str]] = {}  # conversation -> how often it has equal messages
        self._forgotten = ForgottenTexts(self._library)
        self.report = ImportReport(source=source)

    async def run(self, place: Place, label: str) -> ImportReport:
        """Import the whole source, called `label` in errors. Raises: InvalidInput, StoreError: the rest is kept."""
        label = label or (Path(place).name if isinstance(place, (str, Path)) else "the file")
        if not self._dry:
            await self._drop_unfinished()
        items = read_items(self._source, place, label)
        with closing(items):
            while part := await asyncio.to_thread(lambda: list(islice(items, ITEMS_AT_ONCE))):
                for (kind, agent), group in groupby(part, lambda one: (type(one), getattr(one, "agent", ""))):
                    if kind is SourceMemory:
                        await self._memories(agent, [one for one in group if isinstance(one, SourceMemory)])
                        continue
                    for one in group:
                        await self._take(one)
        if not self.report.agents and not self.report.left_out:
            raise InvalidInput(f"{label}: there is nothing to import in it")
        return self.report

    async def _take(self, item: SourceItem) -> None:
        """Import one item of the source, or count it as left out."""
        match item:
            case Omission():
                self.report.leave_out(item.why, item.count)
            case SourceAgent():
                await self._agent(item)
            case SourceConversation():
                await self._conversation(item)

    # --- agents

    async def _agent(self, found: SourceAgent) -> None:
        """Find or make an agent of the source. Raises: InvalidInput."""
        if self._named is not None and self._agents:
            raise InvalidInput("the source has several agents, which keep their names: leave --agent out")
        key, named = f"agent {self._source} {hash_of(found.id)}", self._named
        name = named or _NOT_IN_NAME.sub(" ", found.name)[:_NAME_CHARS].strip() or self._source
        there = await self._store.read(units.find_agent, key, named)
        if there is None and self._dry:
            self._set(found.id, await self._store.read(units.free_name, name), AgentId(""))
            return
        if there is None:
            machine, pid, start, _ = process_owner().rsplit("/", 3)
            unfinished = f"{name[: _NAME_CHARS - 50]}{_UNFINISHED} {pid} {start} {hash_of(machine)[:6]} {token_hex(2)}"
            made = await self._make(found, unfinished)
            try:
                there = await self._store.write(units.claim_agent, made, key, named, name, self._app.ports.clock.now())
            finally:
                if there is None or there.id != made:
                    await self._library.delete_agent(made)
        if found.file is not None and not self._dry:
            await self._store.write(units.note_moved, there.id, found.former)
        self._set(found.id, there.name, there.id)

    async def _make(self, found: SourceAgent, name: str) -> AgentId:
        """Create an agent of the source, under a temporary name until it is complete. Raises: InvalidInput."""
        if found.file is None:
            made = await self._library.create_agent(
                name, system=found.system, description=found.description, blocks=found.blocks
            )
            return made.id
        document = await asyncio.to_thread(read_agent_file, found.file)
        work = Import(self._library, document, ImportOptions(name=name, without_messages=True))
        (agent_id,) = await work.run()
        for warning in work.warnings:
            self.report.leave_out(warning)
        return agent_id

    async def _drop_unfinished(self) -> None:
        """Delete agents that killed imports have left: at once where their process is known to be dead."""
        machine, before = process_owner().rsplit("/", 3)[0], self._app.ports.clock.now() - ABANDONED_AFTER
        page = Page(ABANDONED_AT_ONCE, ascending=True)
        for one in await self._library.all_agents.page(AgentFilter(text=_UNFINISHED), page):
            if (left := _LEFT.fullmatch(one.name)) is None:
                continue
            if one.created_at < before or (
                left[3] == hash_of(machine)[:6] and is_dead(f"{machine}/{left[1]}/{left[2]}/")
            ):
                with suppress(NotFound):
                    await self._library.delete_agent(one.id)

    async def _target(self, key: str) -> AgentId:
        """Return the local agent for this one of the source; empty: it is not created yet."""
        if key not in self._agents:
            name = self._named or self._source
            try:
                agent = await self._library.agent(name)
            except NotFound:
                if self._dry:
                    self._set(key, name, AgentId(""))
                    return AgentId("")
                with suppress(AlreadyExists):
                    await self._library.create_agent(name)
                agent = await self._library.agent(name)
            self._set(key, agent.name, agent.id)
        return self._agents[key]

    def _set(self, key: str, name: str, agent_id: AgentId) -> None:
        """Note which agent was created for one of the source."""
        self._agents[key] = self.report.agents[name] = agent_id

    # --- conversations

    async def _conversation(self, found: SourceConversation) -> None:
        """Count a conversation, and store what of it is not here."""
        agent_id, report = await self._target(found.agent), self.report
        is_next = (found.agent, found.id) in self._seen  # its lines may stand between those of others
        found = replace(found, messages=await self._fitting(agent_id, found))
        if not agent_id:
            standing = units.ImportState("new", len(found.messages))
        elif await self._store.read(units.is_own, agent_id, found.id):
            standing = units.ImportState("done")
        else:
            standing = await self._take_conversation(agent_id, found)
        if standing.state == "deleted":
            report.leave_out(DELETED)
            return
        if not is_next:
            report.conversations.new += standing.state == "new"
            report.conversations.already += standing.state != "new"
        report.messages.new += standing.new
        report.messages.already += len(found.messages) - standing.new
        report.withdrawn += standing.withdrawn
        report.changed += standing.renamed
        self._progress(report.total)

    async def _take_conversation(self, agent_id: AgentId, found: SourceConversation) -> units.ImportState:
        """Return how a conversation stood, after storing what of it was not here."""
        if found.is_first:
            conversation_id = await self._store.read(lambda tx: tx.conversations.get_by_seq(agent_id, 0).id)
        else:
            conversation_id, messages = await self._store.read(units.find_conversation, agent_id, self._source, found)
            found = replace(found, messages=messages)
        put = partial(units.put_conversation, source=self._source, inputs=self._app.ports.inputs())
        standing = await self._store.read(put, agent_id, conversation_id, found, dry=True)
        is_done = standing.state == "done" and not standing.renamed
        if self._dry or standing.state == "deleted" or (is_done and not self._facts):
            return standing
        imported = 0
        finish = partial(units.finish, agent_id=agent_id, conversation_id=conversation_id, facts=self._facts)
        try:
            if not is_done:
                standing = await self._store.write(put, agent_id, conversation_id, found, dry=False)
                found = replace(found, messages=standing.messages)
                imported = await self._store_messages(agent_id, conversation_id, found)
            await self._store.write(finish, messages=found.messages, inputs=self._app.ports.inputs())
        except (ConversationBusy, ApprovalPending):
            self.report.leave_out(BUSY)
            return units.ImportState(standing.state)
        return replace(standing, new=imported)

    async def _store_messages(
        self, agent_id: AgentId, conversation_id: ConversationId, found: SourceConversation
    ) -> int:
        """Store the messages that are not here; return how many. Raises: ConversationBusy, ApprovalPending."""
        agent, end = self._library.agent_of(agent_id), len(found.messages) - found.waiting
        add = partial(agent.import_messages, conversation=conversation_id, checked=True, source=self._source)
        hidden = [*takewhile(lambda one: one.reset, found.messages[:end])]
        before = await self._hide(agent_id, conversation_id, hidden, add) if hidden else 0
        result = await add(found.messages[len(hidden) : end])
        result = replace(result, imported=before + result.imported)
        ids = message_ids(agent_id, conversation_id, found.messages)[end:]
        if not ids or await self._store.read(lambda tx: bool(tx.messages.find_existing(ids))):
            return result.imported
        here = await agent.find_conversation(conversation_id)
        await self._library.messages.import_waiting(here, found.messages[end:])
        return result.imported + found.waiting

    async def _hide(
        self, agent_id: AgentId, conversation_id: ConversationId, hidden: Sequence[ImportedMessage], add: Any
    ) -> int:
        """Store messages by `add` that a reset took out of view, and take them out of view here, unless others are in
        view; return how many were stored. Raises: ConversationBusy, ApprovalPending."""
        agent, ids = self._library.agent_of(agent_id), message_ids(agent_id, conversation_id, hidden)
        for newest_first in (False, True):
            for message in await agent.messages(conversation=conversation_id, limit=1, newest_first=newest_first):
                if message.id not in ids:
                    self.report.leave_out(RESET, len(hidden))
                    return 0
        imported: int = (await add(hidden)).imported
        await agent.reset(conversation=conversation_id)
        return imported

    async def _fitting(self, agent_id: AgentId, found: SourceConversation) -> Sequence[ImportedMessage]:
        """Return a conversation's messages that are not too long, without texts that the agent has forgotten."""
        limit = self._app.settings.message_limit_chars
        messages = [*_with_ids(found.messages, self._seen.setdefault((found.agent, found.id), Counter()))]
        end = len(messages) - found.waiting
        kept = [message for message in messages[:end] if len(message.text) <= limit] + messages[end:]
        if len(kept) < len(messages):
            self.report.leave_out(TOO_LONG.format(limit=limit), len(messages) - len(kept))
        return await self._forgotten.redact(agent_id, kept)

    # --- memories

    async def _memories(self, key: str, found: Sequence[SourceMemory]) -> None:
        """Count memories of an agent, and store those that are not here."""
        agent_id, report = await self._target(key), self.report
        if agent_id and any(one.passage for one in found):
            own = await self._store.read(units.own_passages, agent_id, [one.id for one in found])
            report.memories.already += len(own)
            found = [one for one in found if one.id not in own]
        made = {one.id: [*self._passages(agent_id, one)] for one in found}
        passages = [*chain.from_iterable(made.values())]
        if agent_id:
            numbers = {one.id: (key, at) for key, each in made.items() for at, one in enumerate(each, 1)}
            moved = await self._store.read(units.moved_passages, agent_id, self._source, numbers)
            passages = [replace(passage, id=moved.get(passage.id, passage.id)) for passage in passages]
        kept = await self._forgotten.without(agent_id, passages)
        report.leave_out(FORGOTTEN, len(passages) - len(kept))
        passages = [*kept]
        if not agent_id:
            report.memories.new += len(passages)
            return
        for batch in batches(passages):
            put = partial(units.put_passages, facts=self._facts, dry=self._dry)
            do = self._store.read if self._dry else self._store.write
            counts = await do(put, agent_id, batch, self._app.ports.inputs())
            report.memories.new += counts.new
            report.memories.already += counts.already
            report.changed += counts.changed
            report.leave_out(DELETED_MEMORIES, counts.deleted)
            self._progress(report.total)
        drop = partial(
            units.drop_pieces,
            agent_id=agent_id,
            source=self._source,
            counts={one.id: len(made[one.id]) for one in found if one.passage is None},
            at=self._app.ports.clock.now(),
            dry=self._dry,
        )
        report.changed += await (self._store.read(drop) if self._dry else self._store.write(drop))

    def _passages(self, agent_id: AgentId, memory: SourceMemory) -> Iterator[Passage]:
        """Yield the passages that a memory becomes, without what is too large beside its text. Raises: InvalidInput."""
        limits = self._app.ports.settings.limits
        if memory.passage is not None:
            yield replace(memory.passage, id=PassageId(units.id_of("passage", (agent_id,), self._source, memory.id)))
            return
        for number, text in enumerate(pieces(memory.text), 1):
            yield check_passage(
                Passage(
                    id=PassageId(units.id_of("passage", (agent_id,), self._source, memory.id, number)),
                    archive_id=ArchiveId(""),
                    text=text,
                    tags=tuple(tag[: limits.name_limit_chars] for tag in memory.tags[: limits.tags_per_item]),
                    metadata=memory.metadata if _is_small_json(memory.metadata, limits.metadata_limit_chars) else {},
                    source={"import": self._source, "id": memory.id, units.DIGEST: hash_of(text)},
                    created_at=self._app.ports.clock.now(),
                    occurred_at=memory.created_at,
                    sources=(WriteSource(Source.of("import", self._source)),),
                )
            )


def _is_small_json(metadata: Mapping[str, Any], limit_chars: int) -> bool:
    """Whether metadata is JSON of no more than so many characters."""
    try:
        return len(json.dumps(metadata, allow_nan=False)) < limit_chars
    except (ValueError, RecursionError):
        return False


def _with_ids(messages: Sequence[ImportedMessage], repeats: Counter[str]) -> Iterator[ImportedMessage]:
    """Yield messages; one without an id, or with that of another text, gets a hash of its content, which stays valid
    when the text is forgotten. `repeats`: how often ids, and messages without one, came before."""
    for one in messages:
        by_id, same = f"id {one.id}", f"id {one.id} {hash_of(one.role, one.text)}"
        if one.id is None:
            said = hash_of(one.role, one.name or "", one.occurred_at.isoformat(), one.text)
            repeats[said] += 1
            one = replace(one, id=f"said {said} {repeats[said]}")
        elif repeats[by_id] and not repeats[same]:
            one = replace(one, id=f"said {hash_of(same)}")
        else:
            repeats.update((by_id, same))
        yield one


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most `PIECE_CHARS` characters, cut between paragraphs where that can be."""
    text, start = text.strip(), 0
    while len(text) - start > PIECE_CHARS:
        part = text[start : start + PIECE_CHARS]
        cut = max(part.rfind("\n\n", 1), 0) or max(part.rfind("\n", 1), 0) or PIECE_CHARS
        if piece := part[:cut].strip():
            yield piece
        start += cut
    if piece := text[start:].strip():
        yield piece
