"""What hooks leave to a process of their own: store the messages of a session, and prepare what is remembered. The
transcripts of Claude Code are files with one JSON object a line, to which a session appends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId
from perdure.core.text.credentials import without_credentials
from perdure.core.text.json_strings import json_object
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.connect.files import one_at_a_time
from perdure.features.connect.programs import claude_folder
from perdure.features.mcp_server.context import prepare_context
from perdure.features.notes.folders import make_folder, state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import LIMIT_MAX
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import replace_file

MESSAGE_CHARS = 20_000
"""Of a longer message the beginning is stored."""
LINE_BYTES = 2_000_000
"""A longer line is left out: it is a file or a picture that a tool returned."""
_PROGRAM_TEXT = re.compile(
    r"\s*(?:<(?:command-|local-command|system-reminder|user-prompt-submit-hook|bash-|ide_|task-notification)|Caveat: "
    r"|\[Request interrupted by user)"
)
"""Texts of the user's role that the program wrote; one may stand before the user's own in a message."""
_LEFT_OUT = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage", "isVisibleInTranscriptOnly")
"""Entries with one of these are the program's own, a sub-agent's, or tell again what was said before."""
_SESSION = re.compile(r"[\w.-]{1,100}", re.ASCII)


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
            raise ValueError(f"transcript_path is {str(path)!r:.200}: it is not a file")
        self.position = 0
        """Up to which byte it was read: behind the last whole line."""

    def first_id(self) -> str:
        """The id of the first entry with an id; empty: none has one. A resumed session begins with the same entry."""
        ids = ((json_object(line) or {}).get("uuid") for line in self._lines(0))
        return next((one for one in ids if isinstance(one, str)), "")

    def messages(self, start: int = 0) -> Iterator[ImportedMessage]:
        """Yield what user and assistant said, from a byte on, without credentials.

        Results of tools, thoughts, the program's own texts and side conversations are left out, and so is a line that
        is cut off.
        """
        self.position = start if start <= self._path.stat().st_size else 0  # a shorter file is another one
        for line in self._lines(self.position):
            if (message := _message_of(json_object(line) or {})) is not None:
                yield message

    def _lines(self, start: int) -> Iterator[bytes]:
        """Yield the whole lines from a byte on; an empty one stands for a line that is too long."""
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


def _message_of(entry: dict[str, Any]) -> ImportedMessage | None:
    """Return the message of an entry; None: it is none of user or assistant."""
    role, message, key = entry.get("type"), entry.get("message"), entry.get("uuid")
    if role not in ("user", "assistant") or not isinstance(message, dict) or not isinstance(key, str):
        return None
    if any(entry.get(name) for name in _LEFT_OUT) or not 0 < len(key) <= 100:
        return None
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [one.get("text") for one in parts if isinstance(one, dict) and one.get("type") == "text"]
    content = "\n".join(text for text in texts if isinstance(text, str) and not _PROGRAM_TEXT.match(text))
    if not content.strip() or message.get("model") == "<synthetic>":  # which says that no model was asked
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """What is known of a session of Claude Code.

    Args:
        conversation: the id of the one with its messages; empty: there is none.
        position: up to which byte of its transcript they are stored there.
        after: the time of a deletion as an ISO text: what was said until then is not stored.
    """

    conversation: str = ""
    position: int = 0
    after: str = ""


def work(kind: str, folder: str, *session: str) -> None:
    """Do the work of a hook for the project of a folder: `capture FOLDER SESSION TRANSCRIPT` or `renew FOLDER`.

    Raises: TimeoutError: another process works on the project for too long; ValueError: the session's id, or the path
        of its transcript, can't be used; OSError: it can't be read.
    """
    # One at a time for a project: a session that ends runs two hooks.
    with one_at_a_time(state_folder(folder) / "hook.lock"):
        asyncio.run(_work(Path(folder), *(session if kind == "capture" else ())))


async def _work(folder: Path, session: str = "", transcript: str = "") -> None:
    """Store the messages of a session, if one is given, and prepare the context that the next one begins with."""
    if transcript and _SESSION.fullmatch(session) is None:
        raise ValueError(f"session_id is {session!r:.80}")
    found = Transcript(Path(transcript)) if transcript else None
    async with await AsyncPerdure.open() as perdure:
        project = ProjectMemory(perdure, folder)
        if found is not None:
            await _capture(project, folder, session, found)
        await prepare_context(perdure, project)


async def _capture(project: ProjectMemory, folder: Path, session: str, found: Transcript) -> None:
    """Store the messages of a session that are not stored yet, as a conversation of the project's agent."""
    records = state_folder(folder) / "sessions"
    own = records / f"{session}.json"
    # A resumed session has another id, and its transcript may begin with all that was said before.
    first = records / f"first-{hashlib.sha256(found.first_id().encode()).hexdigest()[:24]}.json"
    record = _load_record(own) or replace(_load_record(first) or SessionRecord(), position=0)
    if next(found.messages(record.position), None) is None:
        return
    agent = await project.find("project")
    if record.conversation and (deleted_at := await _find_deletion(agent, record.conversation)):
        # It stays deleted: another conversation begins with what is said later.
        record = replace(record, conversation="", after=deleted_at.isoformat())
    if next(_messages(found, record), None) is not None:
        agent = agent or await project.open("project")
        if not record.conversation:
            made = await agent.new_conversation(summary=f"Claude Code session {session[:8]}")
            record = replace(record, conversation=made.id)
        for path in (own, first):
            _save_record(path, record)
        # A message that is there already is skipped.
        conversation = ConversationId(record.conversation)
        await agent.import_messages(_messages(found, record), conversation=conversation, checked=True)
        await agent.facts.extract()
    _save_record(own, replace(record, position=found.position))
    if not record.conversation:
        _save_record(first, record)


def _messages(found: Transcript, record: SessionRecord) -> Iterator[ImportedMessage]:
    """The messages of a transcript that may be stored."""
    return (message for message in found.messages(record.position) if message.occurred_at.isoformat() > record.after)


async def _find_deletion(agent: AsyncAgent | None, known: str) -> datetime | None:
    """Return when the conversation of a record was deleted, at the latest; None: it is there."""
    if agent is not None:
        try:
            await agent.find_conversation(ConversationId(known))
            return None
        except NotFound:
            resets = [one.created_at for one in await agent.resets(limit=LIMIT_MAX) if one.conversation_id == known]
            if resets:
                return max(resets)
    return datetime.now(UTC)  # its agent was deleted too


def _load_record(path: Path) -> SessionRecord | None:
    """Return what is recorded of a session; None: nothing is, or it can't be read."""
    try:
        return SessionRecord(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save_record(path: Path, record: SessionRecord) -> None:
    make_folder(path.parent)
    replace_file(path, json.dumps(asdict(record)).encode())
