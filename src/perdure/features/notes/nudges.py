"""Reminders to write a note, by counts of edits. Hooks of coding agents count in processes of their own: so a count is
a file in the project's state folder, to which each edit appends a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from perdure.features.notes.folders import make_folder

NudgeLevel = Literal["off", "light", "balanced", "strict"]
NUDGE_LEVELS: Final[tuple[NudgeLevel, ...]] = get_args(NudgeLevel)
EDITS_FILE = "edits.jsonl"
FILE_BYTES = 64_000
"""A longer file counts no more edits, and no more reminders are given: there were hundreds without a note."""
SESSIONS_KEPT = 100
"""After a note the file has so many sessions that were reminded, the last ones."""


@dataclass(slots=True)
class EditCounts:
    """What happened since the last note."""

    edits: int = 0
    files: set[str] = field(default_factory=set)
    nudged_at: int | None = None  # the edits at the last reminder
    claims: set[str] = field(default_factory=set)  # the marks of the reminders that were due when they were taken
    reminded: dict[str, str] = field(default_factory=dict)  # session -> the mark of its reminder of the level "light"


@dataclass(frozen=True, slots=True)
class NudgeRule:
    """When a reminder is due: after at least so many edits, in at least so many files, since the last note.

    Args:
        every: so many further edits after a reminder the next one is due; 0: it stays due; None: each session gets one.
    """

    edits: int
    files: int
    every: int | None

    def is_due(self, counts: EditCounts, session: str) -> bool:
        """Whether a reminder is due in a session."""
        if counts.edits < self.edits or len(counts.files) < self.files:
            return False
        if self.every is None:
            return session not in counts.reminded
        return not self.every or counts.nudged_at is None or counts.edits - counts.nudged_at >= self.every


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
    from perdure.core.errors import InvalidInput  # a hook needs none, and would wait for it

    raise InvalidInput(f"nudges is {level!r:.80}: give one of {', '.join(NUDGE_LEVELS)}")


class EditCounter:
    """The edits of a project's files since its last note, which several processes count together in the project's state
    folder; it is made with the first edit."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EDITS_FILE

    def count(self, file: str, edits: int = 1) -> None:
        """Count edits of a file. A disk that is full, or a folder that can't be written, counts none."""
        self._append({"file": file[:1_000], "edits": max(edits, 1)})

    def clear(self) -> None:
        """Begin at none again: a note was written. A folder that can't be written stays as it is."""
        reminded = [*self._read().reminded.items()][-SESSIONS_KEPT:]
        with suppress(OSError):
            os.truncate(self._path, 0)
            for session, claim in reminded:
                self._append({"reminded": session, "claim": claim})

    def totals(self) -> tuple[int, int]:
        """(Edits, different files) since the last note."""
        counts = self._read()
        return counts.edits, len(counts.files)

    def take_nudge(self, level: NudgeLevel, session: str = "") -> str:
        """Return the reminder that is due in a session, and note that it was given; empty: nothing is due, another
        process was faster, or it can't be noted."""
        rule = RULES.get(level)
        if rule is None or not rule.is_due(counts := self._read(rule), session) or not self._take(rule, session):
            return ""
        return (
            f"{counts.edits} edits in {len(counts.files)} files since the last note: if something was decided, solved"
            " or learned, write it down with the tool `note`."
        )

    def _take(self, rule: NudgeRule, session: str) -> bool:
        """Claim a reminder, and return whether this process got it: the first claim in the file wins."""
        claim = os.urandom(8).hex()
        if rule.every is None:
            is_noted = self._append({"reminded": session, "claim": claim})
            return is_noted and self._read().reminded[session] == claim
        return not rule.every or (self._append({"nudged": claim}) and claim in self._read(rule).claims)

    def _append(self, line: Mapping[str, object]) -> bool:
        """Append a line, and return whether that could be done."""
        # One write to a file opened for appending: lines of several processes don't mix. The line end before it keeps
        # it whole behind one that was cut off.
        text = f"\n{json.dumps(line, ensure_ascii=False)}\n".encode("utf-8", "replace")
        try:
            make_folder(self._path.parent)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb", 0) as file:
                return os.fstat(file.fileno()).st_size < FILE_BYTES and file.write(text) == len(text)
        except OSError:
            return False

    def _read(self, rule: NudgeRule | None = None) -> EditCounts:
        """Return the file's counts; `rule`: which reminders sessions share. A truncated line is ignored."""
        counts = EditCounts()
        try:
            lines = self._path.read_text("utf-8", "replace").split("\n")
        except OSError:
            return counts
        for line in filter(None, lines):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            match found:
                case {"file": str(file), "edits": int(edits)}:
                    counts.edits += edits
                    counts.files.add(file)
                case {"reminded": str(session), "claim": str(claim)}:
                    counts.reminded.setdefault(session, claim)
                case {"nudged": str(claim)} if rule is not None and rule.is_due(counts, ""):
                    counts.nudged_at = counts.edits
                    counts.claims.add(claim)
        return counts
