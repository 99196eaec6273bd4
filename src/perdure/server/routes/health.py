"""Whether the server is there, and whether it can work. Neither needs a key."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.errors import StoreError
from perdure.server.http import Library, json_answer, json_bytes
from perdure.server.log import TRACE_HEADER, trace_id

router = APIRouter()

log = logging.getLogger(__name__)


def _version() -> str:
    try:
        return version("perdure")
    except PackageNotFoundError:
        return "0"


VERSION = _version()


@router.get("/v1/health/")
async def health() -> Response:
    """The process answers; nothing else is looked at."""
    return json_answer({"version": VERSION, "status": "ok"})


@router.get("/v1/ready/")
async def ready(library: Library) -> Response:
    """The store can be read; else 503 and the kind of the error: strangers may ask, the log says more."""
    try:
        await library.services.agents.find_last_used()
    except StoreError as error:
        log.warning("not ready: %s", error)
        shape = {"version": VERSION, "status": "unavailable", "detail": error.code, "trace_id": trace_id()}
        return Response(json_bytes(shape), 503, {TRACE_HEADER: trace_id()}, "application/json")
    return json_answer({"version": VERSION, "status": "ok"})
