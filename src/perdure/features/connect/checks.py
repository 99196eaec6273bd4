"""Check that a program's side starts: what was written for it runs, and answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.connect.programs import ConfigEntry

START_TIMEOUT_S = 30.0
_CLIENT = {"name": "perdure connect", "version": "1"}
_INITIALIZE: Mapping[str, Mapping[str, Any]] = {
    "mcp": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT},
    "acp": {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": _CLIENT},
}
"""Verb of `perdure` -> the parameters of its protocol's first request."""
_CHECKED_HOOK = "session-start"
"""It also has prepared what the first session begins with."""


async def check_entries(entries: Sequence[ConfigEntry], folder: Path) -> Sequence[str]:
    """Start what was written, as the program would for a project; return the commands that answer.

    Raises: InvalidInput: one does not start.
    """
    started = []
    for entry in entries:
        value = entry.value
        if value is None:
            continue
        if entry.mark:
            name, line = f"hook {_CHECKED_HOOK}", value["hooks"][0]["command"]
            if not line.endswith(name):
                continue
            event = {"session_id": "check", "cwd": str(folder), "hook_event_name": "SessionStart", "source": "resume"}
            problem = await check_answer(["sh", "-c", line], {"CLAUDE_PROJECT_DIR": str(folder)}, folder, event)
        elif isinstance(value, Mapping):
            name = next(verb for verb in _INITIALIZE if verb in value["args"])
            words = [str(word).replace("${workspaceFolder}", str(folder)) for word in value["args"]]
            request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INITIALIZE[name]}
            problem = await check_answer([value["command"], *words], value.get("env", {}), folder, request)
        else:
            continue
        if problem:
            raise InvalidInput(f"it was written, but `perdure {name}` does not start: {problem}")
        started.append(f"perdure {name}")
    return started


async def check_answer(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, message: Mapping[str, Any]
) -> str:
    """Start a command in a folder, send it a message and close its stdin; return why it failed, empty if not.

    To a request belongs an answer with a result. A hook gets its event, may answer nothing, and has to end with 0.
    """
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            input=json.dumps(message).encode() + b"\n",
            capture_output=True,
            timeout=START_TIMEOUT_S,
            cwd=folder,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {START_TIMEOUT_S:.0f} seconds"
    except OSError as error:
        return f"{command[0]} can't be started: {error.strerror}"
    is_request, answer = "method" in message, done.stdout.partition(b"\n")[0]
    if not answer if is_request else done.returncode:
        return done.stderr[-500:].decode("utf-8", "replace").strip() or "it ended without an answer"
    try:
        found = json.loads(answer or "{}")
    except ValueError as error:
        return str(error)
    is_answer = isinstance(found, dict) and ("result" in found or not is_request)
    return "" if is_answer else f"it answered {answer[:200]!r}"
