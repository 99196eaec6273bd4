"""The rows of a run: a file of JSON lines, each of which is on the disk before the next question is asked."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput, file_errors

FILE = "rows.jsonl"


class ResultRows:
    """The rows by their keys. What a killed process left of its last line is cut off.

    A row with `began` says in which conversation a question is asked, and one with `answer`, `found` or `verdict` what
    came back: it takes the place of the first.
    """

    def __init__(self, folder: Path) -> None:
        """Read the rows of a folder, which is made if it is missing. Raises: InvalidInput."""
        self.path = folder / FILE
        with file_errors(self.path, "used"):
            folder.mkdir(parents=True, exist_ok=True)
            content = self.path.read_bytes() if self.path.exists() else b""
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)
        self.by_key: dict[str, Mapping[str, Any]] = {}
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                row = json.loads(line)
                self.by_key[row["key"]] = row
            except (ValueError, LookupError, TypeError) as error:
                raise InvalidInput(f"{self.path} line {number} is no row of a benchmark: remove it") from error

    def find(self, key: str) -> Mapping[str, Any] | None:
        """Return the row with the result of this key; None: there is no result yet."""
        row = self.by_key.get(key)
        return None if row is None or "began" in row else row

    def add(self, key: str, **row: Any) -> Mapping[str, Any]:
        """Add a row, and return it when it is on the disk. Raises: InvalidInput: it can't be written."""
        whole = {"key": key, **row}
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(whole, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, before)  # no half of a row, to which another one would be added
            raise InvalidInput(f"{self.path} can't be written: {error.strerror or error}") from error
        self.by_key[key] = whole
        return whole


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder of a run, which is made if it is missing. Raises: InvalidInput: another
    one is in it, or it can't be used."""
    with file_errors(folder, "used"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidInput(
                f"another benchmark is running in {folder}: wait for it, or choose another --out"
            ) from error
        yield
