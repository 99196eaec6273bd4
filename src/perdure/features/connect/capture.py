"""What hooks leave to a process of their own: store the messages of a session, and prepare what is remembered."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path

from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId
from perdure.features.connect.files import one_at_a_time
from perdure.features.connect.transcripts import Transcript
from perdure.features.mcp_server.prepared import prepare_context, replace_text
from perdure.features.notes.folders import state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

_SESSION = re.compile(r"[\w.-]{1,100}", re.ASCII)


def work(kind: str, folder: str, *session: str) -> None:
    """Do the work of a hook for the project of a folder: `capture FOLDER SESSION TRANSCRIPT` or `renew FOLDER`.

    Raises: TimeoutError: another process works on the project for too long; ValueError: the session's id, or the path
        of its transcript, can't be used; OSError: it can't be read.
    """
    # One at a time for a project: a session that ends runs two hooks.
    with one_at_a_time(state_folder(folder) / "hook.lock"):
        asyncio.run(_work(Path(folder), *(session if kind == "capture" else ())))


async def _work(folder: Path, session: str = "", transcript: str = "") -> None:
    """Store the messages of a session, if one is given, and prepare what the next one begins with."""
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
    known, start = _load_record(own)
    if next(found.messages(start), None) is None:
        return
    agent = await project.open("project")
    conversation = await _find_conversation(agent, known or _load_record(first)[0])
    if conversation is None:
        start = 0
        conversation = (await agent.new_conversation(summary=f"Claude Code session {session[:8]}")).id
    for path in (own, first):
        _save_record(path, conversation, start)
    # A message that is there already is skipped.
    await agent.import_messages(found.messages(start), conversation=conversation, checked=True)
    _save_record(own, conversation, found.position)
    await agent.facts.extract()


async def _find_conversation(agent: AsyncAgent, known: str) -> ConversationId | None:
    """Return the conversation of a record; None: there is none any more."""
    try:
        return (await agent.find_conversation(ConversationId(known))).id if known else None
    except NotFound:
        return None


def _load_record(path: Path) -> tuple[str, int]:
    """Return (where the messages of a session are, up to which byte its transcript is stored there)."""
    try:
        record = json.loads(path.read_text("utf-8"))
        return str(record["conversation"]), int(record["position"])
    except (OSError, ValueError, TypeError, KeyError):
        return "", 0


def _save_record(path: Path, conversation: ConversationId, position: int) -> None:
    replace_text(path, json.dumps({"conversation": conversation, "position": position}))
