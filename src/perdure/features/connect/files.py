"""Read and replace files of other programs: each byte is written or none, and what can't be written is left alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.features.connect.entries import ConfigEntry
from perdure.features.connect.jsonc import append_item, set_member
from perdure.features.connect.tomltext import set_table

FILE_BYTES = 50_000_000
"""Claude Code keeps the history of all projects in the file that lists its servers."""


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
    if entry.mark:
        return append_item(text, entry.names, entry.value, entry.mark)
    return set_member(text, entry.names, entry.value)


def file_texts(entries: Sequence[ConfigEntry]) -> Mapping[Path, str]:
    """Return for each file of the entries what is in it if it has nothing else."""
    texts = dict[Path, str]()
    for entry in entries:
        texts[entry.path] = write_entry(texts.get(entry.path, ""), entry)
    return {path: text.rstrip("\n") for path, text in texts.items()}


def check_unchanged(change: FileChange) -> None:
    """Raises: InvalidInput: the file is not as it was when the change was planned, or can't be written."""
    check_writable(change.path)
    if read_file(change.path) != change.before:
        raise InvalidInput(
            f"{change.path} was changed meanwhile, so nothing was written: close the program that it belongs to, and"
            " run this again"
        )


def check_writable(path: Path) -> None:
    """Raises: InvalidInput: the file, or the folder for it, can't be written."""
    target = real_path(path)
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


def missing_folders(path: Path) -> Sequence[Path]:
    """Return the folders that have to be made for a file, the innermost first."""
    return [folder for folder in real_path(path).parents if not folder.exists()]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all: behind a link, and with its permissions and owner. Raises: InvalidInput."""
    target = real_path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # In its folder, so that it takes the file's place at once. One process writes at a time: what a killed one left
        # under this name is nobody's.
        new = target.with_name(f".{target.name}.perdure")
        new.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                with suppress(PermissionError):
                    os.chown(new, target.stat().st_uid, target.stat().st_gid)
                shutil.copymode(target, new)
            new.replace(target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} can't be written: {error.strerror}") from error


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here for the same folder, which is made. Raises: InvalidInput."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise InvalidInput(f"{folder} can't be written: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
