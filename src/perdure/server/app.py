"""The HTTP application: every route behind one guard, every error in the wire's shape."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from perdure.library.perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.errors import add_error_handlers
from perdure.server.guards import Guard
from perdure.server.limits import LimitsMiddleware
from perdure.server.mcp_guard import McpGuard
from perdure.server.methods import method_not_allowed_routes
from perdure.server.openapi import Api
from perdure.server.routes import (
    agent_files,
    agents,
    archive_passages,
    archives,
    blocks,
    context,
    conversations,
    folders,
    health,
    mcp_servers,
    messages,
    models,
    passages,
    recall,
    runs,
    search,
    secrets,
    steps,
    tool_mcp_servers,
    tools,
)
from perdure.server.sse import Streams


def create_app(perdure: AsyncPerdure, config: ServerConfig) -> Api:
    """Build the application over an open store, which the caller closes.

    `app.state.perdure` is the store. `app.state.streams` holds the open streams, which its `stop` ends.
    """
    app = Api(config, title="Perdure", version=health.VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.perdure = perdure
    app.state.mcp_guard = McpGuard(perdure, config)
    app.state.streams = Streams()
    hot = (*messages.hot_routes, *conversations.hot_routes)
    app.router.routes.extend(hot)
    for module in (
        health,
        agents,
        agent_files,
        folders,
        context,
        blocks,
        archives,
        archive_passages,
        search,
        passages,
        recall,
        messages,
        conversations,
        runs,
        steps,
        tools,
        models,
        secrets,
        mcp_servers,
        tool_mcp_servers,
    ):
        # `include_router` would build each route a second time, for every application.
        app.router.routes.extend(module.router.routes)
    place = app.router.routes.index(hot[-1]) + 1
    app.router.routes[place:place] = method_not_allowed_routes(app.router.routes)
    app.router.default = _EitherSlash(app)
    app.add_middleware(LimitsMiddleware, limits=perdure.app.settings)
    # The guard is outermost: it precedes every route, and every 404.
    app.add_middleware(Guard, config=config, upload_bytes=perdure.app.settings.file_limit_bytes)
    add_error_handlers(app)
    return app


class _EitherSlash:
    """Looks an unknown path up once more, with or without its final slash.

    Most clients would follow a redirect, but some don't send the body again.
    """

    def __init__(self, app: FastAPI) -> None:
        self._router = app.router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope["type"] != "http" or path == "/" or "perdure.other_slash" in scope:
            await self._router.not_found(scope, receive, send)
            return
        other: dict[str, Any] = {
            **scope,
            "path": path[:-1] if path.endswith("/") else f"{path}/",
            "perdure.other_slash": True,
        }
        await self._router.app(other, receive, send)
