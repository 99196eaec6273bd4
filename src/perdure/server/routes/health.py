"""Whether the server is there, and whether it can work. Neither needs a key."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.errors import StoreError
from perdure.server.deps import Library
from perdure.server.encoding import json_answer

__all__ = ["router"]

router = APIRouter()


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
    """The store can be read; else 503."""
    try:
        await library.app.store.read(lambda tx: tx.agents.list(limit=1))
    except StoreError as error:
        return json_answer({"version": VERSION, "status": "unavailable", "detail": str(error)}, 503)
    return json_answer({"version": VERSION, "status": "ok"})
