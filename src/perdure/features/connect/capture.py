"""What hooks leave to a process of their own: store the messages of a session, and prepare what is remembered."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId
from perdure.features.connect.hook_log import log
from perdure.features.connect.transcripts import Transcript
from perdure.features.mcp_server.prepared import prepare_context, replace_text
from perdure.features.notes.folders import make_folder, state_folder
from perdure.features.notes.projects import ProjectMemory
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

LOCK_S = 60.0
"""How long the work of a hook waits for that of another one; a hook that comes later does what is left."""
_SESSION = re.compile(r"[\w.-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What was stored of a session.

    Args:
        conversation: where its messages are.
        position: up to which byte its transcript was read.
    """

    conversation: str
    position: int = 0


def work(arguments: Sequence[str]) -> int:
    """Do the work of a hook: `capture FOLDER SESSION TRANSCRIPT` or `renew FOLDER`. Return the exit code."""
    try:
        kind, folder, *others = arguments
        state = state_folder(folder)
        make_folder(state)
        # One at a time for a project: a session that ends runs two hooks.
        with _locked(state / "hook.lock"):
            asyncio.run(_capture(Path(folder), *others) if kind == "capture" else _renew(Path(folder)))
    except Exception as error:  # nobody sees what a process of its own prints
        log(f"{' '.join(arguments[:2])}: {type(error).__name__}: {error!s:.500}")
        return 1
    return 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Raises: TimeoutError: another process holds it for too long."""
    end, lock = time.monotonic() + LOCK_S, os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise TimeoutError(f"another process has worked on the project for {LOCK_S:g} s")
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)


async def _capture(folder: Path, session: str, transcript: str) -> None:
    """Store the messages of a session that are not stored yet, as a conversation of the project's agent.

    Raises: ValueError: the session's id, or the path of its transcript, can't be used; OSError: it can't be read.
    """
    if _SESSION.fullmatch(session) is None:
        raise ValueError(f"session_id is {session!r:.80}")
    found, folder_of_records = Transcript(Path(transcript)), state_folder(folder) / "sessions"
    own = folder_of_records / f"{session}.json"
    # A resumed session has another id, and its transcript may begin with all that was said before.
    first = folder_of_records / f"first-{hashlib.sha256(found.first_id().encode()).hexdigest()[:24]}.json"
    async with await AsyncPerdure.open() as perdure:
        project = ProjectMemory(perdure, folder)
        record = _load_record(own)
        start = record.position if record else 0
        if next(found.messages(start), None) is not None:
            agent = await project.open("project")
            known = await _find_conversation(agent, record or _load_record(first))
            if known is None:
                start = 0
                known = (await agent.new_conversation(summary=f"Claude Code session {session[:8]}")).id
            for path in (own, first):
                _save_record(path, SessionRecord(known, start))
            # A message that is there already is skipped.
            await agent.import_messages(found.messages(start), conversation=known, checked=True)
            _save_record(own, SessionRecord(known, found.position))
            await agent.facts.extract()
        await prepare_context(perdure, project)


async def _find_conversation(agent: AsyncAgent, record: SessionRecord | None) -> ConversationId | None:
    """Return the conversation of a record; None: there is none any more."""
    if record is None:
        return None
    try:
        return (await agent.find_conversation(ConversationId(record.conversation))).id
    except NotFound:
        return None


def _load_record(path: Path) -> SessionRecord | None:
    try:
        return SessionRecord(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save_record(path: Path, record: SessionRecord) -> None:
    replace_text(path, json.dumps(asdict(record)))


async def _renew(folder: Path) -> None:
    async with await AsyncPerdure.open() as perdure:
        await prepare_context(perdure, ProjectMemory(perdure, folder))
