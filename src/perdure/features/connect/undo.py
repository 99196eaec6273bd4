"""Write changes of other programs' files so that each can be taken back byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.features.connect.entries import ConfigEntry
from perdure.features.connect.files import (
    FileChange,
    check_writable,
    decode,
    one_at_a_time,
    read_file,
    real_path,
    replace_file,
)
from perdure.features.connect.jsonc import put_back
from perdure.features.connect.tomltext import find_table, set_table
from perdure.features.notes.folders import data_folder


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """What is kept to take a change back.

    Args:
        path: of the file.
        before: its bytes in base64; None: there was no file.
        after: the digest of what was written.
        entries: (format, names of the place, mark of an item there) of what was written.
        folders: what was made for the file, the innermost first.
        project: the folder of the project to whose configuration it belongs; None: the user's.
    """

    path: str
    before: str | None
    after: str
    entries: Sequence[tuple[str, Sequence[str], str]]
    folders: Sequence[str] = ()
    project: str | None = None


def write_changes(
    program: str, changes: Sequence[FileChange], entries: Sequence[ConfigEntry], project: Path | None = None
) -> None:
    """Write the files, of the user or of a project, after what takes the changes back.

    Raises: InvalidInput: a file can't be written, or was changed since the changes were planned.
    """
    with one_at_a_time(_undo_file(program).with_name("lock")):
        known = {record.path: record for record in load_undo(program)}
        for change in changes:
            check_writable(change.path, project)
            if read_file(change.path) != change.before:
                raise InvalidInput(
                    f"{change.path} was changed meanwhile, so nothing was written: close the program that it belongs"
                    " to, and run this again"
                )
            known[str(change.path)] = _record(change, entries, known.get(str(change.path)), project)
        _save_undo(program, list(known.values()))
        for change in changes:
            replace_file(change.path, change.after)


def undo_changes(program: str, project: Path | None = None) -> Sequence[str]:
    """Take the changes for a program back; return what was done, a line each.

    A file that nobody changed since is as it was, byte for byte; from another one only the entries are taken.

    Args:
        project: only the changes of this project's own configuration; None: all.
    Raises: InvalidInput: nothing was connected, or a file can't be changed.
    """
    with one_at_a_time(_undo_file(program).with_name("lock")):
        known = load_undo(program)
        records = [one for one in known if project is None or one.project == str(project)]
        if not records:
            raise InvalidInput(f"{program} was not connected from here: there is nothing to take back")
        lines, left = [], [one for one in known if one not in records]
        kept = len(left)
        for record in records:
            try:
                lines.append(_undo(record))
            except InvalidInput as error:
                lines.append(str(error))
                left.append(record)
        if left:
            _save_undo(program, left)
        else:
            _undo_file(program).unlink(missing_ok=True)
    if len(left) > kept:
        raise InvalidInput("\n".join(lines))
    return lines


def load_undo(program: str) -> Sequence[UndoRecord]:
    """Return what takes the changes for a program back; empty: nothing was connected. Raises: InvalidInput."""
    data = read_file(_undo_file(program))
    try:
        return [] if data is None else [UndoRecord(**record) for record in json.loads(data)]
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{_undo_file(program)} can't be read: {error}") from error


def _record(
    change: FileChange, entries: Sequence[ConfigEntry], known: UndoRecord | None, project: Path | None
) -> UndoRecord:
    """Return what takes a change back; `known` is what takes an earlier one of the same file back."""
    before = change.before
    places = [(one.format, tuple(one.names), one.mark) for one in entries if one.path == change.path]
    folders = [str(one) for one in real_path(change.path).parents if not one.exists()]
    if known is not None:
        # Connected again: what there was before the first time counts.
        first = None if known.before is None else base64.b64decode(known.before)
        if before is not None and known.after == _digest(before):
            before = first
        elif before is not None:
            before = _without_entries(change.path, before, known, first)
        earlier = [(format, tuple(names), mark) for format, names, mark in known.entries]
        places += [place for place in earlier if place not in places]
        folders += [one for one in known.folders if one not in folders]
    kept = None if before is None else base64.b64encode(before).decode()
    place = None if project is None else str(project)
    return UndoRecord(str(change.path), kept, _digest(change.after), places, folders, place)


def _undo(record: UndoRecord) -> str:
    """Take the change of one file back; return what was done. Raises: InvalidInput."""
    path, now = Path(record.path), read_file(Path(record.path))
    check_writable(path, None if record.project is None else Path(record.project))
    before = None if record.before is None else base64.b64decode(record.before)
    if now == before:
        line = f"{path} is as it was."
    elif now is None:
        line = f"{path} is gone already."
    elif _digest(now) != record.after:
        replace_file(path, _without_entries(path, now, record, before))
        line = f"{path} was changed since: only Perdure's entries were taken out."
    elif before is None:
        real_path(path).unlink()
        line = f"{path} was removed: there was none before."
    else:
        replace_file(path, before)
        line = f"{path} is as it was."
    for folder in map(Path, record.folders):
        try:
            folder.rmdir()
        except OSError:  # something else is in it
            break
    return line


def _without_entries(path: Path, data: bytes, record: UndoRecord, earlier: bytes | None) -> bytes:
    """Return a file without the entries; what stood in their places earlier is put back. Raises: InvalidInput."""
    text, before = decode(path, data), decode(path, earlier or b"")
    try:
        for format, names, mark in record.entries:
            if format == "toml":
                text = set_table(text, names, find_table(before, names))
            else:
                text = put_back(text, before, names, mark)
        return text.encode()
    except (InvalidInput, UnicodeEncodeError) as error:
        why = error if isinstance(error, InvalidInput) else "what stood there before is no UTF-8"
        raise InvalidInput(f"{path} was changed since, and was left alone: {why}. Take perdure out by hand") from None


def _undo_file(program: str) -> Path:
    return data_folder() / "connect" / f"{program}.json"


def _save_undo(program: str, records: Sequence[UndoRecord]) -> None:
    replace_file(_undo_file(program), json.dumps([asdict(record) for record in records]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
