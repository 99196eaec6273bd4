"""Reminders to write a note, by counts of edits. Hooks of coding agents count in processes of their own: so a count is
a file in the project's state folder, to which each edit appends a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from perdure.core.errors import InvalidInput

NudgeLevel = Literal["off", "light", "balanced", "strict"]
NUDGE_LEVELS: Final[tuple[NudgeLevel, ...]] = get_args(NudgeLevel)
EDITS_FILE = "edits.jsonl"
FILE_BYTES = 256_000
"""A longer file counts no more edits: there were thousands without a note."""
_NUDGED = "nudged"


@dataclass(frozen=True, slots=True)
class NudgeRule:
    """When a reminder is due.

    Args:
        edits, files: after at least so many edits, in at least so many files, since the last note.
        every: so many further edits after a reminder the next one is due; 0: it stays due; None: there is no next one.
    """

    edits: int
    files: int
    every: int | None


RULES: Mapping[NudgeLevel, NudgeRule] = {
    "light": NudgeRule(8, 2, None),
    "balanced": NudgeRule(8, 2, 8),
    "strict": NudgeRule(4, 2, 0),
}
"""Level -> its rule; "off" has none."""


def check_nudge_level(level: str) -> NudgeLevel:
    """Return the level of this name. Raises: InvalidInput: there is none."""
    for known in NUDGE_LEVELS:
        if level == known:
            return known
    raise InvalidInput(f"nudges is {level!r:.80}: give one of {', '.join(NUDGE_LEVELS)}")


class EditCounter:
    """The edits of a project's files since its last note, which several processes count together.

    Args:
        folder: the project's state folder; it is made with the first edit.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / EDITS_FILE

    def count(self, file: str, edits: int = 1) -> None:
        """Count edits of a file. A disk that is full, or a folder that can't be written, counts none."""
        self._append({"file": file[:1_000], "edits": max(edits, 1)})

    def clear(self) -> None:
        """Begin at none again: a note was written."""
        self._path.unlink(missing_ok=True)

    def totals(self) -> tuple[int, int]:
        """(Edits, different files) since the last note."""
        edits, files, _ = self._read()
        return edits, files

    def take_nudge(self, level: NudgeLevel) -> str:
        """Return the reminder that is due, and note that it was given; empty: none is due."""
        if (rule := RULES.get(level)) is None:
            return ""
        edits, files, nudged_at = self._read()
        if edits < rule.edits or files < rule.files:
            return ""
        if nudged_at is not None and (rule.every is None or edits - nudged_at < rule.every):
            return ""
        self._append({_NUDGED: edits})
        return (
            f"{edits} edits in {files} files since the last note: if something was decided, solved or learned, write it"
            " down with the tool `note`."
        )

    def _append(self, line: Mapping[str, object]) -> None:
        text = json.dumps(line, ensure_ascii=False) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a file opened for appending: lines of several processes don't mix.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if os.fstat(descriptor).st_size < FILE_BYTES:
                    os.write(descriptor, text.encode("utf-8", "replace"))
            finally:
                os.close(descriptor)
        except OSError:
            pass

    def _read(self) -> tuple[int, int, int | None]:
        """(Edits, different files, edits at the last reminder; None: there was none). A line that is cut off counts
        nothing."""
        try:
            text = self._path.read_text("utf-8", "replace")
        except OSError:
            return 0, 0, None
        edits, files, nudged_at = 0, set[str](), None
        for line in text.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if not isinstance(found, dict):
                continue
            if isinstance(found.get("file"), str) and isinstance(found.get("edits"), int):
                edits += found["edits"]
                files.add(found["file"])
            elif isinstance(found.get(_NUDGED), int):
                nudged_at = found[_NUDGED]
        return edits, len(files), nudged_at
