"""Check that a program's side starts: the command answers the protocol's first request."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence

START_TIMEOUT_S = 30.0
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "perdure connect", "version": "1"},
    },
}


async def check_starts(command: Sequence[str], environment: Mapping[str, str], folder: str) -> str:
    """Start a command in a folder as a program would, and send `initialize`; return why it failed, empty if not."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env={**os.environ, **environment},
        )
    except OSError as error:
        return f"{command[0]} can't be started: {error.strerror}"
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
            await process.stdin.drain()
            answer = await process.stdout.readline()
            if not answer:
                return (await process.stderr.read())[-500:].decode(
                    "utf-8", "replace"
                ).strip() or "it ended without an answer"
        found = json.loads(answer)
        return "" if "result" in found else f"it answered {answer[:200]!r}"
    except TimeoutError:
        return f"it did not answer within {START_TIMEOUT_S:.0f} seconds"
    except (OSError, ValueError) as error:
        return str(error)
    finally:
        if process.returncode is None:
            process.stdin.close()  # the server ends with its client
            try:
                async with asyncio.timeout(5):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
