"""An HTTP server that answers with fixed bytes and keeps every request, to test what reaches the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One answer.

    Args:
        body: sent as it is.
        cut: the connection breaks after the body, before the end of the answer.
        delay_s: the delay before the answer, in seconds.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    delay_s: float = 0

    @classmethod
    def json(cls, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Payload:
        return cls(
            body=json.dumps(value).encode(),
            status=status,
            headers={"content-type": "application/json"} | dict(headers or {}),
        )

    @classmethod
    def sse(cls, body: bytes, *, cut: bool = False) -> Payload:
        """Server-sent events."""
        return cls(body=body, headers={"content-type": "text/event-stream"}, cut=cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request, with the names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class PayloadServer:
    """Answers each request with the next payload, for any path; the last payload repeats.

    `url` is its address on 127.0.0.1; `received` holds the requests, in order.

        async with PayloadServer(Payload.json({})) as server:
            ...
    """

    def __init__(self, *payloads: Payload) -> None:
        self._payloads = list(payloads) or [Payload()]
        self.received: list[Received] = []
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None, "the server is not started"
        return "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def __aenter__(self) -> PayloadServer:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._answering:  # a delayed answer whose client has disconnected
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            if (received := await _read(reader)) is None:
                return
            self.received.append(received)
            payload = self._payloads.pop(0) if len(self._payloads) > 1 else self._payloads[0]
            await asyncio.sleep(payload.delay_s)
            await _write(writer, payload)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            self._answering.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    """Read one request; None if the client only opened the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.strip():
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method=method, path=path, headers=headers, body=body)


async def _write(writer: asyncio.StreamWriter, payload: Payload) -> None:
    """Write the answer. One that is cut is sent in chunks without the last."""
    headers = {"connection": "close"} | dict(payload.headers)
    if payload.cut:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(len(payload.body))
    lines = [f"HTTP/1.1 {payload.status} {_REASONS.get(payload.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    if payload.cut and payload.body:
        writer.write(f"{len(payload.body):x}\r\n".encode() + payload.body + b"\r\n")
    elif not payload.cut:
        writer.write(payload.body)
    await writer.drain()
