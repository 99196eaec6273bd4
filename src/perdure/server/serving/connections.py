"""Limits of connections: how many are open, how large a request's head is, and how slow a client may be.

The limits apply before a key is checked, because an unauthenticated client can open connections too. When all places
are taken, the connection that has waited longest for a request's head is closed for the next one. A connection with a
request under way is never closed for another; when all places are taken by such, further connections are served the
probes only.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import logging
import secrets
import sys
import termios
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from perdure.core.incoming.addresses import network_of
from perdure.server.config import ServerConfig
from perdure.server.log import current_trace
from perdure.server.serving.guards import OPEN_PATHS, RETRY_AFTER
from perdure.server.wire.errors import refusal_answer

log = logging.getLogger(__name__)

PROBES = 32
"""Places beyond the limit, for probes: `GET /v1/health/` is answered while all other places are taken."""

RESERVED_FILES = 0.25
"""Share of the process's open files that is reserved for the store, the sandbox and models."""

BODY_BYTES_PER_S = 1_000
"""The slowest that a body may arrive, after its first `body_s` seconds."""

PIPELINED_MAX = 16
"""Requests that may wait on one connection for an earlier answer; ordinary clients send none."""

KEPT_S = 75
"""How long a connection is kept for a next request: longer than clients and proxies keep theirs, so that they close it
and none sends a request into a closed one."""

IDLE_S = 0.5
"""How long a connection of a draining server has to be without a request to be closed. A client that sends one after
the other may have sent the next, and would get a reset in place of an answer that asks it to leave."""

DISCARD_BYTES = 1_000_000
DISCARD_S = 2.0
"""How much is still read from a refused client, and for how long. Many clients read the answer only after they have
sent everything, and closing a connection with unread bytes discards the answer."""


class Connections:
    """The open connections of one server, in total and per client address. `files`: how many the process may open."""

    def __init__(self, config: ServerConfig, *, files: int) -> None:
        self.config = config
        self.limit = max(1, min(config.connections, int(files * (1 - RESERVED_FILES)) - PROBES))
        self._limit_per_address = config.connections_per_address or self.limit
        self._open: dict[Connection, str] = {}  # -> the network of its address
        self._counts = Counter[str]()  # of connections by network
        self._waiting: dict[Connection, None] = {}  # for a request's head; longest wait first
        self.on_change: Callable[[], None] = lambda: None
        """Called when a connection was added or removed."""
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection, host: str) -> bool:
        """Register a connection; another one may be closed for it. False: it may only be served probes."""
        network = network_of(host)
        neighbours = (other for other in self._waiting if self._open[other] == network)
        served = self._has_room(self._counts[network], self._limit_per_address, neighbours)
        # An address that is over its own limit must not close another address's connection.
        served = served and self._has_room(len(self._open), self.limit, iter(self._waiting))
        self._open[connection] = network
        self._counts[network] += 1
        self.wait(connection)
        self.on_change()
        if len(self._open) > self.limit + PROBES:
            connection.abort()
        return served

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.stop_waiting(connection)
        network = self._open.pop(connection, None)
        if network is not None:
            self._counts[network] -= 1
            if not self._counts[network]:
                del self._counts[network]
            self.on_change()

    def wait(self, connection: Connection) -> None:
        """Mark a connection as waiting for a request's head, from now on."""
        if connection in self._open:
            self._waiting[connection] = None

    def stop_waiting(self, connection: Connection) -> None:
        """Mark a connection as busy with a request."""
        self._waiting.pop(connection, None)

    def drain(self) -> None:
        """From now on close idle connections, and every other one after its answer, which says so."""
        self.is_draining = True
        self.close_overdue()

    def close_overdue(self) -> None:
        """Close every connection that is over a time limit; called every second."""
        for connection in list(self._open):
            if self.is_draining:
                connection.drain()
            connection.close_if_overdue()

    def _has_room(self, count: int, limit: int, waiting: Iterator[Connection]) -> bool:
        """Whether one more connection than `count` fits; at the limit the one of `waiting` that has waited longest, and
        has no unread request, is closed for it."""
        idle = (one for one in waiting if not one.has_unread_request)
        if count >= limit and (oldest := next(idle, None)) is not None:
            self.remove(oldest)
            oldest.abort()
            count -= 1
        return count < limit


class _CountingTransport:
    """A transport that counts the bytes written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written_bytes = 0

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """A connection with limits on head (bytes, headers, time), body (time) and an answer's time without progress."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all, self._limits = connections, connections.config
        self._since_s = self.loop.time()  # when waiting for the head, or for the body, began
        self._in_head = self._in_body = False
        self._body_bytes = 0
        self._head_bytes = self._header_count = 0
        self._silent_bytes = 0  # fed to the parser since its last callback
        self._problem: tuple[int, str] | None = None
        self._discarded_bytes = -1  # -1: not refused
        self._read_bytes = 0  # bytes of answers that the client's kernel has acknowledged
        self._read_s = 0.0  # when that count last grew, or no byte was pending

    @classmethod
    def factory(cls, connections: Connections) -> Callable[..., Connection]:
        """The factory that uvicorn creates connections with."""
        return functools.partial(cls, connections=connections)

    def abort(self) -> None:
        """Close at once and drop what has not been sent."""
        self.transport.abort()

    def drain(self) -> None:
        """Close the connection after the answer under way; now, if no request is under way or coming."""
        is_arriving = self._in_head or self._in_body or self.has_unread_request
        if self._is_answering or (not is_arriving and self.loop.time() - self._since_s >= IDLE_S):
            self.shutdown()

    @property
    def has_unread_request(self) -> bool:
        """Whether bytes have come that are not read yet. A loop that was held up looks at its times first: by them the
        client of such a connection seems to be late."""
        return _kernel_bytes(self.transport, termios.FIONREAD) > 0

    def timeout_keep_alive_handler(self) -> None:
        if not self.has_unread_request:
            super().timeout_keep_alive_handler()

    def close_if_overdue(self) -> None:
        """Close if the client is over one of its time limits."""
        if self._has_unread_bytes():
            if self.loop.time() - self._read_s > self._limits.write_s:
                self.abort()
            self._since_s = max(self._since_s, self._read_s)  # the next request is due only after this answer
            return
        waited_s = self.loop.time() - self._since_s
        if self._in_body and self.flow.read_paused:  # the server itself has paused reading
            self._since_s += 1
        elif self._in_body:
            answered = self.cycle.response_complete  # then nobody needs the rest of the body
            if waited_s > self._limits.body_s + (0 if answered else self._body_bytes / BODY_BYTES_PER_S):
                self._refuse(408, f"the body did not arrive: {self._body_bytes:,} bytes in {waited_s:.0f} s")
        elif self._is_answering or self.timeout_keep_alive_task is not None or self.has_unread_request:
            return
        elif waited_s > self._limits.header_s:
            self._refuse(408, f"no request arrived within {self._limits.header_s:g} s")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = _CountingTransport(transport)
        self._read_s = self.loop.time()
        super().connection_made(self._transport)  # type: ignore[arg-type]  # it has every method that is called
        if not self._all.add(self, self.client[0] if self.client else ""):
            self.app = _ProbesOnly(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes, and discard those after a refused request."""
        if self._discarded_bytes >= 0:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARD_BYTES:
                self.abort()
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > self._limits.max_header_bytes and self._problem is None:
            self._too_large()
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin to count the head of a request."""
        self._head_bytes = self._header_count = 0
        self._in_head = True
        if self.cycle is not None:  # it was kept
            self._since_s = self.loop.time()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin a request: count its body from now on, and refuse too many requests in advance."""
        self._all.stop_waiting(self)
        self._silent_bytes = self._body_bytes = 0
        super().on_headers_complete()  # it raises for an address that it can't parse; then no request begins
        self._in_head, self._in_body, self._since_s = False, True, self.loop.time()
        if self._all.is_draining:
            self.cycle.keep_alive = False
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
        if not self._is_answering:  # the rest of a body is not needed: the connection counts as waiting
            self._all.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is too large, or that the parser can't read, in the wire's shape."""
        status, text = self._problem or (400, "the request can't be read: it is not HTTP/1.1")
        self._refuse(status, text)

    @property
    def _is_answering(self) -> bool:
        """Whether an answer is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: some clients offer HTTP/2 with every first request."""

    def _has_unread_bytes(self) -> bool:
        """Whether the client has not read all of its answers yet; also notes in `_read_s` when it last read some."""
        pending = self.transport.get_write_buffer_size() + _kernel_bytes(self.transport, termios.TIOCOUTQ)
        read = self._transport.written_bytes - pending
        if not pending or read > self._read_bytes:
            self._read_bytes, self._read_s = read, self.loop.time()
        return pending > 0

    def _count(self, size: int) -> None:
        """Count bytes of the head. Raises: ValueError: it is too large."""
        self._head_bytes += size
        if self._head_bytes > self._limits.max_header_bytes or self._header_count > self._limits.max_headers:
            self._too_large()
            raise ValueError("the request's head is too large")  # ends parsing, by `send_400_response`

    def _too_large(self) -> None:
        """Note that the head is too large, for `send_400_response`."""
        bytes_max, count = self._limits.max_header_bytes, self._limits.max_headers
        self._problem = 431, f"the request's head is larger than {bytes_max:,} bytes, or has more than {count} headers"

    def _refuse(self, status: int, text: str) -> None:
        """Send an error, and close the connection after the client has had time to read it."""
        if self._discarded_bytes >= 0 or self.transport.is_closing():
            return
        if self._is_answering or self._in_body:
            if self.cycle.response_started or self.pipeline:
                self.abort()  # a client can't read an error in the middle of another answer
                return
            self.cycle.disconnected = True  # the running route need not answer any more
            self.cycle.message_event.set()
        self._discarded_bytes = 0
        body = json.dumps({"detail": text}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(DISCARD_S, self.abort)


class _ProbesOnly:
    """The application while all places are taken: it serves the probes and refuses all else."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        current_trace.set(secrets.token_hex(16))
        log.warning("a request was refused: all connections, or all of one address, are busy")
        text = "too many connections are busy: try again, or raise PERDURE_CONNECTIONS"
        await refusal_answer(503, text, RETRY_AFTER, (b"connection", b"close"))(scope, receive, send)


def _kernel_bytes(transport: asyncio.Transport, queue: int) -> int:
    """How many bytes the kernel holds: `queue` is TIOCOUTQ for those that the client has not acknowledged, FIONREAD for
    unread ones. Its buffers take megabytes: the transport's own changes too rarely to detect a slow client."""
    try:
        size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), queue, bytes(4))
    except (OSError, ValueError):  # the system does not support it, or the socket is closed
        return 0
    return int.from_bytes(size, sys.byteorder)
