"""`perdure hook EVENT`: what Claude Code runs at the start and end of a session, after an edit, before a compaction.

A person waits for each: so this imports the standard library and what counts edits, and leaves the rest to a process
of its own. It never stands in the way: a defect is a line in a log, and the exit code is 0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.features.connect.own_command import own_command
from perdure.features.notes.folders import CONTEXT_FILE, data_folder, find_project_folder, make_folder, state_folder
from perdure.features.notes.nudges import EditCounter, check_nudge_level

INPUT_BYTES, CONTEXT_BYTES, LOG_BYTES, SESSION_CHARS = 50_000_000, 40_000, 500_000, 100


_NO_HOOKS = ("list", "--help", "-h")
"""What `perdure hook` can be followed by that is about the hooks of this machine."""


def run(arguments: Sequence[str]) -> int | None:
    """Run a hook with the JSON on stdin, or work that a hook has left for later; return the exit code: 0 for every
    hook, even an unknown one, as Claude Code takes other codes for a refusal. None: it is none."""
    name, *options = arguments or [""]
    if name in _NO_HOOKS:
        return None
    try:
        if name == "work":
            from perdure.features.connect.capture import work

            work(*options)
        elif name not in _HOOKS:
            raise ValueError(f"there are the hooks {', '.join(_HOOKS)}")
        else:
            payload = json.loads(sys.stdin.buffer.read(INPUT_BYTES) or b"{}")
            if not isinstance(payload, dict):
                raise ValueError("what came on stdin is not a JSON object")
            # The session's folder changes with each `cd`; the variable is where it was started, as for the server.
            folder = find_project_folder(os.environ.get("CLAUDE_PROJECT_DIR") or payload.get("cwd") or ".")
            _HOOKS[name](folder, payload, options)
    except Exception as error:  # nobody sees what it prints
        _log(f"{' '.join(arguments[:3])}: {type(error).__name__}: {error!s:.500}")
        return int(name == "work")
    return 0


def _start(folder: Path, payload: dict[str, Any], options: Sequence[str]) -> None:
    """Print what is remembered of the project, as it was prepared last, and have it prepared anew."""
    # Of a project that is new here only what holds in all projects is known.
    for state in (state_folder(folder), state_folder("")):
        try:
            text = (state / CONTEXT_FILE).read_bytes()[:CONTEXT_BYTES].decode("utf-8", "ignore")
        except OSError:
            continue
        _tell_model("SessionStart", text)
        break
    _work_later(["renew", str(folder)])


def _count_edit(folder: Path, payload: dict[str, Any], options: Sequence[str]) -> None:
    """Count the edit of a file, and print the reminder that is due. `options`: `--nudges LEVEL`, or nothing."""
    given = payload.get("tool_input")
    path = (given.get("file_path") or given.get("notebook_path")) if isinstance(given, dict) else None
    if isinstance(path, str):
        edits = EditCounter(state_folder(folder))
        edits.count(path)
        level = check_nudge_level(options[1] if options[:1] == ["--nudges"] else "balanced")
        _tell_model("PostToolUse", edits.take_nudge(level, str(payload.get("session_id"))[:SESSION_CHARS]))


def _tell_model(event: str, text: str) -> None:
    """Print a text in the form in which Claude Code puts it before the model; nothing if it is empty."""
    if text.strip():
        output = {"hookEventName": event, "additionalContext": text}
        print(json.dumps({"hookSpecificOutput": output}), flush=True)


def _capture(folder: Path, payload: dict[str, Any], options: Sequence[str]) -> None:
    """Have the session's messages stored, those that are new."""
    transcript, session = payload.get("transcript_path"), payload.get("session_id")
    if isinstance(transcript, str) and isinstance(session, str):
        _work_later(["capture", str(folder), session, transcript])


_HOOKS = {
    "session-start": _start,
    "post-tool-use": _count_edit,
    "pre-compact": _capture,
    "stop": _capture,
    "session-end": _capture,
}


def _work_later(arguments: Sequence[str]) -> None:
    """Start a process that outlives this one."""
    import subprocess  # not every hook needs it

    subprocess.Popen(
        [*own_command(), "hook", "work", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path.home(),
    )


def _log(text: str) -> None:
    """Add a line to the log of hooks; where that is not possible, nothing happens."""
    path = data_folder() / "hooks.log"
    try:
        make_folder(path.parent)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {' '.join(text.splitlines())}\n")
    except OSError:
        pass
