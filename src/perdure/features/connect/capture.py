"""What hooks leave to a process of their own: store the messages of a session, and prepare what is remembered."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.core.errors import NotFound, PerdureError
from perdure.core.ids import ConversationId
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.connect.hook_files import CONTEXT_FILE, log
from perdure.features.mcp_server.memory import MemoryOptions, MemoryTools
from perdure.features.notes.folders import state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.library.perdure import AsyncPerdure

CONTEXT_TOKENS = 1_500
MESSAGE_CHARS = 20_000
"""Of a longer message the beginning is stored."""
_SESSION = re.compile(r"[\w.-]{1,100}")
_ENGINE_TEXT = re.compile(r"\s*<(?:command-|local-command|system-reminder|user-prompt-submit-hook)")
"""Messages of the user's role that the program wrote."""


def work(arguments: Sequence[str]) -> int:
    """Do the work of a hook: `capture FOLDER SESSION TRANSCRIPT` or `renew FOLDER`. Return the exit code."""
    kind, folder, *others = arguments
    state = state_folder(folder)
    state.mkdir(parents=True, exist_ok=True)
    # One at a time for a project: a session that ends runs two hooks.
    with (state / "hook.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            asyncio.run(_capture(Path(folder), *others) if kind == "capture" else _renew(Path(folder)))
        except (PerdureError, OSError, ValueError) as error:
            log(f"{kind} {folder}: {type(error).__name__}: {error}")
            return 1
    return 0


async def _capture(folder: Path, session: str, transcript: str) -> None:
    """Store the messages of a session that are not stored yet, as a conversation of the project's agent."""
    if _SESSION.fullmatch(session) is None:
        raise ValueError(f"session_id is {session!r:.80}")
    place = state_folder(folder) / "sessions" / f"{session}.json"
    messages = list(read_transcript(Path(transcript)))
    async with await AsyncPerdure.open() as perdure:
        project = ProjectMemory(perdure, folder)
        if messages:
            agent = await project.open("project")
            conversation: ConversationId | None = None
            try:
                known = ConversationId(json.loads(place.read_text("utf-8"))["conversation"])
                conversation = (await agent.find_conversation(known)).id
            except (OSError, ValueError, KeyError, NotFound):
                conversation = (await agent.new_conversation(summary=f"Claude Code session {session[:8]}")).id
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps({"conversation": conversation}), "utf-8")
            await agent.import_messages(messages, conversation=conversation)
            await agent.facts.extract()
        await _write_context(perdure, project)


async def _renew(folder: Path) -> None:
    async with await AsyncPerdure.open() as perdure:
        await _write_context(perdure, ProjectMemory(perdure, folder))


async def _write_context(perdure: AsyncPerdure, project: ProjectMemory) -> None:
    """Prepare what the next session begins with."""
    path = project.state / CONTEXT_FILE
    if not await project.readers():
        path.unlink(missing_ok=True)
        return
    text = await MemoryTools(perdure, project, MemoryOptions(read_only=True)).context(CONTEXT_TOKENS)
    if not text:
        path.unlink(missing_ok=True)
        return
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(f"What Perdure remembers of this project and its user:\n\n{text}\n", "utf-8")
    new.replace(path)


def read_transcript(path: Path) -> Iterator[ImportedMessage]:
    """Yield what user and assistant said in a transcript of Claude Code, one JSON object a line.

    Results of tools, thoughts, the program's own texts and side conversations are left out, and so is a line that is
    cut off. Raises: OSError: the file can't be read.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            message = _message_of(entry) if isinstance(entry, dict) else None
            if message is not None:
                yield message


def _message_of(entry: dict[str, Any]) -> ImportedMessage | None:
    """Return the message of an entry; None: it is none of user or assistant."""
    role, message = entry.get("type"), entry.get("message")
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return None
    if entry.get("isMeta") or entry.get("isSidechain") or not isinstance(entry.get("uuid"), str):
        return None
    content = message.get("content")
    if isinstance(content, list):
        parts = [one.get("text") for one in content if isinstance(one, dict) and one.get("type") == "text"]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str) or not content.strip() or _ENGINE_TEXT.match(content):
        return None
    return ImportedMessage(
        role=role, text=content.strip()[:MESSAGE_CHARS], occurred_at=_time(entry.get("timestamp")), id=entry["uuid"]
    )


def _time(value: Any) -> datetime:
    try:
        at = datetime.fromisoformat(value)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return datetime.now(UTC)
