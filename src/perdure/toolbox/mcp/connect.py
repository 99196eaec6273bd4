"""Connect to one MCP server: a child process, streamable HTTP, or the older SSE.

Only what was registered for a server is sent to it: nothing of the environment, of another server, or of a user.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ExtraMissing
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.core.mcp import PROTOCOL_HEADERS, McpServer, ServerSecrets, whole_url
from perdure.toolbox.mcp.listing import InvalidEntries, filter_listings

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

CONNECT_S = 10.0
STREAM_READ_S = 600.0
"""How long a stream may be silent before it is closed; calls have limits of their own."""

TAIL_BYTES = 2_000
OLD_VERSION = "2025-11-25"


def is_installed() -> bool:
    """Whether the `mcp` extra is there, without importing it."""
    return importlib.util.find_spec("mcp") is not None


async def load_sdk() -> None:
    """Import the SDK in a thread, since that takes half a second. Raises: ExtraMissing."""
    if not is_installed():
        raise ExtraMissing("an MCP server", extra="mcp")
    await asyncio.to_thread(_import_sdk)
    # It logs what servers send, among it what can't be parsed; a program that wants that sets logging up.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


def _import_sdk() -> None:
    import httpx2  # noqa: F401
    import mcp.client.sse
    import mcp.client.stdio
    import mcp.client.streamable_http  # noqa: F401


class StderrTail(asyncio.Protocol):
    """The end of what a child process writes to stderr. `closed` is set when the process ends."""

    def __init__(self) -> None:
        self._bytes = b""
        self.closed = False

    def data_received(self, data: bytes) -> None:
        self._bytes = (self._bytes + data)[-TAIL_BYTES:]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    @property
    def last_line(self) -> str:
        lines = self._bytes.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@contextlib.asynccontextmanager
async def connect(
    server: McpServer,
    secrets: ServerSecrets,
    *,
    tail: StderrTail,
    invalid: InvalidEntries,
    on_tools_changed: Callable[[], None],
    on_address: Callable[[bool], None],
    on_too_large: Callable[[], None],
) -> AsyncIterator[Client]:
    """A client of the server, after the handshake. The context must be left in the task that entered it.

    Args:
        tail: gets what a child process writes to stderr.
        invalid: gets the entries of listings that can't be tools.
        on_tools_changed: called when the server reports that its tools have changed.
        on_address: called with whether a server over HTTP is on this machine or in a private network.
        on_too_large: called when a child process wrote a line that is too large to be read.
    Raises: what the SDK raises, often in an ExceptionGroup; OSError.
    """
    from mcp import Client
    from mcp.types import Implementation, ToolListChangedNotification

    from perdure.toolbox.mcp.limits import is_too_large

    async def on_message(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_tools_changed()
        elif is_too_large(message):
            on_too_large()

    def version() -> str:
        try:
            return client.protocol_version
        except RuntimeError:  # it answers before the handshake
            return OLD_VERSION

    async with contextlib.AsyncExitStack() as stack:
        transport = await _transport(server, secrets, tail, on_address, stack)
        client = Client(
            filter_listings(transport, invalid, version),
            message_handler=on_message,
            client_info=Implementation(name="perdure", version="1"),
            cache=None,  # what was listed is kept in the store
        )
        yield await stack.enter_async_context(client)


async def _transport(
    server: McpServer,
    secrets: ServerSecrets,
    tail: StderrTail,
    on_address: Callable[[bool], None],
    stack: contextlib.AsyncExitStack,
) -> Any:
    """The SDK's transport to a server."""
    if server.transport == "stdio":
        return _start_child(server, secrets, tail)
    import httpx2

    from perdure.toolbox.mcp.pinned import PinnedTransport

    url = whole_url(server, secrets)
    headers = {name: value for name, value in secrets.headers.items() if name.lower() not in PROTOCOL_HEADERS}
    if secrets.token:
        name = server.auth_header or "Authorization"
        scheme = "Bearer " if name.lower() == "authorization" and " " not in secrets.token else ""
        headers[name] = scheme + secrets.token

    def new_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        # Redirects are the SDK's, to the same host only; each passes the transport again.
        return httpx2.AsyncClient(
            headers={"Accept-Encoding": ACCEPT_ENCODING, **(headers or {})},
            timeout=timeout or httpx2.Timeout(CONNECT_S, read=STREAM_READ_S),
            transport=PinnedTransport(url, private=server.private, on_address=on_address),
        )

    if server.transport == "sse":
        from mcp.client.sse import sse_client

        return sse_client(
            url,
            headers=headers,
            timeout=CONNECT_S,
            sse_read_timeout=STREAM_READ_S,
            httpx_client_factory=new_client,
        )
    from mcp.client.streamable_http import streamable_http_client

    return streamable_http_client(url, http_client=await stack.enter_async_context(new_client(headers)))


@contextlib.asynccontextmanager
async def _start_child(server: McpServer, secrets: ServerSecrets, tail: StderrTail) -> AsyncIterator[Any]:
    """Start the server's program in its own process group; yield its streams, then end the whole group.

    Of our environment the program sees only HOME, LOGNAME, PATH, SHELL, TERM and USER, which the SDK passes on.
    """
    from mcp.client.stdio import StdioServerParameters, stdio_client

    from perdure.toolbox.mcp.limits import LINES

    parameters = StdioServerParameters(
        command=server.command,
        args=list(server.args),
        env=dict(secrets.environment),
        encoding=LINES,
        encoding_error_handler="replace",
    )
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as errors:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, os.fdopen(read_end, "rb", 0))
        try:
            async with stdio_client(parameters, errlog=errors) as streams:
                errors.close()  # then only the child has it, and its end is seen
                yield streams
        finally:
            pipe.close()
