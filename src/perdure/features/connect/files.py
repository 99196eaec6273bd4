"""Change files of other programs so that each change can be taken back byte for byte: each byte is written or none, and
what can't be written is left alone."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure import scratch
from perdure.core.errors import InvalidInput, file_errors
from perdure.features.connect.jsonc import put_back, remove_value, set_value
from perdure.features.connect.programs import ConfigEntry
from perdure.features.connect.tomltext import find_table, set_table
from perdure.features.notes.folders import data_folder, find_project_folder, make_folder

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
        if before is None and entry.value is None:
            continue
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
    if entry.value is None:
        return remove_value(text, entry.names, entry.mark, with_empty=True)
    return set_value(text, entry.names, entry.value, entry.mark)


def file_texts(entries: Sequence[ConfigEntry]) -> Mapping[Path, str]:
    """Return for each file of the entries what is in it if it has nothing else."""
    texts = dict[Path, str]()
    for entry in (one for one in entries if one.value is not None):
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
                raise InvalidInput(f"{path} was left alone: it is not a file")
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
        raise InvalidInput(f"{path} was left alone: it is not UTF-8 (byte {error.start:,})") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all: behind a link, and with its permissions and owner. Raises: InvalidInput."""
    target = real_path(path)
    with file_errors(path, "written"):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.replace_file(target, data)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same file, which is made if there is none.

    Raises: InvalidInput: it can't be written; TimeoutError: another process is in here for too long.
    """
    with file_errors(path, "written"):
        make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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


def undo_changes(program: str, project: str | Path | None = None) -> Sequence[str]:
    """Undo the changes for a program; return what was done, a line each.

    A file that nobody changed since is as it was, byte for byte; from another one only the entries are taken.

    Args:
        project: only the changes of this project's own configuration, which may be gone; None: all.
    Raises: InvalidInput: nothing was connected, or a file can't be changed.
    """
    with one_at_a_time(_undo_file(program).with_name("lock")):
        known = load_undo(program)
        place = None if project is None else Path(project).expanduser()  # one that is gone is its own project
        folder = place and str(find_project_folder(place) if place.exists() else real_path(place))
        records = [one for one in known if folder is None or one.project == folder]
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
    """Return the data that undoes a change; `known`: the record of an earlier change of the same file."""
    before = change.before
    places = [(entry.format, tuple(entry.names), entry.mark) for entry in entries if entry.path == change.path]
    folders = [str(parent) for parent in real_path(change.path).parents if not parent.exists()]
    if known is not None:
        # Connected again: what there was before the first time counts.
        first = None if known.before is None else base64.b64decode(known.before)
        if before is not None and known.after == _digest(before):
            before = first
        elif before is not None:
            before = _without_entries(change.path, before, known, first)
        earlier = [(format, tuple(names), mark) for format, names, mark in known.entries]
        places += [place for place in earlier if place not in places]
        folders += [folder for folder in known.folders if folder not in folders]
    kept = None if before is None else base64.b64encode(before).decode()
    place = None if project is None else str(project)
    return UndoRecord(str(change.path), kept, _digest(change.after), places, folders, place)


def _undo(record: UndoRecord) -> str:
    """Undo the change of one file; return a line that says what was done. Raises: InvalidInput."""
    path, project = Path(record.path), None if record.project is None else Path(record.project)
    if project is not None and not project.is_dir():
        return f"{path} is gone with its project. If that was moved, take perdure out of the file there by hand."
    now = read_file(path)
    check_writable(path, project)
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
    """Return a file's bytes without our entries, with the earlier values in their places. Raises: InvalidInput."""
    text, before = decode(path, data), decode(path, earlier or b"")
    try:
        for format, names, mark in record.entries:
            if format == "toml":
                text = set_table(text, names, find_table(before, names))
            else:
                text = put_back(text, before, names, mark)
        return text.encode()
    except (InvalidInput, UnicodeEncodeError) as error:
        why = error if isinstance(error, InvalidInput) else "what stood there before is not UTF-8"
        raise InvalidInput(f"{path} was changed since, and was left alone: {why}. Take perdure out by hand") from None


def _undo_file(program: str) -> Path:
    return data_folder() / "connect" / f"{program}.json"


def _save_undo(program: str, records: Sequence[UndoRecord]) -> None:
    replace_file(_undo_file(program), json.dumps([asdict(record) for record in records]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
