"""What the server counts of its requests, and `/metrics`, where Prometheus reads it.

Like every path it needs the key, if there is one; `PERDURE_METRICS=loopback` lets programs of this machine read it
without.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.app.telemetry import client_trace
from perdure.core.errors import StoreError
from perdure.library.perdure import AsyncPerdure
from perdure.server.log import ACCESS_LOG
from perdure.server.serving.guards import METRICS_PATH
from perdure.server.timed_reads import QUEUES_S, TimedRead
from perdure.server.wire.errors import METHODS

if TYPE_CHECKING:
    from perdure.app.metrics import Metrics

log = logging.getLogger(__name__)
access_log = logging.getLogger(ACCESS_LOG)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_ROUTE = "none"
"""The route of requests that reached none: refused before, or to an unknown path."""


class Meter:
    """Counts requests, writes a log line for each, and continues the trace of a client that sends its trace id.

    Args:
        log_level: the level of those lines.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Sequence[BaseRoute], log_level: int) -> None:
        self._app, self._metrics, self._log_level = app, metrics, log_level
        self._templates: dict[Any, str] = {  # of the routes that do not name themselves in the scope, by endpoint
            route.endpoint if isinstance(route, Route) else route.app: route.path
            for route in routes
            if isinstance(route, Route | Mount)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, streams = time.perf_counter(), 0, False

        async def send_and_note(message: Message) -> None:
            """Send a message of the answer; note its status, and whether it streams."""
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = any(
                    name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message["headers"]
                )
                if streams:
                    self._metrics.streams.inc()
            await send(message)

        try:
            with client_trace(scope["headers"]):
                await self._app(scope, receive, send_and_note)
        finally:
            if streams:
                self._metrics.streams.dec()
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = self._template(scope)
            self._metrics.count_request(method, route, status, seconds)
            if access_log.isEnabledFor(self._log_level):
                outcome = status or "without an answer"
                access_log.log(self._log_level, "%s %s %s in %.1f ms", method, route, outcome, seconds * 1000)

    def _template(self, scope: Mapping[str, Any]) -> str:
        """The route of a request, as it is declared: no ids."""
        route = scope.get("route")
        if route is not None:
            return str(getattr(route, "path", NO_ROUTE))
        return str(self._templates.get(scope.get("endpoint"), NO_ROUTE))


def metrics_route(perdure: AsyncPerdure, metrics: Metrics) -> Route:
    """The route at which Prometheus reads the metrics. Without the store's answer they lack the lengths of queues."""

    read_queues = TimedRead(QUEUES_S, perdure.upkeep.queue_lengths)

    async def answer(request: Request) -> Response:
        queues: Mapping[str, int] = {}
        try:
            queues = await read_queues()
        except StoreError as error:
            log.warning("metrics without the lengths of queues: %s", error)
        return Response(metrics.render(queues), headers={"cache-control": "no-store"}, media_type=MEDIA_TYPE)

    return Route(METRICS_PATH, answer, methods=["GET"], include_in_schema=False)
