"""Which commits are still to be made of what the store holds: each version of a block or skill that has none, and notes
and files that differ from those at the head."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core.agents import Agent
from perdure.core.blocks import Block, BlockVersion
from perdure.core.ids import DEFAULT_USER, AgentId
from perdure.core.passages import SEARCHED_STATES, PassageFilter
from perdure.domain.conversations.agent_copies import forgotten_texts, list_forgotten
from perdure.features.memory_git.layout import (
    block_file,
    digest_of,
    note_file,
    note_path,
    path_of_label,
    skill_file,
    skill_path,
)
from perdure.features.memory_git.tables import MemoryGit
from perdure.features.memory_git.values import FileKind, GitHistory, HeadFile, NewCommit
from perdure.features.notes.values import NOTE_TAG, note_of
from perdure.features.skills.tables import Skills
from perdure.library.memory.blocks import with_reasons
from perdure.storage.tx import Tx

VERSIONS_AT_ONCE = 500
"""So many versions of a block become commits in one turn."""
NOTES_READ = 10_000
PERDURE = "Perdure"
_NOTES = PassageFilter(tags=(NOTE_TAG,), states=SEARCHED_STATES)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What is to be committed next, oldest first.

    Args:
        history: to which it is added; it begins anew where texts were forgotten.
        entries: path -> what the file stands for, behind all of it.
    """

    history: GitHistory
    changes: Sequence[NewCommit]
    entries: Mapping[str, HeadFile]


def plan_changes(tx: Tx, agent_id: AgentId, at: datetime) -> CommitPlan:
    """Return the commits that are still to be made. Raises: NotFound: there is no such agent."""
    agent, history = tx.agents.get(agent_id), tx.of(MemoryGit).history(agent_id)
    marks = sorted(f"{one.agent_id} {one.number}" for one in list_forgotten(tx, agent_id))
    mark = hashlib.sha256("\n".join(marks).encode()).hexdigest() if marks else ""
    if history.head and mark != history.forgotten:  # what was forgotten may stand in any commit
        history = replace(history, generation=history.generation + 1, head="", entries={}, left={})
    history = replace(history, forgotten=mark)
    planner = _Planner(tx, agent, history, at)
    changes = [*planner.deletions()]
    if not history.head:
        # The number keeps two lines of commits apart: no merge brings the forgotten text of an older line back.
        text = f"Memory of {' '.join(agent.name.split())}\n\nLine: {history.generation + 1}\n"
        changes.append(NewCommit(author=_author(PERDURE, agent_id), at=min(agent.created_at, at), text=text))
    found = sorted([*planner.blocks(), *planner.skills(), *planner.notes(), *planner.files()], key=lambda one: one.at)
    changes += [one for one in found if planner.horizon is None or one.at <= planner.horizon]
    return _with_moves(history, changes)


def _with_moves(history: GitHistory, changes: Sequence[NewCommit]) -> CommitPlan:
    """Return the plan of these commits, each of which deletes the file at the thing's former path."""
    entries = dict(history.entries)
    paths = {(one.kind, one.thing): path for path, one in entries.items()}
    moved: list[NewCommit] = []
    for one in changes:
        if (entry := one.entry) is None:
            entries.pop(one.path, None)
        else:
            key = entry.kind, entry.thing
            before, paths[key] = paths.get(key, one.path), one.path
            if before != one.path and (there := entries.get(before)) and (there.kind, there.thing) == key:
                del entries[before]
                one = replace(one, moved_from=before)
            entries[one.path] = entry
        moved.append(one)
    return CommitPlan(history, moved, entries)


class _Planner:
    """Compares what the store holds of an agent with the files at the head.

    Attributes:
        horizon: until when all changes are known; None: all are.
    """

    def __init__(self, tx: Tx, agent: Agent, history: GitHistory, at: datetime) -> None:
        self._tx, self._agent, self._history, self._at = tx, agent, history, at
        self._forgotten = forgotten_texts(tx, agent.id)
        self._known = {(one.kind, one.thing): (path, one) for path, one in history.entries.items()}
        self._blocks = tx.blocks.list_by_agent(agent.id)
        self._skills = tx.of(Skills).list(agent.id)
        archives = tx.archives.list_by_agent(agent.id)
        passages = (row for archive in archives for row in tx.passages.page(archive.id, where=_NOTES, limit=NOTES_READ))
        self._notes = [note for passage in passages if (note := note_of(passage)) is not None]
        self._files = tx.of(MemoryGit).files(agent.id)
        self.horizon: datetime | None = None

    def _without_forgotten(self, text: str, at: datetime) -> str:
        """A text of that time, without what was forgotten later."""
        for redactor, since in self._forgotten:
            if at <= since:
                text = redactor.redact(text)
        return text

    def deletions(self) -> Iterator[NewCommit]:
        """What the agent no longer has: the files go."""
        there = {("block", block.id) for block in self._blocks} | {("skill", str(skill.seq)) for skill in self._skills}
        there |= {("note", note.id) for note in self._notes} | {("file", path) for path in self._files}
        for path, one in self._history.entries.items():
            if (one.kind, one.thing) not in there:
                who = _author(PERDURE, self._agent.id)
                yield NewCommit(path=path, author=who, at=self._at, text=f"Remove {path}\n")

    def _begin(self, kind: FileKind, thing: str, newest: int) -> int:
        """Return the last version of a block or skill that has a commit."""
        if (known := self._known.get((kind, thing))) is not None:
            return known[1].version
        left = self._history.left.get(thing)
        return -1 if left is None else min(left, newest - 1)  # it is back: as it is now

    def blocks(self) -> Iterator[NewCommit]:
        """Yield the versions of blocks; if another block has its label now, at the block's present path."""
        labels = {one.label for one in self._blocks}
        for block in self._blocks:
            at, others = block.created_at, labels - {block.label}
            for version in self._versions(block):
                at = max(at, version.created_at)  # a clock may have gone back
                shown, reason = version.value, self._without_forgotten(version.reason, version.created_at)
                if version.version < block.version:
                    shown = self._without_forgotten(shown, version.created_at)
                yield NewCommit(
                    path=path_of_label(block.label if version.label in others else version.label),
                    data=block_file(block, shown),
                    entry=HeadFile("block", block.id, version.version),
                    author=self._author_of(version),
                    at=at,
                    text=_message(reason or f"{'Edit' if version.version else 'Create'} {version.label}", version),
                )

    def _versions(self, block: Block) -> Sequence[BlockVersion]:
        """The versions of a block that have no commit, oldest first."""
        after = self._begin("block", block.id, block.version)
        last = min(block.version, after + VERSIONS_AT_ONCE)
        found = self._tx.blocks.versions(block.id, limit=last - after, before=last + 1) if after < last else ()
        if last < block.version:
            self.horizon = min(self.horizon or found[0].created_at, found[0].created_at)
        return with_reasons(self._tx, found[::-1])

    def skills(self) -> Iterator[NewCommit]:
        """The versions of the skills that the agent and people wrote."""
        for skill in self._skills:
            after = self._begin("skill", str(skill.seq), skill.version)
            versions = self._tx.of(Skills).versions(skill) if after < skill.version else ()
            for version in reversed([one for one in versions if one.version > after]):
                shown, description = version.text, version.description
                if version.version < skill.version:
                    shown, description = (
                        self._without_forgotten(one, version.created_at) for one in (shown, description)
                    )
                is_own, verb = version.written_by == "agent", "Create" if version.version == 1 else "Edit"
                who = (
                    (self._agent.name, self._agent.id) if is_own else (_person(version.written_by), version.written_by)
                )
                yield NewCommit(
                    path=skill_path(skill.name),
                    data=skill_file(skill.name, skill.layer, description, shown),
                    entry=HeadFile("skill", str(skill.seq), version.version),
                    author=_author(*who),
                    at=version.created_at,
                    text=f"{verb} the skill {skill.name}\n\nSkill: {skill.name} {version.version}\n",
                )

    def notes(self) -> Iterator[NewCommit]:
        """The notes that are new or differ."""
        for note in self._notes:
            path, entry = self._known.get(("note", note.id), (note_path(note), None))
            data = note_file(replace(note, text=self._without_forgotten(note.text, note.changed_at)))
            if entry is None or entry.digest != digest_of(data):
                text = f"{'Edit' if entry else 'Create'} the note {' '.join(note.title.split())}\n"
                yield NewCommit(
                    path=path,
                    data=data,
                    entry=HeadFile("note", note.id, 0, digest_of(data)),
                    author=_author(PERDURE, self._agent.id),
                    at=note.changed_at,
                    text=self._without_forgotten(text, note.changed_at),
                )

    def files(self) -> Iterator[NewCommit]:
        """The other files that are new or differ."""
        for name, (kept, at, by) in self._files.items():
            data = self._without_forgotten(kept, at).encode("utf-8", "replace")
            path, known = self._known.get(("file", name), (name, None))
            entry = HeadFile("file", name, 0, digest_of(data))
            if known != entry:
                who = _author(_person(by), by)
                yield NewCommit(path=path, data=data, entry=entry, author=who, at=at, text=f"Keep {path}\n")

    def _author_of(self, version: BlockVersion) -> str:
        """The author of a version."""
        author = version.author
        if author.kind == "agent" and author.agent_id is not None:
            return _author(version.agent_name or author.agent_id, author.agent_id)
        return _author(PERDURE if author.kind == "system" else _person(author.id), author.id)


def _person(id_: str) -> str:
    """The name of a person of whom only the id is known."""
    return "user" if id_ == DEFAULT_USER else id_


def _author(name: str, id_: str) -> str:
    """An author as git takes one: the name, and an address."""
    name, id_ = (" ".join(re.sub(r"[<>\0]", "", text).split())[:200] or "nobody" for text in (name, id_))
    return f"{name} <{id_.replace(' ', '.')}@perdure>"


def _message(reason: str, version: BlockVersion) -> str:
    """The message of the commit of a block's version: why, and which version it is."""
    origin = f"Run: {version.author.run_id}\n" if version.author.run_id else ""
    return f"{reason.strip()}\n\nBlock: {version.label} {version.version}\n{origin}"
