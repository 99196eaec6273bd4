"""The server as a process runs it: bind, serve, and stop in order."""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from perdure.core.errors import InvalidInput
from perdure.library.perdure import AsyncPerdure
from perdure.server.app import create_app
from perdure.server.config import ServerConfig
from perdure.server.connections import Connection, Connections
from perdure.server.sse import Streams

__all__ = ["LoopFactory", "bound", "loop_factory", "serve"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

BACKLOG = 2_048

ACCEPTED = 64
"""Connections that asyncio takes from the backlog at once. They count from the next turn of the loop on only, so a
crowd of them could take all files that the process may open, those that are kept for the store too."""


async def serve(perdure: AsyncPerdure, config: ServerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until a signal (SIGINT, SIGTERM, in the main thread) or this task's cancellation stops it.

    Stopping ends open streams and waiting requests, which tell their clients that their runs go on; the runs do so
    when the store is opened again. The store stays open: it is its opener's to close, which is why a signal makes this
    return and is not raised again; a second SIGINT does not wait for answers any more. Run it in a loop made by
    `loop_factory`, which is the fastest there is.

    Args:
        on_ready: called once with the address, such as `http://127.0.0.1:8283`, when requests are taken.
    Raises: InvalidInput: the address can't be bound.
    """
    listener = bound(config)
    app = create_app(perdure, config)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = Connections(config, files=files if files != resource.RLIM_INFINITY else 2**31)
    server = _Server(
        uvicorn.Config(
            app,
            http=Connection.factory(connections),  # type: ignore[arg-type]  # called as a class is
            ws="none",
            backlog=ACCEPTED,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=config.shutdown_s,
        ),
        app.state.streams,
        connections,
        on_ready=(lambda: on_ready(address_of(listener))) if on_ready is not None else None,
    )
    try:
        await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        # The task was cancelled in place of a signal: the same order, though nobody waits for it to be complete.
        if server.started:
            app.state.streams.stop()
            for open_server in server.servers:
                open_server.close()
            for connection in list(server.server_state.connections):
                connection.shutdown()
        raise
    finally:
        listener.close()


def loop_factory() -> LoopFactory | None:
    """What makes the fastest event loop that is installed, for `asyncio.Runner`; None is asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: LoopFactory = uvloop.new_event_loop
    return factory


def bound(config: ServerConfig) -> socket.socket:
    """A listening socket at the configured address. Raises: InvalidInput: it can't be bound, and why."""
    host = config.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidInput(f"host {config.host!r} is no address of this machine: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # two sockets may be bound to one port; only listening tells that it is taken
    except OSError as error:
        listener.close()
        raise _cannot_bind(config, error) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _cannot_bind(config: ServerConfig, error: OSError) -> InvalidInput:
    where = f"port {config.port} of {config.host}"
    match error.errno:
        case errno.EADDRINUSE:
            return InvalidInput(
                f"{where} is in use by another program: stop that one, or choose another port with PERDURE_PORT"
            )
        case errno.EACCES:
            return InvalidInput(f"{where} may not be used by this user: choose one above 1023 with PERDURE_PORT")
        case errno.EADDRNOTAVAIL:
            return InvalidInput(f"{config.host!r} is no address of this machine: choose another with PERDURE_HOST")
        case _:
            return InvalidInput(f"{where} can't be used: {error.strerror}")


class _Server(uvicorn.Server):
    """Uvicorn that says when it is ready, and that does not wait for streams which have no end of their own."""

    def __init__(
        self,
        config: uvicorn.Config,
        streams: Streams,
        connections: Connections,
        *,
        on_ready: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._streams, self._connections, self._on_ready = streams, connections, on_ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not handed on to uvicorn, which would raise the signal again and end the process before the store is closed.
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # the system's queue stays long; only what is taken from it at once is short
        if self.started and self._on_ready is not None:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # every second
            self._connections.close_late()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.stop()
        await super().shutdown(sockets)
