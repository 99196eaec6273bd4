"""A small HTTP proxy, the only network of a call or of pip: `CONNECT`, and plain requests.

A client names a host and a port. The proxy decides once for each connection whether it may reach them, and at which
addresses. It reads only the head of a request, and keeps nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from perdure.core.errors import AddressRefused
from perdure.core.tasks import end_tasks
from perdure.core.tools.sandbox import listed_ports
from perdure.toolbox.web_guard import ADDRESSES_MAX, PORTS, Resolve, SystemResolver, WebGuard, host_and_port

Admit = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> the addresses to try, the best first. Raises: AddressRefused; OSError: the name leads nowhere."""

HEAD_BYTES = 16 << 10
BUFFER_BYTES = 64 << 10
HEAD_S, CONNECT_S, IDLE_S = 10.0, 10.0, 120.0
CONNECTIONS = 32
HOSTS_NAMED = 10

resolve_for_tools = SystemResolver(4)
"""Apart from the resolver of the server's own requests, so that those never wait for the names of tools."""

_HOP_HEADERS = frozenset({b"proxy-authorization", b"proxy-connection", b"connection", b"keep-alive", b"host"})


@dataclass(frozen=True, slots=True)
class Upstream:
    """Another proxy that every connection goes through, such as a company's."""

    host: str
    port: int
    authorization: str = ""

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """The proxy at an address, with its login. Raises: ValueError: it is no address of an HTTP proxy."""
        parsed = httpx.URL(url if "://" in url else f"http://{url}")
        if parsed.scheme != "http" or not parsed.host:
            raise ValueError(f"{parsed.copy_with(userinfo=b'')} is not the address of an HTTP proxy")
        login = base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode() if parsed.userinfo else ""
        return cls(parsed.host, parsed.port or 80, f"Basic {login}" if login else "")


def admit_listed(hosts: Sequence[str], private: Sequence[str] = (), *, resolver: Resolve = resolve_for_tools) -> Admit:
    """A function that admits the hosts on a list, as a tool gives it. A name with a private address must be on
    `private` too, hosts on this machine or in a private network, as `name` or `name:port`."""
    public, private_too = WebGuard(resolver=resolver), WebGuard(private, resolver=resolver)

    async def admit(host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host that the tool may reach. Raises: AddressRefused."""
        ports, is_named = listed_ports(hosts, host, web=PORTS)
        if port not in ports:
            names = ", ".join(hosts[:HOSTS_NAMED]) + (", ..." if len(hosts) > HOSTS_NAMED else "")
            raise AddressRefused(f"{host}:{port}", f"this tool may reach {names} only")
        return await (private_too if is_named else public).resolve_host(host, port, ports=ports)

    return admit


class ForwardProxy:
    """A proxy on one listening socket, served by the event loop that started it.

    Args:
        admit: decides which hosts may be reached.
        upstream: the proxy to reach a host through; None: it is reached directly.
        password: clients send it with the user name `perdure`; empty: they need none.
    """

    def __init__(
        self, admit: Admit, *, password: str = "", upstream: Callable[[str], Upstream | None] = lambda host: None
    ) -> None:
        self._admit, self._upstream = admit, upstream
        self._login = f"Basic {base64.b64encode(f'perdure:{password}'.encode()).decode()}".encode() if password else b""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of this socket, which is closed with the proxy."""
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=HEAD_BYTES)

    async def close(self) -> None:
        """End every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await end_tasks(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends, or `close` cancels it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > CONNECTIONS:
                writer.write(_response(503, f"at most {CONNECTIONS} connections at a time"))
            else:
                await self._handle(reader, writer)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(HEAD_S):
                    await writer.drain()
        except asyncio.CancelledError:  # only `close` cancels this task, and waits for it
            return
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request, connect to its host, and forward both ways until both have ended."""
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _Request.parse(head)
            if self._login and not hmac.compare_digest(request.header(b"proxy-authorization"), self._login):
                writer.write(_response(407, "this proxy belongs to somebody else"))
                return
            host_reader, host_writer = await self._connect(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except (asyncio.LimitOverrunError, ValueError):
            writer.write(_response(400, "no request that this proxy understands"))
            return
        except AddressRefused as error:
            writer.write(_response(403, str(error)))
            return
        except (OSError, TimeoutError) as error:
            writer.write(_response(502, f"the host could not be reached: {error or 'it took too long'}"))
            return
        try:
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_forward(reader, host_writer))
                group.create_task(_forward(host_reader, writer))
        except* (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            host_writer.transport.abort()

    async def _connect(self, request: _Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a request's host; the head of a plain one is sent. Raises: AddressRefused, OSError."""
        async with asyncio.timeout(CONNECT_S):
            addresses = await self._admit(request.host, request.port)
            if (upstream := self._upstream(request.host)) is not None:
                return await self._connect_through(upstream, request)
            failed: OSError = OSError(f"{request.host} has no address")
            for address in addresses[:ADDRESSES_MAX]:
                try:
                    reader, writer = await asyncio.open_connection(address, request.port, limit=BUFFER_BYTES)
                except OSError as error:
                    failed = error
                    continue
                if not request.tunnel:
                    writer.write(request.render_head(request.path))
                return reader, writer
            raise failed

    async def _connect_through(
        self, upstream: Upstream, request: _Request
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the host of a request by way of another proxy. Raises: OSError."""
        reader, writer = await asyncio.open_connection(upstream.host, upstream.port, limit=BUFFER_BYTES)
        login = f"Proxy-Authorization: {upstream.authorization}\r\n".encode() if upstream.authorization else b""
        authority = host_and_port(request.host, request.port).encode()
        try:
            if not request.tunnel:
                writer.write(request.render_head(b"http://" + authority + request.path, login))
                return reader, writer
            writer.write(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n" + login + b"\r\n")
            status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2]
            if status != [b"200"]:
                raise OSError(f"the proxy {upstream.host} answered {b''.join(status).decode(errors='replace')}")
            return reader, writer
        except BaseException:
            writer.transport.abort()
            raise


@dataclass(frozen=True, slots=True)
class _Request:
    """The head of a request to the proxy."""

    method: bytes
    host: str
    port: int
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def parse(cls, head: bytes) -> _Request:
        """The request whose head this is, with the empty line at its end. Raises: ValueError: it can't be read."""
        first, *lines = head[:-4].split(b"\r\n")
        method, target, version = first.split(b" ")
        if not version.startswith(b"HTTP/1.") or not method.isalpha():
            raise ValueError("no HTTP/1")
        text = target.decode("ascii")
        headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or name != name.strip() or not name or b"\n" in line or b"\r" in line:
                raise ValueError("a malformed header")
            headers.append((name, value.strip()))
        try:
            url = httpx.URL(f"//{text}" if method == b"CONNECT" else text)
        except httpx.InvalidURL as error:
            raise ValueError(str(error)) from None
        host = url.raw_host.decode("ascii").strip("[]").rstrip(".").lower()
        if method == b"CONNECT":
            if url.port is None or url.raw_path not in (b"", b"/"):
                raise ValueError("no port")
        elif url.scheme != "http":
            raise ValueError("no address of http")
        if not host or url.userinfo:
            raise ValueError("no host")
        return cls(method, host, url.port or 80, url.raw_path, tuple(headers))

    @property
    def tunnel(self) -> bool:
        """Whether the client asks for a connection (CONNECT), and not for an answer."""
        return self.method == b"CONNECT"

    def header(self, name: bytes) -> bytes:
        """The value of a header, by its name in lower case; empty: there is none."""
        return b",".join(value for key, value in self.headers if key.lower() == name)

    def render_head(self, target: bytes, login: bytes = b"") -> bytes:
        """Return the head to forward, which closes the connection after one request. `target`: a path, or an address if
        forwarded to another proxy; `login`: a further header with its line end."""
        kept = [key + b": " + value for key, value in self.headers if key.lower() not in _HOP_HEADERS]
        host = host_and_port(self.host, self.port).removesuffix(":80").encode()
        lines = [self.method + b" " + target + b" HTTP/1.1", b"Host: " + host, b"Connection: close", *kept]
        return b"\r\n".join(lines) + b"\r\n" + login + b"\r\n"


async def _forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy a stream to another until it ends. Raises: OSError; TimeoutError: nothing came, or nothing was accepted."""
    while True:
        async with asyncio.timeout(IDLE_S):
            part = await source.read(BUFFER_BYTES)
            if not part:
                break
            target.write(part)
            await target.drain()
    if target.can_write_eof():
        target.write_eof()


def _response(status: int, text: str) -> bytes:
    """A response of HTTP with this text."""
    body = f"{text}\n".encode()
    reason = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {status} {reason.get(status, 'Service Unavailable')}\r\nContent-Type: text/plain\r\n"
    if status == 407:
        head += "Proxy-Authenticate: Basic\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
