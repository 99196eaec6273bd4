"""Change files of other programs, so that each can be taken back byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.connect.jsonc import append_item, remove_item, remove_member, set_member
from perdure.features.connect.programs import ConfigEntry
from perdure.features.connect.tomltext import remove_table, set_table
from perdure.features.notes.folders import data_folder

FILE_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after its entries are written; `before` None: there is none."""

    path: Path
    before: bytes | None
    after: bytes


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """What is kept to take a change back.

    Args:
        path: of the file.
        before: its bytes in base64; None: there was no file.
        after: the digest of what was written.
        entries: (format, names of the place, mark of an item there) of what was written.
    """

    path: str
    before: str | None
    after: str
    entries: Sequence[tuple[str, Sequence[str], str]]


def plan_changes(entries: Sequence[ConfigEntry]) -> Sequence[FileChange]:
    """Return what writing the entries does to each file.

    Raises: InvalidInput: a file can't be read or changed, with what is wrong; nothing is written.
    """
    changes: dict[Path, FileChange] = {}
    for entry in entries:
        before = changes[entry.path].before if entry.path in changes else _read(entry.path)
        text = _decode(entry.path, changes[entry.path].after if entry.path in changes else before or b"")
        try:
            if entry.format == "toml":
                text = set_table(text, entry.names, entry.value)
            elif entry.mark:
                text = append_item(text, entry.names, entry.value, entry.mark)
            else:
                text = set_member(text, entry.names, entry.value)
        except InvalidInput as error:
            raise InvalidInput(f"{entry.path} was left alone: {error}") from None
        changes[entry.path] = FileChange(entry.path, before, text.encode("utf-8", "surrogateescape"))
    return list(changes.values())


def write_changes(program: str, changes: Sequence[FileChange], entries: Sequence[ConfigEntry]) -> None:
    """Write the files, after what takes the changes back. Raises: InvalidInput: a file can't be written."""
    known = {record.path: record for record in load_undo(program)}
    for change in changes:
        check_writable(change.path)
        path = str(change.path)
        before = None if change.before is None else base64.b64encode(change.before).decode()
        if path in known and change.before is not None and known[path].after == _digest(change.before):
            before = known[path].before  # connected again: the file before the first time counts
        places = [(one.format, tuple(one.names), one.mark) for one in entries if one.path == change.path]
        known[path] = UndoRecord(path, before, _digest(change.after), places)
    _save_undo(program, list(known.values()))
    for change in changes:
        _replace(change.path, change.after)


def undo_changes(program: str) -> Sequence[str]:
    """Take all changes for a program back; return what was done, a line each.

    A file that nobody changed since is as it was, byte for byte; from another one only the entries are taken.
    Raises: InvalidInput: nothing was connected, or a file can't be changed.
    """
    records = load_undo(program)
    if not records:
        raise InvalidInput(f"{program} was not connected from here: there is nothing to take back")
    lines = []
    for record in records:
        path = Path(record.path)
        now = _read(path)
        if now is None:
            lines.append(f"{path} is gone already.")
        elif _digest(now) == record.after:
            if record.before is None:
                path.unlink()
                lines.append(f"{path} was removed: there was none before.")
            else:
                _replace(path, base64.b64decode(record.before))
                lines.append(f"{path} is as it was.")
        else:
            _replace(path, _without_entries(path, now, record).encode("utf-8", "surrogateescape"))
            lines.append(f"{path} was changed since: only Perdure's entries were taken out.")
    _undo_file(program).unlink(missing_ok=True)
    return lines


def load_undo(program: str) -> Sequence[UndoRecord]:
    """Return what takes the changes for a program back; empty: nothing was connected."""
    try:
        records = json.loads(_undo_file(program).read_text("utf-8"))
        return [UndoRecord(**record) for record in records]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{_undo_file(program)} can't be read: {error}") from error


def check_writable(path: Path) -> None:
    """Raises: InvalidInput: the file, or the folder for it, can't be written."""
    target = path.resolve()
    place = target
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK) or not place.stat().st_mode & 0o222:
        raise InvalidInput(f"{path} can't be written: it is read-only. `--print` shows what to add by hand")


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file; None: there is none. Raises: InvalidInput."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise InvalidInput(f"{path} was left alone: it has more than {FILE_BYTES:,} bytes")
    return data


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} was left alone: it is no UTF-8") from error


def _replace(path: Path, data: bytes) -> None:
    """Write a file at once or not at all: behind a link, and with its permissions. Raises: InvalidInput."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, name)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} can't be written: {error.strerror}") from error


def _without_entries(path: Path, data: bytes, record: UndoRecord) -> str:
    text = _decode(path, data)
    for format, names, mark in record.entries:
        try:
            if format == "toml":
                text = remove_table(text, names)
            else:
                text = remove_item(text, names, mark) if mark else remove_member(text, names)
        except InvalidInput as error:
            raise InvalidInput(
                f"{path} was changed since, and can't be read: {error}. Take perdure out by hand"
            ) from None
    return text


def _undo_file(program: str) -> Path:
    return data_folder() / "connect" / f"{program}.json"


def _save_undo(program: str, records: Sequence[UndoRecord]) -> None:
    text: Any = json.dumps([asdict(record) for record in records])
    _replace(_undo_file(program), text.encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
