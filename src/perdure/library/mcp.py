"""MCP servers: registered, looked at, approved, removed. What is registered here is registered by an admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import McpServerId
from perdure.core.mcp import McpServer, McpTool, ServerSecrets, ToolListing, Transport
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.mcp import (
    McpChanges,
    Registration,
    Synced,
    approve_tools,
    change_server,
    find_server,
    register_server,
    remove_server_rows,
    same_origin,
    server_of,
    state_of,
    tools_of,
)
from perdure.domain.secrets import open_server
from perdure.engine.conversations.reset import delete
from perdure.library.checks import check_text
from perdure.storage.tx import Tx

__all__ = ["AsyncMcp", "McpState"]

TOOLS_A_STEP = 50
"""Of a server that is removed, in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpState:
    """A server and how it stands here. `open`: there is a connection now."""

    server: McpServer
    tools: Sequence[McpTool]
    open: bool


class AsyncMcp:
    """The MCP servers of the store. A server is named by its name or id."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def add(
        self,
        name: str,
        *,
        url: str = "",
        command: str = "",
        args: Sequence[str] = (),
        transport: Transport | None = None,
        token: str | None = None,
        auth_header: str | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        trusted: bool = False,
        private: bool | None = None,
        check: bool = True,
    ) -> McpServer:
        """The new server, with the tools that it lists now: registering it approves them.

        Args:
            name: begins the names of its tools, as in `name__tool`.
            url: where it answers; or `command` and `args`: the program on this machine that it is.
            transport: by default `stdio` for a command, else `streamable_http`; `sse` is for older servers.
            token: sent as `Authorization: Bearer ...`, or in the header `auth_header` as it is.
            headers, environment: what is sent besides; all variables a program sees but PATH, HOME and the like. Like
                the token they are kept encrypted, and `secret:NAME` stands for a secret of the organisation.
            trusted: tools that it offers later need no approval, and its hints on what a tool does are believed.
            private: whether the url may lead to this machine or a private network. By default it may if it does so
                now; a host outside is not followed there later.
            check: whether it has to be reached now. If not, its first listing is read, and approved, when it is.
        Raises: InvalidInput, AlreadyExists, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        registration = await self._registration(
            name=name,
            transport=transport,
            command=command,
            args=args,
            url=url,
            auth_header=auth_header,
            token=token,
            headers=headers,
            environment=environment,
            trusted=trusted,
            private=private,
        )
        server, secrets = await self._made(registration, opened=check)
        ports = self._app.ports
        listing = await self._app.mcp.look(server, secrets) if check else None
        try:
            return await ports.store.write(register_server, server, listing, ids=ports.ids, at=ports.clock.now())
        except BaseException:
            await self._app.mcp.forget(server.id)
            raise

    async def look(self, **how: Any) -> ToolListing:
        """What a server says of its tools, without registering it: to try out whether it can be reached.

        Args:
            how: as `add` has it, without `name` and `check`.
        Raises: InvalidInput, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        if unknown := how.keys() - Registration.__slots__ | how.keys() & {"name"}:
            raise InvalidInput(f"an MCP server is looked at without {', '.join(sorted(unknown))}")
        server, secrets = await self._made(await self._registration(name="look", **how), opened=True, new=False)
        try:
            return await self._app.mcp.look(server, secrets)
        finally:
            await self._app.mcp.forget(server.id)

    async def list(self) -> Sequence[McpServer]:
        """In order of creation."""
        return await self._app.store.read(lambda tx: tx.mcp.list())

    async def get(self, name: str) -> McpState:
        """A server and its tools. Raises: NotFound, naming what there is."""
        check_text("an MCP server's name or id", name)

        def unit(tx: Tx) -> tuple[McpServer, Sequence[McpTool]]:
            server = find_server(tx, name)
            return server, tools_of(tx, server.id)

        server, tools = await self._app.store.read(unit)
        return McpState(server=server, tools=tools, open=self._app.mcp.is_open(server.id))

    async def tools(self, name: str) -> Sequence[McpTool]:
        """What is known of a server's tools, by their names there: approved and seen. Raises: NotFound."""
        return (await self.get(name)).tools

    async def refresh(self, name: str) -> Synced:
        """Connect anew and read a server's tools. What is new waits for approval, unless the server is trusted.

        Raises: NotFound, McpUnreachable, ExtraMissing, SecretKeyMissing, SecretUnreadable.
        """
        server_id = await self._id(name)
        before = {known.name for known in await self.tools(name) if known.pinned is not None}
        await self._app.mcp.read(server_id)
        synced = await self._app.store.read(state_of, server_id)
        return replace(synced, added=tuple(known for known in synced.active if known not in before))

    async def approve(
        self, name: str, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> Synced:
        """Have agents see what the server says now, of these tools or of all. Missing tools are removed,
        removed ones come back.

        Args:
            tools: the server's names of them, or those that agents use.
            expected: name there -> digest of the definition that was looked at; it must still be the one.
        Raises: NotFound, Conflict; InvalidInput: one of them is unusable.
        """
        server_id = await self._id(name)
        ports = self._app.ports
        return await ports.store.write(
            approve_tools, server_id, tools, expected=expected, ids=ports.ids, at=ports.clock.now()
        )

    async def update(self, name: str, /, **changes: Any) -> McpServer:
        """The server as changed: `name`, `command`, `args`, `url`, `auth_header`, `token`, `headers`, `environment`,
        `trusted`, `private`. Its tools keep their names; the next call connects anew. A new url says by itself whether
        it is a private one, unless that is given.

        Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing.
        """
        if unknown := changes.keys() - McpChanges.__slots__:
            raise InvalidInput(f"an MCP server has no field {', '.join(sorted(unknown))} to change")
        before, ports = (await self.get(name)).server, self._app.ports
        url = changes.get("url")
        if isinstance(url, str) and changes.get("private") is None and not same_origin(url, before.url):
            changes |= {"private": await self._leads_inside(url)}
        server = await ports.store.write(
            change_server,
            before.id,
            McpChanges(**changes),
            ids=ports.ids,
            cipher=ports.cipher,
            at=ports.clock.now(),
        )
        await self._app.mcp.forget(server.id)
        return server

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, which agents then have no more. Raises: NotFound."""
        server_id = await self._id(name)
        while not await delete(self._app.ports, partial(remove_server_rows, server_id=server_id, limit=TOOLS_A_STEP)):
            pass
        await self._app.mcp.forget(server_id)

    async def run(self, name: str, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """What came of a call of a tool, to try it out. Raises: NotFound: no such server, or no such tool here."""
        known = next((one for one in await self.tools(name) if tool in (one.name, one.local_name, one.tool_id)), None)
        if known is None or known.tool_id is None or known.removed:
            raise NotFound("approved MCP tool", tool)
        tool_id = known.tool_id
        return await self._app.mcp.run(await self._app.store.read(lambda tx: tx.tools.get(tool_id)), arguments or {})

    async def _registration(
        self,
        *,
        name: str,
        url: str = "",
        command: str = "",
        args: Sequence[str] = (),
        transport: Transport | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        private: bool | None = None,
        **more: Any,
    ) -> Registration:
        if not (isinstance(url, str) and isinstance(command, str)) or bool(url) == bool(command):
            raise InvalidInput("an MCP server is a url or a command: give one of the two")
        chosen: Transport = transport or ("stdio" if command else "streamable_http")
        return Registration(
            name=name,
            transport=chosen,
            command=command,
            args=tuple(args),
            url=url,
            headers=dict(headers or {}),
            environment=dict(environment or {}),
            private=await self._leads_inside(url) if private is None else private,
            **more,
        )

    async def _made(
        self, registration: Registration, *, opened: bool, new: bool = True
    ) -> tuple[McpServer, ServerSecrets]:
        """The server, checked but not registered, and with `opened` its secrets."""
        ports, now = self._app.ports, self._app.ports.clock.now()
        server_id = McpServerId(ports.ids.new("mcp_server"))

        def unit(tx: Tx) -> tuple[McpServer, ServerSecrets]:
            server = server_of(tx, registration, server_id=server_id, cipher=ports.cipher, at=now, new=new)
            return server, open_server(tx, server, cipher=ports.cipher) if opened else ServerSecrets()

        return await ports.store.read(unit)

    async def _leads_inside(self, url: str) -> bool:
        """Whether a url leads to this machine or a private network now; what is no url is refused later."""
        try:
            return bool(url) and await self._app.mcp.leads_inside(url)
        except ValueError:
            return False

    async def _id(self, name: str) -> McpServerId:
        return (await self.get(name)).server.id
