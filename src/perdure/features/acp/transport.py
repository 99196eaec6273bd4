"""Messages of the protocol over stdin and stdout: JSON-RPC, one message a line."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.incoming.json_rpc import HEAD_BYTES, TAIL_BYTES, find_id

LINE_LIMIT_BYTES = 64_000_000
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603


class LineTransport:
    """A connection that sends one JSON message on each line, of bounded length. It answers an invalid line with an
    error and goes on; the SDK's own transport gives no answer, and ends at JSON that is no object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises: ConnectionError: nobody reads any more."""
        error = message.get("error") or {}
        wrong = error["data"].get("errors") if isinstance(error.get("data"), dict) else None
        if wrong:  # parameters that are wrong: the SDK repeats them all, whatever their size
            why = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'params'}: {one['msg']}" for one in wrong[:3])
            message = message | {"error": {"code": error["code"], "message": f"{error['message']}: {why}"}}
        self._writer.write(json.dumps(message, default=str).encode("ascii") + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None: the other side has closed its end."""
        while True:
            message: Any = None
            asked_id: str | int | None = None
            try:
                line, is_whole = await self._read_line()
                if not line.endswith(b"\n"):
                    return None
                if line.isspace():
                    continue
                asked_id, _ = find_id(line)
                if not is_whole:
                    raise ValueError("it is longer")
                code, message = INVALID_REQUEST, json.loads(line)
                why = "a message is an object of JSON-RPC 2.0, with a method or a result"
            except ConnectionError:
                return None
            except (ValueError, RecursionError) as error:
                code, why = PARSE_ERROR, f"the line is not JSON of at most {LINE_LIMIT_BYTES:,} bytes: {error}"
            if _is_message(message):
                return {"params": {}, **message} if "method" in message else message  # which a client may leave out
            if isinstance(message, dict) and "method" not in message:
                asked_id = None  # an answer that is wrong: an error with its id would answer another request
            await self.send({"jsonrpc": "2.0", "id": asked_id, "error": {"code": code, "message": why}})

    async def _read_line(self) -> tuple[bytes, bool]:
        """Return (the next line, whether it is whole); of a line over the limit the beginning and the end. Without a
        newline at its end, the other side has closed the connection. Raises: ConnectionError."""
        start = end = b""
        while True:
            try:
                return start + end + await self._reader.readuntil(b"\n"), not start
            except asyncio.LimitOverrunError as error:
                part = await self._reader.readexactly(error.consumed)
                start, end = start or part[:HEAD_BYTES], part[-TAIL_BYTES:]
            except asyncio.IncompleteReadError as error:
                return error.partial, not start

    async def close(self) -> None:
        """Close the way out."""
        self._writer.close()


async def open_stdio() -> LineTransport:
    """The connection over stdin and stdout. What else is printed goes to stderr from now on.

    Raises: InvalidInput: they are files or devices, which can't be waited for.
    """
    from acp.stdio import stdio_streams

    for file in (sys.stdin, sys.stdout):  # asyncio would wait for /dev/null for ever, and for a file print a traceback
        if file is None or not _is_pipe(file.fileno()):
            raise InvalidInput("stdin and stdout have to be pipes: an editor starts `perdure acp`")
    printed, kept = sys.stdout, os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), printed.fileno())
    sys.stdout = kept  # which the SDK connects
    try:
        return LineTransport(*await stdio_streams(limit=LINE_LIMIT_BYTES))
    finally:
        sys.stdout = printed


def _is_pipe(descriptor: int) -> bool:
    """Whether a file is a pipe, a socket or a terminal."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _is_message(message: Any) -> bool:
    """Whether it is a request, a notification or an answer."""
    if not isinstance(message, dict) or not isinstance(message.get("id"), str | int | None):
        return False
    is_answer = "id" in message and isinstance(message.get("error"), dict | None)
    return isinstance(message["method"], str) if "method" in message else is_answer
