"""A web site on 127.0.0.1 that sends the answers of a test, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

Write = Callable[[bytes], Awaitable[None]]
Page = bytes | Callable[[Write], Awaitable[None]]
"""The bytes of an HTTP answer, or a function that writes them."""


def page(body: bytes, *, kind: str = "text/html", status: str = "200 OK", **headers: str) -> bytes:
    """The bytes of an HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Site:
    """`requests` has the head of each request, as it came; `bodies` what followed it."""

    port: int
    pages: Mapping[str, Page]
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(pages: Mapping[str, Page], *, ssl: SSLContext | None = None) -> AsyncIterator[Site]:
    """Serve these pages, by path without query; any other path is a 404."""
    site = Site(0, pages)
    answering: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        answering.add(task)
        try:
            await serve(reader, writer)
        finally:
            answering.discard(task)
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            site.requests.append(head)
            sizes = [int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")]
            site.bodies.append(await reader.readexactly(sizes[0]) if sizes else b"")

            async def write(data: bytes) -> None:
                writer.write(data)
                await writer.drain()

            answer_page = site.pages.get(head.split(" ")[1].partition("?")[0], page(b"", status="404 Not Found"))
            await (write(answer_page) if isinstance(answer_page, bytes) else answer_page(write))

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ssl)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in filter(None, answering.copy()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
