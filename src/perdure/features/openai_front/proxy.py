"""Models with memory: a request goes on to the model's provider, and its answer comes back as it is made.

A provider that speaks OpenAI's API gets the request as it came, but for the model's name and what is recalled. Others
are asked through the model port. The answer is read to its end and kept, also if the program leaves before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
import httpx

from perdure.app import App
from perdure.core.errors import AddressRefused, BodyUnreadable, DataTooLarge, ModelError, ModelStreamCut
from perdure.engine.budget import CallBudget
from perdure.features.openai_front.answers import error_shape
from perdure.features.openai_front.capture import ChatKeeping
from perdure.features.openai_front.open_answers import OpenAnswers
from perdure.features.openai_front.port import answer_on_port
from perdure.features.openai_front.reading import STREAM, AnswerObserver, UsageFilter
from perdure.providers.masking import answer_pieces
from perdure.providers.openai_chat.faults import RequestTarget, error_of_connection, error_of_response
from perdure.providers.openai_endpoint import api_url, request_headers
from perdure.providers.provider import SELF_SERVED
from perdure.server.wire.http import json_bytes
from perdure.server.wire.sse import data_line

log = logging.getLogger(__name__)

FIRST_S, NEXT_S = 600.0, 120.0
"""So long a provider may say nothing before the answer, and within it."""
ERROR_S = 60.0
HELD_PIECES = 128
"""So many pieces, of at most 64 KiB, wait for a program that reads slowly; then its provider waits."""
_FAULTS = (
    *(TimeoutError, AddressRefused, DataTooLarge, BodyUnreadable),
    *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
)
STALLED_S = 60.0
"""A program that reads nothing for so long gets what is held, and no more."""


class AnswerRelay:
    """An answer that is passed on while it is made. `kind` is its media type."""

    def __init__(self, kind: str) -> None:
        self.kind, self._is_stalled = kind, False
        self._end, self._pieces = anyio.create_memory_object_stream[bytes](HELD_PIECES)

    async def put(self, piece: bytes) -> None:
        """Pass a piece on once there is room, unless the program has left or has read nothing for `STALLED_S`."""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                async with asyncio.timeout(STALLED_S):
                    await self._end.send(piece)
            except TimeoutError:
                self._is_stalled = True
                self.end()

    def end(self) -> None:
        """Mark the end of the answer."""
        self._end.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces, as they come."""
        with self._pieces:
            async for piece in self._pieces:
                yield piece
            if self._is_stalled:
                yield _failure_line("stalled", f"nothing was read for {STALLED_S:g} seconds: the answer has gone on")


async def ask(
    app: App,
    handle: str,
    body: Mapping[str, Any],
    budget: CallBudget,
    keeping: ChatKeeping | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AnswerRelay:
    """Send a request to a model, and return its answer as it comes, once its first piece is there.

    Args:
        keeping: keeps the chat, whether the answer is read or not; but no half answer.
        settings: of the agent that it is asked for; None: the program alone says how.
    Raises: ModelError: the provider refuses it, or can't be reached; LimitReached; of a model of another API
        InvalidInput, NotSupported: it can't be asked so.
    """
    with contextlib.ExitStack() as answering:
        answering.enter_context(app.runner.person())
        await budget.check()
        is_stream = bool(body.get("stream"))
        hides_usage = is_stream and not (body.get("stream_options") or {}).get("include_usage")
        endpoint, name = app.models.provider_of(handle) or (None, "")
        speaks = endpoint is not None and endpoint.entry.api_name == "openai_chat" and endpoint.entry != SELF_SERVED
        if endpoint is None or not speaks or settings is not None or handle in app.models.own_handles:
            kind = STREAM if is_stream else "application/json"
            pieces = await answer_on_port(app, handle, body, settings or {})
            if keeping is not None:
                await keeping.before()
        else:
            if hides_usage := hides_usage and budget.is_counted:
                body = {**body, "stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
            if keeping is not None:
                await keeping.before()
            client = app.service(OpenAnswers).client(endpoint)
            url = api_url(endpoint.base_url, "/chat/completions")
            headers = {**request_headers(endpoint.api_key, accept="*/*"), "accept-encoding": "identity"}
            target = RequestTarget.of_request(name, url, headers)
            request = client.build_request("POST", url, content=json_bytes({**body, "model": name}), headers=headers)
            response = await _send(client, request, target)
            kind, pieces = response.headers.get("content-type", "application/json"), _pieces(response, target)
        reading = AnswerObserver(handle)
        read = _read(pieces, reading) if kind.startswith(STREAM) else _read_whole(pieces, reading)
        first = await anext(read, b"")
        passing = AnswerRelay(kind)

        async def settle() -> None:
            """Count what the answer took, and keep it if it is whole."""
            try:
                await budget.count(handle, reading.reader.usage)
                if keeping is not None and reading.is_whole:
                    await keeping.answer(reading.text)
            except Exception:
                log.exception("an answer of %s was not kept", handle)

        shown = UsageFilter() if hides_usage else None
        task = asyncio.create_task(_pass_on(passing, first, read, reading, shown, settle))
        app.service(OpenAnswers).add(task)
        answered = answering.pop_all()
        task.add_done_callback(lambda _: answered.close())
    return passing


async def _pass_on(
    passing: AnswerRelay,
    piece: bytes,
    pieces: AsyncIterator[bytes],
    reading: AnswerObserver,
    shown: UsageFilter | None,
    settle: Callable[[], Awaitable[None]],
) -> None:
    """Pass an answer on to its end; settle it before its last piece, so that the next request finds it."""
    is_settled = False
    try:
        while True:
            if not is_settled and (reading.reader.done or not piece):
                is_settled = True
                await settle()
            if part := piece if shown is None else shown.feed(piece):
                await passing.put(part)
            if not piece:
                return
            piece = await anext(pieces, b"")
    except Exception as error:
        known = error if isinstance(error, ModelError) else None
        log.warning("an answer broke: %s", error, exc_info=known is None)
        failure = ("internal_error", "the answer broke") if known is None else (known.kind, str(known))
        await passing.put(_failure_line(*failure))
        if not is_settled:
            await settle()
    finally:
        passing.end()


def _failure_line(code: str, message: str) -> bytes:
    """An error within a stream; what stands before it may be half an event."""
    return b"\n\n" + data_line(error_shape(code, message))


async def _read(pieces: AsyncIterator[bytes], reading: AnswerObserver) -> AsyncIterator[bytes]:
    """The pieces of a stream, each once it was read, and an empty one at its end."""
    async for piece in pieces:
        reading.feed(piece)
        yield piece
    reading.feed(b"")
    yield b""


async def _read_whole(pieces: AsyncIterator[bytes], reading: AnswerObserver) -> AsyncIterator[bytes]:
    """An answer that is no stream in one piece, once all of it was read. Raises: ModelError: it breaks off."""
    body = b"".join([piece async for piece in pieces])
    for piece in (body, b""):
        reading.feed(piece)
    if isinstance(reading.failure, ModelStreamCut):
        raise reading.failure
    yield body


async def _send(client: httpx.AsyncClient, request: httpx.Request, target: RequestTarget) -> httpx.Response:
    """The response, of which only status and headers were read. Raises: ModelError."""
    async with _faults_of(target, FIRST_S, begun=False):
        response = await client.send(request, stream=True)
    if response.is_success:
        return response
    try:
        raise await error_of_response(response, target, asyncio.get_running_loop().time() + ERROR_S)
    finally:
        await response.aclose()


@contextlib.asynccontextmanager
async def _faults_of(target: RequestTarget, silence_s: float, *, begun: bool) -> AsyncIterator[None]:
    """Give a provider so long for what is waited for here. Raises: ModelError: it fails."""
    try:
        async with asyncio.timeout(silence_s):
            yield
    except _FAULTS as error:
        raise error_of_connection(error, target, silence_s=silence_s, begun=begun) from error


async def _pieces(response: httpx.Response, target: RequestTarget) -> AsyncIterator[bytes]:
    """The body of an answer, as it comes. Raises: ModelError."""
    pieces, begun = answer_pieces(response), False
    try:
        while True:
            async with _faults_of(target, NEXT_S if begun else FIRST_S, begun=begun):
                piece = await anext(pieces, None)
            if piece is None:
                return
            begun = True
            if piece:
                yield piece
    finally:
        await response.aclose()
