"""Writes the commits of a push into the memory: in one transaction, or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from perdure.core.blocks import Author, Block
from perdure.core.errors import Conflict, InvalidInput, NotFound, ToolError, VersionConflict
from perdure.core.ids import AgentId, BlockId, PassageId
from perdure.core.text.forms import name_form
from perdure.domain.archives.passages import NewPassage, delete_passage, get_passage
from perdure.domain.blocks.units import BLOCKS_CHANGED, NewBlock, create_block, update_block
from perdure.domain.corrections import passage_item, record
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.memory_git.layout import (
    FileText,
    digest_of,
    kind_of,
    label_of_path,
    note_file,
    placeholder,
    read_file,
    refuse_file,
)
from perdure.features.memory_git.plan import plan_changes
from perdure.features.memory_git.tables import MemoryGit
from perdure.features.memory_git.values import GitHistory, HeadFile, MemoryMoved, Pack, PushedCommit, PushRefused
from perdure.features.notes.units import add_note, edit_note
from perdure.features.notes.values import find_kind, from_markdown, get_note
from perdure.features.skills.admission import NewEntry
from perdure.features.skills.tables import Skills
from perdure.features.skills.units import archive, write_skill
from perdure.storage.tx import Tx


@dataclass(slots=True)
class _MemoryWriter:
    """Writes files into the memory of an agent, in a transaction. `entries`: path -> what the file stands for."""

    tx: Tx
    agent_id: AgentId
    author: Author
    passage: NewPassage
    inputs: UnitInputs
    entries: dict[str, HeadFile]
    commits: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)

    def write(self, step: PushedCommit) -> None:
        """Write the changes of a commit, deletions first. Raises: PushRefused, with the file; MemoryMoved; NotFound."""
        before: dict[str, HeadFile | None] = {path: self.entries.pop(path, None) for path in step.files}
        # A block whose file was moved is given another label; a note stays the same one.
        moved = {path: old for path, old in step.moved.items() if kind_of(path) == kind_of(old) in ("block", "note")}
        for path, text in sorted(step.files.items(), key=lambda item: item[1] is not None):
            with _name_file_in_errors(path):
                known, kind = before[moved.get(path, path)], kind_of(path)
                if text is not None:
                    one = self.entries[path] = _WRITE[kind](self, known, path, text)
                    if kind in ("block", "skill") and (known is None or one.version > known.version):
                        self.commits[one.thing, one.version] = step.hash, step.message
                elif known is not None and path not in moved.values():
                    _REMOVE[kind](self, known)

    def block(self, before: HeadFile | None, path: str, text: str) -> HeadFile:
        """Write a block."""
        file, label = read_file(path, text), label_of_path(path)
        by: dict[str, Any] = {"author": self.author, "at": self.inputs.now}
        if before is None:
            new, block_id = (
                NewBlock(label=label, **_block_fields(file, None, label)),
                BlockId(self.inputs.ids.new("block")),
            )
            made = create_block(self.tx, block_id, new, **by, agent_id=self.agent_id)
            return HeadFile("block", made.id, made.version)
        block = self.tx.blocks.get(BlockId(before.thing))
        changes = _block_fields(file, block, label)
        if (changes or label != block.label) and (block.read_only or block.is_protected):
            raise file.refuse("read_only", "only a person changes this block: on the dashboard or by the API")
        after = update_block(self.tx, block.id, {**changes, "label": label}, **by, expected=before.version)
        return HeadFile("block", after.id, after.version)

    def remove_block(self, before: HeadFile) -> None:
        """Take a block from the agent: the block itself stays."""
        block = self.tx.blocks.get(BlockId(before.thing))
        if block.read_only or block.is_protected:
            raise InvalidInput("only a person takes this block away: on the dashboard or by the API")
        self.tx.blocks.detach(self.agent_id, block.id)

    def note(self, before: HeadFile | None, path: str, text: str) -> HeadFile:
        """Write a note. A file in another form than the store's is the same note."""
        file, at = read_file(path, text), self.inputs.now
        kind = find_kind(file.text("kind") or "doc")
        title, fields = from_markdown(kind, file.body)
        title = title or path.rsplit("/", 1)[-1].removesuffix(".md")
        if before is not None:
            old = get_passage(self.tx, self.agent_id, PassageId(before.thing))
            if old.metadata.get("kind") != kind.name:
                raise file.refuse("kind", "a note keeps its kind: write another note")
            note, empty = get_note(old), dict.fromkeys(kind.fields, "")
            if note.title != title or empty | {**note.fields} != empty | fields:  # else only its file has changed
                note, _ = edit_note(self.tx, self.agent_id, old.id, title=title, fields=empty | fields, at=at)
        else:
            tags = [tag.strip() for tag in (file.text("tags") or "").split(",") if tag.strip()]
            tx, new, ids = self.tx, self.passage, self.inputs.ids
            note, _ = add_note(tx, self.agent_id, kind.name, title, fields, tags=tags, passage=new, ids=ids, at=at)
        return HeadFile("note", note.id, 0, digest_of(note_file(note)))

    def remove_note(self, before: HeadFile) -> None:
        """Delete a note; the agent's `undo` brings it back."""
        at, passage = self.inputs.now, get_passage(self.tx, self.agent_id, PassageId(before.thing))
        delete_passage(self.tx, passage, at=at)
        items = [passage_item(passage, None)]
        record(self.tx, self.agent_id, "passage", f"passage: {passage.text}", items, at=at)

    def skill(self, before: HeadFile | None, path: str, text: str) -> HeadFile:
        """Write a skill."""
        file, name = read_file(path, text), path.split("/")[1]
        if file.text("name") not in (None, name):
            raise file.refuse("name", f"the name of the skill is that of its folder: {name}")
        layer = file.text("layer") or "L3"
        new = NewEntry(
            layer=cast(Any, layer),
            name=name,
            text=file.body,
            description=file.text("description") or "",
            written_by=self.author.id,
        )
        skill, _ = write_skill(self.tx, self.tx.agents.get(self.agent_id), new, at=self.inputs.now)
        return HeadFile("skill", str(skill.seq), skill.version)

    def remove_skill(self, before: HeadFile) -> None:
        """Put a skill into the archive."""
        for skill in self.tx.of(Skills).list(self.agent_id):
            if str(skill.seq) == before.thing:
                archive(self.tx, self.agent_id, skill.name, at=self.inputs.now)

    def file(self, before: HeadFile | None, path: str, text: str) -> HeadFile:
        """Keep another Markdown file. Raises: InvalidInput: there is one whose name is the same in another form."""
        if any((one.kind, one.thing) == ("file", name_form(path)) for one in self.entries.values()):
            raise InvalidInput("another file has this name, with its accents written otherwise: rename one of them")
        self.tx.of(MemoryGit).put_file(self.agent_id, path, text, by=self.author.id, at=self.inputs.now)
        return HeadFile("file", name_form(path), 0, digest_of(text.encode()))

    def remove_file(self, before: HeadFile) -> None:
        """Keep a Markdown file no longer."""
        self.tx.of(MemoryGit).put_file(self.agent_id, before.thing, None, by=self.author.id, at=self.inputs.now)


_WRITE: Mapping[str, Callable[[_MemoryWriter, HeadFile | None, str, str], HeadFile]] = {
    "block": _MemoryWriter.block,
    "note": _MemoryWriter.note,
    "skill": _MemoryWriter.skill,
    "file": _MemoryWriter.file,
}
_REMOVE: Mapping[str, Callable[[_MemoryWriter, HeadFile], None]] = {
    "block": _MemoryWriter.remove_block,
    "note": _MemoryWriter.remove_note,
    "skill": _MemoryWriter.remove_skill,
    "file": _MemoryWriter.remove_file,
}


def apply_push(
    tx: Tx,
    before: GitHistory,
    steps: Sequence[PushedCommit],
    pack: Pack,
    *,
    author: Author,
    passage: NewPassage,
    inputs: UnitInputs,
) -> None:
    """Write the commits of a push that begins at `before`.

    Raises: PushRefused: a commit can't be memory; MemoryMoved: the memory has changed since `before`.
    """
    agent_id = before.agent_id
    waiting = plan_changes(tx, agent_id, inputs.now)
    if waiting.changes or waiting.history != before:
        raise MemoryMoved
    writer = _MemoryWriter(tx, agent_id, author, passage, inputs, dict(before.entries))
    for step in steps:
        writer.write(step)
    after = before.moved_to(steps[-1].hash, writer.entries)
    tx.of(MemoryGit).advance(after, pack, writer.commits, whole=False)
    BLOCKS_CHANGED(tx, agent_id)
    renew_system_message(tx, agent_id, 0, inputs)


def _block_fields(file: FileText, block: Block | None, label: str) -> dict[str, Any]:
    """The fields of a block that a file has and that are others now. Raises: PushRefused."""
    found: dict[str, Any] = {}
    if block is None or file.body != block.value:
        found["value"] = file.body
    description = file.text("description")
    known = "" if block is None else " ".join((block.description or placeholder(block.label)).split())
    if description and description not in (placeholder(label), known):
        found["description"] = description
    limit = file.fields.get("limit")
    if limit is not None and (block is None or limit != block.limit_chars):
        if type(limit) is not int or limit < 1:
            raise file.refuse("limit", f"limit is {limit!r:.40}: give a number of characters")
        found["limit_chars"] = limit
    is_read_only = file.fields.get("read_only", False)
    if is_read_only not in (True, False) or is_read_only != (block is not None and block.read_only):
        raise file.refuse("read_only", "whether a block is read-only is changed on the dashboard or by the API")
    return found


@contextmanager
def _name_file_in_errors(path: str) -> Any:
    """Say in errors which file they are about. Raises: PushRefused; MemoryMoved."""
    try:
        yield
    except (PushRefused, MemoryMoved):
        raise
    except (VersionConflict, NotFound):
        raise MemoryMoved from None
    except (InvalidInput, ToolError, Conflict) as error:
        raise refuse_file(path, re.sub(r"\s+", " ", str(error))) from None
