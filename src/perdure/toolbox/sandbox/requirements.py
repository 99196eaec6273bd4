"""Sets of pip requirements, each installed once into a folder of its own in the cache.

Only wheels of the index are taken, and pip can start no program meanwhile: a source distribution would run its
author's code here, outside of the sandbox.
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

from perdure.core.tools.sandbox import REQUIREMENT_CHARS_MAX, is_requirement
from perdure.toolbox.sandbox.installer import Installer, InstallFailed
from perdure.toolbox.sandbox.package_cache import LOCK_POLL_S, SCRATCH, CacheFull, SetLock, make_room, remove_tree

INSTALLERS = 2
"""How many sets are installed at a time."""

QUEUE_MAX = 4
"""Different sets that one agent may have installed, or wait for, at a time."""

CACHE_BYTES = 4 << 30
SETS_PER_CACHE = 4
"""One set may take this part of the cache: as many fit at least."""

REQUIREMENTS_MAX = 50
LAYOUT = 2
"""Raised when older sets must not be used any more: those of 1 were installed outside of a cage."""


class RequirementsFailed(Exception):
    """A set can't be installed; the text says which requirement, and why."""


class Requirements:
    """The installed sets in one cache folder, which several processes may share. `bytes_max`: the size of all sets; one
    that was not used for long makes room for a new one."""

    def __init__(self, cache: Path, *, installer: Installer | None = None, bytes_max: int = CACHE_BYTES) -> None:
        self._cache = cache
        self._installer = installer or Installer()
        self._bytes_max = bytes_max
        self._queues: dict[str, list[str]] = {}  # owner -> names of the sets that it waits for

    @asynccontextmanager
    async def hold(
        self, requirements: Sequence[str], *, owner: str = "", progress: Callable[[str], None] | None = None
    ) -> AsyncIterator[str]:
        """The name of the folder, in the cache, where a set is installed. It stays until the context is left.

        The set is installed if it is not there. If that is cancelled, the installer is ended, and its files removed.

        Args:
            owner: the agent; each may wait for a few sets at a time.
            progress: gets a line for each step.
        Raises: RequirementsFailed: a text is no requirement, can't be installed, or took too long, or the agent waits
            for too many sets.
        """
        requirements = _check_requirements(requirements)
        # The name is the same for the same set, interpreter and processor.
        facts = [LAYOUT, list(requirements), sys.implementation.cache_tag, sysconfig.get_platform()]
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        lock: SetLock | None = None
        try:
            try:
                await asyncio.to_thread(self._cache.mkdir, mode=0o755, parents=True, exist_ok=True)
                lock = SetLock(self._cache, name)
                if not self._share(lock, name):
                    await self._wait_for_set(requirements, name, lock, owner, progress or (lambda line: None))
                lock.touch()
            except OSError as error:
                raise RequirementsFailed(f"the requirements can't be installed: {error}") from None
            yield name
        finally:
            if lock is not None:
                lock.close()

    def _share(self, lock: SetLock, name: str) -> bool:
        """Share the lock of a set. False: it is being installed, or not there."""
        return lock.share() and (self._cache / name).is_dir()

    async def _wait_for_set(
        self, requirements: Sequence[str], name: str, lock: SetLock, owner: str, progress: Callable[[str], None]
    ) -> None:
        """Wait until the set `name` is installed, by whichever caller; share its lock. Raises: RequirementsFailed."""
        names = self._queues.setdefault(owner, [])
        if name not in names and len(set(names)) >= QUEUE_MAX:
            raise RequirementsFailed(
                f"{QUEUE_MAX} other sets of requirements are installed for this agent at the moment, which is the most:"
                " try again when one of them is done"
            )
        names.append(name)
        try:
            reported = False
            while not self._share(lock, name):
                if lock.claim():
                    if not (self._cache / name).is_dir():
                        await self._install(requirements, name, progress)
                    continue
                if not reported:
                    progress("waiting for another installation of the same requirements")
                    reported = True
                await asyncio.sleep(LOCK_POLL_S)
        finally:
            names.remove(name)
            if not names:
                del self._queues[owner]

    async def _install(self, requirements: Sequence[str], name: str, progress: Callable[[str], None]) -> None:
        """Install a set, locked alone by this caller, when there is room. Raises: RequirementsFailed, OSError."""
        installers = [SetLock(self._cache, f"installer-{number}") for number in range(INSTALLERS)]
        scratch = self._cache / f"{SCRATCH}{name}"
        try:
            while not any(installer.claim() for installer in installers):  # noqa: ASYNC110 - locks of files
                await asyncio.sleep(LOCK_POLL_S)
            progress(f"installing {', '.join(requirements)}")
            set_bytes = self._bytes_max // SETS_PER_CACHE
            await asyncio.to_thread(make_room, self._cache, self._bytes_max - INSTALLERS * set_bytes)
            await asyncio.to_thread(_remove_if_there, scratch)
            scratch.mkdir(mode=0o755)
            target = await self._installer.install(requirements, scratch, bytes_max=set_bytes, progress=progress)
            target.chmod(0o755)  # calls run as another user
            target.rename(self._cache / name)
            progress("installed")
        except (InstallFailed, CacheFull) as error:
            raise RequirementsFailed(f"{', '.join(requirements)} can't be installed (wheels only): {error}") from None
        finally:
            for installer in installers:
                installer.close()
            await asyncio.to_thread(_remove_if_there, scratch)


def _remove_if_there(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)


def _check_requirements(requirements: Sequence[str]) -> tuple[str, ...]:
    """The requirements, each once, sorted. Raises: RequirementsFailed: they are too many, or one is no requirement."""
    if len(requirements) > REQUIREMENTS_MAX:
        raise RequirementsFailed(f"{len(requirements)} requirements are too many: at most {REQUIREMENTS_MAX}")
    for requirement in requirements:
        if not is_requirement(requirement):
            raise RequirementsFailed(
                f"requirement {requirement[:REQUIREMENT_CHARS_MAX]!r} can't be used: write a name, with versions if you"
                " like, as `requests==2.32.3`; no addresses, paths or options"
            )
    return tuple(sorted({requirement.strip() for requirement in requirements}))
