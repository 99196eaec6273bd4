"""The HTTP application: every route behind one guard, every error in the wire's shape."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import logging
import pkgutil
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from perdure.app.metrics import Metrics
from perdure.app.telemetry import RegistryNames
from perdure.core.features import find_features
from perdure.library.perdure import AsyncPerdure
from perdure.server import routes
from perdure.server.access.gate import gate_of
from perdure.server.config import ServerConfig
from perdure.server.routes import health
from perdure.server.serving.absent import absent_routes, unknown_path_detail
from perdure.server.serving.guards import Guard, RefusedPage
from perdure.server.serving.meter import Meter, metrics_route
from perdure.server.timed_reads import READY_S, TimedRead
from perdure.server.wire.errors import add_error_handlers
from perdure.server.wire.http import json_bytes
from perdure.server.wire.sse import Streams

TITLE = "Perdure"


class Api(FastAPI):
    """The application, with the OpenAPI document, which is built on its first request."""

    def __init__(self, config: ServerConfig, **options: Any) -> None:
        self._lock = asyncio.Lock()
        super().__init__(**options)
        self._has_key = bool(config.api_key)

    def setup(self) -> None:
        """Serve the document, and the page that shows it. Building it takes seconds, so it runs in a thread."""

        async def openapi(request: Request) -> Response:
            async with self._lock:
                body = await asyncio.to_thread(write_document, self._has_key)
            return Response(body, media_type="application/json")

        self.add_route("/openapi.json", openapi, include_in_schema=False)
        self.add_route("/docs", docs, include_in_schema=False)

    def openapi(self) -> dict[str, Any]:
        """Return the document; callers must not change it."""
        return build_document(self._has_key)


@cache
def build_document(has_key: bool) -> dict[str, Any]:
    """Build the OpenAPI document of servers with or without a key. The applications of a process share it."""
    from perdure.server.serving.openapi import build  # its types take longer to build than most requests

    return build(TITLE, health.VERSION, build_routes(), has_key=has_key)


@cache
def write_document(has_key: bool) -> bytes:
    """Write the OpenAPI document as JSON, once: its megabyte would hold up all other requests for 40 ms each time."""
    return json_bytes(build_document(has_key))


def create_app(
    perdure: AsyncPerdure,
    config: ServerConfig,
    *,
    pages: Sequence[BaseRoute] = (),
    refused_page: RefusedPage | None = None,
) -> Api:
    """Build the application over an open store, which the caller closes.

    `app.state.perdure` is the store. `app.state.streams` holds the open streams, which its `stop` ends.
    `app.state.workers` is how many processes serve its address. `app.state.check_ready` raises if the store does not
    answer soon. `app.state.metrics` counts requests, and what the engine does. `app.state.gate` knows keys, which
    addresses clients may name, and who is signed in to the dashboard, whose routes are `pages`; who serves closes it.
    `app.state.refused_page` is the page that a browser gets in place of an error.
    """
    app = Api(config, title=TITLE, version=health.VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.perdure = perdure
    app.state.workers = config.workers
    app.state.streams = Streams(perdure.app.ports.clock)
    app.state.refused_page = refused_page
    app.state.gate = gate = gate_of(perdure, config)
    app.state.check_ready = TimedRead(READY_S, perdure.upkeep.check_ready)
    app.state.metrics = metrics = Metrics()
    perdure.app.telemetry.add(metrics.listener(RegistryNames(perdure.app.models)))
    own = () if config.metrics == "off" else (metrics_route(perdure, metrics),)
    app.router.routes += [*build_routes(), *own, *pages]
    app.router.default = _EitherSlash(app)
    # The guard precedes every route, and every 404. Only the meter stands before it: what it refuses counts too.
    settings = perdure.app.settings
    app.add_middleware(
        Guard,
        config=config,
        limits=settings,
        upload_bytes=settings.file_limit_bytes,
        gate=gate,
        refused_page=refused_page,
    )
    level = logging.INFO if config.log_requests == "on" else logging.DEBUG
    app.add_middleware(Meter, metrics=metrics, routes=app.router.routes, log_level=level)
    add_error_handlers(app)
    return app


@cache
def build_routes() -> Sequence[BaseRoute]:
    """Every route of the API, in the order in which they are looked up: of each module of `server.routes` and of the
    features its `router`, and before all others its `hot_routes`. The applications of a process share them."""
    # By name, so that the paths of jobs precede those of messages, which have an id in the same place.
    names = sorted(module.name for module in pkgutil.iter_modules(routes.__path__, f"{routes.__name__}."))
    modules = [import_module(name) for name in names]
    modules += [feature.load(module) for feature in find_features() for module in feature.routes]
    hot_routes = [route for module in modules for route in getattr(module, "hot_routes", ())]
    # `include_router` would build each route a second time, for every application.
    others = [route for module in modules for route in module.router.routes]
    return (*hot_routes, *absent_routes(), *others)


class _EitherSlash:
    """Looks an unknown path up once more, with or without its final slash. If that is unknown too, says so.

    Most clients would follow a redirect, but some don't send the body again.
    """

    def __init__(self, app: FastAPI) -> None:
        self._router = app.router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope["type"] != "http":
            await self._router.not_found(scope, receive, send)
            return
        if path == "/" or "perdure.path" in scope:
            raise HTTPException(404, unknown_path_detail(scope.get("perdure.path", path), self._router.routes))
        other: dict[str, Any] = {**scope, "path": path[:-1] if path.endswith("/") else f"{path}/", "perdure.path": path}
        try:
            await self._router.app(other, receive, send)
        finally:
            scope.update({name: other[name] for name in ("route", "endpoint") if name in other})


async def docs(request: Request) -> Response:
    """Answer with the page. It holds nothing of the server; it asks for the key if the document needs one."""
    page, headers = _page()
    return Response(page, headers=headers, media_type="text/html")


@functools.cache
def _page() -> tuple[str, dict[str, str]]:
    """The page and its headers: only its own script and style may run, and only this server is asked."""
    page = Path(__file__).with_name("docs.html").read_text(encoding="utf-8")
    hashes = {}
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        hashes[kind] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = "; ".join(
        (
            "default-src 'none'",
            *(f"{kind}-src 'sha256-{value}'" for kind, value in hashes.items()),
            "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
        )
    )
    return page, {"content-security-policy": policy, "x-content-type-options": "nosniff"}
