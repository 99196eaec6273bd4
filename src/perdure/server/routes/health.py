"""Probes without a key: whether the server answers, and whether it can work."""

from __future__ import annotations

import logging
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import StoreError
from perdure.server.log import TRACE_HEADER, trace_id
from perdure.server.wire.answers import Health
from perdure.server.wire.http import Json, Library, Router, json_bytes

router = Router()

log = logging.getLogger(__name__)


VERSION = version("perdure")
WIRE_VERSION = "0.16.8"
"""The version of Letta's server whose API this one has. Clients such as Letta Code warn of an older one."""


@router.head("/v1/health/", include_in_schema=False)
@router.get("/v1/health/")
async def health() -> Health:
    """Answer while the process runs; `version` is the API's, `perdure` the server's. Nothing else is checked."""
    return {"version": WIRE_VERSION, "status": "ok", "perdure": VERSION}


@router.head("/v1/ready/", include_in_schema=False)
@router.get("/v1/ready/")
async def ready(request: Request, library: Library) -> Health | Response:
    """Answer if the store can be read soon and has the tables of this version; else 503 and the kind of the error, or
    `stopping` once the server was asked to stop. Only the log has more."""
    if library.app.ports.drain.is_on:
        return _not_ready("stopping", "stopping")
    try:
        await request.app.state.check_ready()
    except StoreError as error:
        log.warning("not ready: %s", error)
        return _not_ready("unavailable", error.code)
    return {"version": VERSION, "status": "ok"}


def _not_ready(status: str, detail: str) -> Response:
    shape = {"version": VERSION, "status": status, "detail": detail, "trace_id": trace_id()}
    return Json(json_bytes(shape), 503, {TRACE_HEADER: trace_id()}, "application/json")
