"""`OpenAIChat`: a model behind any server that speaks the OpenAI chat API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import httpx

from perdure.core.errors import AddressRefused, BodyUnreadable, DataTooLarge, ModelError
from perdure.core.models import Exchange, ModelDelta, ModelReply, ModelRequest
from perdure.providers.bounded import answer_pieces
from perdure.providers.loops import LoopWatch
from perdure.providers.masking import mask_fields, mask_headers
from perdure.providers.openai_chat.endpoint import Connections, api_url, dialect_of, request_headers, simpler
from perdure.providers.openai_chat.faults import Target, error_in_answer, error_of_connection, error_of_response
from perdure.providers.openai_chat.request import Body, build_body
from perdure.providers.openai_chat.stream import AnswerReader

DRAIN_S = 0.1

USAGE_S = 5.0
"""The wait for the token counts, which come after the end of the answer."""


class OpenAIChat:
    """`Model` over HTTP: OpenAI, Ollama, vLLM, LM Studio, OpenRouter, or any address that speaks the same.

    One request, one answer; trying the same again is `perdure.providers.retrying.Retrying`'s work.

    Args:
        model: the name the server knows.
        base_url: with or without `/v1`, such as "http://localhost:11434".
        api_key: sent as a bearer token; no error text or exchange contains it.
        provider: "openai" and "openrouter" have fields of their own; any other name gets the common ones.
        headers: further headers of every request.
        stream: whether to request a stream; without it there is one delta for each part.
        timeout_s: the limit for the whole answer.
        connections: shared with other models of this endpoint; `aclose` leaves them open.
        local: it is a model of one's own server, whose answers are ended when they repeat themselves. Of others only
            those are that no person reads.
        reasoning_back: the field in which earlier reasoning is sent back ("reasoning", "reasoning_content"), for
            servers that want it.
    Raises: InvalidInput: an address, key or header that can't be used.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str | None = None,
        provider: str = "openai",
        headers: Mapping[str, str] = {},
        stream: bool = True,
        timeout_s: float = 600,
        connections: Connections | None = None,
        local: bool = False,
        reasoning_back: str | None = None,
    ) -> None:
        self.model, self.provider = model, provider
        self.url = api_url(base_url, "/chat/completions")
        self._dialect = dialect_of(provider, base_url, model, reasoning_back=reasoning_back)
        self._headers = request_headers(api_key, headers, accept="text/event-stream, application/json")
        self._target = Target.of_request(model, self.url, self._headers)
        self._stream, self._timeout_s, self._local = stream, timeout_s, local
        self._owned = connections is None
        self._connections = connections or Connections()

    async def aclose(self) -> None:
        """Close the connections, unless they are shared or the caller's. The model can still be used."""
        if self._owned:
            await self._connections.aclose()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas while the answer is made, then the one reply. Raises: ModelError, with its `exchange`.

        A server that refuses the engine's system messages is sent them in the role of the user, from then on; and as
        one text, if it refuses several in a message.
        """
        body = build_body(request, model=self.model, dialect=self._dialect, stream=self._stream)
        reader = AnswerReader(self._target.who, lambda error: error_in_answer(error, self._target), self._target.mask)
        watch = LoopWatch() if self._local or request.purpose != "reply" else None
        response: httpx.Response | None = None
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._send(body)
            dialect = self._dialect
            while not response.is_success:
                refusal = await error_of_response(response, self._target, deadline)
                if (other := simpler(dialect, refusal)) is None:
                    raise refusal
                await response.aclose()
                dialect = other
                before, body = body, build_body(request, model=self.model, dialect=dialect, stream=self._stream)
                if body.data == before.data:
                    raise refusal
                async with asyncio.timeout_at(deadline):
                    response = await self._send(body)
            self._dialect = dialect  # it takes this one, so the next request begins with it
            chunks = answer_pieces(response)
            while not reader.done and (chunk := await _next(chunks, deadline, reader)) is not None:
                for delta in reader.feed(chunk):
                    yield delta
                    if watch is not None and watch.sees_loop(delta.kind, delta.text):
                        reader.end_loop()
                        break
            last = reader.end()
            reply = reader.reply()
            for delta in last:
                yield delta
            await _drain(chunks)
            yield replace(reply, exchange=self._exchange(body, response, reader))
        except (
            *(ModelError, AddressRefused, DataTooLarge, BodyUnreadable, TimeoutError),
            *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
        ) as error:
            fault = error_of_connection(error, self._target, timeout_s=self._timeout_s, begun=response is not None)
            fault.exchange = self._exchange(body, response, reader, fault)
            fault.usage = reader.usage
            if fault is error:
                raise
            raise fault from error
        finally:
            if response is not None:
                await response.aclose()

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The body that this request would be sent with."""
        body = build_body(request, model=self.model, dialect=self._dialect, stream=self._stream)
        payload: dict[str, Any] = json.loads(body.data)
        return payload

    async def _send(self, body: Body) -> httpx.Response:
        """The response, of which only status and headers were read."""
        client = self._connections.client()
        return await client.send(
            client.build_request("POST", self.url, content=body.data, headers=self._headers), stream=True
        )

    def _exchange(
        self, body: Body, response: httpx.Response | None, reader: AnswerReader, fault: ModelError | None = None
    ) -> Exchange:
        """Request and answer for the trace, without messages and secrets."""
        secrets = self._target.secrets
        received: dict[str, Any] = {}
        if response is not None:
            received["status"] = response.status_code
            if request_id := response.headers.get("x-request-id"):
                received["request_id"] = request_id
            if response.is_success:
                received |= reader.partial_answer()
        if fault is not None:
            received["error"] = {"type": type(fault).__name__, "message": str(fault)}
        return Exchange(
            request={
                "url": self._target.url,
                "headers": mask_headers(self._headers, secrets),
                "body": mask_fields(body.fields, secrets),
                "size_bytes": len(body.data),
            },
            # Masking would take a `token` for a secret.
            response=mask_fields(received, secrets) | reader.token_facts(),
        )


async def _next(chunks: AsyncIterator[bytes], deadline: float, reader: AnswerReader) -> bytes | None:
    """The next piece of the body; None at its end, or if the connection breaks after a complete answer."""
    if reader.complete:
        deadline = min(deadline, asyncio.get_running_loop().time() + USAGE_S)
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(chunks, None)
    except (httpx.HTTPError, TimeoutError, DataTooLarge, BodyUnreadable):
        if reader.complete:
            return None
        raise


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what follows `[DONE]` for a moment, so that the connection can be used again."""
    with contextlib.suppress(httpx.HTTPError, httpx.StreamError, TimeoutError, DataTooLarge, BodyUnreadable):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
