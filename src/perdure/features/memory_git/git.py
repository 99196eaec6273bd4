"""Runs the git program on a repository that exists only while it is used: its objects come from the store.

Git reads no configuration but this module's, runs no hooks, reaches no other address, and is stopped when it takes too
long or too much memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO

from perdure.core.errors import InvalidInput, PerdureError
from perdure.features.memory_git.values import BRANCH, NewCommit, Pack
from perdure.scratch import scratch_folder
from perdure.toolbox.processes import end_group, start_group

GIT_S, CPU_S, MEMORY_KB = 120, 60, 2_000_000
FLUSH = b"0000"
"""The end of a list in git's protocol."""
_EMPTY_PACK = (_HEADER := b"PACK\0\0\0\2\0\0\0\0") + hashlib.sha1(_HEADER, usedforsecurity=False).digest()
_OF_OTHER_REPOSITORIES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"})
"""Variables that would have git work on another repository than that of its folder."""
_CONFIG = Path(__file__).with_name("git.config").read_text("ascii")
_START = f'ulimit -t {CPU_S} 2>/dev/null; ulimit -v {MEMORY_KB} 2>/dev/null; exec git "$@"'


class GitFailed(PerdureError):
    """The git program failed. `said`: what it wrote."""

    def __init__(self, what: str, said: str) -> None:
        super().__init__(f"git {what} failed: {said.strip() or 'it said nothing'}")
        self.said = said


async def run_git(
    *arguments: str,
    folder: Path,
    source: BinaryIO | None = None,
    protocol: str = "",
    as_user: bool = False,
    fails: bool = True,
) -> tuple[int, bytes, str]:
    """Run git in a folder; return (exit code, what it printed, its errors).

    Args:
        source: what it reads.
        protocol: the version of the protocol that a client asks for.
        as_user: with the configuration of the user, in a folder of theirs; it may reach other folders then.
        fails: whether an exit code other than 0 is an error.
    Raises: GitFailed: it failed, or took too long; InvalidInput: there is no git program.
    """
    if shutil.which("git") is None:
        raise InvalidInput("memory as a git repository needs the program git: install it")
    if as_user:
        own = {name: value for name, value in os.environ.items() if name not in _OF_OTHER_REPOSITORIES}
        chosen = ["-c", "protocol.file.allow=always"]
    else:
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.devnull, "LC_ALL": "C.UTF-8"}
        own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_PROTOCOL": protocol}
        chosen = []
    process = await start_group(
        *("sh", "-c", _START, "git", "-c", "protocol.allow=never", "-c", "core.hooksPath=/dev/null", *chosen),
        *arguments,
        cwd=folder,
        env=own | {"GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL if source is None else source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(GIT_S):
            out, errors = await process.communicate()
    except TimeoutError:
        raise GitFailed(arguments[0], f"it took longer than {GIT_S} seconds") from None
    finally:
        await end_group(process)
    said = errors.decode("utf-8", "replace")
    if fails and process.returncode:
        raise GitFailed(arguments[0], said)
    return process.returncode or 0, out, said


class Repository:
    """A bare repository with the commits of an agent's memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def run(self, *arguments: str, data: bytes = b"", protocol: str = "", fails: bool = True) -> bytes:
        """What git prints, as it reads `data`. Raises: GitFailed."""
        with await asyncio.to_thread(self._source, data) as source:
            return (await run_git(*arguments, folder=self.folder, source=source, protocol=protocol, fails=fails))[1]

    def _source(self, data: bytes) -> BinaryIO:
        """A file with this content. A pipe would break where git ends before it has read all."""
        path = self.folder / "input"
        path.write_bytes(data)
        return path.open("rb")

    async def advertise(self, service: str, protocol: str) -> bytes:
        """What a client reads before it fetches (`upload-pack`) or pushes (`receive-pack`)."""
        out = await self.run(service, "--stateless-rpc", "--http-backend-info-refs", ".", protocol=protocol)
        title = f"# service=git-{service}\n"
        return f"{len(title) + 4:04x}{title}0000".encode() + out

    async def receive(self, body: bytes) -> bytes:
        """Take a push; return the answer. Raises: InvalidInput: it is no push."""
        out = await self.run("receive-pack", "--stateless-rpc", ".", data=body, fails=False)
        if not out:
            raise InvalidInput("the body is no push of git")
        return out

    async def refuse(self, body: bytes, head: str, said: str) -> bytes:
        """Refuse a push that was taken, and return the answer, which says why. The branch is at `head` again. Raises:
        GitFailed: it can't be refused, as no hook can run in the folder."""
        await asyncio.to_thread(_write_refusal, self.folder, head, said)
        data = body.partition(FLUSH + b"PACK")[0] + FLUSH + _EMPTY_PACK  # its objects are here
        out = await self.run(
            "-c", "core.hooksPath=hooks", "receive-pack", "--stateless-rpc", ".", data=data, fails=False
        )
        if await self.head() != head:
            raise GitFailed("receive-pack", said)
        return out

    async def refs(self) -> Sequence[str]:
        """The names of all branches and tags."""
        return (await self.run("for-each-ref", "--format=%(refname)")).decode("utf-8", "replace").split()

    async def head(self) -> str:
        """The hash of the newest commit; empty: there is none."""
        arguments = ("rev-parse", "--verify", "--quiet", f"{BRANCH}^{{commit}}")
        return (await self.run(*arguments, fails=False)).decode().strip()

    async def commit(self, head: str, changes: Sequence[NewCommit]) -> tuple[Sequence[str], Pack]:
        """Add commits behind `head` (empty: behind none); return their hashes in order, and their objects."""
        known = {path.name for path in self._packs()}
        marks = self.folder / "marks"
        parents = [head] + [""] * len(changes)  # the others follow one another
        stream = b"".join(map(_commit_stream, range(1, len(changes) + 1), changes, parents))
        await self.run("fast-import", "--quiet", f"--export-marks={marks}", data=stream)
        lines = dict(line.split() for line in marks.read_text("ascii").splitlines())
        (made,) = [path for path in self._packs() if path.name not in known]
        pack = Pack(pack=made.read_bytes(), pack_index=made.with_suffix(".idx").read_bytes())
        return [lines[f":{number}"] for number in range(1, len(changes) + 1)], pack

    async def pack(self, head: str, without: str = "") -> Pack:
        """The objects of all commits up to `head`, but for those of the commits up to `without`."""
        wanted = f"{head}\n" + (f"^{without}\n" if without else "")
        pack = await self.run("pack-objects", "--revs", "--stdout", "--quiet", data=wanted.encode())
        name = self.folder / "new.pack"
        name.write_bytes(pack)
        await self.run("index-pack", "--no-rev-index", str(name))
        return Pack(pack=pack, pack_index=name.with_suffix(".idx").read_bytes())

    def _packs(self) -> Sequence[Path]:
        """The files with its objects."""
        return sorted((self.folder / "objects" / "pack").glob("*.pack"))


@contextlib.asynccontextmanager
async def open_repository(head: str, packs: Sequence[Pack]) -> AsyncIterator[Repository]:
    """A repository with these objects, whose branch is at `head` (empty: it has no commits), until the end."""
    with contextlib.ExitStack() as stack:
        folder = await asyncio.to_thread(stack.enter_context, scratch_folder("git", tree=True))
        await asyncio.to_thread(_write, folder, head, packs)
        try:
            yield Repository(folder)
        finally:
            await asyncio.to_thread(stack.close)


def _write_refusal(folder: Path, head: str, said: str) -> None:
    """Reset the branch of a repository to `head`, and make its only hook refuse pushes with this reason."""
    shutil.rmtree(folder / "refs")
    _write_head(folder, head)
    (folder / "refusal").write_text(f"{said}\n", "utf-8", "replace")
    (folder / "hooks").mkdir()
    (hook := folder / "hooks" / "pre-receive").write_text("#!/bin/sh\ncat refusal >&2\nexit 1\n", "ascii")
    hook.chmod(0o700)


def _write_head(folder: Path, head: str) -> None:
    """Let the branch of a repository be at a commit; empty: there is no branch."""
    (folder / "refs" / "heads").mkdir(parents=True)
    if head:
        (folder / BRANCH).write_text(f"{head}\n", "ascii")


def _write(folder: Path, head: str, packs: Sequence[Pack]) -> None:
    """Write the files of a bare repository."""
    (folder / "objects" / "pack").mkdir(parents=True)
    (folder / "config").write_text(_CONFIG, "ascii")
    (folder / "HEAD").write_text(f"ref: {BRANCH}\n", "ascii")
    _write_head(folder, head)
    for pack in packs:
        name = folder / "objects" / "pack" / f"pack-{pack.pack[-20:].hex()}"
        name.with_suffix(".pack").write_bytes(pack.pack)
        name.with_suffix(".idx").write_bytes(pack.pack_index)


def _commit_stream(number: int, change: NewCommit, head: str) -> bytes:
    """A commit as `git fast-import` reads it."""
    who = f"{change.author} {int(change.at.timestamp())} +0000"
    message = change.text.replace("\0", "").encode("utf-8", "replace")
    lines = [f"commit {BRANCH}", f"mark :{number}", f"author {who}", f"committer {who}", f"data {len(message)}"]
    parts = ["\n".join(lines).encode("utf-8", "replace"), b"\n", message, b"\n"]
    parts += [f"from {head}\n".encode()] if head else []
    gone = (change.moved_from, change.path if change.data is None else "")
    parts += [f"D {path}\n".encode("utf-8", "replace") for path in gone if path]
    if change.data is not None:
        parts += [f"M 100644 inline {change.path}\ndata {len(change.data)}\n".encode("utf-8", "replace"), change.data]
        parts.append(b"\n")
    return b"".join([*parts, b"\n"])
