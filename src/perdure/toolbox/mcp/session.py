"""One MCP server's connection: opened when it is needed, kept open by one task, made anew when it has ended.

A connection belongs to the task that opened it, as the SDK wants; calls come from other tasks and wait for their answer
or for the end of the connection, whichever is first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.errors import McpUnreachable
from perdure.core.mcp import McpServer, ServerSecrets, ToolListing
from perdure.toolbox.mcp.connect import StderrTail, connect, load_sdk
from perdure.toolbox.mcp.errors import McpGone, McpLate, why_of
from perdure.toolbox.mcp.listing import LeftOutTools, read_listing

if TYPE_CHECKING:
    import anyio
    from mcp import Client
    from mcp.types import CallToolResult

T = TypeVar("T")
Listed = Callable[[ToolListing], Awaitable[None]]
Failed = Callable[[str], Awaitable[None]]
log = logging.getLogger(__name__)

OPEN_S = 30.0
LIST_S = 20.0
CLOSE_S = 10.0
FRESH_S = 30.0
"""So long a listing is taken for what the server says; servers that tell of a change are read at once."""

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0


class Session:
    """The way to one server.

    Args:
        listed: is given every listing of the server's tools before a call that relies on it.
        failed: is told why the server could not be reached.
    """

    def __init__(
        self,
        server: McpServer,
        secrets: ServerSecrets,
        *,
        listed: Listed,
        failed: Failed,
    ) -> None:
        self.server = server
        self._secrets, self._listed, self._failed = secrets, listed, failed
        self._lock = asyncio.Lock()  # of opening and listing
        self._link: _Link | None = None
        self._fresh_until = 0.0
        self._failures, self._not_before = 0, 0.0
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._link is not None and not self._link.ended.is_set()

    def tell(self, listed: Listed, failed: Failed) -> None:
        """From now on these are told of listings and failures."""
        self._listed, self._failed = listed, failed

    async def ready(self, *, anew: bool = False) -> None:
        """Have an open connection and a fresh listing. With `anew` nothing that is there is relied on.

        Raises: McpUnreachable, ExtraMissing; what `listed` raises.
        """
        async with self._lock:
            link = self._link
            now = asyncio.get_running_loop().time()
            if link is not None and (anew or link.ended.is_set()):
                await self._drop()
                link = None
            if link is not None and (now >= self._fresh_until or link.tail.closed):
                try:
                    await self._read(link)
                except McpUnreachable:  # it ended while nobody looked
                    await self._drop()
                    link = None
            if link is None:
                if not anew and now < self._not_before:
                    raise self._unreachable(f"it is tried again in {self._not_before - now:.0f} s")
                await self._open()

    async def call(self, tool: str, arguments: dict[str, Any], *, timeout_s: float) -> CallToolResult:
        """What came of a call. Raises: McpGone, McpLate, McpUnreachable; the SDK's own errors."""
        link = self._link
        if link is None:
            raise self._unreachable("the connection has ended")
        try:
            return await link.ask(
                lambda client: client.call_tool(tool, arguments, read_timeout_seconds=timeout_s), timeout_s
            )
        except McpLate:
            self._fresh_until = 0.0  # whether it still answers is looked at before the next call
            raise

    async def close(self) -> None:
        """End the connection, and the process of a `stdio` server."""
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
        if self._link is not None:
            self._link.stop()  # whoever waits for it holds the lock
        async with self._lock:
            await self._drop()

    async def _open(self) -> None:
        await load_sdk()
        if self._closed:
            raise self._unreachable("it was removed, or the program ends")
        link = self._link = _Link(self.server, self._secrets, self._tools_changed)
        try:
            await link.opened()
            await self._read(link)
        except McpUnreachable as error:
            await self._drop()
            self._failures += 1
            delay = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (self._failures - 1))
            self._not_before = asyncio.get_running_loop().time() + delay
            told = link.tail.last_line
            detail = why_of(Exception(f"{error.why}; it wrote: {told}" if told else error.why), self._values())
            await self._failed(detail)
            raise McpUnreachable(self.server.name, error.why, detail=detail) from error
        except BaseException:
            await self._drop()
            raise
        self._failures, self._not_before = 0, 0.0

    async def _read(self, link: _Link) -> None:
        """Hand the server's listing on."""
        try:
            listing = await link.ask(lambda client: read_listing(client, link.left_out), LIST_S)
        except McpUnreachable:
            raise
        except Exception as error:
            raise McpUnreachable(
                self.server.name, f"its tools can't be listed: {why_of(error, self._values())}"
            ) from error
        await self._listed(replace(listing, inside=link.inside))
        self._fresh_until = asyncio.get_running_loop().time() + FRESH_S

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _tools_changed(self) -> None:
        self._fresh_until = 0.0
        if (self._reading is None or self._reading.done()) and not self._closed:
            self._reading = asyncio.ensure_future(self._read_again())

    async def _read_again(self) -> None:
        try:
            await self.ready()
        except Exception as error:  # the next call meets it, and says so
            log.info("MCP server %s: its changed tools could not be read: %s", self.server.name, error)

    def _unreachable(self, then: str) -> McpUnreachable:
        return McpUnreachable(self.server.name, then)

    def _values(self) -> list[str]:
        secrets = self._secrets
        return [*filter(None, (secrets.token,)), *secrets.headers.values(), *secrets.environment.values()]


class _Link:
    """One connection, from its opening to its end."""

    def __init__(self, server: McpServer, secrets: ServerSecrets, tools_changed: Callable[[], None]) -> None:
        self.tail, self.left_out = StderrTail(), LeftOutTools()
        self.inside: bool | None = None
        self.ended = asyncio.Event()
        self._server, self._secrets, self._tools_changed = server, secrets, tools_changed
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._scope: anyio.CancelScope | None = None
        self._why = ""
        self._task = asyncio.ensure_future(self._run())

    async def opened(self) -> None:
        """Wait for the handshake. Raises: McpUnreachable."""
        either: set[asyncio.Future[Any]] = {self._client, self._task}
        await asyncio.wait(either, timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        if not self._client.done():
            why = self._why or (f"it did not answer within {OPEN_S:g} s" if not self._task.done() else "it ended")
            raise McpUnreachable(self._server.name, why)

    async def ask(self, request: Callable[[Client], Awaitable[T]], timeout_s: float) -> T:
        """The answer to a request. Raises: McpGone, McpLate; what the SDK raises."""
        if self.ended.is_set():
            raise McpGone(self._server.name, self._why or "the connection has ended")
        asking = asyncio.ensure_future(_await(request(self._client.result())))
        ending = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({asking, ending}, timeout=timeout_s + 1, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return self._answer(asking, timeout_s)
            if self.ended.is_set():
                raise McpGone(self._server.name, self._why or "the connection ended")
            raise McpLate(self._server.name, f"it did not answer within {timeout_s:g} s")
        finally:
            ending.cancel()
            if not asking.done():
                asking.cancel()
                asking.add_done_callback(_retrieved)

    def stop(self) -> None:
        """Begin to end."""
        if self._scope is not None:
            self._scope.cancel()

    async def close(self) -> None:
        self.stop()
        _, running = await asyncio.wait({self._task}, timeout=CLOSE_S)
        for task in running:
            task.cancel()
        self._client.cancel()

    def _answer(self, asking: asyncio.Task[T], timeout_s: float) -> T:
        from mcp.shared.exceptions import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        try:
            return asking.result()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self.ended.set()
                raise McpGone(self._server.name, self._why or "the connection ended") from error
            if error.code == REQUEST_TIMEOUT:
                raise McpLate(self._server.name, f"it did not answer within {timeout_s:g} s") from error
            raise
        except asyncio.CancelledError as error:  # of its own doing: nobody cancels it before it is done
            raise McpGone(self._server.name, self._why or "the connection ended") from error

    async def _run(self) -> None:
        import anyio

        try:
            with anyio.CancelScope() as self._scope:
                async with connect(
                    self._server,
                    self._secrets,
                    tail=self.tail,
                    left_out=self.left_out,
                    tools_changed=self._tools_changed,
                    led=self._note_place,
                    too_large=self._too_large,
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
            values = [one for one in (self._secrets.token, *self._secrets.headers.values()) if one]
            self._why = why_of(error, [*values, *self._secrets.environment.values()])
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            self.ended.set()

    def _note_place(self, inside: bool) -> None:
        self.inside = self.inside or inside

    def _too_large(self) -> None:
        # Whose answer it was can't be known, so nobody goes on waiting.
        self._why = "it sent an answer that is too large to be read"
        self.stop()

    async def _listen(self, client: Client) -> None:
        """Hear of changed tools where they are told on a stream of their own; older servers just send a message."""
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._tools_changed()


async def _await(answer: Awaitable[T]) -> T:
    return await answer


def _retrieved(task: asyncio.Task[Any]) -> None:
    """An answer that came too late is of no interest, nor is what went wrong with it."""
    if not task.cancelled():
        task.exception()
