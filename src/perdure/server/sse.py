"""Streams: the events of a run as server-sent events.

A stream only observes. A client that disconnects does not stop the run. A server that stops ends its streams, and the
run goes on when the store is opened again.
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

log = logging.getLogger(__name__)

PING_S = 20.0
MODES_MAX = 10_000

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Events = AsyncGenerator[StoredEvent | Delta, None]


class Streams:
    """The streams of one server and its requests that wait for a run. They end when the server stops."""

    def __init__(self) -> None:
        self.stopping = False
        self._waiting: set[asyncio.Task[Any]] = set()
        self._modes: OrderedDict[RunId, StreamMode] = OrderedDict()

    def stop(self) -> None:
        """Cancel every task that waits for a run. Each tells its client that the run goes on."""
        self.stopping = True
        for task in list(self._waiting):
            task.cancel()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside the context, cancel the current task when the server stops; at once if it is already stopping."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        if self.stopping:  # the request arrived during `stop`
            task.cancel()
        try:
            yield
        finally:
            self._waiting.discard(task)

    def remember(self, run_id: RunId, mode: StreamMode) -> None:
        """Keep the mode of a background run's stream, because a request that resumes it names none."""
        self._modes[run_id] = mode
        while len(self._modes) > MODES_MAX:
            self._modes.popitem(last=False)

    def mode_of(self, run_id: RunId) -> StreamMode:
        """The mode of the run's first stream; after a restart token by token, which clients that resume expect."""
        return self._modes.get(run_id, StreamMode(tokens=True))


async def stream(
    run: Run,
    events: AsyncIterator[StoredEvent | Delta],
    mode: StreamMode,
    *,
    streams: Streams,
    clock: Clock,
    starting_after: int = 0,
) -> StreamingResponse:
    """Build the answer that streams a run's events.

    Raises: NotFound, StoreError: not even the first event could be read.
    """
    assert isinstance(events, AsyncGenerator)
    # The first event is awaited here, so that no later one is missed, and an error can still set the status.
    first = await anext(events, None)
    chunks = Chunks(run, mode, starting_after=starting_after)
    body = _body(first, events, chunks, mode, streams, clock)
    return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)


async def _body(
    first: StoredEvent | Delta | None,
    events: Events,
    chunks: Chunks,
    mode: StreamMode,
    streams: Streams,
    clock: Clock,
) -> AsyncIterator[bytes]:
    output: asyncio.Queue[bytes | None] = asyncio.Queue()
    pump = asyncio.create_task(_pump(first, events, chunks, streams, clock, output))
    try:
        while True:
            piece: bytes | None
            if mode.pings and output.empty():
                try:
                    async with asyncio.timeout(PING_S):
                        piece = await output.get()
                except TimeoutError:
                    piece = _data(chunks.ping(clock.now()))
            else:
                piece = await output.get()
            pieces: list[bytes] = []
            while piece is not None:
                pieces.append(piece)
                if output.empty():
                    break
                piece = output.get_nowait()
            if pieces:
                yield b"".join(pieces)
            if piece is None:
                return
    finally:
        pump.cancel()
        await asyncio.wait({pump})  # awaiting the pump would confuse its cancellation with ours


async def _pump(
    first: StoredEvent | Delta | None,
    events: Events,
    chunks: Chunks,
    streams: Streams,
    clock: Clock,
    output: asyncio.Queue[bytes | None],
) -> None:
    """Turn events into bytes until the run has ended, or can't be followed any more."""

    def send(new: Iterable[Chunk]) -> None:
        for chunk in new:
            output.put_nowait(_data(chunk) if isinstance(chunk, dict) else _error(chunk, chunks))

    try:
        with streams.waiting():
            async with contextlib.aclosing(events):
                if first is not None:
                    send(chunks.of(first, now=clock.now()))
                    async for event in events:
                        send(chunks.of(event, now=clock.now()))
                    send(chunks.end())
    except asyncio.CancelledError:
        if not streams.stopping:
            raise
        reason = "the server is stopping; the run goes on, and can be followed again when it is back"
        _give_up(Failure(kind="stream_incomplete", message=reason), chunks, output)
    except Exception as error:
        if isinstance(error, (NotFound, StoreError)):
            log.warning("a stream of %s stopped: %s", chunks.run.id, error)
            reason = f"the run can't be followed any further: {error}"
        else:
            log.exception("a stream of %s stopped at a defect", chunks.run.id)
            reason = f"An unknown error occurred (trace_id {trace_id()})"
        _give_up(Failure(kind="internal_error", message=reason), chunks, output)
    else:
        output.put_nowait(DONE)
    output.put_nowait(None)


def _give_up(failure: Failure, chunks: Chunks, output: asyncio.Queue[bytes | None]) -> None:
    """End the stream with an error; the run may go on."""
    for piece in (_data(stop_reason("error")), _error(failure, chunks), DONE):
        output.put_nowait(piece)


def _data(chunk: Chunk) -> bytes:
    return b"data: %b\n\n" % json_bytes(chunk)


def _error(failure: Failure, chunks: Chunks) -> bytes:
    return b"event: error\ndata: %b\n\n" % json_bytes(chunks.error(failure))
