"""`/mcp`: the memory tools over streamable HTTP, for programs that speak MCP."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import cast

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from perdure.core.ids import AgentId
from perdure.server.access.gate import Gate
from perdure.server.wire.errors import refusal_answer
from perdure.server.wire.http import Router, library_of, principal_of

router = Router()


class McpEndpoint:
    """Answers each request by itself, with the memory that its query names: `?project=NAME`, `?agent=NAME`, else the
    global one. A key may do what it may over the API. Files of this machine are out of reach."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":  # there is no session that could be listened to, or ended
            await refusal_answer(405, "/mcp answers POST only", (b"allow", b"POST"))(scope, receive, send)
            return
        # The protocol's SDK takes half a second to import, in which other requests go on.
        sdk = await asyncio.to_thread(import_module, "mcp.server.streamable_http_manager")
        from perdure.features.mcp_server.memory import MemoryOptions, MemoryTools
        from perdure.features.mcp_server.server import build_server
        from perdure.features.notes.nudges import check_nudge_level
        from perdure.features.notes.projects import ProjectMemory

        request = Request(scope)
        library, query, gate = library_of(request), request.query_params, cast(Gate, request.app.state.gate)

        async def tell(tool: str, agent_id: AgentId) -> None:
            await gate.note(scope, f"POST /mcp {tool}", agent_id)

        options = MemoryOptions(
            read_only=not principal_of(request).may("user"),
            nudges=check_nudge_level(query.get("nudges") or "balanced"),
            reads_files=False,
            check=lambda method, path: gate.check_allowed(scope, method, path),
            tell=tell,
        )
        project = ProjectMemory(library, name=query.get("project"), agent=query.get("agent"), over_http=True)
        server = build_server(MemoryTools(library, project, options))
        limit = library.app.settings.file_limit_bytes  # the guard's limit is smaller, and comes first
        manager = sdk.StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=limit
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


hot_routes: list[BaseRoute] = [Route("/mcp", McpEndpoint(), include_in_schema=False)]
