"""The protocol over stdin and stdout, with a client that may send anything: a line is one message."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any, BinaryIO, cast

import mcp_types as types
from anyio import BrokenResourceError
from anyio.abc import ObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from perdure.core.errors import DataTooLarge, InvalidInput
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.core.incoming.json_rpc import HEAD_BYTES, TAIL_BYTES, find_id

LIMITS = JsonLimits(size_bytes=48_000_000, depth=100, containers=50_000)
"""A text of 20 MB fits, also where JSON writes most of its characters with a backslash."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the client closes stdin, or SIGTERM ends it as SIGINT does: commands that run end with it. Every
    message is read at once: one may take a call back that waits. Raises: InvalidInput: stdin or stdout is closed."""
    if sys.stdin is None or sys.stdout is None:
        raise InvalidInput("stdin and stdout have to be open: a program that speaks MCP starts `perdure mcp`")
    if threading.current_thread() is threading.main_thread():
        interrupt = signal.getsignal(signal.SIGINT)  # in the background of a script it is ignored
        signal.signal(signal.SIGTERM, interrupt if callable(interrupt) else signal.default_int_handler)
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
    messages: asyncio.Queue[str | types.JSONRPCMessage | None] = asyncio.Queue(1)
    arguments = (file, asyncio.get_running_loop(), messages)
    # A thread of the loop's pool would hold the process up until the client sends one more line.
    threading.Thread(target=_read_lines, args=arguments, daemon=True, name="mcp-stdin").start()
    while (message := await messages.get()) is not None:
        if isinstance(message, str):
            yield message
        else:
            await send(SessionMessage(message))


def _read_lines(
    file: BinaryIO, loop: asyncio.AbstractEventLoop, messages: asyncio.Queue[str | types.JSONRPCMessage | None]
) -> None:
    """Pass on each message line, answer each other one, and end with None; shorten a line that is too long."""
    try:
        while line := file.readline(LIMITS.size_bytes + 1):
            size, end = len(line), line[-TAIL_BYTES:]
            while size > LIMITS.size_bytes and end[-1:] != b"\n" and (rest := file.readline(1 << 20)):
                size, end = size + len(rest), (end + rest)[-TAIL_BYTES:]
            if size > len(line):
                line = line[: HEAD_BYTES + TAIL_BYTES] + end
            if line.strip():
                message = refuse(line, size) or line.decode("utf-8", "replace")
                asyncio.run_coroutine_threadsafe(messages.put(message), loop).result()
        asyncio.run_coroutine_threadsafe(messages.put(None), loop).result()
    except (CancelledError, RuntimeError, OSError, ValueError):  # the loop or the file is closed: the server ends
        pass


def refuse(line: bytes, size: int) -> types.JSONRPCMessage | None:
    """Return the answer to a line, of so many bytes, that is no message; None: it is one."""
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
