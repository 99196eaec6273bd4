"""The signal that something changed: pages that are open reload what they show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import NotFound, StoreError
from perdure.core.features import Point
from perdure.core.ids import AgentId
from perdure.core.runs import RunFilter
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import library_of
from perdure.server.wire.sse import HEADERS as STREAM_HEADERS
from perdure.server.wire.sse import Streams
from perdure.ui.render import HEADERS, Pages

RUNS_MAX = 10
EVERY_S, STREAM_S = 1.0, 600.0

CHECKED_S = 2.0
"""How often a stream checks whether its request would still be admitted."""


@dataclass(frozen=True, slots=True)
class State:
    """What open pages show: (id, status, stop reason) of the newest runs, and (id, version) of what is in an agent's
    memory: blocks, archives, and what features have.

    `mark` is the store's mark from before they were read. While it stays, nothing else needs to be read again.
    """

    runs: Sequence[tuple[str, ...]] = ()
    memory: Sequence[tuple[str, int]] = ()
    mark: str = field(default="", compare=False)


pages = Pages()


async def changes(request: Request) -> Response:
    """Stream an event each time when a run begins, ends or waits, of all agents or of the query's `agent`, and when the
    memory of that agent changes: the id of the newest run, and whether memory changed.

    It ends after ten minutes, and the browser opens it again; and when the request would not be admitted any more.
    """
    library = library_of(request)
    streams: Streams = request.app.state.streams
    named = request.query_params.get("agent")
    agent_id = AgentId(named) if named else None
    state = await _load(library, agent_id)  # before the answer begins: a page that is told of it misses nothing later
    return StreamingResponse(
        _signals(library, streams, agent_id, state, lambda: request.app.state.gate.still_admits(request.scope)),
        media_type="text/event-stream",
        headers={**HEADERS, **STREAM_HEADERS},
    )


pages.add("/events", changes)


async def _signals(
    library: AsyncPerdure,
    streams: Streams,
    agent_id: AgentId | None,
    state: State,
    is_admitted: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield a server-sent event for each change of `state`, the one that the page shows, until the time is over,
    `is_admitted` says no or the server stops."""
    clock = asyncio.get_running_loop().time
    end = clock() + STREAM_S
    yield b": open\n\n"
    while clock() < end and await is_admitted():
        waiting = streams.track(_changed(library, agent_id, state, until=clock() + CHECKED_S))
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
        if waiting.cancelled() or waiting.exception() is not None:
            return
        before, state = state, waiting.result()
        if state == before:
            continue
        data = {"run": state.runs[0][0] if state.runs else None, "memory": state.memory != before.memory}
        yield f"event: changed\ndata: {json.dumps(data)}\n\n".encode()


async def _changed(library: AsyncPerdure, agent_id: AgentId | None, before: State, *, until: float) -> State:
    """Wait until the state differs from `before`, or the loop's clock shows `until`, and return it."""
    clock = asyncio.get_running_loop().time
    state = before
    while state == before and clock() < until:
        await asyncio.sleep(EVERY_S)
        if await library.upkeep.mark() != state.mark:
            state = await _load(library, agent_id)
    return state


PAGE_CHANGES: Point[[AsyncPerdure, AgentId], Awaitable[Sequence[tuple[str, int]]]] = Point("page_changes")
"""Ids and versions of what features have in an agent's memory: pages that show it are loaded anew as they change."""


async def _load(library: AsyncPerdure, agent_id: AgentId | None) -> State:
    """The state now, by reads that are short at any size of the store; empty if it can't be read."""
    try:
        mark = await library.upkeep.mark()
        where = RunFilter(agent_ids=() if agent_id is None else (agent_id,))
        runs = await library.runs.page_of_runs(where, Page(RUNS_MAX, ascending=False))
        blocks = [] if agent_id is None else await library.agent_of(agent_id).blocks.list()
        archives = [] if agent_id is None else await library.agent_of(agent_id).archives.list()
        of_features = [] if agent_id is None else [await one for one in PAGE_CHANGES(library, agent_id)]
    except (NotFound, StoreError):
        return State()  # read again with the next look
    return State(
        runs=[(run.id, run.status, run.stop_reason or "") for run in runs],
        memory=[
            *((one.id, one.version) for one in blocks),
            *((one.id, one.info.version) for one in archives),
            *(one for some in of_features for one in some),
        ],
        mark=mark,
    )
