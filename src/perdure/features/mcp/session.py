"""The session with one MCP server: a connection that is opened when it is needed, and again after it has ended.

A connection belongs to the task that opened it, as the SDK wants. Calls come from other tasks, and wait for their
answer or for the end of the connection, whichever is first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.errors import McpUnreachable
from perdure.core.incoming.backoff import backoff_s
from perdure.core.tasks import retrieve_error, to_the_end
from perdure.core.text.json_strings import encodable
from perdure.features.mcp.connect import InvalidEntries, StderrTail, connect, load_sdk, read_listing
from perdure.features.mcp.errors import McpGone, McpLate, describe_error, secret_values
from perdure.features.mcp.units import McpRegistry
from perdure.features.mcp.values import McpServer, ServerSecrets, ToolListing

if TYPE_CHECKING:
    import anyio
    from mcp import Client
    from mcp.types import CallToolResult


T = TypeVar("T")
log = logging.getLogger(__name__)

OPEN_S = 30.0
LIST_S = 20.0
CLOSE_S = 10.0
FRESH_S = 30.0
"""For so long a listing counts as current. When a server reports a change, it is read at once."""

REFRESH_S = 2.0
"""At least so long after a reading of changed tools the next one begins: a server may report changes without end."""

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0


class McpSession:
    """The session with one server.

    Attributes:
        registry: stores each listing before a call that relies on it, and why the server could not be reached; None:
            the server is not registered yet.
        listing: the last listing of the server's tools.
    """

    def __init__(self, server: McpServer, secrets: ServerSecrets, registry: McpRegistry | None) -> None:
        self.server, self.registry, self.listing = server, registry, ToolListing()
        self._secrets = secrets
        self._lock = asyncio.Lock()  # of opening and listing
        self._connection: _Connection | None = None
        self._fresh_until = 0.0
        self._failures, self._retry_at = 0, 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_at = 0.0
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.ended.is_set()

    async def prepare(self, *, reconnect: bool = False) -> None:
        """Open a connection and read the listing, unless one is open and the listing is of the last `FRESH_S`.

        Args:
            reconnect: open a new connection even if there is one, and even if the last try failed just now.
        Raises: McpUnreachable, ExtraMissing; what the registry raises.
        """
        async with self._lock:
            connection = self._connection
            now = asyncio.get_running_loop().time()
            if connection is not None and (reconnect or connection.ended.is_set()):
                await self._drop()
                connection = None
            if connection is not None and (now >= self._fresh_until or connection.tail.closed):
                try:
                    await self._read_listing(connection)
                except McpUnreachable:  # the connection ended unnoticed
                    await self._drop()
                    connection = None
            if connection is None:
                if not reconnect and now < self._retry_at:
                    raise McpUnreachable(self.server.name, f"it is tried again in {self._retry_at - now:.0f} s")
                await self._open()

    async def call(self, tool: str, arguments: dict[str, Any], *, timeout_s: float) -> CallToolResult:
        """Call a tool. Raises: McpGone, McpLate, McpUnreachable; the SDK's own errors."""
        connection = self._connection
        if connection is None:
            raise McpUnreachable(self.server.name, "the connection has ended")
        # The SDK can't send half a character, and ends the connection at it.
        arguments = json.loads(encodable(json.dumps(arguments, ensure_ascii=False)))
        try:
            return await connection.request(
                lambda client: client.call_tool(tool, arguments, read_timeout_seconds=timeout_s), timeout_s
            )
        except McpLate:
            self._fresh_until = 0.0  # the next call first finds out whether it still answers
            raise

    async def close(self) -> None:
        """End the connection, and the process of a `stdio` server."""
        self._closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._connection is not None:
            self._connection.stop()  # whoever waits for it holds the lock
        async with self._lock:
            await self._drop()

    async def _open(self) -> None:
        """Open a connection and read the listing. After a failure, the next try waits. Raises: McpUnreachable."""
        await load_sdk()
        if self._closed:
            raise McpUnreachable(self.server.name, "it was removed, or the program ends")
        connection = self._connection = _Connection(self.server, self._secrets, self._on_tools_changed)
        try:
            await connection.wait_until_open()
            await self._read_listing(connection)
        except McpUnreachable as error:
            await self._drop()
            self._failures += 1
            delay = backoff_s(self._failures, first_s=BACKOFF_FIRST_S, most_s=BACKOFF_MAX_S)
            self._retry_at = asyncio.get_running_loop().time() + delay
            line = connection.tail.last_line
            reason = Exception(f"{error.why}; it wrote: {line}" if line else error.why)
            detail = describe_error(reason, secret_values(self._secrets))
            if self.registry is not None:
                await self.registry.store_failure(self.server.id, detail)
            raise McpUnreachable(self.server.name, error.why, detail=detail) from error
        except BaseException:
            await self._drop()
            raise
        self._failures, self._retry_at = 0, 0.0

    async def _read_listing(self, connection: _Connection) -> None:
        """Read the server's listing and store it."""
        try:
            listing = await connection.request(lambda client: read_listing(client, connection.invalid), LIST_S)
        except McpUnreachable:
            raise
        except Exception as error:
            reason = describe_error(error, secret_values(self._secrets))
            raise McpUnreachable(self.server.name, f"its tools can't be listed: {reason}") from error
        self.listing = replace(listing, inside=connection.inside)
        if self.registry is not None:
            await self.registry.store_listing(self.server.id, self.listing)
        self._fresh_until = asyncio.get_running_loop().time() + FRESH_S

    async def _drop(self) -> None:
        """Close the connection and forget it, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _on_tools_changed(self) -> None:
        """Note that the listing is out of date, and read it again in the background."""
        self._fresh_until = 0.0
        if (self._refreshing is None or self._refreshing.done()) and not self._closed:
            self._refreshing = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        """Read the listing that the server says has changed."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._refresh_at - loop.time()))
        self._refresh_at = loop.time() + REFRESH_S
        try:
            await self.prepare()
        except Exception as error:  # the next call meets it, and says so
            log.info("MCP server %s: its changed tools could not be read: %s", self.server.name, error)


class _Connection:
    """One connection, from its opening to its end. `inside`: whether the server has an address on this machine or in a
    private network, None: not known, or a program; `ended` is set when nothing can be sent any more."""

    def __init__(self, server: McpServer, secrets: ServerSecrets, on_tools_changed: Callable[[], None]) -> None:
        self.tail, self.invalid = StderrTail(), InvalidEntries()
        self.inside: bool | None = None
        self.ended = asyncio.Event()
        self._server, self._secrets, self._on_tools_changed = server, secrets, on_tools_changed
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._scope: anyio.CancelScope | None = None
        self._end_reason = ""
        self._task = asyncio.ensure_future(self._run())

    async def wait_until_open(self) -> None:
        """Wait for the handshake. Raises: McpUnreachable."""
        futures: set[asyncio.Future[Any]] = {self._client, self._task}
        await asyncio.wait(futures, timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        if not self._client.done():
            reason = "it ended" if self._task.done() else f"it did not answer within {OPEN_S:g} s"
            raise McpUnreachable(self._server.name, self._end_reason or reason)

    async def request(self, send: Callable[[Client], Awaitable[T]], timeout_s: float) -> T:
        """Send a request by the SDK's client. Returns the answer. Raises: McpGone, McpLate; what the SDK raises."""
        if self.ended.is_set():
            raise McpGone(self._server.name, self._end_reason or "the connection has ended")
        answer = asyncio.ensure_future(send(self._client.result()))
        ending = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({answer, ending}, timeout=timeout_s + 1, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return self._result(answer, timeout_s)
            if self.ended.is_set():
                raise McpGone(self._server.name, self._end_reason or "the connection ended")
            raise McpLate(self._server.name, f"it did not answer within {timeout_s:g} s")
        finally:
            ending.cancel()
            if not answer.done():
                answer.cancel()
                answer.add_done_callback(retrieve_error)

    def stop(self) -> None:
        """Begin to close the connection, without waiting."""
        if self._scope is not None:
            self._scope.cancel()

    async def close(self) -> None:
        """Close the connection, and wait until it has ended."""
        self.stop()
        _, running = await to_the_end(asyncio.wait({self._task}, timeout=CLOSE_S))
        for task in running:
            task.cancel()
        self._client.cancel()

    def _result(self, answer: asyncio.Task[T], timeout_s: float) -> T:
        """The result of a request that is done. Raises: McpGone, McpLate; what the SDK raises."""
        from mcp.shared.exceptions import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        try:
            return answer.result()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self.ended.set()
                raise McpGone(self._server.name, self._end_reason or "the connection ended") from error
            if error.code == REQUEST_TIMEOUT:
                raise McpLate(self._server.name, f"it did not answer within {timeout_s:g} s") from error
            raise
        except asyncio.CancelledError as error:  # of its own doing: nobody cancels it before it is done
            raise McpGone(self._server.name, self._end_reason or "the connection ended") from error

    async def _run(self) -> None:
        """Open the connection and hold it until it is stopped or ends."""
        import anyio

        try:
            with anyio.CancelScope() as self._scope:
                async with connect(
                    self._server,
                    self._secrets,
                    tail=self.tail,
                    invalid=self.invalid,
                    on_tools_changed=self._on_tools_changed,
                    on_address=self._note_address,
                    on_too_large=self._end_too_large,
                ) as client:
                    listening = asyncio.ensure_future(self._listen(client))
                    try:
                        if not self._client.done():
                            self._client.set_result(client)
                        await anyio.sleep_forever()
                    finally:
                        listening.cancel()
                        with contextlib.suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                            await asyncio.wait({listening}, timeout=1)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end_reason = describe_error(error, secret_values(self._secrets))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            self.ended.set()

    def _note_address(self, inside: bool) -> None:
        """Remember whether the server has an address on this machine or in a private network."""
        self.inside = self.inside or inside

    def _end_too_large(self) -> None:
        # It is not known which request the answer belongs to, so all of them end.
        self._end_reason = "it sent an answer that is too large to be read"
        self.stop()

    async def _listen(self, client: Client) -> None:
        """Read the stream on which newer servers report changed tools; older ones send a message instead."""
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_tools_changed()
