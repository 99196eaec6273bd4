"""Streams: what a run tells, as server-sent events.

A stream only looks on. A client that leaves does not stop the run, and a server that stops ends its streams; the run
goes on when the store is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import Any

from starlette.responses import StreamingResponse

from perdure.core.errors import NotFound, StoreError
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import RunId
from perdure.core.ports import Clock
from perdure.core.runs import Failure, Run
from perdure.server.encoding import json_bytes
from perdure.server.trace import trace_id
from perdure.server.wire.chunks import Chunk, Chunks, StreamMode
from perdure.server.wire.runs import stop_reason

__all__ = ["Streams", "stream"]

log = logging.getLogger(__name__)

PING_S = 20.0
MODES_KEPT = 10_000

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Told = AsyncGenerator[StoredEvent | Delta, None]


class Streams:
    """The streams of one server, and everything else that waits for a run: they end when it stops."""

    def __init__(self) -> None:
        self.stopping = False
        self._waiting: set[asyncio.Task[Any]] = set()
        self._modes: OrderedDict[RunId, StreamMode] = OrderedDict()

    def stop(self) -> None:
        """End whatever waits for a run; it tells its client that the run goes on."""
        self.stopping = True
        for task in list(self._waiting):
            task.cancel()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this holds, the current task is cancelled when the server stops; at once, if that has begun."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        if self.stopping:  # the request came, or was still read, while `stop` was under way
            task.cancel()
        try:
            yield
        finally:
            self._waiting.discard(task)

    def remember(self, run_id: RunId, mode: StreamMode) -> None:
        """Keep how a background run is streamed, for who resumes it: a resume request does not tell."""
        self._modes[run_id] = mode
        while len(self._modes) > MODES_KEPT:
            self._modes.popitem(last=False)

    def mode_of(self, run_id: RunId) -> StreamMode:
        """As the run was first streamed; after a restart token by token, as clients that resume ask for."""
        return self._modes.get(run_id, StreamMode(tokens=True))


async def stream(
    run: Run,
    told: AsyncIterator[StoredEvent | Delta],
    mode: StreamMode,
    *,
    streams: Streams,
    clock: Clock,
    starting_after: int = 0,
) -> StreamingResponse:
    """The answer that follows a run from what `told` tells first.

    Raises: NotFound, StoreError: nothing could be told at all.
    """
    assert isinstance(told, AsyncGenerator)
    # Before anything is awaited: what is told from now on is not missed, and an error still has a status of its own.
    first = await anext(told, None)
    chunks = Chunks(run, mode, starting_after=starting_after)
    body = _body(first, told, chunks, mode, streams, clock)
    return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)


async def _body(
    first: StoredEvent | Delta | None,
    told: Told,
    chunks: Chunks,
    mode: StreamMode,
    streams: Streams,
    clock: Clock,
) -> AsyncIterator[bytes]:
    ready: asyncio.Queue[bytes | None] = asyncio.Queue()
    pump = asyncio.create_task(_pump(first, told, chunks, streams, clock, ready))
    try:
        while True:
            piece: bytes | None
            if mode.pings and ready.empty():
                try:
                    async with asyncio.timeout(PING_S):
                        piece = await ready.get()
                except TimeoutError:
                    piece = _data(chunks.ping(clock.now()))
            else:
                piece = await ready.get()
            pieces: list[bytes] = []
            while piece is not None:
                pieces.append(piece)
                if ready.empty():
                    break
                piece = ready.get_nowait()
            if pieces:
                yield b"".join(pieces)
            if piece is None:
                return
    finally:
        pump.cancel()
        await asyncio.wait({pump})  # not the pump itself: who is cancelled meanwhile must not take it for the pump's


async def _pump(
    first: StoredEvent | Delta | None,
    told: Told,
    chunks: Chunks,
    streams: Streams,
    clock: Clock,
    ready: asyncio.Queue[bytes | None],
) -> None:
    """Turn what is told into bytes until the run has ended, or can't be followed any more."""

    def send(of: Iterable[Chunk]) -> None:
        for chunk in of:
            ready.put_nowait(_data(chunk) if isinstance(chunk, dict) else _failed(chunk, chunks))

    try:
        with streams.waiting():
            async with contextlib.aclosing(told):
                if first is not None:
                    send(chunks.of(first, now=clock.now()))
                    async for event in told:
                        send(chunks.of(event, now=clock.now()))
                    send(chunks.end())
    except asyncio.CancelledError:
        if not streams.stopping:
            raise
        why = "the server is stopping; the run goes on, and can be followed again when it is back"
        _give_up(Failure(kind="stream_incomplete", message=why), chunks, ready)
    except Exception as error:
        if isinstance(error, (NotFound, StoreError)):
            log.warning("a stream of %s stopped: %s", chunks.run.id, error)
            why = f"the run can't be followed any further: {error}"
        else:
            log.exception("a stream of %s stopped at a defect", chunks.run.id)
            why = f"An unknown error occurred (trace_id {trace_id()})"
        _give_up(Failure(kind="internal_error", message=why), chunks, ready)
    else:
        ready.put_nowait(DONE)
    ready.put_nowait(None)


def _give_up(failure: Failure, chunks: Chunks, ready: asyncio.Queue[bytes | None]) -> None:
    """The run may go on, but this stream can't tell of it."""
    for piece in (_data(stop_reason("error")), _failed(failure, chunks), DONE):
        ready.put_nowait(piece)


def _data(chunk: Chunk) -> bytes:
    return b"data: %b\n\n" % json_bytes(chunk)


def _failed(failure: Failure, chunks: Chunks) -> bytes:
    return b"event: error\ndata: %b\n\n" % json_bytes(chunks.error(failure))
