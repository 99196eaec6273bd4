"""Read and replace files of other programs: each byte is written or none, and what can't be written is left alone."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure import scratch
from perdure.core.errors import InvalidInput
from perdure.features.connect.entries import ConfigEntry
from perdure.features.connect.jsonc import set_value
from perdure.features.connect.tomltext import set_table
from perdure.features.notes.folders import make_folder

FILE_BYTES = 50_000_000
"""Claude Code keeps the history of all projects in the file that lists its servers."""
LOCK_S = 60.0
"""How long a process waits for another one; a hook that comes later does what is left."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after its entries are written; `before` None: there is none."""

    path: Path
    before: bytes | None
    after: bytes


def plan_changes(entries: Sequence[ConfigEntry]) -> Sequence[FileChange]:
    """Return what writing the entries does to each file.

    Raises: InvalidInput: a file can't be read or changed, with what is wrong; nothing is written.
    """
    changes: dict[Path, FileChange] = {}
    for entry in entries:
        known = changes.get(entry.path)
        before = known.before if known else read_file(entry.path)
        text = decode(entry.path, known.after if known else before or b"")
        try:
            after = write_entry(text, entry).encode()
        except InvalidInput as error:
            raise InvalidInput(f"{entry.path} was left alone: {error}") from None
        except UnicodeEncodeError:
            raise InvalidInput(f"{entry.path} was left alone: a path that belongs there is no UTF-8") from None
        changes[entry.path] = FileChange(entry.path, before, after)
    return list(changes.values())


def write_entry(text: str, entry: ConfigEntry) -> str:
    """Return the text of a file with an entry. Raises: InvalidInput: the text can't be read or changed."""
    if entry.format == "toml":
        return set_table(text, entry.names, entry.value)
    return set_value(text, entry.names, entry.value, entry.mark)


def file_texts(entries: Sequence[ConfigEntry]) -> Mapping[Path, str]:
    """Return for each file of the entries what is in it if it has nothing else."""
    texts = dict[Path, str]()
    for entry in entries:
        texts[entry.path] = write_entry(texts.get(entry.path, ""), entry)
    return {path: text.rstrip("\n") for path, text in texts.items()}


def check_writable(path: Path, project: Path | None = None) -> None:
    """Raises: InvalidInput: the file, or the folder for it, can't be written; or it is of a project, and a link in that
    leads out of it: whoever made the project would choose what is changed."""
    target = real_path(path)
    if project is not None and not target.is_relative_to(real_path(project)):
        raise InvalidInput(f"{path} was left alone: it is {target}, which is not in the project")
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    for place in [folder, *([target] if target.exists() else [])]:
        # Root may write everywhere; who took the permission away did not want that.
        if not os.access(place, os.W_OK) or not place.stat().st_mode & 0o222:
            raise InvalidInput(f"{path} can't be written: {place} is read-only. `--print` shows what to add by hand")


def real_path(path: Path) -> Path:
    """Return the file behind links, which may not exist yet. Raises: InvalidInput: the links go in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise InvalidInput(f"{path} was left alone: its links can't be followed ({error})") from None


def read_file(path: Path) -> bytes | None:
    """Return the bytes of a file; None: there is none. Raises: InvalidInput."""
    try:
        # A pipe or a device would never end; O_NONBLOCK lets it be opened to be looked at.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput(f"{path} was left alone: it is no file")
            data = file.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise InvalidInput(f"{path} was left alone: it has more than {FILE_BYTES:,} bytes")
    return data


def decode(path: Path, data: bytes) -> str:
    """Return the text of a file. Raises: InvalidInput: it is no UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} was left alone: it is no UTF-8 (byte {error.start:,})") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all: behind a link, and with its permissions and owner. Raises: InvalidInput."""
    target = real_path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.replace_file(target, data)
    except OSError as error:
        raise InvalidInput(f"{path} can't be written: {error.strerror}") from error


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same file, which is made if there is none.

    Raises: InvalidInput: it can't be written; TimeoutError: another process is in here for too long.
    """
    try:
        make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput(f"{path} can't be written: {error.strerror}") from error
    end = time.monotonic() + LOCK_S
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise TimeoutError(f"another process has held {path} for {LOCK_S:g} s")
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)
