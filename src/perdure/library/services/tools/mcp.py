"""MCP servers: registered, read, compared, changed and removed, and the tools they offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import AgentId, McpServerId, ToolId
from perdure.core.mcp import SERVER_TOOLS_MAX, McpServer, McpTool, ServerSecrets, ToolListing
from perdure.core.tools.spec import Tool, ToolFilter, ToolOutcome
from perdure.domain.mcp import (
    McpChanges,
    ServerOptions,
    ToolsByStatus,
    approve_tools,
    build_server,
    change_server,
    find_server,
    find_tool,
    list_known_tools,
    list_tools_by_status,
    register_server,
    remove_server_rows,
    same_origin,
)
from perdure.domain.secrets import open_server
from perdure.engine.conversations.reset import delete
from perdure.library.checks import check_text
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

TOOLS_PER_STEP = 50
"""How many tools of a server one transaction removes."""

FIRST_READ_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpState:
    """A server and how it stands here. `open`: there is a connection now."""

    server: McpServer
    tools: Sequence[McpTool]
    open: bool


class McpService:
    """The operations on MCP servers."""

    def __init__(self, app: App) -> None:
        self._app, self._ports, self._connections = app, app.ports, app.mcp

    async def add(self, name: str, *, check: bool = True, **options: Unpack[ServerOptions]) -> McpServer:
        """The new server, with the tools that it lists now; without `check` it need not be reached yet."""
        server, secrets = await self._build(name, options, open_secrets=check)
        listing = await self._connections.look(server, secrets) if check else None
        ports = self._ports
        try:
            return await ports.store.write(register_server, server, listing, ids=ports.ids, at=ports.clock.now())
        except BaseException:
            await self._connections.forget(server.id)
            raise

    async def add_and_read(self, name: str, **options: Unpack[ServerOptions]) -> McpServer:
        """The new server, whose tools are read if it can be reached within 30 s, else at the first use.

        Raises: InvalidInput, AlreadyExists, SecretKeyMissing; NotFound: a secret.
        """
        server = await self.add(name, check=False, **options)
        try:
            async with asyncio.timeout(FIRST_READ_S):
                await self.refresh(server.id)
        except (PerdureError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            log.warning("MCP server %s is registered, but its tools could not be read: %s", server.id, reason)
        return await self.get(server.id)

    async def look(self, **options: Unpack[ServerOptions]) -> ToolListing:
        """The tools that a server lists; it is not registered."""
        server, secrets = await self._build("look", options, open_secrets=True, new=False)
        try:
            return await self._connections.look(server, secrets)
        finally:
            await self._connections.forget(server.id)

    async def list(self) -> Sequence[McpServer]:
        """All servers, in order of creation."""
        return await self._ports.store.read(lambda tx: tx.mcp.list())

    async def list_of_agent(self, agent_id: AgentId) -> Sequence[McpServer]:
        """The servers of which the agent has a tool, sorted as `list`. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[McpServer]:
            tx.agents.model(agent_id)
            found = [tx.mcp.find_tool(tool.id) for tool in tx.tools.list_by_agent(agent_id)]
            ids = {tool.server_id for tool in found if tool is not None}
            return [server for server in tx.mcp.list() if server.id in ids]

        return await self._ports.store.read(read)

    async def get(self, server_id: McpServerId) -> McpServer:
        """Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.mcp.get(server_id))

    async def get_by_name(self, name: str) -> McpServer:
        """Raises: NotFound."""
        server = await self._ports.store.read(lambda tx: tx.mcp.find_by_name(name))
        if server is None:
            raise NotFound("MCP server", name)
        return server

    async def resolve(self, name_or_id: str) -> McpState:
        """The server of this name or id, with its tools. Raises: NotFound, naming what there is."""
        check_text("an MCP server's name or id", name_or_id)

        def load(tx: Tx) -> tuple[McpServer, Sequence[McpTool]]:
            server = find_server(tx, name_or_id)
            return server, list_known_tools(tx, server.id)

        server, tools = await self._ports.store.read(load)
        return McpState(server=server, tools=tools, open=self._connections.is_open(server.id))

    async def update(self, server_id: McpServerId, changes: McpChanges) -> McpServer:
        """Change a server and return it. Its tools keep their names; the next call opens a new connection.

        For a URL of another origin, the server counts as private if the URL leads to this machine or a private
        network. `private` among the changes overrides that.
        Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing.
        """
        before, ports = await self.get(server_id), self._ports
        url = changes.url
        if isinstance(url, str) and changes.private is None and not same_origin(url, before.url):
            changes = replace(changes, private=await self.leads_inside(url))
        server = await ports.store.write(
            change_server, server_id, changes, ids=ports.ids, cipher=ports.cipher, at=ports.clock.now()
        )
        await self._connections.forget(server_id)
        return server

    async def remove(self, server_id: McpServerId) -> None:
        """Remove a server with its tools, which agents then have no more. Raises: NotFound."""
        step = partial(remove_server_rows, server_id=server_id, limit=TOOLS_PER_STEP)
        while not await delete(self._ports, step):
            pass
        await self._connections.forget(server_id)

    async def refresh(self, server_id: McpServerId) -> ToolsByStatus:
        """Connect anew and read a server's tools. A new one waits for approval, unless the server is trusted."""
        before = {tool.name for tool in await self.list_known(server_id) if tool.pinned is not None}
        await self._connections.refresh(server_id)
        tools = await self._ports.store.read(list_tools_by_status, server_id)
        return replace(tools, added=tuple(name for name in tools.active if name not in before))

    async def approve(
        self, server_id: McpServerId, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> ToolsByStatus:
        """Approve the present definitions of these tools, or of all; see `approve_tools`."""
        ports = self._ports
        return await ports.store.write(
            approve_tools, server_id, tools, expected=expected, ids=ports.ids, at=ports.clock.now()
        )

    # --- tools of a server

    async def list_known(self, server_id: McpServerId) -> Sequence[McpTool]:
        """A server's tools, approved or offered, by their names there. Raises: NotFound."""
        return await self._ports.store.read(list_known_tools, server_id)

    async def list_tools(self, server_id: McpServerId) -> Sequence[Tool]:
        """The server's tools that agents can be given, by name. Raises: NotFound."""
        return await self._ports.store.read(_list_tools, server_id)

    async def get_tool(self, server_id: McpServerId, tool_id: ToolId) -> Tool:
        """Raises: NotFound: another server's, or none."""
        for tool in await self.list_tools(server_id):
            if tool.id == tool_id:
                return tool
        raise NotFound("tool", tool_id)

    async def approve_unless_changed(self, server_id: McpServerId, name: str) -> Tool:
        """The tool that agents are given for one of the server. A new or removed one is approved, never a changed one.

        Args:
            name: the server's name of it, or the one that agents use.
        Raises: NotFound, Conflict; InvalidInput: it is unusable.
        """
        mcp_tool = find_tool(await self.list_known(server_id), name)
        if mcp_tool.status in ("pending", "removed", "unusable") and mcp_tool.seen is not None:
            await self.approve(server_id, [mcp_tool.name], expected={mcp_tool.name: mcp_tool.seen.digest})
            mcp_tool = find_tool(await self.list_known(server_id), name)
        tool_id = mcp_tool.tool_id
        if tool_id is None:
            raise NotFound("MCP tool", name)
        return await self._ports.store.read(lambda tx: tx.tools.with_own_names([tx.tools.get(tool_id)])[0])

    async def run(self, server_id: McpServerId, name_or_id: str, arguments: Mapping[str, object]) -> ToolOutcome:
        """The outcome of a call of a tool, to try it out. Raises: NotFound: no such server, or no such tool here."""
        tools = await self.list_known(server_id)
        mcp_tool = next((one for one in tools if name_or_id in (one.name, one.local_name, one.tool_id)), None)
        if mcp_tool is None or mcp_tool.tool_id is None or mcp_tool.removed:
            raise NotFound("approved MCP tool", name_or_id)
        tool_id = mcp_tool.tool_id
        tool = await self._ports.store.read(lambda tx: tx.tools.get(tool_id))
        return await self._connections.run(tool, arguments)

    async def run_tool(self, server_id: McpServerId, tool_id: ToolId, arguments: Mapping[str, object]) -> ToolOutcome:
        """The same by the id of a tool that agents can be given. Raises: NotFound: another server's, or none."""
        return await self._connections.run(await self.get_tool(server_id, tool_id), arguments)

    async def leads_inside(self, url: str) -> bool:
        """Whether a url leads to this machine or a private network now. False for a text that is no url."""
        try:
            return bool(url) and await self._connections.leads_inside(url)
        except ValueError:
            return False

    async def _build(
        self, name: str, options: ServerOptions, *, open_secrets: bool, new: bool = True
    ) -> tuple[McpServer, ServerSecrets]:
        """The server, checked but not registered, and with `open_secrets` its secrets."""
        if unknown := options.keys() - ServerOptions.__annotations__.keys():
            raise InvalidInput(f"an MCP server has no {', '.join(sorted(unknown))}")
        url, command = options.get("url", ""), options.get("command", "")
        if not (isinstance(url, str) and isinstance(command, str)) or bool(url) == bool(command):
            raise InvalidInput("an MCP server is a url or a command: give one of the two")
        if options.get("private") is None:
            options = {**options, "private": await self.leads_inside(url)}
        ports = self._ports
        server_id, now = McpServerId(ports.ids.new("mcp_server")), ports.clock.now()

        def build(tx: Tx) -> tuple[McpServer, ServerSecrets]:
            server = build_server(tx, name, options, server_id=server_id, cipher=ports.cipher, at=now, new=new)
            return server, open_server(tx, server, cipher=ports.cipher) if open_secrets else ServerSecrets()

        return await ports.store.read(build)


def _list_tools(tx: Tx, server_id: McpServerId) -> Sequence[Tool]:
    """The agents' tools of a server, by name."""
    ids = tuple(tool.tool_id for tool in tx.mcp.tools(server_id) if tool.tool_id is not None)
    page = tx.tools.page(where=ToolFilter(ids=ids), ascending=True, limit=SERVER_TOOLS_MAX)
    return sorted(tx.tools.with_own_names(page), key=lambda tool: tool.spec.name)
