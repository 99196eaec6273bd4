"""Units of work on MCP servers: register, change and remove them; sync and approve their tools."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound, SecretUnreadable
from perdure.core.features import Point
from perdure.core.ids import Ids, McpServerId, ToolId
from perdure.core.secrets import Cipher
from perdure.core.specs import Tool, ToolSpec
from perdure.domain.rotation import RotationResult
from perdure.domain.secrets import resolve_values
from perdure.engine.ports import Ports
from perdure.features.mcp import values as mcp
from perdure.features.mcp.tables import Servers
from perdure.settings import Settings
from perdure.storage.tx import Tx

SERVER_UNUSED: Point[[Settings, str, str], str] = Point("server_unused")
"""Why the server with this id, which a plug-in of this name registered, is not used; empty: it is."""

NAMES_SHOWN = 10
SALTS = 100


class _ServerFields(TypedDict, total=False):
    """How a server is reached: by `url`, or by `command` and `args`; see `AsyncMcp.add`.

    `token`, `headers` and `environment` are stored encrypted, and may name secrets of the organisation: `secret:NAME`.
    """

    url: str
    command: str
    args: Sequence[str]
    token: str | None
    auth_header: str | None
    headers: Mapping[str, str] | None
    environment: Mapping[str, str] | None
    trusted: bool
    private: bool | None


class ServerOptions(_ServerFields, total=False):
    """The options of a new server."""

    transport: mcp.Transport | None
    plugin: str


class McpChanges(_ServerFields, total=False):
    """Changes of a server; a field that is missing or None stays. `headers` and `environment` replace the stored ones;
    in them, and as `token`, an empty value keeps the stored one."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsByStatus:
    """The state of a server's tools: the server's own names of them by status, sorted."""

    active: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """The tools that can be attached to agents from now on."""

    left_out: tuple[mcp.InvalidEntry, ...] = ()
    """Entries of the listing that are no usable tools, with the reason, in order."""


def build_server(
    tx: Tx, name: str, options: ServerOptions, *, server_id: McpServerId, cipher: Cipher, at: datetime, new: bool = True
) -> mcp.McpServer:
    """Build a server with encrypted secrets, after checking it.

    Args:
        options: `private` says whether the url may lead to a private network.
        new: also check that no other server has its name.
    Raises: InvalidInput, AlreadyExists, SecretKeyMissing, SecretUnreadable.
    """
    command = options.get("command", "")
    server = mcp.McpServer(
        id=server_id,
        org_id=tx.org_id,
        name=name,
        transport=options.get("transport") or ("stdio" if command else "streamable_http"),
        command=command,
        args=tuple(options.get("args", ())),
        url=options.get("url", ""),
        auth_header=options.get("auth_header"),
        trusted=options.get("trusted", False),
        private=options.get("private"),
        plugin=options.get("plugin", ""),
        created_at=at,
        updated_at=at,
    )
    secrets = mcp.ServerSecrets(
        token=options.get("token") or None,
        headers=options.get("headers") or {},
        environment=options.get("environment") or {},
    )
    mcp.check_server(server, secrets)
    if new and tx.of(Servers).find_by_name(server.name) is not None:
        raise AlreadyExists("MCP server", server.name)
    return mcp.seal_server(server, secrets, cipher=cipher)


def register_server(
    tx: Tx, server: mcp.McpServer, listing: mcp.ToolListing | None, *, ids: Ids, at: datetime
) -> mcp.McpServer:
    """Store a new server and approve the tools of its first listing.

    Args:
        server: from `build_server`.
        listing: None: not read yet.
    Raises: AlreadyExists.
    """
    tx.of(Servers).add(server)
    if listing is not None:
        sync_tools(tx, server.id, listing, ids=ids, at=at)
    return tx.of(Servers).get(server.id)


def change_server(
    tx: Tx, server_id: McpServerId, changes: McpChanges, *, ids: Ids, cipher: Cipher, at: datetime
) -> mcp.McpServer:
    """Change a server and return it. Its tools keep their names. Raises: NotFound, InvalidInput, AlreadyExists,
    SecretKeyMissing, SecretUnreadable."""
    before = tx.of(Servers).get(server_id)
    stored = mcp.unseal_server(before, cipher=cipher)
    fields: dict[str, Any] = {
        name: value
        for name, value in changes.items()
        if value is not None and name not in ("token", "headers", "environment")
    }
    if "args" in fields:
        fields["args"] = tuple(fields["args"])
    if fields.get("url") == before.shown_url:  # as it is shown: its query stays
        del fields["url"]
    after = replace(before, **fields, updated_at=at)
    secrets = mcp.ServerSecrets(
        token=changes.get("token") or stored.token,
        headers=_merge_secrets(changes.get("headers"), stored.headers),
        environment=_merge_secrets(changes.get("environment"), stored.environment),
        query=stored.query if after.url == before.url else "",
    )
    mcp.check_server(after, secrets)
    if not same_origin(after.url, before.url):
        _check_host_change(changes, stored)
    after = tx.of(Servers).put(mcp.seal_server(after, secrets, cipher=cipher))
    for mcp_tool in (
        tx.of(Servers).tools(server_id) if after.name != before.name or after.trusted != before.trusted else ()
    ):
        if mcp_tool.pinned is not None and _find_agents_tool(tx, mcp_tool) is not None:
            tag = mcp.server_tag(before.name)
            _approve_definition(tx, after, mcp_tool, mcp_tool.pinned, ids=ids, at=at, tag_before=tag)
    return after


def same_origin(url: str, other: str) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    return url.split("/")[:3] == other.split("/")[:3]


def why_unused(settings: Settings, server: mcp.McpServer) -> str:
    """Return why a registered server is not used, in words; empty: it is."""
    return next(filter(None, SERVER_UNUSED(settings, server.plugin, server.id)), "") if server.plugin else ""


def find_server(tx: Tx, name_or_id: str) -> mcp.McpServer:
    """Return a server by name or id. Raises: NotFound, with the names of other servers."""
    existing = tx.of(Servers).find_by_name(name_or_id)
    if existing is not None:
        return existing
    servers = tx.of(Servers).list()
    for server in servers:
        if server.id == name_or_id:
            return server
    names = ", ".join(repr(server.name) for server in servers[:NAMES_SHOWN])
    raise NotFound("MCP server", name_or_id, hint=f"there are {names}" if names else "there is none yet")


def remove_server_rows(tx: Tx, server_id: McpServerId, *, limit: int) -> bool:
    """Remove up to `limit` of a server's tools, then the server; return whether it is gone.

    Call it again until then; a crash in between does no harm. Raises: NotFound.
    """
    tools = tx.of(Servers).tools(server_id)
    for mcp_tool in tools[:limit]:
        _delete_agents_tool(tx, mcp_tool)
        tx.of(Servers).delete_tool(server_id, mcp_tool.name)
    if len(tools) > limit:
        return False
    tx.of(Servers).delete(server_id)
    return True


def is_current(tx: Tx, server_id: McpServerId, listing: mcp.ToolListing) -> bool:
    """Return whether a listing equals the stored one. Raises: NotFound."""
    server = tx.of(Servers).get(server_id)
    stored = {
        mcp_tool.name: mcp_tool.seen.digest for mcp_tool in tx.of(Servers).tools(server_id) if mcp_tool.seen is not None
    }
    return (
        server.listed_at is not None
        and not server.failure
        and (server.private is not None or listing.inside is None)
        and server.left_out == tuple(listing.left_out)
        and stored == {definition.name: definition.digest for definition in listing.definitions}
    )


def sync_tools(tx: Tx, server_id: McpServerId, listing: mcp.ToolListing, *, ids: Ids, at: datetime) -> None:
    """Store a listing of a server's tools.

    The first listing is approved. Later, a new tool waits for approval unless the server is trusted. A changed
    definition always waits, and agents keep the approved one. A server from an older version without `private` gets it
    from the listing. Raises: NotFound.
    """
    server = tx.of(Servers).get(server_id)
    if server.private is None and listing.inside is not None:
        server = tx.of(Servers).put(replace(server, private=listing.inside))
    is_first = server.listed_at is None
    before = {mcp_tool.name: mcp_tool for mcp_tool in tx.of(Servers).tools(server_id)}
    definitions = {definition.name: definition for definition in listing.definitions}
    local_names = {
        mcp_tool.local_name for other in tx.of(Servers).list() for mcp_tool in tx.of(Servers).tools(other.id)
    }
    for name in sorted(before.keys() | definitions.keys()):
        mcp_tool = before.get(name)
        definition = definitions.get(name)
        if mcp_tool is None:
            mcp_tool = mcp.McpTool(server_id=server_id, name=name, local_name=_free_name(tx, server, name, local_names))
            local_names.add(mcp_tool.local_name)
        after = replace(mcp_tool, seen=definition)
        if after.status == "pending" and definition is not None and (is_first or server.trusted):
            after = _approve_definition(tx, server, after, definition, ids=ids, at=at)
        if after.pinned is None and after.seen is None:  # gone before its approval
            tx.of(Servers).delete_tool(server_id, name)
        elif after != before.get(name):
            tx.of(Servers).put_tool(after)
    tx.of(Servers).put_listing(server_id, failure="", at=at, left_out=listing.left_out)


def approve_tools(
    tx: Tx,
    server_id: McpServerId,
    names: Sequence[str] | None = None,
    *,
    expected: Mapping[str, str] | None = None,
    ids: Ids,
    at: datetime,
) -> ToolsByStatus:
    """Approve the server's current definitions of these tools, or of all.

    Missing tools are removed, removed ones come back, unusable ones stay as they are.

    Args:
        names: the server's own names, or those that agents use.
        expected: name -> digest of the definition that the caller reviewed.
    Raises: NotFound; InvalidInput: one of `names` is unusable; Conflict: a definition changed after the review.
    """
    server = tx.of(Servers).get(server_id)
    tools = list_known_tools(tx, server_id)
    wanted = {mcp_tool.name for mcp_tool in tools} if names is None else {find_tool(tools, name).name for name in names}
    added: list[str] = []
    for mcp_tool in tools:
        is_left_out = mcp_tool.status == "unusable" and names is None
        if mcp_tool.name not in wanted or mcp_tool.status == "active" or is_left_out:
            continue
        if mcp_tool.status == "unusable":
            raise InvalidInput(f"MCP tool {mcp_tool.name!r} of {server.name!r} can't be used: {mcp_tool.problem}")
        if expected is not None and (mcp_tool.seen and mcp_tool.seen.digest) != expected.get(mcp_tool.name):
            raise Conflict(f"MCP tool {mcp_tool.name!r} has changed again since it was looked at: look at it once more")
        if mcp_tool.seen is None:
            _delete_agents_tool(tx, mcp_tool)
            tx.of(Servers).delete_tool(server_id, mcp_tool.name)
            continue
        if mcp_tool.pinned is None or mcp_tool.removed:
            added.append(mcp_tool.name)
        tx.of(Servers).put_tool(
            _approve_definition(tx, server, replace(mcp_tool, removed=False), mcp_tool.seen, ids=ids, at=at)
        )
    return replace(list_tools_by_status(tx, server_id), added=tuple(added))


def _approve_definition(
    tx: Tx,
    server: mcp.McpServer,
    mcp_tool: mcp.McpTool,
    definition: mcp.ToolDefinition,
    *,
    ids: Ids,
    at: datetime,
    tag_before: str | None = None,
) -> mcp.McpTool:
    """Create or update the tool that agents have for a server's tool, by an approved definition; return the server's
    tool. `tag_before`: the tag of a server that gets another name, which the tool loses."""
    before = _find_agents_tool(tx, mcp_tool)
    hints = definition.annotations if server.trusted else {}
    reads = hints.get("readOnlyHint") is True
    fields: dict[str, Any] = {
        "description": definition.description,
        "parameters": definition.parameters,
        "idempotent": reads or hints.get("idempotentHint") is True,
        "parallel": reads,
    }
    tag = mcp.server_tag(server.name)
    if before is None:
        spec = ToolSpec(name=mcp_tool.local_name, kind="mcp", tool_type="external_mcp", **fields)
        tool = tx.tools.add(Tool(id=ToolId(ids.new("tool")), spec=spec, tags=(tag,)), at=at)
    else:  # local options stay: limit, approval, tags
        tags = dict.fromkeys((tag, *(one for one in before.tags if one != tag_before)))
        tool = tx.tools.update(replace(before, spec=replace(before.spec, **fields), tags=tuple(tags)), at=at)
    return replace(mcp_tool, tool_id=tool.id, pinned=definition)


def _find_agents_tool(tx: Tx, mcp_tool: mcp.McpTool) -> Tool | None:
    """Return the tool that agents have for a server's tool; None if it is not approved, or was deleted."""
    try:
        return None if mcp_tool.tool_id is None else tx.tools.get(mcp_tool.tool_id)
    except NotFound:
        return None


def _delete_agents_tool(tx: Tx, mcp_tool: mcp.McpTool) -> None:
    """Delete the agents' tool of a server's tool, if it is still there."""
    if (tool := _find_agents_tool(tx, mcp_tool)) is not None:
        tx.tools.delete(tool.id)


def _free_name(tx: Tx, server: mcp.McpServer, name: str, used: Set[str]) -> str:
    """Return a free name for agents to call a tool by; tools that wait for approval hold their names too."""
    for salt in range(SALTS):
        local = mcp.local_name(server.name, name, salt=salt)
        if local not in used and tx.tools.find_by_name(local) is None:
            return local
    raise InvalidInput(f"MCP tool {name!r:.80} of {server.name!r} can't be named: too many tools are called like it")


def find_tool(tools: Sequence[mcp.McpTool], name: str) -> mcp.McpTool:
    """Return a tool by the server's name of it or the one that agents use. Raises: NotFound, naming what there is."""
    for mcp_tool in tools:
        if name in (mcp_tool.name, mcp_tool.local_name):
            return mcp_tool
    names = ", ".join(repr(mcp_tool.name) for mcp_tool in tools[:NAMES_SHOWN])
    raise NotFound("MCP tool", name, hint=f"there are {names}" if names else "the server has none")


def list_known_tools(tx: Tx, server_id: McpServerId) -> Sequence[mcp.McpTool]:
    """Return a server's tools in the order of its own names, those deleted here marked `removed`. Raises: NotFound."""
    return [
        replace(tool, removed=tool.tool_id is not None and _find_agents_tool(tx, tool) is None)
        for tool in tx.of(Servers).tools(server_id)
    ]


def list_tools_by_status(tx: Tx, server_id: McpServerId) -> ToolsByStatus:
    """Return the state of a server's tools. Raises: NotFound."""
    by_status: dict[str, list[str]] = {}
    for mcp_tool in list_known_tools(tx, server_id):
        by_status.setdefault(mcp_tool.status, []).append(mcp_tool.name)
    lists: dict[str, Any] = {status: tuple(names) for status, names in by_status.items()}
    return replace(ToolsByStatus(**lists), left_out=tx.of(Servers).get(server_id).left_out)


def _merge_secrets(values: Mapping[str, str] | None, stored: Mapping[str, str]) -> Mapping[str, str]:
    """Return the new values, with the stored one where a value is empty; the stored ones if there are no new ones."""
    if values is None:
        return stored
    return {name: value or stored.get(name, "") for name, value in values.items()}


def _check_host_change(changes: McpChanges, stored: mcp.ServerSecrets) -> None:
    """Check that no stored secret goes to another host than it was stored for. Raises: InvalidInput."""
    new = changes.get("headers")
    headers_kept = [name for name in stored.headers if new is None or (name in new and not new[name])]
    if (stored.token and not changes.get("token")) or headers_kept:
        raise InvalidInput(
            "the url leads to another host, and the token or headers that are stored were given for the old one:"
            " give them again, or remove the server and register the new one"
        )


def open_server(tx: Tx, server: mcp.McpServer, *, cipher: Cipher) -> mcp.ServerSecrets:
    """Return a server's secrets, `secret:NAME` resolved. Raises: SecretKeyMissing, SecretUnreadable, NotFound."""
    secrets = mcp.unseal_server(server, cipher=cipher)
    return mcp.ServerSecrets(
        token=secrets.token and resolve_values(tx, {"token": secrets.token}, cipher=cipher)["token"],
        headers=resolve_values(tx, secrets.headers, cipher=cipher),
        environment=resolve_values(tx, secrets.environment, cipher=cipher),
        query=secrets.query and resolve_values(tx, {"query": secrets.query}, cipher=cipher)["query"],
    )


def rotate_servers(tx: Tx, cipher: Cipher) -> RotationResult:
    """Encrypt the secrets of all servers again that have an older key. Raises: SecretKeyMissing."""
    rotated = RotationResult()
    for server in tx.of(Servers).list(limit=100_000):
        if not server.sealed or cipher.is_current(server.sealed):
            continue
        try:
            tx.of(Servers).put(mcp.reseal_server(tx.of(Servers).get(server.id), cipher=cipher))
            rotated += RotationResult(1)
        except SecretUnreadable:
            rotated += RotationResult(unreadable=(f"MCP server {server.name}",))
    return rotated


def approved_facts(tx: Tx, tool: Tool) -> Mapping[str, Any]:
    """Name what a call of a server's tool runs: the server, its tool, and the digest of the approved definition."""
    mcp_tool = tx.of(Servers).find_tool(tool.id) if tool.spec.kind == "mcp" else None
    if mcp_tool is None:
        return {}
    definition = None if mcp_tool.pinned is None else mcp_tool.pinned.digest
    return {"server": mcp_tool.server_id, "tool": mcp_tool.name, "definition": definition}


class McpRegistry:
    """The registered servers and their tools, for the sessions with them."""

    def __init__(self, ports: Ports) -> None:
        self._ports, self._store = ports, ports.store

    async def get_server(self, server_id: McpServerId) -> mcp.McpServer:
        """The server as it is registered now. Raises: NotFound."""
        return await self._store.read(lambda tx: tx.of(Servers).get(server_id))

    async def open_secrets(self, server: mcp.McpServer) -> mcp.ServerSecrets:
        """The decrypted secrets of a server. Raises: NotFound, SecretKeyMissing, SecretUnreadable."""
        return await self._store.read(open_server, server, cipher=self._ports.cipher)

    async def get_tool(self, tool_id: ToolId) -> mcp.McpTool:
        """The server's tool that agents have as this tool. Raises: NotFound: its server was removed."""
        tool = await self._store.read(lambda tx: tx.of(Servers).find_tool(tool_id))
        if tool is None:
            raise NotFound("MCP tool", tool_id, hint="its server was removed")
        return tool

    async def omission_reason(self, tool: mcp.McpTool) -> str:
        """Why the last listing could not use this tool; empty: the server did not list it."""
        omitted = (await self.get_server(tool.server_id)).left_out
        return next((entry.reason for entry in omitted if entry.name == tool.name), "")

    async def store_listing(self, server_id: McpServerId, listing: mcp.ToolListing) -> None:
        """Store a new listing of a server's tools."""
        if not await self._store.read(is_current, server_id, listing):
            await self._store.write(sync_tools, server_id, listing, ids=self._ports.ids, at=self._ports.clock.now())

    async def store_failure(self, server_id: McpServerId, reason: str) -> None:
        """Store why a server could not be reached."""
        at = self._ports.clock.now()
        with contextlib.suppress(NotFound):  # the server was removed meanwhile
            await self._store.write(lambda tx: tx.of(Servers).put_listing(server_id, failure=reason, at=at))
