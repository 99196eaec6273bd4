"""The memory of an agent as a git repository: read, cloned, pushed to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import AgentId
from perdure.domain.archives.passages import NewPassage
from perdure.features.memory_git.apply import apply_push
from perdure.features.memory_git.checks import read_push
from perdure.features.memory_git.git import FLUSH, GitFailed, Repository, open_repository, run_git
from perdure.features.memory_git.layout import label_of_path
from perdure.features.memory_git.plan import CommitPlan, plan_changes
from perdure.features.memory_git.tables import PARTS_MAX, MemoryGit
from perdure.features.memory_git.values import (
    BRANCH,
    Checkout,
    GitHistory,
    HeadFile,
    MemoryCommit,
    MemoryMoved,
    Pack,
    PushRefused,
)
from perdure.library.memory.passages import from_outside
from perdure.library.parts.checks import check_limit, outside
from perdure.library.parts.part import AsyncPart
from perdure.scratch import user_path
from perdure.storage.tx import Tx

TRIES = 50
"""So often it begins anew when others write meanwhile."""
REMOTE = "refs/remotes/perdure/main"
_OWNER = "perdure.agent"
"""The key in the configuration of a checked-out folder that names its agent."""


class AsyncMemoryGit(AsyncPart):
    """The memory of one agent as a git repository: blocks, notes and skills as Markdown, every change a commit."""

    async def commits(self, *, limit: int = 50) -> Sequence[MemoryCommit]:
        """The newest commits, the newest first. Raises: NotFound; InvalidInput: a limit below 1 or above 10,000."""
        check_limit(limit)
        async with self._open() as (repository, history):
            log = ("log", "-z", f"--max-count={limit}", "--topo-order", "--format=%H%n%an%n%at%n%s", BRANCH)
            out = await repository.run(*log)
        versions: dict[str, list[str]] = {}
        names = {one.thing: _name_of(path, one) for path, one in history.entries.items()}
        noted = await self._store.read(lambda tx: tx.of(MemoryGit).commits(self._id))
        for (thing, version), (hash_, _) in noted.items():
            versions.setdefault(hash_, []).append(f"{names.get(thing, thing)} {version}")
        found = []
        for part in out.decode("utf-8", "replace").rstrip("\0").split("\0"):
            hash_, author, seconds, subject = part.split("\n", 3)
            at = datetime.fromtimestamp(int(seconds), UTC)
            own = tuple(versions.get(hash_, ()))
            found.append(MemoryCommit(hash=hash_, author=author, at=at, subject=subject.strip(), versions=own))
        return found

    async def checkout(self, folder: str | Path) -> Checkout:
        """Write the memory into a new folder, or bring a folder with it up to date: its commits are merged, and a
        conflict is shown as git shows it.

        Raises: InvalidInput: the folder holds something else; Conflict: the commits were made anew; NotFound.
        """
        target = _absolute(folder)
        async with self._open() as (repository, history):
            is_new = await self._prepare(target)
            await _git(target, "fetch", "--quiet", "--no-tags", str(repository.folder), f"+{BRANCH}:{REMOTE}")
            if is_new:
                await _git(target, "checkout", "--quiet", "-B", "main", REMOTE)
                return Checkout(folder=str(target), head=history.head)
            code, out, said = await _git(target, "merge", "--no-edit", REMOTE, fails=False)
            said = "\n".join(filter(None, (out.strip(), said.strip())))
            if "unrelated histories" in said:
                raise Conflict(
                    "the commits of this memory were made anew, as a text was forgotten or erased: check it out into"
                    " another folder"
                )
            _, listed, _ = await _git(target, "diff", "--name-only", "--diff-filter=U", "-z")
            conflicts = [name for name in listed.split("\0") if name]
            if code and not conflicts:
                raise Conflict(f"git could not merge: {said}")
            return Checkout(folder=str(target), head=history.head, said=said, conflicts=conflicts)

    async def push(self, folder: str | Path) -> Checkout:
        """Turn the commits of a checked-out folder into versions of blocks, notes and skills.

        Raises: InvalidInput: it is no such folder; PushRefused: something in the commits can't be memory; Conflict: the
            memory has other commits, so check it out again first; NotFound.
        """
        target = _absolute(folder)
        if await find_owner(target) != self._id:
            raise InvalidInput(f"{target} is not a folder with the memory of this agent: `perdure memory checkout`")
        async with self._open() as (repository, history):
            push = ("push", "--no-verify", str(repository.folder), f"HEAD:{BRANCH}")
            code, _, said = await _git(target, *push, fails=False)
            said = said.replace(str(repository.folder), "the store").strip()
            if code:
                raise Conflict(f"{said}\nBring the folder up to date first: `perdure memory checkout`")
            head = await self._accept(repository, history)
            await _git(target, "update-ref", REMOTE, head)
        return Checkout(folder=str(target), head=head, said=said)

    async def advertise(self, service: str, protocol: str) -> bytes:
        """What a client of git reads first: the branch and its head. Raises: NotFound."""
        async with self._open() as (repository, _):
            return await repository.advertise(service, protocol)

    async def upload(self, body: bytes, protocol: str) -> bytes:
        """The answer to a client that fetches. Raises: NotFound; InvalidInput: it is no request of git."""
        async with self._open() as (repository, _):
            if not body:
                return b""
            try:
                return await repository.run("upload-pack", "--stateless-rpc", ".", data=body, protocol=protocol)
            except GitFailed as error:
                raise InvalidInput(f"the body is no request that git understands: {error.said.strip()[:200]}") from None

    async def receive(self, body: bytes) -> bytes:
        """Take a push; return the answer, or why it is refused. Raises: NotFound; InvalidInput: it is no push."""
        async with self._open() as (repository, history):
            if body in (b"", FLUSH):  # a client asks whether it may
                return b""
            out = await repository.receive(body)
            try:
                if await repository.refs() != [BRANCH]:
                    raise PushRefused("only the branch main is memory")
                if body[4:44] != history.head.encode():  # it changed since the client asked for it
                    raise MemoryMoved
                await self._accept(repository, history)
            except PushRefused as error:
                return await repository.refuse(body, history.head, "\n".join([error.reason, *error.problems]))
            except MemoryMoved as error:
                return await repository.refuse(body, history.head, str(error))
        return out

    async def _accept(self, repository: Repository, history: GitHistory) -> str:
        """Write the received commits into the memory; return the head. Raises: PushRefused; MemoryMoved."""
        if (head := await repository.head()) != history.head:
            steps = await read_push(repository, history.head, head)
            pack = await repository.pack(head, history.head)
            await self._store.write(
                apply_push,
                history,
                steps,
                pack,
                author=outside(),
                passage=from_outside(NewPassage(text="")),
                inputs=self._ports.inputs(),
            )
            self._ports.unread.note((self._id, 0))
        return head

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[Repository, GitHistory]]:
        """The repository with a commit for all that the store holds, and where its commits stand. Raises: NotFound;
        MemoryMoved: others write all the time."""
        for _ in range(TRIES):
            plan, packs = await self._store.read(_load, self._id, self._ports.clock.now())
            async with open_repository(plan.history.head, packs) as repository:
                try:
                    history = await self._catch_up(repository, plan, len(packs))
                except MemoryMoved:
                    continue
                yield repository, history
                return
        raise MemoryMoved

    async def _catch_up(self, repository: Repository, plan: CommitPlan, parts: int) -> GitHistory:
        """Commit new versions, join packs beyond `parts`, and return the commits' state. Raises: MemoryMoved."""
        while plan.changes:
            hashes, pack = await repository.commit(plan.history.head, plan.changes)
            commits = {
                (one.entry.thing, one.entry.version): (hash_, "")
                for hash_, one in zip(hashes, plan.changes, strict=True)
                if one.entry is not None and one.entry.kind in ("block", "skill")
            }
            await self._advance(plan.history.moved_to(hashes[-1], plan.entries), pack, commits, not plan.history.head)
            parts += 1
            plan = await self._store.read(plan_changes, self._id, self._ports.clock.now())
        if parts <= PARTS_MAX:
            return plan.history
        return await self._advance(plan.history, await repository.pack(plan.history.head), {}, True)

    async def _advance(
        self, history: GitHistory, pack: Pack, commits: Mapping[tuple[str, int], tuple[str, str]], whole: bool
    ) -> GitHistory:
        """Store where the commits stand, as `MemoryGit.advance` does."""
        return await self._store.write(lambda tx: tx.of(MemoryGit).advance(history, pack, commits, whole=whole))

    async def _prepare(self, target: Path) -> bool:
        """Make a folder a repository of this agent; return whether it is a new one. Raises: InvalidInput."""
        owner = await find_owner(target)
        if owner == self._id:
            return False
        is_taken = bool(owner) or await asyncio.to_thread(_is_taken, target)
        if is_taken:
            raise InvalidInput(
                f"{target} holds something else: give a new folder, or one with the memory of this agent"
            )
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
        await _git(target, "init", "--quiet", "--initial-branch=main")
        by = outside().id
        for key, value in ((_OWNER, self._id), ("user.name", by), ("user.email", f"{by}@perdure")):
            if (await _git(target, "config", "--get", key, fails=False))[0]:  # it has none
                await _git(target, "config", key, value)
        return True


async def find_owner(folder: str | Path) -> str:
    """Return the id of the agent whose memory a checked-out folder holds; empty: it holds no memory."""
    target = _absolute(folder)
    if not await asyncio.to_thread(_is_taken, target / ".git"):
        return ""
    return (await _git(target, "config", "--local", "--get", _OWNER, fails=False))[1].strip()


async def _git(folder: Path, *arguments: str, fails: bool = True) -> tuple[int, str, str]:
    """Run git for the user in their folder; return (exit code, what it printed, its errors). Raises: GitFailed."""
    code, out, said = await run_git(*arguments, folder=folder, as_user=True, fails=fails)
    return code, out.decode("utf-8", "replace"), said


def _absolute(folder: str | Path) -> Path:
    """The whole path of a folder."""
    return user_path(folder).absolute()


def _is_taken(folder: Path) -> bool:
    """Whether there is something at a path that is no empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _load(tx: Tx, agent_id: AgentId, at: datetime) -> tuple[CommitPlan, Sequence[Pack]]:
    """Return what to commit next to an agent's repository, and its packs. Raises: NotFound."""
    plan = plan_changes(tx, agent_id, at)
    return plan, tx.of(MemoryGit).packs(agent_id) if plan.history.head else ()


def _name_of(path: str, entry: HeadFile) -> str:
    """How people call what a file stands for."""
    return label_of_path(path) if entry.kind == "block" else path.split("/")[-2 if entry.kind == "skill" else -1]
