"""`perdure hook EVENT`: what Claude Code runs at the start and end of a session and after an edit.

A person waits for each: so this imports the standard library and what counts edits, and leaves the rest to a process
of its own. It never stands in the way: a defect is a line in a log, and the exit code is 0.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.features.connect.hook_files import log
from perdure.features.notes.folders import CONTEXT_FILE, find_project_folder, state_folder
from perdure.features.notes.nudges import EditCounter

INPUT_BYTES, CONTEXT_BYTES = 50_000_000, 40_000


def run(arguments: Sequence[str]) -> int:
    """Run a hook with the JSON on stdin, and return the exit code, which is 0."""
    name = arguments[0]
    events = {"session-start": _start, "post-tool-use": _count_edit, "stop": _capture, "session-end": _capture}
    if name == "work":
        from perdure.features.connect.capture import work

        return work(arguments[1:])
    try:
        payload = json.loads(sys.stdin.buffer.read(INPUT_BYTES) or b"{}")
        if not isinstance(payload, dict):
            raise ValueError("what came on stdin is no JSON object")
        # The session's folder changes with each `cd`; the variable is where it was started, as for the server.
        folder = find_project_folder(os.environ.get("CLAUDE_PROJECT_DIR") or payload.get("cwd") or ".")
        events[name](folder, payload)
    except Exception as error:
        log(f"{name}: {type(error).__name__}: {error!s:.500}")
    return 0


def _start(folder: Path, payload: dict[str, Any]) -> None:
    """Print what is remembered of the project, as it was prepared last, and have it prepared anew."""
    if payload.get("source") not in ("compact", "resume"):  # those go on with a session
        EditCounter(state_folder(folder)).begin_session()
    try:
        text = (state_folder(folder) / CONTEXT_FILE).read_bytes()[:CONTEXT_BYTES].decode("utf-8", "ignore")
    except OSError:
        text = ""
    if text.strip():
        output = {"hookEventName": "SessionStart", "additionalContext": text}
        print(json.dumps({"hookSpecificOutput": output}), flush=True)
    _work_later(["renew", str(folder)])


def _count_edit(folder: Path, payload: dict[str, Any]) -> None:
    """Count the edit of a file."""
    given = payload.get("tool_input")
    path = (given.get("file_path") or given.get("notebook_path")) if isinstance(given, dict) else None
    if isinstance(path, str):
        EditCounter(state_folder(folder)).count(path)


def _capture(folder: Path, payload: dict[str, Any]) -> None:
    """Have the session's messages stored, those that are new."""
    transcript, session = payload.get("transcript_path"), payload.get("session_id")
    if isinstance(transcript, str) and isinstance(session, str):
        _work_later(["capture", str(folder), session, transcript])


def _work_later(arguments: Sequence[str]) -> None:
    """Start a process that outlives this one."""
    import subprocess  # not every hook needs it

    subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure", "hook", "work", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path.home(),
    )
