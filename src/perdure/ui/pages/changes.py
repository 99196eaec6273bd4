"""The signal that something changed: pages that are open reload what they show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import NotFound, StoreError
from perdure.core.ids import AgentId
from perdure.core.runs import RunFilter
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.sse import HEADERS as STREAM_HEADERS
from perdure.server.sse import Streams
from perdure.ui.render import HEADERS, Pages

RUNS_MAX = 10
EVERY_S, STREAM_S = 1.0, 600.0

State = list[tuple[str, ...]]

pages = Pages()


async def changes(request: Request) -> Response:
    """An event each time when a run begins, ends or waits, of all agents or of `agent`: the id of the newest run.

    The stream ends after ten minutes, and the browser opens it again.
    """
    library: AsyncPerdure = request.app.state.perdure
    streams: Streams = request.app.state.streams
    named = request.query_params.get("agent")
    where = RunFilter(agent_ids=(AgentId(named),) if named else ())
    return StreamingResponse(
        _signals(library, streams, where), media_type="text/event-stream", headers={**HEADERS, **STREAM_HEADERS}
    )


pages.add("/events", changes)


async def _signals(library: AsyncPerdure, streams: Streams, where: RunFilter) -> AsyncIterator[bytes]:
    """A server-sent event for each change, until the time is over or the server stops."""
    clock = asyncio.get_running_loop().time
    end = clock() + STREAM_S
    state = await _load(library, where)
    yield b": open\n\n"
    while clock() < end:
        waiting = streams.track(_changed(library, where, state, until=end))
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
        if waiting.cancelled() or waiting.exception() is not None:
            return
        state = waiting.result()
        yield f"event: changed\ndata: {json.dumps({'run': state[0][0] if state else None})}\n\n".encode()


async def _changed(library: AsyncPerdure, where: RunFilter, before: State, *, until: float) -> State:
    """What there is when it differs from `before`, or when the time is over."""
    clock = asyncio.get_running_loop().time
    state = before
    while state == before and clock() < until:
        await asyncio.sleep(EVERY_S)
        state = await _load(library, where)
    return state


async def _load(library: AsyncPerdure, where: RunFilter) -> State:
    """The newest runs with their status: one short read at any size of the store."""
    try:
        runs = await library.services.runs.list(where, Page(RUNS_MAX, ascending=False))
    except (NotFound, StoreError):
        return []
    return [(run.id, run.status, run.stop_reason or "") for run in runs]
