"""Read transcripts of Claude Code: files with one JSON object a line, to which a session appends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.core.text.credentials import without_credentials
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.connect.programs import claude_folder

MESSAGE_CHARS = 20_000
"""Of a longer message the beginning is stored."""
LINE_BYTES = 2_000_000
"""A longer line is left out: it is a file or a picture that a tool returned."""
_PROGRAM_TEXT = re.compile(r"\s*(?:<(?:command-|local-command|system-reminder|user-prompt-submit-hook|bash-)|Caveat: )")
"""Messages of the user's role that the program wrote."""
_LEFT_OUT = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage", "isVisibleInTranscriptOnly")
"""Entries with one of these are the program's own, a sub-agent's, or tell again what was said before."""


class Transcript:
    """The messages of one session.

    Args:
        path: of the file, as the hook was told it.
    Raises: ValueError: it is no transcript that may be read; OSError: it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve(strict=True)
        allowed = (Path.home().resolve(), claude_folder().resolve())
        if self._path.suffix != ".jsonl" or not any(self._path.is_relative_to(folder) for folder in allowed):
            raise ValueError(f"transcript_path is {str(path)!r:.200}: it is no .jsonl file in the user's home")
        if not self._path.is_file():  # a pipe or a device may never end
            raise ValueError(f"transcript_path is {str(path)!r:.200}: it is no file")
        self.position = 0
        """Up to which byte it was read: behind the last whole line."""

    def first_id(self) -> str:
        """The id of the first entry that has one; empty: none has. A resumed session begins with the same one."""
        ids = (_load(line).get("uuid") for line in self._lines(0))
        return next((one for one in ids if isinstance(one, str)), "")

    def messages(self, start: int = 0) -> Iterator[ImportedMessage]:
        """Yield what user and assistant said, from a byte on, without credentials.

        Results of tools, thoughts, the program's own texts and side conversations are left out, and so is a line that
        is cut off.
        """
        self.position = start if start <= self._path.stat().st_size else 0  # a shorter file is another one
        for line in self._lines(self.position):
            if (message := _message_of(_load(line))) is not None:
                yield message

    def _lines(self, start: int) -> Iterator[bytes]:
        """Yield the whole lines from a byte on; in place of one that is too long an empty one."""
        with self._path.open("rb") as file:
            file.seek(start)
            while line := file.readline(LINE_BYTES):
                kept = line
                while not line.endswith(b"\n") and (line := file.readline(LINE_BYTES)):
                    kept = b""
                if not line:
                    break  # the last line is not written to its end yet
                self.position = file.tell()
                yield kept


def _load(line: bytes) -> dict[str, Any]:
    """Return the entry of a line; empty: it is none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _message_of(entry: dict[str, Any]) -> ImportedMessage | None:
    """Return the message of an entry; None: it is none of user or assistant."""
    role, message, key = entry.get("type"), entry.get("message"), entry.get("uuid")
    if role not in ("user", "assistant") or not isinstance(message, dict) or not isinstance(key, str):
        return None
    if any(entry.get(name) for name in _LEFT_OUT) or not 0 < len(key) <= 100:
        return None
    content = message.get("content")
    if isinstance(content, list):
        parts = [one.get("text") for one in content if isinstance(one, dict) and one.get("type") == "text"]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str) or not content.strip() or _PROGRAM_TEXT.match(content):
        return None
    # Masked before it is cut: half of a credential looks like none.
    text = without_credentials(content.strip()[: 2 * MESSAGE_CHARS].encode("utf-8", "replace").decode())[:MESSAGE_CHARS]
    return ImportedMessage(role=role, text=text, occurred_at=_time(entry.get("timestamp")), id=key)


def _time(value: Any) -> datetime:
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return datetime.now(UTC)
