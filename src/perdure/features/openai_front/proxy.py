"""Models with memory: a request goes on to the model's provider, and its answer comes back as it is made.

A provider that speaks OpenAI's API gets the request as it came, but for the model's name and what is recalled. Others
are asked through the model port. The answer is read to its end and kept, also if the program leaves before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx

from perdure.app import App, Endpoint
from perdure.core.errors import AddressRefused, BodyUnreadable, DataTooLarge, ModelError
from perdure.core.runs import NO_USAGE, Usage
from perdure.engine.budget import CallBudget
from perdure.features.openai_front.answers import data_line
from perdure.features.openai_front.port import ask_port
from perdure.providers.masking import answer_pieces
from perdure.providers.openai_chat.faults import Target, error_of_connection, error_of_response
from perdure.providers.openai_endpoint import HttpClients, api_url, request_headers
from perdure.providers.provider import SELF_SERVED
from perdure.server.wire.http import json_bytes

log = logging.getLogger(__name__)

FIRST_S, NEXT_S = 600.0, 120.0
"""So long a provider may say nothing before the answer, and within it."""
ERROR_S = 60.0
CLOSE_S = 5.0
"""So long answers that are still being made are waited for when the program ends."""
STREAM = "text/event-stream"
READ_BYTES = 32 * 2**20
"""What is kept of an answer is read from so many bytes of it at most."""

_FINISHED = re.compile(rb'"finish_reason": ?"')

Keep = Callable[[str], Awaitable[None]]
"""Keeps the text of an answer."""


class Passing:
    """An answer that is passed on while it is made. `kind` is its media type.

    Args:
        hides_usage: the program has not asked for the chunk with the tokens, so it is left out.
    """

    def __init__(self, kind: str, *, hides_usage: bool = False) -> None:
        self.kind = kind
        self._hides_usage = hides_usage
        self._line = b""
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_read = True

    def put(self, piece: bytes | None) -> None:
        """Pass a piece on; None: it was the last one."""
        if self._is_read:
            if self._hides_usage:
                piece = self._without_usage(piece)
            if piece != b"":
                self._pieces.put_nowait(piece)

    def _without_usage(self, piece: bytes | None) -> bytes | None:
        """The whole lines of a stream up to here, but for the chunk with the tokens; None: at its end."""
        if piece is None:
            if self._line:
                self._pieces.put_nowait(self._line)
            return None
        *lines, self._line = (self._line + piece).split(b"\n")
        return b"".join([line + b"\n" for line in lines if not _is_usage(line)])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces, as they come."""
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
        finally:
            self._is_read = False


class Proxy:
    """Asks the models of requests that get memory around them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._clients: dict[str, tuple[Endpoint, HttpClients]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Nothing runs before the first request."""

    async def close(self) -> None:
        """Give answers that are being made a moment to end, and close all connections."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        for _, clients in self._clients.values():
            await clients.aclose()

    async def ask(self, handle: str, body: Mapping[str, Any], budget: CallBudget, keep: Keep | None) -> Passing:
        """Send a request to a model, and return its answer as it comes. `keep` is called with its text, whether the
        pieces were read or not.

        Args:
            body: of the request, with what is recalled.
        Raises: ModelError: the provider refuses it, or can't be reached; LimitReached.
        """
        await budget.check()
        endpoint, name = self._app.models.provider_of(handle) or (None, "")
        speaks = endpoint is not None and endpoint.entry.api_name == "openai_chat" and endpoint.entry != SELF_SERVED
        if endpoint is None or not speaks or handle in self._app.models.own_handles:
            kind = STREAM if body.get("stream") else "application/json"
            return await self._begin(kind, ask_port(self._app, handle, body), handle, budget, keep)
        url = api_url(endpoint.base_url, "/chat/completions")
        headers = {**request_headers(endpoint.api_key, accept="*/*"), "accept-encoding": "identity"}
        target = Target.of_request(name, url, headers)
        client = self._client(endpoint)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        hides_usage = bool(body.get("stream")) and budget.is_counted and not with_usage
        if hides_usage:
            body = {**body, "stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
        request = client.build_request("POST", url, content=json_bytes({**body, "model": name}), headers=headers)
        try:
            async with asyncio.timeout(FIRST_S):
                response = await client.send(request, stream=True)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, AddressRefused) as error:
            raise error_of_connection(error, target, silence_s=FIRST_S, begun=False) from error
        if not response.is_success:
            try:
                raise await error_of_response(response, target, asyncio.get_running_loop().time() + ERROR_S)
            finally:
                await response.aclose()
        kind = response.headers.get("content-type", "application/json")
        return await self._begin(kind, _pieces(response, target), handle, budget, keep, hides_usage=hides_usage)

    def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        """The client for an endpoint, whose address may have changed."""
        known = self._clients.get(endpoint.provider)
        if known is None or known[0] != endpoint:
            known = self._clients[endpoint.provider] = endpoint, HttpClients(guard=endpoint.guard)
        return known[1].client()

    async def _begin(
        self,
        kind: str,
        pieces: AsyncIterator[bytes],
        handle: str,
        budget: CallBudget,
        keep: Keep | None,
        *,
        hides_usage: bool = False,
    ) -> Passing:
        """Begin to pass an answer on, once its first piece is there; a half answer is not kept. Raises: ModelError:
        there is none."""
        passing, first = Passing(kind, hides_usage=hides_usage), await anext(pieces, b"")

        async def work() -> None:
            body, is_whole = await _pass_on(passing, first, pieces, handle)
            try:
                text, usage = read_answer(body, kind)
                await budget.count(handle, usage)
                if keep is not None and is_whole:
                    await keep(text)
            except Exception:
                log.exception("an answer of %s was not kept", handle)

        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return passing


async def _pass_on(passing: Passing, piece: bytes, pieces: AsyncIterator[bytes], handle: str) -> tuple[bytes, bool]:
    """Pass the pieces of an answer on until its end; return (its bytes, whether it came whole)."""
    whole, is_whole = bytearray(), False
    try:
        while piece:
            passing.put(piece)
            if len(whole) < READ_BYTES:
                whole += piece
            piece = await anext(pieces, b"")
        is_streamed = passing.kind.startswith(STREAM) and len(whole) < READ_BYTES
        is_whole = not is_streamed or b"[DONE]" in whole[-200:] or _FINISHED.search(whole) is not None
    except ModelError as error:
        log.warning("an answer of %s broke: %s", handle, error)
        failure = {"error": {"message": str(error), "type": "server_error", "code": error.kind, "param": None}}
        if passing.kind.startswith(STREAM):
            passing.put(data_line(failure))
    finally:
        passing.put(None)
    return bytes(whole), is_whole


async def _pieces(response: httpx.Response, target: Target) -> AsyncIterator[bytes]:
    """The body of an answer, as it comes. Raises: ModelError."""
    pieces, silence_s, begun = answer_pieces(response), FIRST_S, False
    try:
        while True:
            async with asyncio.timeout(silence_s):
                piece = await anext(pieces, None)
            if piece is None:
                return
            if piece:
                yield piece
            silence_s, begun = NEXT_S, True
    except (TimeoutError, httpx.HTTPError, httpx.StreamError, DataTooLarge, BodyUnreadable) as error:
        raise error_of_connection(error, target, silence_s=silence_s, begun=begun) from error
    finally:
        await response.aclose()


def _is_usage(line: bytes) -> bool:
    """Whether a line of a stream is the chunk with nothing but the tokens."""
    if b'"usage"' not in line or not line.startswith(b"data:"):
        return False
    try:
        shape = json.loads(line[5:])
    except ValueError:
        return False
    return isinstance(shape, dict) and not shape.get("choices") and bool(shape.get("usage"))


def read_answer(body: bytes, kind: str) -> tuple[str, Usage]:
    """(The text, the tokens) of an answer, whole or a stream; what can't be read is left out."""
    texts: list[str] = []
    usage = NO_USAGE
    lines = [body] if not kind.startswith(STREAM) else body.replace(b"\r\n", b"\n").split(b"\n")
    for line in lines:
        data = line.removeprefix(b"data:").strip()
        if not data.startswith(b"{"):
            continue
        try:
            shape = json.loads(data)
        except ValueError:
            continue
        for choice in (shape.get("choices") or ())[:1]:
            said = choice.get("delta") or choice.get("message") or {}
            if isinstance(text := said.get("content"), str):
                texts.append(text)
        usage = _usage_of(shape.get("usage")) or usage
    return "".join(texts), usage


def _usage_of(shape: Any) -> Usage | None:
    """The tokens that an answer names; None: it names none."""
    if not isinstance(shape, Mapping):
        return None
    details = shape.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=shape.get("prompt_tokens") or 0,
        output_tokens=shape.get("completion_tokens") or 0,
        cached_input_tokens=details.get("cached_tokens") or 0,
    )
