"""The memory of an agent as a git repository: read, cloned, pushed to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import AgentId
from perdure.domain.archives.passages import NewPassage
from perdure.features.memory_git.apply import apply_push
from perdure.features.memory_git.checks import read_push
from perdure.features.memory_git.git import GitFailed, Repository, open_repository, run_git
from perdure.features.memory_git.layout import label_of_path
from perdure.features.memory_git.plan import CommitPlan, plan_changes
from perdure.features.memory_git.protocol import FLUSH, packet, read_order, refusal
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
from perdure.storage.tx import Tx

TRIES = 50
"""So often it begins anew when others write meanwhile."""
REMOTE = "refs/remotes/perdure/main"
_OWNER = "perdure.agent"
"""The key in the configuration of a checked-out folder that names its agent."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the store holds of the repository of an agent."""

    before: GitHistory
    waiting: CommitPlan
    packs: Sequence[Pack]


@dataclass(frozen=True, slots=True)
class _Open:
    """The repository of an agent while it is used, and where its commits stand."""

    repository: Repository
    history: GitHistory


class AsyncMemoryGit(AsyncPart):
    """The memory of one agent as a git repository: blocks, notes and skills as Markdown, every change a commit."""

    async def commits(self, *, limit: int = 50) -> Sequence[MemoryCommit]:
        """The newest commits, the newest first. Raises: NotFound; InvalidInput: a limit below 1 or above 10,000."""
        check_limit(limit)
        async with self._open() as opened:
            log = ("log", "-z", f"--max-count={limit}", "--topo-order", "--format=%H%n%an%n%at%n%s", BRANCH)
            out = await opened.repository.run(*log)
        versions: dict[str, list[str]] = {}
        names = {one.thing: _name_of(path, one) for path, one in opened.history.entries.items()}
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
        async with self._open() as opened:
            is_new = await self._prepare(target)
            fetch = ("fetch", "--quiet", "--no-tags", str(opened.repository.folder), f"+{BRANCH}:{REMOTE}")
            await run_git(*fetch, folder=target, as_user=True)
            if is_new:
                await run_git("checkout", "--quiet", "-B", "main", REMOTE, folder=target, as_user=True)
                return Checkout(folder=str(target), head=opened.history.head)
            merge = ("merge", "--no-edit", REMOTE)
            code, out, said = await run_git(*merge, folder=target, as_user=True, fails=False)
            said = "\n".join(filter(None, (out.decode("utf-8", "replace").strip(), said.strip())))
            if "unrelated histories" in said:
                raise Conflict(
                    "the commits of this memory were made anew, as a text was forgotten or erased: check it out into"
                    " another folder"
                )
            _, listed, _ = await run_git("diff", "--name-only", "--diff-filter=U", "-z", folder=target, as_user=True)
            conflicts = [name for name in listed.decode("utf-8", "replace").split("\0") if name]
            if code and not conflicts:
                raise Conflict(f"git could not merge: {said}")
            return Checkout(folder=str(target), head=opened.history.head, said=said, conflicts=conflicts)

    async def push(self, folder: str | Path) -> Checkout:
        """Turn the commits of a checked-out folder into versions of blocks, notes and skills.

        Raises: InvalidInput: it is no such folder; PushRefused: something in the commits can't be memory; Conflict: the
            memory has other commits, so check it out again first; NotFound.
        """
        target = _absolute(folder)
        if await _owner_of(target) != self._id:
            raise InvalidInput(f"{target} is not a folder with the memory of this agent: `perdure memory checkout`")
        async with self._open() as opened:
            push = ("push", "--no-verify", str(opened.repository.folder), f"HEAD:{BRANCH}")
            code, _, said = await run_git(*push, folder=target, as_user=True, fails=False)
            said = said.replace(str(opened.repository.folder), "the store").strip()
            if code:
                raise Conflict(f"{said}\nBring the folder up to date first: `perdure memory checkout`")
            head = await self._accept(opened)
            await run_git("update-ref", REMOTE, head, folder=target, as_user=True)
        return Checkout(folder=str(target), head=head, said=said)

    async def advertise(self, service: str, protocol: str) -> bytes:
        """What a client of git reads first: the branch and its head."""
        async with self._open() as opened:
            repository = opened.repository
            command = (service.removeprefix("git-"), "--stateless-rpc", "--http-backend-info-refs", ".")
            out = await repository.run(*command, protocol=protocol)
        return packet(f"# service={service}\n".encode()) + FLUSH + out

    async def upload(self, body: bytes, protocol: str) -> bytes:
        """The answer to a client that fetches. Raises: NotFound; InvalidInput: it is no request of git."""
        async with self._open() as opened:
            if not body:
                return b""
            try:
                return await opened.repository.run("upload-pack", "--stateless-rpc", ".", data=body, protocol=protocol)
            except GitFailed as error:
                raise InvalidInput(f"the body is no request that git understands: {error.said.strip()[:200]}") from None

    async def receive(self, body: bytes) -> bytes:
        """Take a push; return the answer, which also says why it is refused. Raises: NotFound; InvalidInput: it is no
        push."""
        await self._store.read(lambda tx: tx.agents.model(self._id))
        order = read_order(body)
        if not order.refs:  # a client asks whether it may
            return b""
        if order.problem:
            return refusal(order, PushRefused(order.problem))
        async with self._open() as opened:
            if order.old != opened.history.head:  # it changed since the client asked for it
                return refusal(order, MemoryMoved())
            command = ("receive-pack", "--stateless-rpc", ".")
            out = await opened.repository.run(*command, data=body, fails=False)
            try:
                await self._accept(opened)
            except (PushRefused, MemoryMoved) as error:
                return refusal(order, error)
        return out or refusal(order, PushRefused("git could not read what was sent"))

    async def _accept(self, opened: _Open) -> str:
        """Write the commits that the repository was given into the memory; return its head. Raises: PushRefused;
        MemoryMoved."""
        repository, history = opened.repository, opened.history
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
                ids=self._ports.ids,
                inputs=self._ports.inputs(),
            )
            self._ports.unread.note((self._id, 0))
        return head

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[_Open]:
        """The repository with a commit for all that the store holds. Raises: NotFound; MemoryMoved: others write all
        the time."""
        for _ in range(TRIES):
            loaded = await self._store.read(_load, self._id, self._ports.clock.now())
            async with open_repository(loaded.waiting.history.head, loaded.packs) as repository:
                try:
                    history = await self._catch_up(repository, loaded)
                except MemoryMoved:
                    continue
                yield _Open(repository, history)
                return
        raise MemoryMoved

    async def _catch_up(self, repository: Repository, loaded: _Loaded) -> GitHistory:
        """Commit what has no commit yet; return where the commits stand. Raises: MemoryMoved."""
        history, waiting, parts = loaded.before, loaded.waiting, len(loaded.packs)
        while waiting.changes:
            hashes, pack = await repository.commit(waiting.history.head, waiting.changes)
            entries = dict(waiting.history.entries)
            for change in waiting.changes:
                for path, entry in change.entries.items():
                    if entry is None:
                        entries.pop(path, None)
                    else:
                        entries[path] = entry
            after = waiting.history.moved_to(hashes[-1], entries)
            named = zip(hashes, waiting.changes, strict=True)
            commits = {(one.thing, one.version): (hash_, "") for hash_, one in named if one.thing}
            whole = not waiting.history.head
            history = await self._store.write(_store_commits, history, after, pack, commits, whole)
            parts += 1
            waiting = await self._store.read(plan_changes, self._id, self._ports.clock.now())
        if parts > PARTS_MAX:
            pack = await repository.pack(history.head)
            history = await self._store.write(_store_commits, history, history, pack, {}, True)
        return history

    async def _prepare(self, target: Path) -> bool:
        """Make a folder a repository of this agent; return whether it is a new one. Raises: InvalidInput."""
        owner = await _owner_of(target)
        if owner == self._id:
            return False
        is_taken = bool(owner) or await asyncio.to_thread(_is_taken, target)
        if is_taken:
            raise InvalidInput(
                f"{target} holds something else: give a new folder, or one with the memory of this agent"
            )
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
        await run_git("init", "--quiet", "--initial-branch=main", folder=target, as_user=True)
        by = outside().id
        for key, value in ((_OWNER, self._id), ("user.name", by), ("user.email", f"{by}@perdure")):
            known, _, _ = await run_git("config", "--get", key, folder=target, as_user=True, fails=False)
            if known:
                await run_git("config", key, value, folder=target, as_user=True)
        return True


async def _owner_of(folder: Path) -> str:
    """The id of the agent whose memory a folder holds; empty: it holds none."""
    if not await asyncio.to_thread(_is_taken, folder / ".git"):
        return ""
    _, out, _ = await run_git("config", "--local", "--get", _OWNER, folder=folder, as_user=True, fails=False)
    return out.decode("utf-8", "replace").strip()


async def find_owner(folder: str | Path) -> str:
    """The id of the agent whose memory a checked-out folder holds; empty: it holds none."""
    return await _owner_of(_absolute(folder))


def _absolute(folder: str | Path) -> Path:
    """The whole path of a folder."""
    return Path(folder).expanduser().absolute()


def _is_taken(folder: Path) -> bool:
    """Whether there is something at a path that is no empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _load(tx: Tx, agent_id: AgentId, at: datetime) -> _Loaded:
    """What is needed to open the repository of an agent. Raises: NotFound."""
    before, waiting = tx.of(MemoryGit).history(agent_id), plan_changes(tx, agent_id, at)
    return _Loaded(before, waiting, tx.of(MemoryGit).packs(agent_id) if waiting.history.head else ())


def _store_commits(
    tx: Tx,
    before: GitHistory,
    after: GitHistory,
    pack: Pack,
    commits: dict[tuple[str, int], tuple[str, str]],
    whole: bool,
) -> GitHistory:
    """Store new commits, and which versions they are; return where the commits stand. Raises: MemoryMoved."""
    stored = tx.of(MemoryGit).advance(before, after, pack, whole=whole)
    tx.of(MemoryGit).note_commits(before.agent_id, commits)
    return stored


def _name_of(path: str, entry: HeadFile) -> str:
    """How people call what a file stands for."""
    return label_of_path(path) if entry.kind == "block" else path.split("/")[-2 if entry.kind == "skill" else -1]
