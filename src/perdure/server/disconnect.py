"""Work that is done for one client only, and ended when that client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

__all__ = ["ClientGone", "while_connected"]

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Its body has been read, so that only the end of the connection is left to hear of.

    Raises: ClientGone: the client left first; `work` was cancelled and has ended. What `work` raises.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
