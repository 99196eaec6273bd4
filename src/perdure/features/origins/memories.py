"""Where memories come from: who wrote a block, a line, a passage or a summary, and in answer to what."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Literal

from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.events import MemoryEdited, MessageAdded
from perdure.core.forgetting.corrections import Correction, CorrectionItem
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode, node_handle
from perdure.core.passages import CAPTURED, Passage
from perdure.core.runs import RunKey
from perdure.core.sources import TrustLabel, WriteSource
from perdure.core.text.line_diff import find_line_before
from perdure.engine.compaction.revise import find_note
from perdure.features.origins.origin_values import MemoryOrigin, MessageText, Write
from perdure.library.parts.part import find_message
from perdure.storage.tx import Tx

WRITES_MAX, MESSAGES_MAX, PAGE = 100, 100, 100


class MemoryOrigins:
    """Builds origins in one transaction; of `agent_id` only, if it is given."""

    def __init__(self, tx: Tx, agent_id: AgentId | None) -> None:
        """Look up origins in this transaction; with an agent, only in its memory."""
        self.tx, self.agent_id = tx, agent_id

    def check_owner(self, agent_id: AgentId, kind: str, id_: str) -> None:
        """Raises: NotFound: the thing is another agent's."""
        if self.agent_id not in (None, agent_id):
            raise NotFound(kind, id_, hint="it is another agent's")

    # --- memories

    def of_block(self, block: Block) -> MemoryOrigin:
        """The origin of a block: its versions."""
        if self.agent_id is not None and block.id not in {
            one.id for one in self.tx.blocks.list_by_agent(self.agent_id)
        }:
            raise NotFound("block", block.id, hint="it is another agent's")
        versions = self.tx.blocks.versions(block.id, limit=WRITES_MAX)
        return MemoryOrigin(
            kind="block",
            id=block.id,
            label=block.label,
            text=block.value,
            writes=tuple(self._version_write(version, version.value) for version in reversed(versions)),
            earlier_writes=versions[-1].version,
        )

    def of_line(self, block: Block, line: int, version: int | None = None) -> MemoryOrigin:
        """Return the origin of a line of the block, counted from 0; with `version`, the last version that has the line.
        Raises: NotFound: the block has no such line."""
        newest = self.tx.blocks.version(block.id, block.version if version is None else version)
        lines = newest.value.split("\n")
        if not 0 <= line < len(lines):
            raise NotFound("line", f"{block.id}:{line + 1}", hint=f"block {block.label!r} has {len(lines)} lines")
        writes = [] if version is None else [self._version_write(self.tx.blocks.version(block.id, version + 1), None)]
        place, current = line, newest
        while len(writes) < WRITES_MAX:
            text = current.value.split("\n")[place]
            number = current.version
            before = self.tx.blocks.version(current.block_id, number - 1) if number else None
            earlier = None if before is None else find_line_before(before.value, current.value, place)
            if before is None or earlier is None:
                writes.append(self._version_write(current, text))
                break
            if before.value.split("\n")[earlier] != text:
                writes.append(self._version_write(current, text))
            current, place = before, earlier
        return MemoryOrigin(
            kind="line",
            id=block.id,
            label=block.label,
            line=line + 1 if version is None else None,
            text=lines[line],
            writes=tuple(reversed(writes)),
        )

    def _version_write(self, version: BlockVersion, text: str | None) -> Write:
        """A version of a block as a write, with the call that made it; `text`: of the line, None: it was removed."""
        author, call_id = version.author, None
        if author.run_id is not None:
            call_id = self._call_of_edit(author.run_id, version)
        return self._write(author, version, text, call_id=call_id)

    def _call_of_edit(self, run_id: RunId, version: BlockVersion) -> str | None:
        """The id of the call that wrote a version: its result is the first one after the event of the edit."""
        try:
            key = self.tx.runs.get(run_id).key
        except NotFound:  # it is hidden
            return None
        after, edited = 0, False
        while events := self.tx.events.list(key, after=after):
            for stored in events:
                match stored.event:
                    case MemoryEdited(block_id=version.block_id, version=version.version):
                        edited = True
                    case MessageAdded(message=Message(results=(result, *_))) if edited:
                        return result.call_id
                    case _:
                        pass
            after = events[-1].seq
        return None

    def _write(
        self, author: Author, version: BlockVersion | Passage, text: str | None, *, call_id: str | None
    ) -> Write:
        """Build a write from its author, with the call and the messages before it, as far as the log has them."""
        call_message: Message | None = None
        if author.message_id is not None:
            with suppress(NotFound):
                call_message = find_message(self.tx, author.message_id)
        calls = () if call_message is None else call_message.calls
        label, sources = self._sources_of(author, version)
        call = next((each for each in calls if each.call_id == call_id), calls[0] if len(calls) == 1 else None)
        return Write(
            at=version.created_at,
            author=author.kind,
            author_id=author.id,
            author_name=self._name_of(author),
            agent_id=author.agent_id,
            run_id=author.run_id,
            step_id=None if call_message is None else call_message.step_id,
            call_message_id=author.message_id,
            call_id=call_id if call is None else call.call_id,
            tool=None if call is None else call.name,
            arguments=None if call is None else call.arguments,
            messages=() if call_message is None else self._messages_before(call_message),
            version=version.version if isinstance(version, BlockVersion) else None,
            text=text,
            diff=version.diff if isinstance(version, BlockVersion) else "",
            label=label,
            sources=sources,
        )

    def _sources_of(self, author: Author, new: BlockVersion | Passage) -> tuple[TrustLabel, tuple[WriteSource, ...]]:
        """How far a write is trusted, and its sources from outside."""
        owner_id, ref = (new.block_id, str(new.version)) if isinstance(new, BlockVersion) else (new.archive_id, new.id)
        found = self.tx.sources.list_by_refs(owner_id, [ref])
        if not found:
            is_file = isinstance(new, Passage) and "file_id" in new.source
            return ("file" if is_file else author.label), ()
        return found[0].label, tuple(source for source in found[0].sources if not source.source.is_trusted)

    def _name_of(self, author: Author) -> str | None:
        """The name of the agent that wrote; None: it was none, or it is deleted."""
        if author.agent_id is not None:
            with suppress(NotFound):
                return self.tx.agents.get(author.agent_id).name
        return None

    def _messages_before(self, call: Message) -> tuple[MessageText, ...]:
        """What the agent was told in the request that the call belongs to, oldest first."""
        if call.run_seq is None:
            return ()
        run = self.tx.runs.get_by_key(RunKey(call.agent_id, call.run_seq))
        starts = (run.turn_from, run.begins_at, run.first_message_seq, call.seq)
        found: list[Message] = []
        seq = next(start for start in starts if start is not None) - 1
        while rows := self.tx.messages.list(
            call.agent_id,
            conversation_seq=call.conversation_seq,
            after_seq=seq,
            before_seq=call.seq,
            kinds=("message",),
            reset=True,
            limit=PAGE,
        ):
            found += [row for row in rows if row.role in ("user", "system")]
            seq = rows[-1].seq
        return tuple(map(MessageText.of, found))

    def of_passage(self, passage: Passage) -> MemoryOrigin:
        """The origin of a passage: the call that stored it, or the messages that it was captured from."""
        if self.agent_id is not None and passage.archive_id not in {
            archive.id for archive in self.tx.archives.list_by_agent(self.agent_id)
        }:
            raise NotFound("passage", passage.id, hint="it is in no archive of the agent")
        merged = self.tx.passages.list_merged(passage.archive_id, passage.id)
        writes = [write for one in (passage, *merged) for write in self._writes_of_passage(one)]
        captured = [one for one in (passage, *merged) if one.source.get("type") == CAPTURED]
        messages = [message for one in captured for message in self._captured(one)]
        return MemoryOrigin(
            kind="passage",
            id=passage.id,
            text=passage.text,
            writes=tuple(sorted(writes, key=lambda write: write.at)),
            stands_for=tuple(messages),
            message_count=len(messages),
            source=dict(passage.source),
        )

    def _writes_of_passage(self, passage: Passage) -> list[Write]:
        """The write that made a passage, and one for each correction of it, in order."""
        later = self._corrections_of(passage)
        texts = [json.loads(item.before)["text"] for _, item in later] + [passage.text]
        author = _author_of(passage)
        corrected = [
            Write(at=correction.created_at, author="user", author_id=f"correction {correction.number}", text=text)
            for (correction, _), text in zip(later, texts[1:], strict=True)
        ]
        return [self._write(author, passage, texts[0], call_id=self._call_of_passage(author, passage)), *corrected]

    def _corrections_of(self, passage: Passage) -> list[tuple[Correction, CorrectionItem]]:
        """Return the corrections that changed a passage, oldest first, without one that added it."""
        found = [
            correction
            for agent_id in self.tx.owners.list_agents("archives", passage.archive_id)
            for correction in self.tx.corrections.list_of(agent_id, "passage", passage.id)
            if correction[1].before
        ]
        return sorted(found, key=lambda one: one[0].created_at)

    def _call_of_passage(self, author: Author, passage: Passage) -> str | None:
        """The id of the call that stored a passage: its result names it."""
        if author.run_id is None:
            return None
        with suppress(NotFound):
            run = self.tx.runs.get(author.run_id)
            for message in self.tx.messages.list_by_run(run, reset=True):
                for result in message.results:
                    if passage.id in result.text:
                        return result.call_id
        return None

    def _captured(self, passage: Passage) -> tuple[MessageText, ...]:
        """The messages that a passage was captured from, without deleted ones, at most `MESSAGES_MAX`."""
        turns = passage.metadata.get("turns")
        ids = [turn["id"] for turn in turns if "id" in turn] if isinstance(turns, list) else []
        found = []
        for message_id in dict.fromkeys(ids[:MESSAGES_MAX]):
            with suppress(NotFound):
                found.append(MessageText.of(find_message(self.tx, MessageId(message_id))))
        return tuple(found)

    def of_summary(self, conversation: Conversation, node: SummaryNode) -> MemoryOrigin:
        """Return the origin of a summary: its messages, and the run that needed room."""
        rows = self.tx.messages.list(
            node.agent_id,
            conversation_seq=node.conversation_seq,
            after_seq=node.from_message_seq - 1,
            before_seq=node.upto_message_seq + 1,
            reset=True,
            limit=MESSAGES_MAX,
        )
        note, _ = find_note(self.tx, node, reset=True) or (None, None)
        author: Literal["agent", "system"] = "agent" if node.made_by == "model" else "system"
        write = Write(
            at=node.created_at,
            author=author,
            author_id=node.model or "perdure",
            agent_id=node.agent_id,
            run_id=None if note is None else note.run_id,
            step_id=None if note is None else note.step_id,
            text=node.text,
        )
        return MemoryOrigin(
            kind="summary",
            id=node_handle(node.seq),
            conversation_id=conversation.id,
            text=node.text,
            writes=(write,),
            stands_for=tuple(map(MessageText.of, rows)),
            message_count=node.message_count,
        )


def _author_of(passage: Passage) -> Author:
    """Who stored a passage, as its source says."""
    source = passage.source
    if source.get("type") == CAPTURED or ("file_id" in source and source.get("agent_id") is None):
        return Author(kind="system", id="perdure")
    if (agent_id := source.get("agent_id")) is None:
        return Author(kind="user", id=source.get("author_id", "user"))
    run_id, message_id = source.get("run_id"), source.get("message_id")
    kind: Literal["agent", "user"] = "user" if run_id is None else "agent"
    return Author(kind=kind, id=agent_id, agent_id=agent_id, run_id=run_id, message_id=message_id)
