"""What a memory repository is made of: the files at its head, commits that wait to be made, and pushed commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import AgentId
from perdure.core.text.reprs import short_repr

BRANCH = "refs/heads/main"
FileKind = Literal["block", "note", "skill", "file"]
"""What a file stands for. `file`: a Markdown file that is kept as it is."""


class PushRefused(InvalidInput):
    """A push can't be taken. `problems`: why, each with the file and line where there are some. Nothing was written."""

    def __init__(self, reason: str, problems: Sequence[str] = ()) -> None:
        super().__init__("; ".join([reason, *problems]))
        self.reason, self.problems = reason, problems


class MemoryMoved(Conflict):
    """The memory changed after the pusher last read it. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("the memory has changed meanwhile: fetch first")


@dataclass(frozen=True, slots=True)
class HeadFile:
    """What a file at the head stands for.

    Args:
        thing: the id of a block or note, the number of a skill, the path of another file.
        version: of a block or skill; else 0.
        digest: of the content, as the store writes it, of a note or another file.
    """

    kind: FileKind
    thing: str
    version: int
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHistory:
    """Where the commits of an agent stand.

    Args:
        generation: how many times all commits were made anew, as a text was forgotten or erased.
        seq: the number of the newest pack; 0: there are no commits.
        head: the hash of the newest commit.
        entries: path -> what the file stands for, at the head.
        left: id of a block, or number of a skill, that the agent no longer has -> its last version with a commit.
        forgotten: which texts were forgotten when the commits were made.
    """

    agent_id: AgentId
    generation: int = 0
    seq: int = 0
    head: str = ""
    entries: Mapping[str, HeadFile] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    forgotten: str = ""

    def moved_to(self, head: str, entries: Mapping[str, HeadFile]) -> GitHistory:
        """This history with another head, at which there are these files."""
        there = {one.thing for one in entries.values()}
        left = {**self.left, **{entry.thing: entry.version for entry in self.entries.values() if entry.version}}
        left = {thing: version for thing, version in left.items() if thing not in there}
        return replace(self, head=head, entries=entries, left=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """One commit that waits to be made of what the store holds: it writes a file, or removes it.

    Args:
        author: the name and address.
        path: the file; empty: it changes none.
        data, entry: its new content, and what it stands for then; None: the file goes.
        moved_from: a file that goes, as what it stood for is now in `path`.
    """

    author: str
    at: datetime
    text: str
    path: str = ""
    data: bytes | None = None
    entry: HeadFile | None = None
    moved_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedCommit:
    """One commit of a push: how it differs from the one before. `files`: path -> text; None: the file goes. `moved`:
    path -> the one at which the same file was, or nearly the same note."""

    hash: str
    message: str
    files: Mapping[str, str | None]
    moved: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Objects of commits as git stores them in files."""

    pack: bytes
    pack_index: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCommit:
    """A commit of the memory of an agent.

    Args:
        versions: labels of blocks and names of skills, each with the version that this commit is, such as `human 3`.
    """

    __repr__ = short_repr("hash", "author", "subject")

    hash: str
    author: str
    at: datetime
    subject: str
    versions: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A folder with the memory of an agent, after a checkout or push.

    Args:
        head: the commit at which the store is.
        said: what git said, for people.
        conflicts: files with a conflict that a person has to solve.
    """

    folder: str
    head: str
    said: str = ""
    conflicts: Sequence[str] = ()
