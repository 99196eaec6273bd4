"""The signal that something changed: pages that are open reload what they show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.ids import AgentId
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import library_of
from perdure.server.wire.sse import HEADERS as STREAM_HEADERS
from perdure.server.wire.sse import Streams
from perdure.ui import live
from perdure.ui.render import HEADERS, Pages

EVERY_S, STREAM_S = 1.0, 600.0

CHECKED_S = 2.0
"""How often a stream checks whether its request would still be admitted."""


pages = Pages()


async def changes(request: Request) -> Response:
    """Stream an event each time when a run begins, ends or waits, of all agents or of the query's `agent`, and when the
    memory of that agent changes: the id of the newest run, and whether memory changed.

    The id of an event is the version of the state that it tells of. Where the state differs from that of the last event
    that a browser got (`Last-Event-ID`), or else of its page (`since`), the first event comes at once.
    It ends after ten minutes, and the browser opens it again; and when the request would not be admitted any more.
    """
    library = library_of(request)
    streams: Streams = request.app.state.streams
    agent_id = AgentId(request.query_params.get("agent", "")) or None
    since = request.headers.get("last-event-id") or request.query_params.get("since", "")
    return StreamingResponse(
        _signals(library, streams, agent_id, since, lambda: request.app.state.gate.still_admits(request.scope)),
        media_type="text/event-stream",
        headers={**HEADERS, **STREAM_HEADERS},
    )


pages.add("/events", changes)


async def _signals(
    library: AsyncPerdure,
    streams: Streams,
    agent_id: AgentId | None,
    since: str,
    is_admitted: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield a server-sent event for each change of the state since the version `since`, the one that the page shows,
    until the time is over, `is_admitted` says no or the server stops."""
    clock = asyncio.get_running_loop().time
    end = clock() + STREAM_S
    yield b": open\n\n"
    state = await live.load_state(library, agent_id)
    shown = since or state.version
    while True:
        if state.version != shown:
            data = {"run": state.run, "memory": state.memory != shown.partition(".")[2]}
            shown = state.version
            yield f"id: {shown}\nevent: changed\ndata: {json.dumps(data)}\n\n".encode()
        if clock() >= end or not await is_admitted():
            return
        waiting = streams.track(_changed(library, agent_id, state, until=clock() + CHECKED_S))
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
        if waiting.cancelled() or waiting.exception() is not None:
            return
        state = waiting.result()


async def _changed(library: AsyncPerdure, agent_id: AgentId | None, before: live.State, *, until: float) -> live.State:
    """Wait until the state differs from `before`, or the loop's clock shows `until`, and return it."""
    clock = asyncio.get_running_loop().time
    state = before
    while state == before and clock() < until:
        await asyncio.sleep(EVERY_S)
        if await library.upkeep.mark() != state.mark:
            state = await live.load_state(library, agent_id)
    return state
