"""Reads the commits of a push, and refuses those that can't be memory: before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.features.memory_git.git import Repository
from perdure.features.memory_git.layout import kind_of, path_problem, refuse_file
from perdure.features.memory_git.values import PushedCommit, PushRefused

COMMITS_MAX, OBJECTS_MAX, FILES_MAX = 1_000, 20_000, 2_000
FILE_BYTES, ALL_BYTES = 1_000_000, 20_000_000
MESSAGE_CHARS = 2_000
ALIKE_PERCENT = 70
"""How much of a note must be the same for another file to be its new name: frontmatter makes short ones alike."""
_MODES = {
    "120000": "a symbolic link",
    "160000": "a repository in the repository",
    "100755": "a program that can be run",
}


@dataclass(frozen=True, slots=True)
class _Difference:
    """How one file differs between two commits. `blob`: hash of the new content; empty: deleted. `moved_from`: the
    deleted file with the same content, or of a note, with nearly the same."""

    path: str
    mode: str
    blob: str
    moved_from: str = ""


async def read_push(repository: Repository, head: str, new: str) -> Sequence[PushedCommit]:
    """Return the commits from `head` to `new`, oldest first. A merge of other commits into them is one step.

    Raises: PushRefused: something in any of the new commits can't be memory; GitFailed.
    """
    listed = await repository.run("rev-list", "--topo-order", "--parents", new, f"^{head}")
    parents = {line.split()[0]: line.split()[1:] for line in listed.decode().splitlines()}
    if len(parents) > COMMITS_MAX:
        raise PushRefused(f"a push has at most {COMMITS_MAX:,} commits, and this one has {len(parents):,}")
    if not all(parents.values()):
        raise PushRefused("it brings commits that have nothing in common with this memory: clone it anew")
    await _check_sizes(repository, head, new)
    differences = await _differences(repository, parents)
    for found in differences.values():
        for one in found:
            _check_difference(one)
    line = _first_parents(parents, head, new)
    pairs = list(zip([head, *line], line, strict=False))
    blobs = {one.blob for pair in pairs for one in differences[pair] if one.blob}
    texts = await _texts(repository, [*sorted(blobs), *line])
    files = await repository.run("ls-tree", "-r", "-z", "--name-only", new)
    if (count := files.count(b"\0")) > FILES_MAX:
        raise PushRefused(f"a memory has at most {FILES_MAX:,} files, and this one has {count:,}")
    return [
        PushedCommit(
            hash=pair[1],
            message=texts[pair[1]].partition(b"\n\n")[2].decode("utf-8", "replace").strip()[:MESSAGE_CHARS],
            files=dict.fromkeys([one.moved_from for one in differences[pair] if one.moved_from])
            | {one.path: _text(one, texts) for one in differences[pair]},
            moved={difference.path: difference.moved_from for difference in differences[pair] if difference.moved_from},
        )
        for pair in pairs
    ]


def _first_parents(parents: dict[str, list[str]], head: str, new: str) -> Sequence[str]:
    """Return the commits from `head` to `new` by first parents only: merged branches belong to the merge."""
    behind: set[str] = {head}
    for one in reversed(parents):  # parents stand behind their children
        if behind.intersection(parents[one]):
            behind.add(one)
    line = [new]
    while (parent := next(one for one in parents[line[-1]] if one in behind)) != head:
        line.append(parent)
    return line[::-1]


async def _differences(
    repository: Repository, parents: Mapping[str, Sequence[str]]
) -> Mapping[tuple[str, str], Sequence[_Difference]]:
    """(Parent, commit) -> how they differ, of all new commits."""
    pairs = [(parent, one) for one, known in parents.items() for parent in known]
    wanted = "".join(f"{one} {parent}\n" for parent, one in pairs)  # as if it had this parent only
    options = ("--stdin", "--always", "-r", "-z", f"--find-renames={ALIKE_PERCENT}%", "--no-abbrev")
    out = await repository.run("diff-tree", *options, data=wanted.encode())
    found: list[list[_Difference]] = []
    fields = iter(out.decode("utf-8", "surrogateescape").split("\0")[:-1])
    for field in fields:
        if field.startswith(":"):
            _, mode, _, blob, kind = field.split(" ")
            before = next(fields) if kind[0] == "R" else ""
            if before and kind != "R100" and kind_of(before) != "note":
                found[-1].append(_Difference(before, mode, ""))
                before = ""
            found[-1].append(_Difference(next(fields), mode, "" if kind == "D" else blob, before))
        else:  # the hash of the next commit
            found.append([])
    return dict(zip(pairs, found, strict=True))


def _check_difference(one: _Difference) -> None:
    """Raises: PushRefused: there can't be such a file."""
    if not one.blob:
        return
    try:
        one.path.encode()
    except UnicodeEncodeError:
        raise refuse_file(ascii(one.path), "its name is not UTF-8") from None
    if one.mode != "100644":
        raise refuse_file(
            one.path, f"it is {_MODES.get(one.mode, 'no plain file')}, and memory is plain Markdown files"
        )
    if problem := path_problem(one.path):
        raise refuse_file(one.path, problem)


async def _check_sizes(repository: Repository, head: str, new: str) -> None:
    """Check how large all new objects are. Raises: PushRefused."""
    listed = await repository.run("rev-list", "--objects", new, f"^{head}")
    names = dict(line.partition(" ")[::2] for line in listed.decode("utf-8", "replace").splitlines())
    if len(names) > OBJECTS_MAX:
        raise PushRefused(f"a push has at most {OBJECTS_MAX:,} new objects, and this one has {len(names):,}")
    sizes = await repository.run("cat-file", "--batch-check", data="".join(f"{one}\n" for one in names).encode())
    total = 0
    for line in sizes.decode().splitlines():
        object_id, _, size = line.split()
        total += int(size)
        if int(size) > FILE_BYTES:
            name = names[object_id] or "a commit"
            raise refuse_file(name, f"it has {int(size):,} bytes, the limit is {FILE_BYTES:,}")
    if total > ALL_BYTES:
        raise PushRefused(f"the new commits hold {total:,} bytes, the limit is {ALL_BYTES:,}")


async def _texts(repository: Repository, blobs: Sequence[str]) -> Mapping[str, bytes]:
    """Hash of a file or commit -> its content."""
    out = await repository.run("cat-file", "--batch", data="".join(f"{one}\n" for one in blobs).encode())
    found: dict[str, bytes] = {}
    at = 0
    for blob in blobs:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        found[blob] = out[end + 1 : end + 1 + size]
        at = end + size + 2
    return found


def _text(one: _Difference, texts: Mapping[str, bytes]) -> str | None:
    """The text of a file after a commit; None: it is gone. Raises: PushRefused: it is no text."""
    if not one.blob:
        return None
    try:
        text = texts[one.blob].decode()
    except UnicodeDecodeError as error:
        line = texts[one.blob].count(b"\n", 0, error.start) + 1
        raise refuse_file(one.path, "it is no text in UTF-8", line) from None
    if "\0" in text:
        raise refuse_file(one.path, "it is binary: there is a zero byte", text.count("\n", 0, text.index("\0")) + 1)
    return text
