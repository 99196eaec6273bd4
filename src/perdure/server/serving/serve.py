"""Run the server in a process: bind, serve, and stop in order."""

from __future__ import annotations

import asyncio
import errno
import gc
import http.client
import json
import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType

import uvicorn
from starlette.routing import BaseRoute

from perdure.core.errors import InvalidInput
from perdure.library.perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.serving.acceptor import Acceptor, ConnectionCounts
from perdure.server.serving.app import create_app
from perdure.server.serving.connections import KEPT_S, Connection, Connections
from perdure.server.serving.guards import RefusedPage
from perdure.server.wire.sse import Streams

log = logging.getLogger(__name__)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

BACKLOG = 2_048
HEALTH_TIMEOUT_S = 1.0
HEALTH_BYTES = 4_096

SETTLE_S = 1.0
"""How long answers whose runs have ended may take to be written after a drain, in seconds."""


async def serve(
    perdure: AsyncPerdure,
    config: ServerConfig,
    *,
    pages: Sequence[BaseRoute] = (),
    refused_page: RefusedPage | None = None,
    listener: socket.socket | None = None,
    shares: tuple[ConnectionCounts, int] | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal (SIGINT, SIGTERM, in the main thread) or this task's cancellation stops it.

    SIGTERM first drains: `/v1/ready/` turns 503, new messages are refused, and runs under way have `config.drain_s` to
    end; another signal cuts that short.

    Stopping ends open streams and waiting requests, which tell their clients that their runs go on; the runs continue
    when the store is opened again. The store stays open, and the caller closes it: so a signal makes this function
    return and is not raised again. A second SIGINT does not wait for answers. Run it in a loop made by `loop_factory`.

    Args:
        pages: the routes of the dashboard.
        refused_page: what it shows for a request that is refused.
        listener: a socket that listens at the address already; it is closed at the end.
        shares: those of the processes that share the socket, and the place of this one.
        on_ready: called once with the address, such as `http://127.0.0.1:8283`, when the server accepts requests.
    Raises: InvalidInput: the address can't be bound.
    """
    app = create_app(perdure, config, pages=pages, refused_page=refused_page)
    gate = app.state.gate
    if not await gate.is_usable():
        if listener is not None:
            listener.close()
        raise InvalidInput(
            f"host is {config.host!r}, which other machines reach, and there is no API key: set PERDURE_API_KEY=auto,"
            " which makes one, or to a long random text, or make one with `perdure key create`; and set"
            " PERDURE_ALLOWED_HOSTS to the names by which other machines call this one. Or bind 127.0.0.1"
        )
    listener = listener or bind(config)
    await gate.start()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = Connections(config, files=files if files != resource.RLIM_INFINITY else 2**31)
    server = _Server(
        uvicorn.Config(
            app,
            http=Connection.factory(connections),  # type: ignore[arg-type]  # called as a class is
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEPT_S,
            timeout_graceful_shutdown=config.shutdown_s,
        ),
        app.state.streams,
        connections,
        lambda: gate.drain(config.drain_s),
        shares=shares,
        on_ready=(lambda: on_ready(address_of(listener))) if on_ready is not None else None,
    )
    try:
        with app.state.metrics.counted_log():
            await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        # A cancellation stops in the same order as a signal does, but without waiting for the answers.
        if server.started:
            app.state.streams.stop()
            for open_server in server.servers:
                open_server.close()
            for connection in list(server.server_state.connections):
                connection.shutdown()
        raise
    finally:
        listener.close()
        await gate.close()


def loop_factory() -> LoopFactory | None:
    """The factory of the fastest installed event loop, for `asyncio.Runner`; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: LoopFactory = uvloop.new_event_loop
    return factory


def bind(config: ServerConfig) -> socket.socket:
    """Open a listening socket at the configured address. Raises: InvalidInput: it can't be bound."""
    host = config.host.strip("[]")
    try:
        addresses = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidInput(f"host {config.host!r} is not an address of this machine: {error.strerror}") from error
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # two sockets can bind one port; only `listen` fails if the port is in use
    except OSError as error:
        listener.close()
        raise _cannot_bind(config, error) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """The address of the server, as `http://host:port`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _cannot_bind(config: ServerConfig, error: OSError) -> InvalidInput:
    """The error for a port that can't be bound, with what helps."""
    place = f"port {config.port} of {config.host}"
    match error.errno:
        case errno.EADDRINUSE:
            helps = "choose another port with --port or PERDURE_PORT"
            if _is_served(config):
                return InvalidInput(f"Perdure itself answers on {place} already: stop that server, or {helps}")
            return InvalidInput(f"{place} is in use by another program: stop that one, or {helps}")
        case errno.EACCES:
            return InvalidInput(f"{place} may not be used by this user: choose one above 1023 with PERDURE_PORT")
        case errno.EADDRNOTAVAIL:
            return InvalidInput(f"{config.host!r} is not an address of this machine: choose another with PERDURE_HOST")
        case _:
            return InvalidInput(f"{place} can't be used: {error.strerror}")


def _is_served(config: ServerConfig) -> bool:
    """Whether a server of Perdure answers at this address."""
    connection = http.client.HTTPConnection(config.host.strip("[]"), config.port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/health/")
        answer = json.loads(connection.getresponse().read(HEALTH_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(answer, dict) and "version" in answer


class _Server(uvicorn.Server):
    """Uvicorn that reports when it is ready, and ends open streams when it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        streams: Streams,
        connections: Connections,
        drain: Callable[[], Awaitable[None]],
        *,
        shares: tuple[ConnectionCounts, int] | None,
        on_ready: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._streams, self._connections, self._drain_app, self._on_ready = streams, connections, drain, on_ready
        self._shares = shares
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first SIGTERM, else end; at once at a second SIGINT."""
        # Uvicorn would raise the signal again, which would end the process before the store is closed.
        self._signals += 1
        if self._signals == 1 and sig == signal.SIGTERM and self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain)
            return
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    def _begin_drain(self) -> None:
        self._connections.drain()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Let the runs under way end or be left to another process, and their answers be written; then stop."""
        try:
            await self._drain_app()
            await self._streams.settle(SETTLE_S)
        except Exception:
            log.exception("draining stopped at a defect")
        finally:
            self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, with acceptors of our own in place of uvicorn's."""
        await super().startup([])
        self._loop = asyncio.get_running_loop()
        for listener in sockets or ():
            acceptor = Acceptor(listener, self._make_connection, lambda: len(self._connections), self._shares)
            self._connections.on_change = acceptor.note
            self.servers.append(acceptor)  # type: ignore[arg-type]  # it has what uvicorn calls
            acceptor.start()
        if self.started and self._on_ready is not None:
            self._on_ready()
        # What is loaded now lives as long as the process. Walking it in each full collection took a tenth of a message.
        gc.freeze()
        gc.set_threshold(700)  # as Python has it: a start looks less often, but here each look holds up all requests

    def _make_connection(self) -> asyncio.Protocol:
        make = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # every second
            self._connections.close_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and connections, then the server."""
        if self._draining is not None:
            self._draining.cancel()  # a second signal cut it short
        self._streams.stop()
        await super().shutdown(sockets)
