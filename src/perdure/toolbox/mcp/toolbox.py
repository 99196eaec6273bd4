"""`Toolbox` of the tools of MCP servers: a session for each server, and no call of what nobody approved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from perdure.core.errors import ExtraMissing, McpUnreachable, NotFound, PerdureError
from perdure.core.ids import McpServerId, ToolId
from perdure.core.mcp import McpServer, McpTool, ServerSecrets, ToolListing
from perdure.core.ports import CallContext
from perdure.core.secrets import Cipher
from perdure.core.tools.spec import Tool, ToolOutcome
from perdure.domain.secrets import open_server
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from perdure.toolbox.mcp.connect import is_installed
from perdure.toolbox.mcp.errors import McpGone, McpLate
from perdure.toolbox.mcp.places import leads_inside
from perdure.toolbox.mcp.results import outcome_of
from perdure.toolbox.mcp.session import Failed, Listed, Session

__all__ = ["McpToolbox"]

TRIES_IDEMPOTENT = 2


class McpToolbox:
    """The MCP servers of a store.

    Args:
        listed: is given each listing of a server's tools, and takes it down.
        failed: is told why a server could not be reached.
        timeout_s: of a call of a tool that has no limit of its own.
    """

    def __init__(
        self,
        store: Store,
        cipher: Cipher,
        *,
        listed: Callable[[McpServerId, ToolListing], Awaitable[None]],
        failed: Callable[[McpServerId, str], Awaitable[None]],
        timeout_s: float = 60.0,
    ) -> None:
        self._store, self._cipher, self._listed, self._failed = store, cipher, listed, failed
        self._timeout_s = timeout_s
        self._sessions: dict[McpServerId, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def missing(self, tool: Tool) -> str | None:
        if is_installed():
            return None
        return f"tool {tool.spec.name!r} can't be run here: {ExtraMissing('an MCP server', extra='mcp')}"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        return await self.run(tool, arguments)

    async def run(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolOutcome:
        """What came of a call. Whatever the server does is an outcome, and comes within the limits of time."""
        timeout_s = tool.spec.timeout_s or self._timeout_s
        tries = TRIES_IDEMPOTENT if tool.spec.idempotent else 1
        try:
            while True:
                tries -= 1
                try:
                    return await self._run(tool, dict(arguments), timeout_s)
                except McpGone:
                    if not tries:
                        raise
        except McpGone as error:
            text = (
                f"the MCP server {error.server!r} ended during the call ({error.why}), so whether {tool.spec.name} did"
                " its work is not known. The next call connects again."
            )
        except McpLate as error:
            text = f"the MCP server {error.server!r}: {error.why}. Whether {tool.spec.name} did its work is not known."
        except McpUnreachable as error:  # without what its process wrote, which is for whoever registered it
            text = f"the MCP server {error.server!r} can't be reached: {error.why}"
        except PerdureError as error:
            text = str(error)
        except Exception as error:  # the SDK's: a refusal of the server, or an answer that can't be read
            text = f"the MCP server did not do it: {error or type(error).__name__}"
        return ToolOutcome(text=text[:2_000], status="error")

    async def read(self, server_id: McpServerId) -> None:
        """Connect anew and take down what the server says of its tools. Raises: NotFound, McpUnreachable,
        ExtraMissing, SecretKeyMissing, SecretUnreadable."""
        await (await self._session(server_id)).ready(anew=True)

    async def look(self, server: McpServer, secrets: ServerSecrets) -> ToolListing:
        """What a server that is about to be registered says of its tools. The connection stays, for its first call.

        Raises: McpUnreachable, ExtraMissing.
        """
        found = ToolListing()

        async def listed(listing: ToolListing) -> None:
            nonlocal found
            found = listing

        async def failed(why: str) -> None:
            return None

        session = Session(server, secrets, listed=listed, failed=failed)
        try:
            await session.ready()
        except BaseException:
            await session.close()
            raise
        session.tell(*self._tellers(server.id))
        self._sessions[server.id] = session
        return found

    async def leads_inside(self, url: str) -> bool:
        """Whether a server's address leads to this machine or a private network now. Raises: ValueError: no address."""
        return await leads_inside(url)

    def is_open(self, server_id: McpServerId) -> bool:
        """Whether there is a connection to this server now."""
        session = self._sessions.get(server_id)
        return session is not None and session.is_open

    async def forget(self, server_id: McpServerId) -> None:
        """End the connection to a server that was changed or removed."""
        session = self._sessions.pop(server_id, None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """End every connection, and the processes behind them."""
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        await asyncio.gather(*(session.close() for session in sessions), *self._closing)

    async def _run(self, tool: Tool, arguments: dict[str, Any], timeout_s: float) -> ToolOutcome:
        known = await self._store.read(_known, tool.id)
        session = await self._session(known.server_id)
        await session.ready()
        known = await self._store.read(_known, tool.id)  # as the listing says that is now taken down
        why = await self._store.read(_why_missing, known) if known.status == "missing" else ""
        if (refusal := _refusal(known, session.server.name, why)) is not None:
            return ToolOutcome(text=refusal, status="error")
        return outcome_of(await session.call(known.name, arguments, timeout_s=timeout_s))

    async def _session(self, server_id: McpServerId) -> Session:
        """The session of a server as it is registered now."""
        server = await self._store.read(lambda tx: tx.mcp.get(server_id))
        session = self._sessions.get(server_id)
        if session is not None and _reached(session.server) == _reached(server):
            return session
        secrets = await self._store.read(open_server, server, cipher=self._cipher)
        if session is not None and self._sessions.get(server_id) is session:
            closing = asyncio.ensure_future(self.forget(server_id))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)
        if (there := self._sessions.get(server_id)) is not None:  # another call was quicker
            return there
        listed, failed = self._tellers(server_id)
        made = self._sessions[server_id] = Session(server, secrets, listed=listed, failed=failed)
        return made

    def _tellers(self, server_id: McpServerId) -> tuple[Listed, Failed]:
        async def listed(listing: ToolListing) -> None:
            await self._listed(server_id, listing)

        async def failed(why: str) -> None:
            await self._failed(server_id, why)

        return listed, failed


def _reached(server: McpServer) -> tuple[object, ...]:
    """All that tells how a server is reached."""
    place = (server.command, server.args, server.url, server.private)
    return (server.name, server.transport, place, server.auth_header, server.sealed)


def _known(tx: Tx, tool_id: ToolId) -> McpTool:
    known = tx.mcp.find_tool(tool_id)
    if known is None:
        raise NotFound("MCP tool", tool_id, hint="its server was removed")
    return known


def _why_missing(tx: Tx, known: McpTool) -> str:
    """Why a tool was left out of the last listing; empty: it was not there."""
    left_out = tx.mcp.get(known.server_id).left_out
    return next((one.reason for one in left_out if one.name == known.name), "")


def _refusal(known: McpTool, server: str, why: str) -> str | None:
    """Why a tool is not called now, in words for the model."""
    match known.status:
        case "active":
            return None
        case "missing" if why:
            return f"the MCP server {server!r} describes {known.name!r} so that it can't be called: {why}"
        case "missing":
            return f"the MCP server {server!r} has no tool {known.name!r} any more, so it was not called"
        case "unusable":
            return f"the MCP server {server!r} describes {known.name!r} so that it can't be called: {known.problem}"
        case _:
            return (
                f"the MCP server {server!r} describes {known.name!r} otherwise than was approved, so it was not called:"
                " a person has to look at the change and approve it first"
            )
