"""MCP servers: registered, read, compared, changed and removed, and the tools they offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack, cast

from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import AgentId, McpServerId, ToolId, is_id
from perdure.core.specs import Tool, ToolFilter, ToolOutcome
from perdure.core.tasks import undone_by
from perdure.engine.conversations.reset import delete
from perdure.features.mcp.places import leads_inside
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.toolbox import McpToolbox
from perdure.features.mcp.units import (
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
    open_server,
    register_server,
    remove_server_rows,
    same_origin,
    why_unused,
)
from perdure.features.mcp.values import SERVER_TOOLS_MAX, McpServer, McpTool, ServerSecrets, ToolListing
from perdure.library.parts.checks import check_text
from perdure.library.parts.part import AsyncPart, reads
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

TOOLS_PER_STEP = 50
"""How many tools of a server one transaction removes."""

FIRST_READ_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpState:
    """A server, its tools, and whether a connection to it is open now."""

    server: McpServer
    tools: Sequence[McpTool]
    open: bool


class AsyncMcp(AsyncPart):
    """The MCP servers of the store. A server is named by its name or id."""

    @property
    def _toolbox(self) -> McpToolbox:
        return self._app.service(McpToolbox)

    async def add(self, name: str, *, check: bool = True, **options: Unpack[ServerOptions]) -> McpServer:
        """Register a server and approve the tools that it lists now.

        Args:
            name: begins the names of its tools, as in `name__tool`.
            check: whether the server has to answer now. If not, its tools are read and approved when it first answers.
            options: `url`: its address; or `command` and `args`: the program to run on this machine.
                `transport`: by default `stdio` for a command, else `streamable_http`; `sse` is for older servers.
                `token`: sent as `Authorization: Bearer ...`, or in the header `auth_header` as it is.
                `headers`: further headers. `environment`: the variables of the program, beside PATH, HOME and the like.
                Like the token they are stored encrypted; `secret:NAME` is a secret of the organisation.
                `trusted`: tools that it offers later need no approval, and its hints on what a tool does are believed.
                `private`: whether the url may lead to this machine or a private network; by default, if it does now.
                `plugin`: the plug-in that brings it, without which it is not used.
        Raises: InvalidInput, AlreadyExists, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        server, secrets = await self._build(name, options, open_secrets=check)
        listing = await self._toolbox.look(server, secrets) if check else None
        ports = self._ports
        async with undone_by(lambda: self._toolbox.forget(server.id)):
            return await ports.store.write(register_server, server, listing, ids=ports.ids, at=ports.clock.now())

    async def add_and_read(self, name: str, **options: Unpack[ServerOptions]) -> McpServer:
        """Register a server, and read its tools if it can be reached within 30 s, else at the first use.

        Options as `add` takes them. Raises: InvalidInput, AlreadyExists, SecretKeyMissing; NotFound: a secret.
        """
        server = await self.add(name, check=False, **options)
        try:
            async with asyncio.timeout(FIRST_READ_S):
                await self.refresh(server.id)
        except (PerdureError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            log.warning("MCP server %s is registered, but its tools could not be read: %s", server.id, reason)
        return await self.server(server.id)

    async def look(self, **options: Unpack[ServerOptions]) -> ToolListing:
        """The tools that a server lists, without registering it.

        Args:
            options: `url`, or `command` and `args`; `transport`, `token`, `auth_header`, `headers`, `environment`,
                `trusted`, `private`, `plugin`: as in `add`.
        Raises: InvalidInput, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        return await self._look(*await self._build("look", options, open_secrets=True, new=False))

    async def look_again(self, server_id: McpServerId) -> ToolListing:
        """List a registered server's tools now; nothing is stored or reconnected. Raises: as `refresh`."""
        ports = self._ports

        def read(tx: Tx) -> tuple[McpServer, ServerSecrets]:
            server = tx.of(Servers).get(server_id)
            return server, open_server(tx, server, cipher=ports.cipher)

        server, secrets = await ports.store.read(read)
        if why := why_unused(self._app.settings, server):
            raise InvalidInput(f"MCP server {server.name!r} is not used: {why}")
        return await self._look(replace(server, id=McpServerId(ports.ids.new("mcp_server"))), secrets)

    async def _look(self, server: McpServer, secrets: ServerSecrets) -> ToolListing:
        """The tools that a server lists, over a connection that ends with it. Raises: McpUnreachable, ExtraMissing."""
        try:
            return await self._toolbox.look(server, secrets)
        finally:
            await self._toolbox.forget(server.id)

    async def list(self) -> Sequence[McpServer]:
        """The servers, in order of creation; one whose plug-in is not in use says so as its `failure`."""
        found = await self._ports.store.read(lambda tx: tx.of(Servers).list())
        whys = [why_unused(self._app.settings, one) for one in found]
        return [replace(one, failure=f"not used: {why}") if why else one for one, why in zip(found, whys, strict=True)]

    @reads
    def list_of_agent(self, tx: Tx, agent_id: AgentId) -> Sequence[McpServer]:
        """The servers of which the agent has a tool, sorted as `list`. Raises: NotFound."""
        tx.agents.model(agent_id)
        found = [tx.of(Servers).find_tool(tool.id) for tool in tx.tools.list_by_agent(agent_id)]
        ids = {tool.server_id for tool in found if tool is not None}
        return [server for server in tx.of(Servers).list() if server.id in ids]

    async def get(self, name: str) -> McpState:
        """A server and its tools. Raises: NotFound, naming what there is."""
        check_text("an MCP server's name or id", name)

        def load(tx: Tx) -> tuple[McpServer, Sequence[McpTool]]:
            server = find_server(tx, name)
            return server, list_known_tools(tx, server.id)

        server, tools = await self._ports.store.read(load)
        return McpState(server=server, tools=tools, open=self._toolbox.is_open(server.id))

    async def server(self, server_id: McpServerId) -> McpServer:
        """The server of this id. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.of(Servers).get(server_id))

    async def get_by_name(self, name: str) -> McpServer:
        """The server of this name. Raises: NotFound."""
        server = await self._ports.store.read(lambda tx: tx.of(Servers).find_by_name(name))
        if server is None:
            raise NotFound("MCP server", name)
        return server

    async def tools(self, name: str) -> Sequence[McpTool]:
        """A server's tools, approved or offered, by their names there. Raises: NotFound."""
        return await self._ports.store.read(list_known_tools, await self._find_id(name))

    async def refresh(self, name: str) -> ToolsByStatus:
        """Connect again and read a server's tools. A new one waits for approval, unless the server is trusted. Raises:
        NotFound, McpUnreachable, ExtraMissing, SecretKeyMissing, SecretUnreadable."""
        server_id = await self._find_id(name)
        before = {tool.name for tool in await self.tools(server_id) if tool.pinned is not None}
        await self._toolbox.refresh(server_id)
        tools = await self._ports.store.read(list_tools_by_status, server_id)
        return replace(tools, added=tuple(name for name in tools.active if name not in before))

    async def approve(
        self, name: str, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> ToolsByStatus:
        """Approve the definitions that a server gives of these tools now, or of all, for agents to see. Tools that it
        has no more are removed, removed ones come back.

        Args:
            tools: their names at the server, or those that agents use.
            expected: name at the server -> digest of the definition that was looked at; it must still be that one.
        Raises: NotFound, Conflict; InvalidInput: one of them is unusable.
        """
        ports, server_id = self._ports, await self._find_id(name)
        return await ports.store.write(
            approve_tools, server_id, tools, expected=expected, ids=ports.ids, at=ports.clock.now()
        )

    async def update(self, name: str, /, **changes: Any) -> McpServer:
        """Change `name`, `command`, `args`, `url`, `auth_header`, `token`, `headers`, `environment`, `trusted` or
        `private` of a server and return it. Its tools keep their names; the next call connects anew. Without `private`,
        a new url decides it. Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing."""
        if unknown := changes.keys() - McpChanges.__annotations__.keys():
            raise InvalidInput(f"an MCP server has no field {', '.join(sorted(unknown))} to change")
        return await self.change(await self._find_id(name), cast(McpChanges, changes))

    async def change(self, server_id: McpServerId, changes: McpChanges) -> McpServer:
        """Change a server and return it. Its tools keep their names; the next call opens a new connection.

        For a URL of another origin, the server counts as private if the URL leads to this machine or a private network.
        `private` among the changes overrides that. Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing.
        """
        before, ports = await self.server(server_id), self._ports
        url = changes.get("url")
        if isinstance(url, str) and changes.get("private") is None and not same_origin(url, before.url):
            changes = {**changes, "private": await self.leads_inside(url)}
        server = await ports.store.write(
            change_server, server_id, changes, ids=ports.ids, cipher=ports.cipher, at=ports.clock.now()
        )
        await self._toolbox.forget(server_id)
        return server

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, which agents then have no more. Raises: NotFound."""
        server_id = await self._find_id(name)
        step = partial(remove_server_rows, server_id=server_id, limit=TOOLS_PER_STEP)
        while not await delete(self._ports, step):
            pass
        await self._toolbox.forget(server_id)

    @reads
    def list_tools(self, tx: Tx, server_id: McpServerId) -> Sequence[Tool]:
        """The server's tools that agents can be given, by name. Raises: NotFound."""
        ids = tuple(tool.tool_id for tool in tx.of(Servers).tools(server_id) if tool.tool_id is not None)
        page = tx.tools.page(where=ToolFilter(ids=ids), ascending=True, limit=SERVER_TOOLS_MAX)
        return sorted(tx.tools.with_own_names(page), key=lambda tool: tool.spec.name)

    async def get_tool(self, server_id: McpServerId, tool_id: ToolId) -> Tool:
        """The tool of this id, if it is one of the server. Raises: NotFound."""
        for tool in await self.list_tools(server_id):
            if tool.id == tool_id:
                return tool
        raise NotFound("tool", tool_id)

    async def approve_unless_changed(self, server_id: McpServerId, name: str) -> Tool:
        """Return the agents' tool for one of the server. A new or removed tool is approved, a changed one is not.

        Args:
            name: its name at the server, or the one that agents use.
        Raises: NotFound, Conflict; InvalidInput: it is unusable.
        """
        mcp_tool = find_tool(await self.tools(server_id), name)
        if mcp_tool.status in ("pending", "removed", "unusable") and mcp_tool.seen is not None:
            await self.approve(server_id, [mcp_tool.name], expected={mcp_tool.name: mcp_tool.seen.digest})
            mcp_tool = find_tool(await self.tools(server_id), name)
        tool_id = mcp_tool.tool_id
        if tool_id is None:
            raise NotFound("MCP tool", name)
        return await self._ports.store.read(lambda tx: tx.tools.with_own_names([tx.tools.get(tool_id)])[0])

    async def run(self, name: str, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """Call a tool of a server, to try it out. Raises: NotFound: no such server, or no such tool here."""
        tools = await self.tools(name)
        mcp_tool = next(
            (candidate for candidate in tools if tool in (candidate.name, candidate.local_name, candidate.tool_id)),
            None,
        )
        if mcp_tool is None or mcp_tool.tool_id is None or mcp_tool.removed:
            raise NotFound("approved MCP tool", tool)
        tool_id = mcp_tool.tool_id
        found = await self._ports.store.read(lambda tx: tx.tools.get(tool_id))
        return await self._toolbox.run(found, arguments or {})

    async def run_tool(self, server_id: McpServerId, tool_id: ToolId, arguments: Mapping[str, object]) -> ToolOutcome:
        """Call a tool by its id, and return the outcome. Raises: NotFound: the server has no such tool."""
        return await self._toolbox.run(await self.get_tool(server_id, tool_id), arguments)

    async def leads_inside(self, url: str) -> bool:
        """Whether a url leads to this machine or a private network now. False for a text that is no url."""
        try:
            return bool(url) and await leads_inside(url)
        except ValueError:
            return False

    async def _find_id(self, name: str) -> McpServerId:
        """The id of a server by its name or id. Raises: NotFound, naming what there is."""
        return McpServerId(name) if is_id("mcp_server", name) else (await self.get(name)).server.id

    async def _build(
        self, name: str, options: ServerOptions, *, open_secrets: bool, new: bool = True
    ) -> tuple[McpServer, ServerSecrets]:
        """Check the options and build the server, without storing it.

        Args:
            open_secrets: also return its decrypted secrets; else an empty `ServerSecrets`.
            new: refuse a name that another server has.

        Raises: InvalidInput.
        """
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
