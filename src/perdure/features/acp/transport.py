"""Messages of the protocol over stdin and stdout: JSON-RPC, one message a line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from perdure.core.errors import InvalidInput

LINE_LIMIT_BYTES = 64_000_000
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603


class LineTransport:
    """A connection of lines. What is no message is answered with an error, and ends nothing.

    The SDK's own transport leaves such a line without an answer, and ends at JSON that is no object.

    Args:
        reader: its limit is the most bytes of a line.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises: ConnectionError: nobody reads any more."""
        text = json.dumps(_with_short_error(message), separators=(",", ":"), default=str)
        async with self._sending:
            self._writer.write(text.encode("ascii") + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None: the other side has closed its end."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await self._skip_line(error.consumed)
                await self._refuse(INVALID_REQUEST, f"a message can have at most {LINE_LIMIT_BYTES:,} bytes")
                continue
            except (asyncio.IncompleteReadError, ConnectionError):
                return None  # a line without its end is no message
            try:
                message = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                await self._refuse(PARSE_ERROR, f"the line is no JSON that can be read: {error}")
                continue
            if _is_message(message):
                return message
            if line.strip():
                await self._refuse(INVALID_REQUEST, "a message is an object of JSON-RPC 2.0 with a method or a result")

    async def close(self) -> None:
        """Close the way out."""
        self._writer.close()

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def _skip_line(self, size: int) -> None:
        """Read to the end of a line of which `size` bytes are here."""
        while size:
            await self._reader.readexactly(size)
            try:
                await self._reader.readuntil(b"\n")
                size = 0
            except asyncio.LimitOverrunError as error:
                size = error.consumed
            except asyncio.IncompleteReadError:
                return


async def open_stdio() -> LineTransport:
    """The connection over stdin and stdout. What else is printed goes to stderr from now on.

    Raises: InvalidInput: they are files, which can't be waited for.
    """
    from acp.stdio import stdio_streams

    printed, kept = sys.stdout, os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), printed.fileno())
    sys.stdout = kept  # which the SDK connects
    try:
        return LineTransport(*await stdio_streams(limit=LINE_LIMIT_BYTES))
    except ValueError as error:
        raise InvalidInput(f"stdin and stdout have to be pipes ({error}): an editor starts `perdure acp`") from error
    finally:
        sys.stdout = printed


def _is_message(message: Any) -> bool:
    """Whether it is a request, a notification or an answer."""
    if not isinstance(message, dict) or not isinstance(message.get("id"), str | int | None):
        return False
    is_answer = "id" in message and isinstance(message.get("error"), dict | None)
    return isinstance(message["method"], str) if "method" in message else is_answer


def _with_short_error(message: dict[str, Any]) -> dict[str, Any]:
    """The message; of wrong parameters it says which and why, and does not repeat them, as the SDK does."""
    error = message.get("error") or {}
    wrong = error["data"].get("errors") if isinstance(error.get("data"), dict) else None
    if not wrong:
        return message
    why = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'params'}: {one['msg']}" for one in wrong[:3])
    return message | {"error": {"code": error["code"], "message": f"{error['message']}: {why}"}}
