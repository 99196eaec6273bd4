"""Connections before their requests: how many there may be, how large a head, and how slow a client.

All of it holds before a key is looked at, so that it can't be taken for the server's own work. A connection that waits
for a request's head costs its client nothing: where there are as many as there may be, the one that has waited longest
is closed for the next. One with a request under way is never closed for another; where all places are taken by such,
further connections are answered the probes only.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import ipaddress
import json
import logging
import sys
import termios
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from perdure.server.config import ServerConfig
from perdure.server.guards import OPEN_PATHS, RETRY_AFTER, answer
from perdure.server.trace import new_trace

__all__ = ["Connection", "Connections"]

log = logging.getLogger(__name__)

PROBES = 32
"""Places beyond the limit, for probes: `GET /v1/health/` is answered while all others are taken."""

FILES_KEPT = 0.25
"""Share of the process's files that are kept for what is no connection: the store, the sandbox, models."""

BODY_BYTES_PER_S = 1_000
"""A body that comes slower than this, after its first seconds, is not waited for."""

PIPELINED_MAX = 16
"""Requests that wait on one connection for the answer before; clients send none."""

DISCARDED_BYTES = 1_000_000
DISCARDED_S = 2.0
"""What is still read, and for how long, of a client that was refused: it reads the answer when it has sent all, and
what lies unread when the connection closes takes the answer away with it."""


class Connections:
    """The open connections of one server, by the address that they came from."""

    def __init__(self, config: ServerConfig, *, files: int) -> None:
        self.config = config
        self.limit = max(1, min(config.connections, int(files * (1 - FILES_KEPT)) - PROBES))
        self._limit_of_one = config.connections_per_address or self.limit
        self._open: dict[Connection, str] = {}
        self._of: dict[str, _Address] = {}
        self._waiting: dict[Connection, None] = {}  # for a head, the one that has waited longest first

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection, host: str) -> bool:
        """Take a connection in; False: only probes are to be answered on it. Another may be closed for it."""
        name = _network_of(host)
        address = self._of.setdefault(name, _Address())
        served = self._has_room(len(address.open), self._limit_of_one, address.waiting)
        # Who has no room for one address must not take the place of another's connection.
        served = served and self._has_room(len(self._open), self.limit, self._waiting)
        self._open[connection] = name
        address.open[connection] = None
        self.wait(connection)
        if len(self._open) > self.limit + PROBES:
            connection.abort()
        return served

    def remove(self, connection: Connection) -> None:
        self.stop_waiting(connection)
        name = self._open.pop(connection, None)
        if name is None:
            return
        address = self._of[name]
        address.open.pop(connection, None)
        if not address.open:
            del self._of[name]

    def wait(self, connection: Connection) -> None:
        """Note that a connection waits for a request's head, from now on."""
        name = self._open.get(connection)
        if name is not None:
            self._waiting[connection] = self._of[name].waiting[connection] = None

    def stop_waiting(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        name = self._open.get(connection)
        if name is not None:
            self._of[name].waiting.pop(connection, None)

    def close_late(self) -> None:
        """Close what has kept the server waiting for too long; called every second."""
        for connection in list(self._open):
            connection.close_if_late()

    def _has_room(self, count: int, limit: int, waiting: dict[Connection, None]) -> bool:
        oldest = next(iter(waiting), None)
        if count >= limit and oldest is not None:
            self.remove(oldest)
            oldest.abort()
            count -= 1
        return count < limit


class _Address:
    def __init__(self) -> None:
        self.open: dict[Connection, None] = {}
        self.waiting: dict[Connection, None] = {}


class _CountingTransport:
    """A transport that counts what is written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written_bytes = 0

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """One connection: heads are bounded in bytes, number and time, bodies in time, answers in time without progress."""

    def __init__(self, *options: Any, connections: Connections, **more: Any) -> None:
        super().__init__(*options, **more)
        self._all, self._limits = connections, connections.config
        self._since_s = self.loop.time()  # when waiting for the head, or for the body, began
        self._in_body = False
        self._body_bytes = 0
        self._head_bytes = self._header_count = 0
        self._silent_bytes = 0  # fed to the parser since it last came to an end of something
        self._problem: tuple[int, str] | None = None
        self._discarded_bytes = -1  # not refused
        self._taken_bytes = 0  # of answers, by the client
        self._taken_s = 0.0  # when that was last more than before, or nothing was left to take

    @classmethod
    def factory(cls, connections: Connections) -> Callable[..., Connection]:
        """What uvicorn makes connections with."""
        return functools.partial(cls, connections=connections)

    def abort(self) -> None:
        """Close at once, whatever has not been sent."""
        self.transport.abort()

    def close_if_late(self) -> None:
        """Close if the client has kept us waiting for longer than it may."""
        if self._has_untaken_bytes():
            if self.loop.time() - self._taken_s > self._limits.write_s:
                self.abort()
            self._since_s = max(self._since_s, self._taken_s)  # it is asked for the next one when it has this one
            return
        waited_s = self.loop.time() - self._since_s
        if self._in_body and self.flow.read_paused:  # it is we who don't read
            self._since_s += 1
        elif self._in_body:
            answered = self.cycle.response_complete  # so nobody needs the rest, however fast it comes
            if waited_s > self._limits.body_s + (0 if answered else self._body_bytes / BODY_BYTES_PER_S):
                self._refuse(408, f"the body did not arrive: {self._body_bytes:,} bytes in {waited_s:.0f} s")
        elif not self._is_answering and waited_s > self._limits.header_s:
            self._refuse(408, f"no request arrived within {self._limits.header_s:g} s")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = _CountingTransport(transport)
        self._taken_s = self.loop.time()
        super().connection_made(self._transport)  # type: ignore[arg-type]  # it is one for all that is called
        if not self._all.add(self, self.client[0] if self.client else ""):
            self.app = _ProbesOnly(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._discarded_bytes >= 0:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARDED_BYTES:
                self.abort()
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > self._limits.max_header_bytes and self._problem is None:
            self._too_large()
            self.send_400_response("")

    def on_message_begin(self) -> None:
        self._head_bytes = self._header_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._all.stop_waiting(self)
        self._silent_bytes = self._body_bytes = 0
        super().on_headers_complete()  # which can't read every address; then no request has begun
        self._in_body, self._since_s = True, self.loop.time()
        if len(self.pipeline) > PIPELINED_MAX:
            self._problem = 429, f"more than {PIPELINED_MAX} requests were sent before the first was answered"
            raise ValueError("too many requests in a row")

    def on_chunk_header(self) -> None:
        self._silent_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        self._in_body, self._since_s = False, self.loop.time()
        super().on_message_complete()
        if not self._is_answering:
            self._all.wait(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_body:
            self._since_s = self.loop.time()
        if not self._is_answering:  # nobody needs what is left of a body: no place is kept for it
            self._all.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser can't read, or what is too large, in the wire's shape."""
        status, text = self._problem or (400, "the request can't be read: it is not HTTP/1.1")
        self._refuse(status, text)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _unsupported_upgrade_warning(self) -> None:
        """Some clients offer HTTP/2 with every first request, which is nothing to warn of."""

    def _has_untaken_bytes(self) -> bool:
        """Whether the client has not taken all of its answers yet; notes when it takes some."""
        left = self.transport.get_write_buffer_size() + _bytes_in_kernel(self.transport)
        taken = self._transport.written_bytes - left
        if not left or taken > self._taken_bytes:
            self._taken_bytes, self._taken_s = taken, self.loop.time()
        return left > 0

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.max_header_bytes or self._header_count > self._limits.max_headers:
            self._too_large()
            raise ValueError("the request's head is too large")  # the parser stops here, and says so to uvicorn

    def _too_large(self) -> None:
        bytes_max, count = self._limits.max_header_bytes, self._limits.max_headers
        self._problem = 431, f"the request's head is larger than {bytes_max:,} bytes, or has more than {count} headers"

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and close when the client has had time to read it."""
        if self._discarded_bytes >= 0 or self.transport.is_closing():
            return
        if self._is_answering or self._in_body:
            if self.cycle.response_started or self.pipeline:
                self.abort()  # in the middle of an answer another one can't be read
                return
            self.cycle.disconnected = True  # the route under way has nobody to answer any more
            self.cycle.message_event.set()
        self._discarded_bytes = 0
        body = json.dumps({"detail": text}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(DISCARDED_S, self.abort)


class _ProbesOnly:
    """The application while all places are taken: it answers whoever asks whether the server lives."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        with new_trace():
            log.warning("a request was refused: all connections, or all of one address, are busy")
            text = "too many connections are busy: try again, or raise PERDURE_CONNECTIONS"
            await answer(send, 503, {"detail": text}, RETRY_AFTER, (b"connection", b"close"))


def _bytes_in_kernel(transport: asyncio.Transport) -> int:
    """How much the other side has not confirmed yet. The kernel takes megabytes before it asks for more, so that the
    transport's own buffer moves too rarely to tell a slow client by."""
    try:
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # not known on this system, or closed
        return 0
    return int.from_bytes(queued, sys.byteorder)


def _network_of(host: str) -> str:
    """What counts as one address: of IPv6 its first 64 bits, which one subscriber has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
