"""The protocol over stdin and stdout, with a client that may send anything: a line is one message."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from itertools import islice
from typing import Any, BinaryIO, cast

import mcp_types as types
from anyio import BrokenResourceError
from anyio.abc import ObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json

LIMITS = JsonLimits(size_bytes=48_000_000, depth=100, containers=50_000)
"""A text of 20 MB fits, also where JSON writes most of its characters with a backslash."""
_TOKENS_MAX = 300_000
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*(?:(-?\d{1,18})(?![\d.eE])|"((?:[^"\\]|\\.){0,200})")', re.DOTALL)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the client closes stdin. Every message is read at once: one may take a call back that waits."""
    # Programs that the server starts must not read the client's messages.
    private, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    # What the SDK sends answers by; it starts to read the messages before it hands this out.
    answers: asyncio.Future[ObjectSendStream[SessionMessage]] = asyncio.get_running_loop().create_future()
    messages = _read_messages(os.fdopen(private, "rb"), answers)
    try:
        async with stdio_server(stdin=cast(Any, messages)) as (read, write):
            answers.set_result(cast(Any, write))
            await server.run(read, write, server.create_initialization_options())
    except* (BrokenPipeError, ConnectionResetError, BrokenResourceError):
        pass  # the client has left, and reads no more; or an interrupt came while the SDK handed a message on


async def _read_messages(
    file: BinaryIO, answers: asyncio.Future[ObjectSendStream[SessionMessage]]
) -> AsyncIterator[str]:
    """The messages of a client, as the SDK reads them. What is no message, or passes `LIMITS`, is answered here with
    an error, for the SDK would leave the client waiting."""
    send = (await answers).send
    lines: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue(1)
    arguments = (file, asyncio.get_running_loop(), lines)
    # A thread of the loop's pool would hold the process up until the client sends one more line.
    threading.Thread(target=_read_lines, args=arguments, daemon=True, name="mcp-stdin").start()
    while True:
        line, size = await lines.get()
        if not size:
            return
        if not line.strip():
            continue
        if (refusal := refuse(line, size)) is None:
            yield line.decode("utf-8", "replace")
        else:
            await send(SessionMessage(refusal))


def _read_lines(file: BinaryIO, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[tuple[bytes, int]]) -> None:
    """Hand on each line with its size in bytes, at last an empty one. A line that is too long is cut."""
    try:
        size = 1
        while size:
            line = file.readline(LIMITS.size_bytes + 1)
            size, end = len(line), line[-1:]
            while size > LIMITS.size_bytes and end not in (b"\n", b""):
                rest = file.readline(1 << 20)
                size, end = size + len(rest), rest[-1:]
            asyncio.run_coroutine_threadsafe(lines.put((line, size)), loop).result()
    except (CancelledError, RuntimeError, OSError, ValueError):  # the loop or the file is closed: the server ends
        pass


def refuse(line: bytes, size: int) -> types.JSONRPCMessage | None:
    """Return the answer to a line of so many bytes that is no message; None: it is one."""
    try:
        if size > len(line):
            raise DataTooLarge(f"larger than {LIMITS.size_bytes:,} bytes")
        check_json(line, LIMITS)
    except DataTooLarge as error:
        code, why = types.INVALID_REQUEST, f"the message of {size:,} bytes was not read: {error}"
    else:
        try:
            types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            return None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            code, why = types.PARSE_ERROR, f"{first['msg']:.200}. Nothing was done: send one message a line."
        else:
            code, why = types.INVALID_REQUEST, "this is JSON, but no JSON-RPC message. Nothing was done."
    id, method = find_id(line)
    if method == "tools/call" and id is not None:
        result = {"content": [{"type": "text", "text": why}], "isError": True}
        return types.JSONRPCResponse(jsonrpc="2.0", id=id, result=result)
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=why))


def find_id(line: bytes) -> tuple[int | str | None, str]:
    """Return the id and the method of a message that can't be parsed: those of its outermost object, as far as its
    first tokens have them; None and an empty text: they are not there."""
    id: int | str | None = None
    method, depth = "", 0
    for token in islice(_TOKEN.finditer(line), _TOKENS_MAX):
        if id is not None and method:
            break
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token[0] in (b'"id"', b'"method"') and (value := _VALUE.match(line, token.end())):
            text = (value[2] or b"").decode("utf-8", "replace")
            if token[0] == b'"method"':
                method = text
            else:
                id = int(value[1]) if value[1] else text
    return id, method
