"""Sets of pip requirements, each installed once into a folder of its own in the cache.

Only wheels are taken: installing one copies files, while installing a source distribution runs its author's code here,
outside of every cage.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import stat
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["Requirements", "RequirementsFailed", "remove_tree"]

INSTALL_TIMEOUT_S = 300.0
LOCK_POLL_S = 0.1
REQUIREMENTS_MAX = 50
OUTPUT_CHARS = 1_000
LINE_CHARS = 200

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?"
)
_PASSED_ON = ("HOME", "PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
_PASSED_PREFIXES = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


class RequirementsFailed(Exception):
    """A set can't be had; the text says which requirement, and why."""


class Requirements:
    """The installed sets in one cache folder, which several processes may share.

    Args:
        command: what installs; by default this interpreter's pip.
    """

    def __init__(
        self, cache: Path, *, command: Sequence[str] | None = None, timeout_s: float = INSTALL_TIMEOUT_S
    ) -> None:
        self._cache = cache
        self._command = tuple(command) if command is not None else (sys.executable, "-m", "pip")
        self._timeout_s = timeout_s

    async def installed(self, requirements: Sequence[str], *, progress: Callable[[str], None] | None = None) -> str:
        """The name, within the cache, of the folder where this set is installed; the first time it is installed.

        Raises: RequirementsFailed: a requirement is none, is not to be had, or took too long.
        """
        wanted = _checked(requirements)
        name = _name(wanted)
        if await asyncio.to_thread((self._cache / name).is_dir):
            return name
        told = progress or (lambda line: None)
        try:
            await asyncio.to_thread(self._cache.mkdir, mode=0o755, parents=True, exist_ok=True)
            async with self._locked(name, told):
                if not await asyncio.to_thread((self._cache / name).is_dir):
                    await self._install(wanted, self._cache / name, told)
        except OSError as error:
            raise RequirementsFailed(f"the requirements can't be installed: {error}") from None
        return name

    @asynccontextmanager
    async def _locked(self, name: str, progress: Callable[[str], None]) -> AsyncIterator[None]:
        """Alone with this set, among all processes that share the cache."""
        fd = os.open(self._cache / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            waited = False
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in {errno.EAGAIN, errno.EACCES}:
                        raise
                if not waited:
                    progress("waiting for another installation of the same requirements")
                    waited = True
                await asyncio.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(fd)

    async def _install(self, wanted: Sequence[str], place: Path, progress: Callable[[str], None]) -> None:
        progress(f"installing {', '.join(wanted)}")
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".new-", dir=self._cache))
        try:
            await self._run_installer(wanted, scratch, progress)
            await asyncio.to_thread(_publish, scratch, place)
        finally:
            if await asyncio.to_thread(scratch.exists):
                await asyncio.to_thread(remove_tree, scratch)
        progress("installed")

    async def _run_installer(self, wanted: Sequence[str], scratch: Path, progress: Callable[[str], None]) -> None:
        options = ("--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--no-warn-conflicts")
        command = [*self._command, "install", *options, "--progress-bar=off", "--target", str(scratch), "--", *wanted]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(),
            cwd=self._cache,
            start_new_session=True,
        )
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                while line := await _line(process.stdout):
                    lines.append(line)
                    progress(line)
                code = await process.wait()
        except TimeoutError:
            raise RequirementsFailed(f"installing {', '.join(wanted)} took more than {self._timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code:
            said = "\n".join([line for line in lines if "ERROR" in line] or lines[-3:])[-OUTPUT_CHARS:]
            raise RequirementsFailed(f"{', '.join(wanted)} can't be installed (wheels only): {said}")


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours and what is in it, file by file, never past the device that it lies on."""
    device = folder.lstat().st_dev
    for entry in sorted(folder.iterdir()):
        found = entry.lstat()
        if found.st_dev != device:
            raise OSError(errno.EXDEV, f"{entry} lies on another device: it was not removed")
        if stat.S_ISDIR(found.st_mode):
            remove_tree(entry)
        else:
            entry.unlink()
    folder.rmdir()


def _checked(requirements: Sequence[str]) -> tuple[str, ...]:
    if len(requirements) > REQUIREMENTS_MAX:
        raise RequirementsFailed(f"{len(requirements)} requirements are too many: at most {REQUIREMENTS_MAX}")
    for requirement in requirements:
        if len(requirement) > LINE_CHARS or not _REQUIREMENT.fullmatch(requirement.strip()):
            raise RequirementsFailed(
                f"requirement {requirement[:LINE_CHARS]!r} can't be used: write a name, with versions if you like, as"
                " `requests==2.32.3`; no addresses, paths or options"
            )
    return tuple(sorted({requirement.strip() for requirement in requirements}))


def _name(wanted: Sequence[str]) -> str:
    """The same for the same set, interpreter and processor."""
    facts = [list(wanted), sys.implementation.cache_tag, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _publish(scratch: Path, place: Path) -> None:
    scratch.chmod(0o755)  # calls run as another user
    scratch.rename(place)


async def _line(output: asyncio.StreamReader) -> str:
    """The next line that says something; empty at the end."""
    while True:
        try:
            line = await output.readline()
        except ValueError:  # longer than the reader's buffer
            continue
        if not line:
            return ""
        if text := line.decode(errors="replace").strip():
            return text[:LINE_CHARS]


def _environment() -> dict[str, str]:
    """What pip needs to find its index and its proxies, and no more of what this process knows."""
    return {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_PREFIXES)
    }
