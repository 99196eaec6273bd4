"""Streams: the events of a run as server-sent events.

A stream only observes. A client that disconnects does not stop the run. A server that stops ends its streams, and the
run goes on when the store is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, TypeVar

from starlette.responses import StreamingResponse

from perdure.core.errors import NotFound, StoreError
from perdure.core.events import Delta
from perdure.core.ports import Clock
from perdure.core.runs import Failure
from perdure.server.log import trace_id
from perdure.server.wire.chunks import Chunk, ChunkMaker
from perdure.server.wire.http import json_bytes

log = logging.getLogger(__name__)

PING_S = 20.0

DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

STOPPING = Failure(
    kind="stream_incomplete",
    message="the server is stopping; the run goes on, and can be followed again when it is back",
)

T = TypeVar("T")
E = TypeVar("E")


class Streams:
    """The streams of one server, and its requests that wait for a run. They end when the server stops."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Cancel all tracked work. Those who wait for it tell their clients that the run goes on."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()

    async def settle(self, within_s: float) -> None:
        """Wait up to so many seconds for tracked work to end, as it does soon after its run has."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=within_s)

    def track(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Start work that is cancelled when the server stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._stopping:
            task.cancel()
        return task

    async def stream(self, events: AsyncIterator[E], chunks: ChunkMaker[E], *, pings: bool) -> StreamingResponse:
        """Build the answer that streams what `chunks` makes of the events of a run, or of a group's turn.

        Raises: NotFound, StoreError: not even the first event could be read.
        """
        # The first event is awaited here, so that no later one is missed, and an error can still set the status.
        first = await anext(events, None)
        body = self._body(first, events, chunks, pings=pings)
        return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)

    async def _body(
        self, event: E | None, events: AsyncIterator[E], chunks: ChunkMaker[E], *, pings: bool
    ) -> AsyncIterator[bytes]:
        """Turn events into bytes until they end, or can't be followed any more."""
        following: asyncio.Task[E | None] | None = None
        failure: Failure | None = None
        try:
            while event is not None and failure is None:
                following = self.track(anext(events, None))
                if isinstance(event, Delta) and event.kind == "progress":
                    yield b": %b\n\n" % event.text.encode()  # a comment, which clients of Letta's API leave out
                else:
                    for chunk in chunks.of(event, now=self._clock.now()):
                        yield _encode(chunk, chunks)
                while not (await asyncio.wait({following}, timeout=PING_S if pings else None))[0]:
                    yield _encode(chunks.ping(self._clock.now()), chunks)
                if following.cancelled():
                    failure = STOPPING
                else:
                    event = following.result()
            for chunk in chunks.end() if failure is None else ():
                yield _encode(chunk, chunks)
        except NotFound as error:
            log.warning("a stream of %s stopped: %s", chunks.name, error)
            failure = Failure(kind="not_found", message=f"{chunks.owner} was deleted")
        except StoreError as error:
            log.warning("a stream of %s stopped: %s", chunks.name, error)
            failure = Failure(kind="internal_error", message=f"the run can't be followed any further: {error}")
        except Exception:
            log.exception("a stream of %s stopped at a defect", chunks.name)
            failure = Failure(kind="internal_error", message=f"An unknown error occurred (trace_id {trace_id()})")
        finally:
            if following is not None:
                following.cancel()
        for chunk in chunks.broken(failure) if failure is not None else ():
            yield _encode(chunk, chunks)
        yield DONE


def _encode(chunk: Chunk, chunks: ChunkMaker[Any]) -> bytes:
    """A chunk as a server-sent event."""
    if chunks.named and isinstance(chunk, dict):
        return b"event: %b\n%b" % (chunk["type"].encode(), data_line(chunk))
    return data_line(chunk) if isinstance(chunk, dict) else b"event: error\n" + data_line(chunks.error(chunk))


def data_line(shape: Mapping[str, Any]) -> bytes:
    """A shape as a server-sent event without a name."""
    return b"data: %b\n\n" % json_bytes(shape)
