"""`Toolbox` of the tools of MCP servers: a session for each server, and calls of approved tools only."""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ExtraMissing, InvalidInput, McpUnreachable, PerdureError
from perdure.core.ids import McpServerId
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.incoming.limits import DEFAULT_LIMITS
from perdure.core.messages import IMAGE_TYPES, Image, ToolStatus
from perdure.core.ports import CallContext
from perdure.core.sources import Source
from perdure.core.specs import Tool, ToolOutcome
from perdure.core.tasks import undone_by
from perdure.core.text.json_strings import compact_json
from perdure.features.mcp.connect import is_installed
from perdure.features.mcp.errors import McpGone, McpLate
from perdure.features.mcp.session import McpSession
from perdure.features.mcp.units import McpRegistry, why_unused
from perdure.features.mcp.values import McpServer, McpTool, ServerSecrets, ToolListing

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from perdure.app import App

IMAGES_MAX = 10
IMAGE_CHARS_MAX = DEFAULT_LIMITS.image_limit_bytes * 4 // 3
"""The most pictures of a result, and characters of one in base64."""
WATCH_S = 30.0
"""How often is looked whether the plug-in that brings a server is still in use."""
RESULT_CHARS_MAX = 1_000_000
"""More text than any tool's own limit allows; the rest is not converted."""


def toolbox_of(app: App) -> McpToolbox:
    """Make the toolbox of MCP tools for an engine."""
    return McpToolbox(
        McpRegistry(app.ports),
        timeout_s=app.settings.mcp_timeout_s,
        why_unused=functools.partial(why_unused, app.settings),
    )


class McpToolbox:
    """The sessions with registered MCP servers.

    Args:
        timeout_s: the time limit of a call whose tool sets none.
        why_unused: why a registered server is not used; empty: it is.
    """

    def __init__(
        self, registry: McpRegistry, *, timeout_s: float = 60.0, why_unused: Callable[[McpServer], str] = lambda _: ""
    ) -> None:
        self._registry, self._timeout_s, self._why_unused = registry, timeout_s, why_unused
        self._sessions: dict[McpServerId, McpSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._watching: dict[McpServerId, asyncio.Task[None]] = {}

    def missing(self, tool: Tool) -> str | None:
        """Return why the tool can't be run here; None: it can."""
        if is_installed():
            return None
        return f"tool {tool.spec.name!r} can't be run here: {ExtraMissing('an MCP server', extra='mcp')}"

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        return await self.run(tool, arguments)

    async def run(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Call a tool. Whatever the server does becomes an outcome, within the time limit."""
        timeout_s = tool.spec.timeout_s or self._timeout_s
        try:
            try:
                return await self._call(tool, dict(arguments), timeout_s)
            except McpGone:
                if not tool.spec.idempotent:
                    raise
                return await self._call(tool, dict(arguments), timeout_s)
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

    async def refresh(self, server_id: McpServerId) -> None:
        """Open a new connection, and read and store the server's listing. Raises: NotFound, McpUnreachable,
        ExtraMissing, SecretKeyMissing, SecretUnreadable; InvalidInput: the plug-in that brings it is not in use."""
        await (await self._session(server_id)).prepare(reconnect=True)

    async def look(self, server: McpServer, secrets: ServerSecrets) -> ToolListing:
        """The tools of an unregistered server; the connection stays open. Raises: McpUnreachable, ExtraMissing."""
        session = McpSession(server, secrets, None)
        async with undone_by(session.close):
            await session.prepare()
        session.registry = self._registry
        self._sessions[server.id] = session
        return session.listing

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
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*(session.close() for session in sessions), *self._closing)

    async def _call(self, tool: Tool, arguments: dict[str, Any], timeout_s: float) -> ToolOutcome:
        """Call a tool of an approved definition. Raises: what the registry, the session or the SDK raises."""
        session = await self._session((await self._registry.get_tool(tool.id)).server_id)
        await session.prepare()
        current = await self._registry.get_tool(tool.id)  # preparing may have stored a new listing
        reason = await self._registry.omission_reason(current) if current.status == "missing" else ""
        if (refusal := _refusal(current, session.server.name, reason)) is not None:
            return ToolOutcome(text=refusal, status="error")
        outcome = build_outcome(await session.call(current.name, arguments, timeout_s=timeout_s))
        return replace(outcome, sources=(Source.of("mcp", session.server.name),))

    async def _session(self, server_id: McpServerId) -> McpSession:
        """The session of a server as it is registered now. Raises: NotFound; InvalidInput: it is not used."""
        server = await self._registry.get_server(server_id)
        if why := self._why_unused(server):
            await self.forget(server_id)
            raise InvalidInput(f"the MCP server {server.name!r} is not used: {why}")
        session = self._sessions.get(server_id)
        if session is not None and _connection_facts(session.server) == _connection_facts(server):
            return session
        secrets = await self._registry.open_secrets(server)
        if session is not None and self._sessions.get(server_id) is session:
            closing = asyncio.ensure_future(self.forget(server_id))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)
        if server.plugin and server_id not in self._watching:
            self._watching[server_id] = asyncio.ensure_future(self._watch(server))
        # Another call may have been quicker.
        return self._sessions.setdefault(server_id, McpSession(server, secrets, self._registry))

    async def _watch(self, server: McpServer) -> None:
        """End the session with a plug-in's server soon after that is out of use, whichever process did it."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._why_unused(server):
                break
        del self._watching[server.id]
        await self.forget(server.id)


def _connection_facts(server: McpServer) -> tuple[object, ...]:
    """The fields of a server that its connection depends on: if one changes, another connection is needed."""
    place = (server.command, server.args, server.url, server.private)
    return (server.name, server.transport, place, server.auth_header, server.sealed)


def _refusal(tool: McpTool, server: str, reason: str) -> str | None:
    """Why a tool is not called now, in words for the model; None: it is called.

    Args:
        reason: why the last listing left it out; empty: the server did not list it.
    """
    match tool.status:
        case "active":
            return None
        case "missing" if reason:
            return f"the MCP server {server!r} describes {tool.name!r} so that it can't be called: {reason}"
        case "missing":
            return f"the MCP server {server!r} has no tool {tool.name!r} any more, so it was not called"
        case "unusable":
            return f"the MCP server {server!r} describes {tool.name!r} so that it can't be called: {tool.problem}"
        case _:
            return (
                f"the MCP server {server!r} describes {tool.name!r} otherwise than was approved, so it was not called:"
                " a person has to look at the change and approve it first"
            )


def build_outcome(result: CallToolResult) -> ToolOutcome:
    """The outcome of a call: texts, pictures, a line about other content, and structured content that no text holds."""
    parts: list[str] = []
    images: list[Image] = []
    chars_left = RESULT_CHARS_MAX
    for content in result.content:
        if chars_left <= 0:
            break
        if len(images) < IMAGES_MAX and (image := _image(content)) is not None:
            images.append(image)
            parts.append(image.text)
            continue
        parts.append(_render_content(content)[:chars_left])
        chars_left -= len(parts[-1])
    text = "\n".join(parts)
    if result.structured_content is not None and not _repeats(text, result.structured_content):
        structured = compact_json(result.structured_content)[: max(0, chars_left)]
        text = f"{text}\n{structured}" if text else structured
    status: ToolStatus = "error" if result.is_error else "success"
    return ToolOutcome(text=text or "(no content)", status=status, images=tuple(images))


def _image(content: Any) -> Image | None:
    """The picture that a content is; None: it is none that models take."""
    if content.type != "image" or content.mime_type not in IMAGE_TYPES or len(content.data) > IMAGE_CHARS_MAX:
        return None
    try:
        base64.b64decode(content.data, validate=True)
    except ValueError:
        return None
    return Image(content.mime_type, content.data)


def _render_content(content: Any) -> str:
    """The text of a content, or a line in brackets about it."""
    match content.type:
        case "text":
            return str(content.text)
        case "image" | "audio":
            return f"[{content.type}, {content.mime_type}, {_size(content.data)}: it can't be shown here]"
        case "resource":
            resource = content.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return f"[resource {resource.uri}]\n{text}"
            return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}: not shown]"
        case "resource_link":
            about = f": {content.description}" if content.description else ""
            return f"[resource {content.uri}, {content.name}{about}]"
        case _:
            return f"[{content.type}: it can't be shown here]"


def _size(encoded: str) -> str:
    """The size of data in base64."""
    return f"{len(encoded) * 3 // 4:,} bytes"


def _repeats(text: str, structured: Any) -> bool:
    """Whether the text already contains the structured content: as JSON, or as the one value in it."""
    if not text:
        return False
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return True
    try:
        return bool(parse_json(text, JsonLimits(size_bytes=4 * RESULT_CHARS_MAX)) == structured)
    except (ValueError, RecursionError):
        return False
