"""Which commits are still to be made of what the store holds: each version of a block or skill that has none, and notes
and files that differ from those at the head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.errors import InvalidInput
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import DEFAULT_USER, AgentId
from perdure.core.passages import SEARCHED_STATES, PassageFilter
from perdure.domain.conversations.agent_copies import list_forgotten
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
from perdure.features.skills.values import Skill, SkillVersion
from perdure.library.memory.blocks import with_reasons
from perdure.storage.tx import Tx

VERSIONS_AT_ONCE = 500
"""So many versions of a block become commits in one turn."""
NOTES_READ = 10_000
PERDURE = "Perdure"
_NOTES = PassageFilter(tags=(NOTE_TAG,), states=SEARCHED_STATES)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What is to be committed next, and the history to which it is added: another one where texts were forgotten."""

    history: GitHistory
    changes: Sequence[NewCommit]
    is_all: bool


def plan_changes(tx: Tx, agent_id: AgentId, at: datetime) -> CommitPlan:
    """Return the commits that are still to be made, oldest first. Raises: NotFound: there is no such agent."""
    agent, history = tx.agents.get(agent_id), tx.of(MemoryGit).history(agent_id)
    forgotten = list_forgotten(tx, agent_id)
    marks = sorted(f"{one.agent_id} {one.number}" for one in forgotten)
    mark = hashlib.sha256("\n".join(marks).encode()).hexdigest() if marks else ""
    if history.head and mark != history.forgotten:  # what was forgotten may stand in any commit
        history = replace(history, generation=history.generation + 1, head="", entries={}, left={})
    history = replace(history, forgotten=mark)
    planner = _Planner(tx, agent_id, agent.name, history, forgotten, at)
    changes: list[NewCommit] = []
    if not history.head:
        # The number keeps two lines of commits apart: no merge brings the forgotten text of an older line back.
        text = f"Memory of {' '.join(agent.name.split())}\n\nLine: {history.generation + 1}\n"
        changes.append(planner.change({}, {}, _author(PERDURE, agent_id), at=min(agent.created_at, at), text=text))
    changes += planner.gone()
    found = sorted([*planner.blocks(), *planner.skills(), *planner.notes(), *planner.files()], key=lambda one: one.at)
    changes += [one for one in found if planner.horizon is None or one.at <= planner.horizon]
    return CommitPlan(history, changes, planner.horizon is None)


class _Planner:
    """Compares what the store holds of an agent with the files at the head."""

    def __init__(
        self, tx: Tx, agent_id: AgentId, name: str, history: GitHistory, forgotten: Sequence[Correction], at: datetime
    ) -> None:
        self._tx, self._id, self._name, self._history, self._at = tx, agent_id, name, history, at
        self._redactors = [(Redactor(one.needle), one.created_at) for one in forgotten if _can_be_looked_for(one)]
        self._known = {(one.kind, one.thing): (path, one) for path, one in history.entries.items()}
        self._own = tx.blocks.list_by_agent(agent_id)
        self._skills = tx.of(Skills).list(agent_id)
        pages = (
            tx.passages.page(one.id, where=_NOTES, limit=NOTES_READ) for one in tx.archives.list_by_agent(agent_id)
        )
        self._notes = [note for page in pages for one in page if (note := note_of(one)) is not None]
        self._files = tx.of(MemoryGit).files(agent_id)
        self.horizon: datetime | None = None
        """Until when all changes are known; None: all are."""

    def change(
        self,
        files: dict[str, bytes | None],
        entries: dict[str, HeadFile | None],
        who: tuple[str, str],
        *,
        at: datetime,
        text: str,
        reason: str = "",
        thing: str = "",
        version: int = 0,
    ) -> NewCommit:
        """One commit."""
        return NewCommit(
            files=files,
            entries=entries,
            author=who[0],
            email=who[1],
            at=at,
            text=text,
            reason=reason,
            thing=thing,
            version=version,
        )

    def _put(
        self,
        kind: FileKind,
        thing: str,
        version: int,
        path: str,
        data: bytes,
        who: tuple[str, str],
        *,
        at: datetime,
        text: str,
        before: str | None,
        reason: str = "",
    ) -> NewCommit:
        """The commit by which a file says what a thing is now; `before`: the path that it had."""
        files: dict[str, bytes | None] = {path: data}
        entries: dict[str, HeadFile | None] = {path: HeadFile(kind, thing, version, digest_of(data))}
        if before is not None and before != path:
            files, entries = {before: None, **files}, {before: None, **entries}
        is_version = {"thing": thing, "version": version} if kind in ("block", "skill") else {}
        return self.change(files, entries, who, at=at, text=text, reason=reason, **is_version)  # type: ignore[arg-type]

    def _without_forgotten(self, text: str, at: datetime) -> str:
        """A text of that time, without what was forgotten later."""
        for redactor, since in self._redactors:
            if at <= since:
                text = redactor.redact(text)
        return text

    def gone(self) -> Iterator[NewCommit]:
        """What the agent no longer has: the files go."""
        there = {("block", one.id) for one in self._own} | {("skill", str(one.seq)) for one in self._skills}
        there |= {("note", one.id) for one in self._notes}
        there |= {("file", path) for path in self._files}
        for path, one in self._history.entries.items():
            if (one.kind, one.thing) not in there:
                text = f"Remove {path}\n"
                yield self.change({path: None}, {path: None}, _author(PERDURE, self._id), at=self._at, text=text)

    def blocks(self) -> Iterator[NewCommit]:
        """The versions of blocks."""
        for block in self._own:
            before, after = self._begin("block", block.id, block.version)
            at = block.created_at
            for version in self._versions(block, after):
                at = max(at, version.created_at)  # a clock may have gone back
                path = path_of_label(version.label)
                shown = version.value
                if version.version < block.version:
                    shown = self._without_forgotten(shown, version.created_at)
                verb = "Create" if version.version == 0 else "Edit"
                reason = self._without_forgotten(version.reason, version.created_at)
                yield self._put(
                    "block",
                    block.id,
                    version.version,
                    path,
                    block_file(block, shown),
                    self._author_of(version),
                    at=at,
                    text=_message(reason or f"{verb} {version.label}", version),
                    before=before,
                )
                before = path

    def _versions(self, block: Block, after: int) -> Sequence[BlockVersion]:
        """The versions of a block above a number, oldest first."""
        if after >= block.version:
            return []
        last = min(block.version, after + VERSIONS_AT_ONCE)
        found = self._tx.blocks.versions(block.id, limit=last - after, before=last + 1)
        if last < block.version:
            self.horizon = min(self.horizon or found[0].created_at, found[0].created_at)
        return with_reasons(self._tx, found[::-1])

    def _begin(self, kind: FileKind, thing: str, newest: int) -> tuple[str | None, int]:
        """Return (the path at the head, the version up to which there are commits) of a block or skill."""
        if (known := self._known.get((kind, thing))) is not None:
            return known[0], known[1].version
        if (left := self._history.left.get(thing)) is not None:  # it is back: as it is now
            return None, min(left, newest - 1)
        return None, -1

    def skills(self) -> Iterator[NewCommit]:
        """The versions of the skills that the agent and people wrote."""
        for skill in self._skills:
            before, after = self._begin("skill", str(skill.seq), skill.version)
            versions = self._tx.of(Skills).versions(skill) if after < skill.version else ()
            for version in reversed([one for one in versions if one.version > after]):
                yield self._skill(skill, version, before)
                before = skill_path(skill.name)

    def _skill(self, skill: Skill, version: SkillVersion, before: str | None) -> NewCommit:
        """The commit of a version of a skill."""
        shown, description = version.text, version.description
        if version.version < skill.version:
            shown, description = (self._without_forgotten(one, version.created_at) for one in (shown, description))
        is_own = version.written_by == "agent"
        who = self._name if is_own else _person(version.written_by)
        verb = "Create" if version.version == 1 else "Edit"
        return self._put(
            "skill",
            str(skill.seq),
            version.version,
            skill_path(skill.name),
            skill_file(skill.name, skill.layer, description, shown),
            _author(who, self._id if is_own else version.written_by),
            at=version.created_at,
            text=f"{verb} the skill {skill.name}\n\nSkill: {skill.name} {version.version}\n",
            before=before,
        )

    def notes(self) -> Iterator[NewCommit]:
        """The notes that are new or differ."""
        for note in self._notes:
            path, entry = self._known.get(("note", note.id), (note_path(note), None))
            data = note_file(replace(note, text=self._without_forgotten(note.text, note.changed_at)))
            if entry is None or entry.digest != digest_of(data):
                who = _author(PERDURE, self._id)
                text = f"{'Edit' if entry else 'Create'} the note {' '.join(note.title.split())}\n"
                text = self._without_forgotten(text, note.changed_at)
                yield self._put("note", note.id, 0, path, data, who, at=note.changed_at, text=text, before=path)

    def files(self) -> Iterator[NewCommit]:
        """The other files that are new or differ."""
        for path, (kept, at, by) in self._files.items():
            data = self._without_forgotten(kept, at).encode("utf-8", "replace")
            _, entry = self._known.get(("file", path), (path, None))
            if entry is None or entry.digest != digest_of(data):
                yield self._put(
                    "file", path, 0, path, data, _author(_person(by), by), at=at, text=f"Keep {path}\n", before=path
                )

    def _author_of(self, version: BlockVersion) -> tuple[str, str]:
        """Name and address of the author of a version."""
        author: Author = version.author
        if author.kind == "agent" and author.agent_id is not None:
            return _author(version.agent_name or author.agent_id, author.agent_id)
        return _author(PERDURE if author.kind == "system" else _person(author.id), author.id)


def _can_be_looked_for(correction: Correction) -> bool:
    """Whether a correction still says which text was forgotten."""
    try:
        return correction.needle != REDACTED and bool(Redactor(correction.needle))
    except InvalidInput:
        return False


def _person(id_: str) -> str:
    """The name of a person of whom only the id is known."""
    return "user" if id_ == DEFAULT_USER else id_


def _author(name: str, id_: str) -> tuple[str, str]:
    """Name and address of an author, as git takes them."""
    plain: Callable[[str], str] = lambda text: " ".join("".join(one for one in text if one not in "<>\0").split())  # noqa: E731
    return plain(name)[:200] or "nobody", f"{plain(id_).replace(' ', '.')[:200] or 'nobody'}@perdure"


def _message(reason: str, version: BlockVersion) -> str:
    """The message of the commit of a block's version: why, and which version it is."""
    origin = f"Run: {version.author.run_id}\n" if version.author.run_id else ""
    return f"{reason.strip()}\n\nBlock: {version.label} {version.version}\n{origin}"
