"""Agents written as folders: whole as JSON lines, and as Markdown for people."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.features import Point
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import AgentId
from perdure.core.messages import Message, parts_from_json, parts_to_json
from perdure.core.passages import Passage
from perdure.domain.agents.units import COMPANIONS
from perdure.domain.conversations.transfer import parse_fields
from perdure.features.agent_files.exporting import export_text
from perdure.features.exports.folders import new_folder, safe_name, unused_name, write_marker
from perdure.features.exports.texts import archival_text, conversation_text, memory_text
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.library.parts.part import AsyncPart
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import user_path
from perdure.storage.tx import Tx

PAGE = 500
VERSION = 1

FORMER_AGENTS: Point[[Tx, AgentId], Sequence[Sequence[AgentId]]] = Point("former_agents")
"""Return the agents whose exports were read into an agent, each with those before it, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedAgent:
    """An agent that was written to `folder`. `content_hash`: equal where messages and passages are."""

    id: AgentId
    name: str
    folder: Path
    conversations: int
    messages: int
    passages: int
    content_hash: str


class AsyncExports(AsyncPart):
    """Writes agents to folders."""

    async def export(
        self,
        folder: str | Path,
        *agents: AgentId,
        overwrite: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Sequence[ExportedAgent]:
        """Write agents, by default all, to a folder that appears when all is written. One agent's files lie in it, of
        several each has a folder in it. `perdure.imports.run("jsonl", folder)` reads it back.

        Args:
            overwrite: replace a folder that an export has written.
            progress: takes how many messages and passages are written.
        Raises: NotFound; InvalidInput: the folder is not empty, or can't be written; StoreError.
        """
        library, target = AsyncPerdure(self._app), user_path(folder).absolute()
        chosen = [await library.agent(one) for one in agents] or await _all_agents(library)
        if not chosen:
            raise InvalidInput("there is no agent yet to export")
        companions = await self._ports.store.read(
            lambda tx: {one for agent in chosen for found in COMPANIONS(tx, agent.id) for one in found}
        )
        written: list[ExportedAgent] = []
        used, done = set[str](), 0
        with new_folder(target, overwrite=overwrite) as part:
            for agent in chosen:
                own = part if len(agents) == 1 else part / unused_name(safe_name(agent.name, "agent"), used)
                own.mkdir(exist_ok=True)
                writer = _Export(library, agent.id, agent.name, own, lambda count, start=done: progress(start + count))  # type: ignore[misc]
                is_companion = agent.id in companions
                written.append(await writer.write(target / own.relative_to(part), is_companion=is_companion))
                done += written[-1].messages + written[-1].passages
            shown = [asdict(one) | {"folder": one.folder.relative_to(target).as_posix()} for one in written]
            write_marker(part, {"perdure": "export", "version": VERSION, "agents": shown})
        return written


async def _all_agents(library: AsyncPerdure) -> Sequence[Any]:
    """Return all agents of the store, oldest first."""
    found: list[Any] = []
    while page := await library.agents(limit=PAGE, after=found[-1].id if found else None):
        found += page
    return found[::-1]


class _Export:
    """Writes one agent to a folder."""

    def __init__(
        self, library: AsyncPerdure, agent_id: AgentId, name: str, folder: Path, progress: Callable[[int], None]
    ) -> None:
        self._library, self._id, self._name, self._folder, self._progress = library, agent_id, name, folder, progress
        self._agent: AsyncAgentById = library.agent_of(agent_id)
        self._read = library.app.ports.store.read
        self._hash = hashlib.sha256()
        self._messages = self._passages = self._conversations = 0
        self._redactors: Sequence[Redactor] = ()

    async def write(self, shown: Path, *, is_companion: bool) -> ExportedAgent:
        """Write all files; `shown` is where they will be. `is_companion`: of an agent that is exported with it."""
        forgotten = await self._library.transfer.list_forgotten(self._id)
        self._redactors = [Redactor(one.needle) for one in forgotten if one.needle != REDACTED]
        await self._write_agent(is_companion=is_companion)
        await self._write_messages()
        await self._write_passages()
        counts = {"conversations": self._conversations, "messages": self._messages, "passages": self._passages}
        return ExportedAgent(id=self._id, name=self._name, folder=shown, content_hash=self._hash.hexdigest(), **counts)

    async def _write_agent(self, *, is_companion: bool) -> None:
        """Write the agent without messages and passages, which have files of their own."""
        document = json.loads(await export_text(self._library, self._id, with_messages=False))
        for copy in document["metadata"]["perdure"]["agents"].values():
            copy["passages"] = []
        document["exported_agent_id"] = self._id
        if is_companion:  # an import makes it anew
            document["companion"] = True
        document["former_agents"] = await self._read(lambda tx: next(iter(FORMER_AGENTS(tx, self._id)), ()))
        (self._folder / "agent.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        blocks = (await self._agent.state()).blocks
        (self._folder / "memory.md").write_text(memory_text(self._name, blocks), "utf-8")

    async def _write_messages(self) -> None:
        """Write all conversations, each behind a line about it, and each as a text."""
        texts = self._folder / "conversations"
        texts.mkdir()
        with (self._folder / "messages.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
            after = -1
            while page := await self._agent.conversations(limit=PAGE, after_seq=after):
                for conversation in page:
                    after = conversation.seq
                    origins: dict[int, str] = {}
                    hidden: set[str] = set()
                    found = await self._list_messages(conversation, origins, hidden)
                    if not found and conversation.seq == 0:
                        continue
                    head = _conversation_fields(conversation, self._cleared(conversation.summary or ""))
                    print(self._line(head, {"conversation": conversation.id}), file=lines)
                    for message in found:
                        own = {"conversation": conversation.id, "id": message.id}
                        own |= {"import": origins[message.seq]} if message.seq in origins else {}
                        is_reset = {"reset": True} if message.id in hidden else {}
                        print(self._line(_shape(message) | is_reset, own), file=lines)
                    self._conversations += 1
                    self._messages += len(found)
                    title = head["title"] or ("first conversation" if conversation.seq == 0 else "conversation")
                    name = f"{conversation.seq:03}-{safe_name(title, 'conversation')}.md"
                    text = await asyncio.to_thread(conversation_text, title, found)
                    (texts / name).write_text(text, "utf-8")
                    self._progress(self._messages)

    async def _list_messages(
        self, conversation: Conversation, origins: dict[int, str], hidden: set[str]
    ) -> list[Message]:
        """Return the messages of a conversation, oldest first; add to `origins` which import has brought each, and to
        `hidden` the ids of those that a reset took out of view."""
        after: int | None = None
        found: list[Message] = []
        page_after = partial(self._agent.messages, conversation=conversation.id, limit=PAGE, reset=True)
        while page := await page_after(after_seq=after):
            hidden |= await self._read(lambda tx, ids: tx.messages.find_reset(ids), [one.id for one in page])
            after, seqs = page[-1].seq, [one.seq for one in page]
            origins |= await self._read(_origins, self._id, seqs)
            for one in page:
                if one.kind == "message":  # what is out of view still says what was forgotten
                    parts = self._cleared(json.loads(parts_to_json(one.parts))) if one.id in hidden else None
                    one = one if parts is None else replace(one, parts=parts_from_json(json.dumps(parts)))
                    found.append(replace(one, name=self._cleared(one.name)))
        return found

    async def _write_passages(self) -> None:
        """Write the passages of all archives of the agent."""
        found: list[Passage] = []
        with (self._folder / "passages.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
            for archive in await self._library.archives.page(Page(PAGE, ascending=True), agent_id=self._id):
                async for line in self._library.transfer.export_archive(archive.id):
                    fields = json.loads(line)
                    if isinstance(passage := parse_fields(fields), Passage):
                        fields = {name: self._cleared(value) for name, value in fields.items() if name != "id"}
                        print(self._line(fields, {"id": passage.id}), file=lines)
                        found.append(passage)
                        self._passages += 1
                        self._progress(self._messages + self._passages)
        (self._folder / "archival.md").write_text(archival_text(self._name, found), "utf-8")

    def _cleared(self, value: Any) -> Any:
        """Return a value without what the agent has forgotten: names, titles and sources may still hold it."""
        for redactor in self._redactors:
            value = redactor.redact_value(value)
        return value

    def _line(self, fields: dict[str, Any], ids: dict[str, Any]) -> str:
        """Return the line of a thing, and count its fields, without ids, to the hash of the content."""
        self._hash.update(json.dumps(fields, sort_keys=True).encode() + b"\n")
        return json.dumps(ids | fields)


def _conversation_fields(conversation: Conversation, title: str) -> dict[str, Any]:
    """Return what is said about a conversation."""
    is_first = conversation.seq == 0
    created_at = None if is_first else conversation.created_at.isoformat()
    is_archived = conversation.archived_at is not None
    return {"title": title, "created_at": created_at, "first": is_first, "archived": is_archived}


def _shape(message: Message) -> dict[str, Any]:
    """Return a message without its id."""
    parts, at = json.loads(parts_to_json(message.parts)), message.occurred_at.isoformat()
    return {"role": message.role, "name": message.name, "occurred_at": at, "parts": parts}


def _origins(tx: Tx, agent_id: AgentId, seqs: Sequence[int]) -> dict[int, str]:
    """Return number of a message -> the import that brought it; messages of no import are left out."""
    sources = chain.from_iterable(tx.sources.list_by_messages(agent_id, seqs).values())
    return {source.seq: source.source.name for source in sources if source.source.label == "import"}
