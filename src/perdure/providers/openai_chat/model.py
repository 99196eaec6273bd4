"""`OpenAIChat`: a model behind any server that speaks the OpenAI chat API."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from perdure.core.errors import (
    AddressRefused,
    BodyUnreadable,
    DataTooLarge,
    ModelError,
    ModelOverflow,
    ModelTakesNoTools,
)
from perdure.core.models import Exchange, ModelDelta, ModelOptions, ModelPiece, ModelProgress, ModelRequest, ModelTraits
from perdure.core.tasks import end_tasks
from perdure.providers.loops import LoopWatch
from perdure.providers.masking import answer_pieces, mask_fields, mask_headers
from perdure.providers.openai_chat.faults import RequestTarget, error_in_answer, error_of_connection, error_of_response
from perdure.providers.openai_chat.request import Body, build_body
from perdure.providers.openai_chat.stream import AnswerReader
from perdure.providers.openai_endpoint import Dialect, HttpClients, api_url, dialect_of, request_headers, simpler
from perdure.providers.provider import ModelSource

log = logging.getLogger(__name__)

DRAIN_S = 0.1
ERROR_S = 60.0
"""How long the rest of an error's text is waited for."""
MEASURED_TOKENS = (32, 8)
"""The least tokens, read and written, that a speed is measured by."""

USAGE_S = 5.0
"""The wait for the token counts, which come after the end of the answer."""


class OpenAIChat:
    """`Model` over HTTP: OpenAI, Ollama, vLLM, LM Studio, OpenRouter, or any address that speaks the same.

    One request, one answer; trying the same again is `perdure.providers.retrying.Retrying`'s work.

    Args:
        source: what it is built with. `learn` is told what answers and refusals show. `look` is called before the first
            request, and after the first answer as long as the window is unknown: a server may load the model for it.
        stream: whether to request a stream; without it there is one delta for each part.
        silence: how long the server may say nothing; None: what suits a server of one's own, or a provider's.
    Raises: InvalidInput: an address or key that can't be used.
    """

    def __init__(self, source: ModelSource, *, stream: bool = True, silence: SilenceLimits | None = None) -> None:
        endpoint, entry = source.endpoint, source.endpoint.entry
        self.model, self._source, self._stream, self._silence = source.name, source, stream, silence
        self.url = api_url(endpoint.base_url, "/chat/completions")
        self._dialect = dialect_of(entry.name, endpoint.base_url, source.name, reasoning_back=entry.reasoning_back)
        self._headers = request_headers(source.api_key, accept="text/event-stream, application/json")
        self._target = RequestTarget.of_request(source.name, self.url, self._headers)
        self._shown_headers = mask_headers(self._headers, self._target.secrets)
        self._looks = 0
        self._opened = endpoint.provider not in source.connections
        self._connections: HttpClients = source.connections.setdefault(
            endpoint.provider, HttpClients(guard=endpoint.guard)
        )

    async def aclose(self) -> None:
        """Close the connections to its endpoint, if they were opened for it. The model can still be used."""
        if self._opened:
            await self._connections.aclose()

    @property
    def takes_images(self) -> bool:
        """Whether it takes pictures, as far as its name tells."""
        return self._dialect.images

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        """Deltas while the answer is made, then the one reply. Raises: ModelError, with its `exchange`.

        A server that refuses the engine's system messages is sent them in the role of the user, from then on; as one
        text, if it refuses several in a message; calls as texts, if its template knows none; and no tools, if it
        refuses these. An answer that repeats itself is ended, if the model is local or no person reads the answer.
        """
        await self._look_at_server(after=0)
        traits = self._source.traits()
        silence = self._silence or (LOCAL_SILENCE if traits.local else SilenceLimits())
        reader = AnswerReader(self._target.who, lambda error: error_in_answer(error, self._target), self._target.mask)
        is_read = request.purpose == "reply"
        watch = LoopWatch(is_read=is_read) if traits.local or not is_read else None
        response: httpx.Response | None = None
        dialect = self._dialect
        body = self._body(request, dialect, traits)
        begun_at: float | None = None
        clock = asyncio.get_running_loop().time
        started_at = clock()
        try:
            task = asyncio.ensure_future(self._send(body))
            async for tick in _wait(task, silence, started_at):
                yield tick
            while not (response := task.result()).is_success:
                refusal = await error_of_response(response, self._target, clock() + ERROR_S)
                await response.aclose()
                body, dialect = self._body_after(request, refusal, body, dialect)
                task = asyncio.ensure_future(self._send(body))
                async for tick in _wait(task, silence, started_at):
                    yield tick
            self._dialect = dialect
            chunks = answer_pieces(response)
            first = asyncio.ensure_future(_next(chunks, silence.first_s, reader))
            async for tick in _wait(first, silence, started_at):
                yield tick
            chunk, begun_at = first.result(), clock()
            events, until = 0, begun_at + silence.first_s  # words that only keep the connection open are no answer
            while chunk is not None:
                for piece in reader.feed(chunk):
                    yield _estimated(piece, traits)
                    if watch is not None and isinstance(piece, ModelDelta) and watch.sees_loop(piece.kind, piece.text):
                        reader.end_loop(is_read=is_read)
                        break
                if reader.events > events:
                    events, until = reader.events, clock() + silence.first_s
                chunk = None if reader.done else await _next(chunks, min(silence.next_s, until - clock()), reader)
            last = reader.end()
            reply = reader.reply(may_stay_empty=request.may_stay_empty)
            for piece in last:
                yield piece
            # What follows `[DONE]` is read for a moment, so that the connection can be used again.
            with contextlib.suppress(httpx.HTTPError, httpx.StreamError, TimeoutError, DataTooLarge, BodyUnreadable):
                async with asyncio.timeout(DRAIN_S):
                    async for _ in chunks:
                        pass
            self._learn_from(reader, traits, read_s=begun_at - started_at, written_s=clock() - begun_at)
            await self._look_at_server(after=1)
            yield replace(reply, exchange=self._exchange(body, response, reader))
        except (
            *(ModelError, AddressRefused, DataTooLarge, BodyUnreadable, TimeoutError),
            *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
        ) as error:
            silence_s = silence.first_s if begun_at is None else silence.next_s
            fault = error_of_connection(error, self._target, silence_s=silence_s, begun=response is not None)
            if isinstance(fault, ModelOverflow) and fault.window_tokens:
                self._source.learn(window_tokens=fault.window_tokens)
            fault.exchange = self._exchange(body, response, reader, fault)
            fault.usage = reader.usage
            if fault is error:
                raise
            raise fault from error
        finally:
            if response is not None:
                await response.aclose()

    async def _look_at_server(self, *, after: int) -> None:
        """Ask the server of a local model for its traits, if it was asked `after` times so far: 0 before the first
        request, 1 after an answer, and then only if the window is still unknown."""
        if self._source.look is None or self._looks != after:
            return
        traits = self._source.traits()
        if traits.local and not (after and traits.window_tokens):
            self._looks += 1
            await self._source.look()

    def _body(self, request: ModelRequest, dialect: Dialect, traits: ModelTraits) -> Body:
        """The body of a request, as this server is known to take it."""
        if not traits.takes_tools:
            request = replace(request, tools=())
        if traits.local:
            request = replace(request, options=_with_limit(request.options, traits))
        if dialect.reports_progress != (traits.server == "llamacpp"):
            dialect = replace(dialect, reports_progress=not dialect.reports_progress)
        return build_body(request, model=self.model, dialect=dialect, stream=self._stream)

    def _body_after(
        self, request: ModelRequest, refusal: ModelError, before: Body, dialect: Dialect
    ) -> tuple[Body, Dialect]:
        """(Another body, its dialect) for a server that has refused the body `before`. Raises: ModelError: the refusal,
        if no other body is known to help."""
        if request.tools and self._source.traits().takes_tools and isinstance(refusal, ModelTakesNoTools):
            log.warning("%s: its server takes no tools, so it is asked without them: %s", self._target.who, refusal)
            self._source.learn(takes_tools=False, calling="none")
        elif isinstance(refusal, ModelOverflow) and refusal.is_of_answer:
            self._source.learn(window_tokens=refusal.window_tokens)  # the limit of the answer follows from it
        else:
            # What changes nothing in this request is not what it was refused for.
            while (other := simpler(dialect, refusal, local=self._source.traits().local)) is not None:
                dialect = other
                if self._body(request, dialect, self._source.traits()).data != before.data:
                    break
        if (body := self._body(request, dialect, self._source.traits())).data == before.data:
            raise refusal
        return body, dialect

    def _learn_from(self, reader: AnswerReader, traits: ModelTraits, *, read_s: float, written_s: float) -> None:
        """Learn from an answer how fast the model is, and whether its server is llama.cpp."""
        usage = reader.usage
        read, written = usage.input_tokens - usage.cached_input_tokens, usage.output_tokens
        speeds = reader.speeds
        if speeds is not None:
            self._source.learn(server="llamacpp")
        elif traits.local and self._stream and read_s > 0 and written_s > 0:
            speeds = read / read_s, written / written_s
        if speeds is not None and read >= MEASURED_TOKENS[0] and written >= MEASURED_TOKENS[1]:
            self._source.learn(tokens_per_s=(round(speeds[0], 1), round(speeds[1], 1)))

    async def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The body that this request would be sent with."""
        payload: dict[str, Any] = json.loads(self._body(request, self._dialect, self._source.traits()).data)
        return payload

    async def _send(self, body: Body) -> httpx.Response:
        """The response, of which only status and headers were read."""
        client = self._connections.client()
        return await client.send(
            client.build_request("POST", _parsed(self.url), content=body.data, headers=self._headers), stream=True
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
                "headers": self._shown_headers,
                "body": mask_fields(body.fields, secrets),
                "size_bytes": len(body.data),
            },
            # Masking would take a `token` for a secret.
            response=mask_fields(received, secrets) | reader.token_facts(),
        )


_parsed = functools.lru_cache(maxsize=256)(httpx.URL)
"""An address, which httpx would parse for every request: as long as the rest of making it."""


def _with_limit(options: ModelOptions, traits: ModelTraits) -> ModelOptions:
    """The options with a limit for the answer: a small model goes on for ever, and its server lets it."""
    wanted = options.max_output_tokens or traits.max_output_tokens
    # The engine keeps no more than a quarter of the window free for an answer.
    most = traits.window_tokens // 4 if traits.window_tokens else wanted
    return options if wanted is None or most is None else replace(options, max_output_tokens=max(1, min(wanted, most)))


def _estimated(piece: ModelDelta | ModelProgress, traits: ModelTraits) -> ModelDelta | ModelProgress:
    """The piece; progress that can't tell yet how long it takes, with what earlier answers showed."""
    if not isinstance(piece, ModelProgress) or piece.left_s is not None or traits.tokens_per_s is None:
        return piece
    return replace(piece, left_s=(piece.total_tokens - piece.read_tokens) / max(0.1, traits.tokens_per_s[0]))


async def _next(chunks: AsyncIterator[bytes], silence_s: float, reader: AnswerReader) -> bytes | None:
    """The next piece of the body; None at its end, or if the connection breaks after a complete answer."""
    try:
        async with asyncio.timeout(min(silence_s, USAGE_S) if reader.complete else silence_s):
            return await anext(chunks, None)
    except (httpx.HTTPError, TimeoutError, DataTooLarge, BodyUnreadable):
        if reader.complete:
            return None
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimits:
    """How long a server may say nothing, in seconds.

    Reading a long prompt takes a model on a CPU minutes in which its server sends nothing; so does the reasoning of a
    hosted one. Between two pieces only a model on a CPU is slow.

    Args:
        first_s: until the first byte, and from one event to the next; `next_s`: from one byte to the next. Servers and
            proxies keep a connection open by comments, which are no events.
        tick_s: how often the waiting is told of before the first byte; None: never.
    """

    first_s: float = 600.0
    next_s: float = 120.0
    tick_s: float | None = None


LOCAL_SILENCE = SilenceLimits(next_s=600.0, tick_s=5.0)


async def _wait(task: asyncio.Future[Any], silence: SilenceLimits, started_at: float) -> AsyncIterator[ModelProgress]:
    """Yield progress until what brings the first byte is done. Raises: TimeoutError."""
    clock = asyncio.get_running_loop().time
    until = clock() + silence.first_s
    try:
        while not task.done():
            left_s = until - clock()
            if left_s <= 0:
                raise TimeoutError
            await asyncio.wait({task}, timeout=min(left_s, silence.tick_s or left_s))
            if not task.done() and silence.tick_s is not None:
                yield ModelProgress(stage="waiting", waited_s=clock() - started_at)
    finally:
        if not task.done():
            await end_tasks(task)
