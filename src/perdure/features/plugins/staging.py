"""A plug-in's files, brought from a folder or a git repository into the data folder. Nothing of it is run."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import without_password
from perdure.scratch import user_path
from perdure.toolbox.hook_commands import run_command

FILES_MAX, BYTES_MAX, DEPTH_MAX = 2_000, 50_000_000, 12
GIT_S = 120.0
"""How long git may take."""
LEFTOVER_S = 86_400.0
PREFIX = ".new-"
"""How the names of folders begin that are not installed yet."""

_URL = re.compile(r"(https|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_SKIPPED = (".git", "__pycache__", ".DS_Store")


@dataclass(frozen=True, slots=True)
class StagedPlugin:
    """A copy of a plug-in, not installed yet. `source`: where it comes from; `name`: what its source calls it; `files`,
    `programs`: how many files it has, and how many of them can be executed."""

    folder: Path
    source: str
    name: str
    files: int
    programs: int


@asynccontextmanager
async def stage_plugin(source: str, parent: Path) -> AsyncIterator[StagedPlugin]:
    """A copy of a plug-in in a new folder of `parent`, removed at the end if it is still there.

    Args:
        source: the path of a folder, or the URL of a git repository, with `#BRANCH` or `#TAG` at its end if need be.
    Raises: InvalidInput: there is no such folder or repository; it has a link, something else than files and folders,
        a name with a control character, or too many files.
    """
    if not isinstance(source, str) or not source.strip() or source.startswith("-") or _CONTROL.search(source):
        raise InvalidInput(f"{source!r:.80} is not a plug-in: give the path of a folder or the URL of a repository")
    work = await asyncio.to_thread(_make_folder, parent)
    try:
        if _URL.fullmatch(source):
            origin, name = await _clone(source, work / "clone"), source
        else:
            origin = _existing(source)
            source, name = str(origin), str(origin)
        name = name.partition("#")[0].rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2]
        files, programs = await asyncio.to_thread(_copy, origin, work / "plugin")
        yield StagedPlugin(work / "plugin", source, name, files, programs)
    finally:
        await asyncio.to_thread(_remove, work)


def _make_folder(parent: Path) -> Path:
    """A new folder in `parent`, without those that killed processes have left there."""
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"{PREFIX}*"):
        if time.time() - old.stat().st_mtime > LEFTOVER_S:
            shutil.rmtree(old, ignore_errors=True)
    folder = parent / f"{PREFIX}{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    return folder


def _remove(work: Path) -> None:
    """Remove the folder, and the one around it if that is empty then."""
    shutil.rmtree(work, ignore_errors=True)
    with suppress(OSError):
        work.parent.rmdir()


def _existing(source: str) -> Path:
    """The folder of this path. Raises: InvalidInput: there is none."""
    try:
        folder = user_path(source).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        helps = "or give a URL, https://... or file://..."
        raise InvalidInput(f"{source!r:.200} is not a plug-in: {why}; {helps}") from error
    if not folder.is_dir():
        raise InvalidInput(f"{source!r:.200} is a file: a plug-in is a folder")
    return folder


async def _clone(source: str, folder: Path) -> Path:
    """Clone the newest commit of a repository, without its hooks and submodules. Raises: InvalidInput."""
    url, _, branch = source.partition("#")
    safe = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false", "core.symlinks=true")
    options = [word for one in safe for word in ("-c", one)]
    command = ["git", *options, "clone", "--quiet", "--depth=1", "--no-tags", "--template=", "--no-recurse-submodules"]
    command += [f"--branch={branch}"] if branch else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # Without these a URL could name a program, or git could wait for a password.
    environment |= {"GIT_ALLOW_PROTOCOL": "https:ssh:git:file", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    environment |= {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes", "GIT_ASKPASS": "true"}
    try:
        async with asyncio.timeout(GIT_S):
            clone = (*command, "--", url, str(folder))
            code, _, errors = await run_command(clone, b"", folder=folder.parent, environment=environment)
    except TimeoutError as error:
        raise InvalidInput(f"git clone of {without_password(url)!r:.200} took longer than {GIT_S:.0f} s") from error
    except OSError as error:
        raise InvalidInput(f"git can't be run: {error}") from error
    if code:
        why = without_password(" ".join(errors.split())[-500:])
        raise InvalidInput(f"git clone of {without_password(url)!r:.200} failed: {why}")
    return folder


def _copy(origin: Path, target: Path) -> tuple[int, int]:
    """Copy a folder; return how many files and how many programs it has. Raises: InvalidInput."""
    files = programs = size = 0
    waiting = [(origin, target, 0)]
    while waiting:
        folder, copy, depth = waiting.pop()
        copy.mkdir()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in _SKIPPED:
                continue
            relative = os.path.relpath(entry.path, origin)
            if _CONTROL.search(entry.name) or entry.name.encode("utf-8", "replace") != os.fsencode(entry.name):
                raise InvalidInput(f"the plug-in has a file {relative!r:.200}, whose name can't be used")
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                if depth >= DEPTH_MAX:
                    raise InvalidInput(f"{relative!r:.200}: the plug-in has more than {DEPTH_MAX} levels of folders")
                waiting.append((Path(entry.path), copy / entry.name, depth + 1))
                continue
            if not stat.S_ISREG(state.st_mode):
                what = "a link" if stat.S_ISLNK(state.st_mode) else "no file and no folder"
                raise InvalidInput(f"{relative!r:.200} is {what}: a plug-in has files and folders only")
            files, size = files + 1, size + state.st_size
            if files > FILES_MAX or size > BYTES_MAX:
                raise InvalidInput(f"the plug-in has more than {FILES_MAX:,} files or {BYTES_MAX:,} bytes")
            is_program = bool(state.st_mode & stat.S_IXUSR)
            programs += is_program
            _copy_file(entry.path, copy / entry.name, mode=0o755 if is_program else 0o644)
    return files, programs


def _copy_file(source: str, target: Path, *, mode: int) -> None:
    """Copy a file that is no link, with this mode."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as data, target.open("xb") as out:
        shutil.copyfileobj(data, out)
    target.chmod(mode)
