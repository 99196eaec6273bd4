"""Sets of pip requirements, each installed once into a folder of its own in the cache.

Only wheels of the index are taken, and pip can start no program meanwhile: what comes as source would run its author's
code here, outside of every cage.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from perdure.core.tools.sandbox import REQUIREMENT_CHARS_MAX, is_requirement
from perdure.toolbox.sandbox.installer import Installer, InstallFailed
from perdure.toolbox.sandbox.package_cache import (
    LOCK_POLL_S,
    CacheFull,
    SetLock,
    free_lock,
    make_room,
    remove_tree,
    scratch_of,
)

INSTALLERS = 2
QUEUE_MAX = 4
"""Different sets that one agent may have installed, or wait for, at a time."""

CACHE_BYTES = 4 << 30
SETS_OF_CACHE = 4
"""One set may take this part of the cache: as many fit at least."""

REQUIREMENTS_MAX = 50
LAYOUT = 2
"""Counted up when older sets must not be used any more: those of 1 were installed outside of a cage."""


class RequirementsFailed(Exception):
    """A set can't be had; the text says which requirement, and why."""


class InstallQueueFull(RequirementsFailed):
    """An agent has as many sets installed at the moment as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} other sets of requirements are installed for this agent at the moment, which is the most:"
            " try again when one of them is done"
        )
        self.limit = limit


class Installs(Protocol):
    """What puts a set into a folder: `Installer`, which asks pip."""

    async def install(
        self, wanted: Sequence[str], scratch: Path, *, bytes_max: int, progress: Callable[[str], None]
    ) -> Path: ...


class Requirements:
    """The installed sets in one cache folder, which several processes may share.

    Args:
        bytes_max: what all sets may take; a set that was not used for long makes room for a new one.
    """

    def __init__(self, cache: Path, *, installer: Installs | None = None, bytes_max: int = CACHE_BYTES) -> None:
        self._cache = cache
        self._installer = installer or Installer()
        self._bytes_max = bytes_max
        self._waiting: dict[str, list[str]] = {}

    @asynccontextmanager
    async def used(
        self, requirements: Sequence[str], *, owner: str = "", progress: Callable[[str], None] | None = None
    ) -> AsyncIterator[str]:
        """The name, within the cache, of the folder where this set is installed; it stays as long as it is used.

        The first time it is installed. When that is cancelled, the installer is ended, and what it made is removed.

        Args:
            owner: the agent; each may wait for a few sets at a time.
        Raises: RequirementsFailed: a requirement is none, is not to be had, or took too long; InstallQueueFull.
        """
        wanted = _checked(requirements)
        name = _name(wanted)
        lock = await self._held(wanted, name, owner, progress or (lambda line: None))
        try:
            yield name
        finally:
            lock.close()

    async def _held(self, wanted: Sequence[str], name: str, owner: str, progress: Callable[[str], None]) -> SetLock:
        """The lock of a set that is there, shared."""
        try:
            await asyncio.to_thread(self._cache.mkdir, mode=0o755, parents=True, exist_ok=True)
            lock = SetLock(self._cache, name)
            try:
                if not self._is_there(lock, name):
                    await self._wait(wanted, name, lock, owner, progress)
                lock.touch()
            except BaseException:
                lock.close()
                raise
            return lock
        except OSError as error:
            raise RequirementsFailed(f"the requirements can't be installed: {error}") from None

    def _is_there(self, lock: SetLock, name: str) -> bool:
        return lock.share() and (self._cache / name).is_dir()

    async def _wait(
        self, wanted: Sequence[str], name: str, lock: SetLock, owner: str, progress: Callable[[str], None]
    ) -> None:
        """Until the set is there, made by this caller or another one, and shared."""
        names = self._waiting.setdefault(owner, [])
        if name not in names and len(set(names)) >= QUEUE_MAX:
            raise InstallQueueFull(QUEUE_MAX)
        names.append(name)
        try:
            told = False
            while not self._is_there(lock, name):
                if lock.take():
                    if not (self._cache / name).is_dir():
                        await self._make(wanted, name, progress)
                    continue
                if not told:
                    progress("waiting for another installation of the same requirements")
                    told = True
                await asyncio.sleep(LOCK_POLL_S)
        finally:
            names.remove(name)
            if not names:
                del self._waiting[owner]

    async def _make(self, wanted: Sequence[str], name: str, progress: Callable[[str], None]) -> None:
        """Install a set, whose lock is held alone, when it is its turn."""
        places = [SetLock(self._cache, f"installer-{number}") for number in range(INSTALLERS)]
        scratch = scratch_of(self._cache, name)
        try:
            await free_lock(places)
            progress(f"installing {', '.join(wanted)}")
            set_bytes = self._bytes_max // SETS_OF_CACHE
            await asyncio.to_thread(make_room, self._cache, self._bytes_max - INSTALLERS * set_bytes)
            await asyncio.to_thread(_remove, scratch)
            scratch.mkdir(mode=0o755)
            target = await self._installer.install(wanted, scratch, bytes_max=set_bytes, progress=progress)
            target.chmod(0o755)  # calls run as another user
            target.rename(self._cache / name)
            progress("installed")
        except (InstallFailed, CacheFull) as error:
            raise RequirementsFailed(f"{', '.join(wanted)} can't be installed (wheels only): {error}") from None
        finally:
            for place in places:
                place.close()
            await asyncio.to_thread(_remove, scratch)


def _remove(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)


def _checked(requirements: Sequence[str]) -> tuple[str, ...]:
    if len(requirements) > REQUIREMENTS_MAX:
        raise RequirementsFailed(f"{len(requirements)} requirements are too many: at most {REQUIREMENTS_MAX}")
    for requirement in requirements:
        if not is_requirement(requirement):
            raise RequirementsFailed(
                f"requirement {requirement[:REQUIREMENT_CHARS_MAX]!r} can't be used: write a name, with versions if you"
                " like, as `requests==2.32.3`; no addresses, paths or options"
            )
    return tuple(sorted({requirement.strip() for requirement in requirements}))


def _name(wanted: Sequence[str]) -> str:
    """The same for the same set, interpreter and processor."""
    facts = [LAYOUT, list(wanted), sys.implementation.cache_tag, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
