"""`Model` over pydantic-ai's direct layer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.core.errors import InvalidInput, ModelError, ModelReplyInvalid
from perdure.core.messages import parts_to_json
from perdure.core.models import Exchange, ModelDelta, ModelReply, ModelRequest
from perdure.providers.bounded import Guard
from perdure.providers.masking import mask_fields, mask_text
from perdure.providers.pydantic_ai.connect import NO_KEY, WIRE, Connection, Recorder, connect, key_of
from perdure.providers.pydantic_ai.faults import fault, redirected
from perdure.providers.pydantic_ai.options import dialect_of, to_parameters, to_settings
from perdure.providers.pydantic_ai.to_provider import Deltas, to_messages, to_parts, to_stop_reason, to_usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse

DirectProvider: TypeAlias = Literal["anthropic", "google", "openai-responses"] | str
"""These three are tested; any other name is one of pydantic-ai's: "bedrock", "groq", "mistral", "cohere", ..."""

_RESPONSE_FACTS = ("status", "request_id")


class DirectModel:
    """A model whose provider has its own API, such as Anthropic or Gemini, reached through Pydantic AI.

    Args:
        provider: the provider, such as `anthropic`.
        model: the provider's name of the model.
        api_key: None: the key in the environment (`ANTHROPIC_API_KEY`, `GOOGLE_API_KEY`, `OPENAI_API_KEY`, ...).
        base_url: another server that speaks the same API; None: the provider's.
        timeout_s: the longest silence, in seconds, before and within an answer.
        guard: of a `base_url` that a client chose.

    Raises: InvalidInput: `provider` or `model` is empty, or `timeout_s` is not above 0.
    """

    def __init__(
        self,
        *,
        provider: DirectProvider,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600,
        guard: Guard | None = None,
    ) -> None:
        if not provider or not model:
            raise InvalidInput(f"a model needs a provider and a name, not {provider!r} and {model!r}")
        if not timeout_s > 0:
            raise InvalidInput(f"timeout_s is {timeout_s}: give the seconds to wait, more than 0")
        self._provider, self._model, self._timeout_s = provider, model, timeout_s
        self._api_key, self._base_url, self._guard = api_key, base_url, guard
        self._dialect = dialect_of(provider)
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"DirectModel(provider={self._provider!r}, model={self._model!r})"

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas while the answer comes, then exactly one `ModelReply`. There are no retries here.

        Raises: ModelError.
        """
        wire: dict[str, Any] = {}
        streaming = False
        response: ModelResponse | None = None
        try:
            connection = await self._get_connection()
            messages = to_messages(request, self._dialect, system=connection.model.system)
            parameters = to_parameters(request, self._dialect)
            settings = to_settings(
                request,
                self._provider,
                self._dialect,
                timeout_s=self._timeout_s,
                profile=connection.model.profile,
                unsupported=connection.model.unsupported_settings,
            )
            wire["settings"], wire["tools"] = settings, len(request.tools)
            deltas = Deltas()
            async with AsyncExitStack() as stack:
                stream = await _open(stack, connection, messages, settings, parameters, wire)
                async for event in stream:
                    streaming = True
                    for delta in deltas.of(event):
                        yield delta
                response = stream.get()
            parts = to_parts(response)
            yield ModelReply(
                parts=parts,
                usage=to_usage(response.usage),
                stop_reason=to_stop_reason(response, parts),
                exchange=self._exchange(wire, response),
            )
        except ModelError as error:
            error.exchange = error.exchange or self._exchange(wire, response)
            error.usage = error.usage if response is None else to_usage(response.usage)
            raise
        except Exception as error:
            handle = f"{self._provider}/{self._model}"
            model_error: ModelError | None
            if "location" in wire:
                model_error = redirected(wire["status"], wire["location"], handle=handle, secrets=self._secrets)
            elif "not_read" in wire:
                model_error = ModelReplyInvalid(f"{handle} gave an answer that is not read: {wire['not_read']}")
            else:
                model_error = fault(error, handle=handle, streaming=streaming, secrets=self._secrets)
            if model_error is None:
                raise
            model_error.exchange = self._exchange(wire, response)
            raise model_error from None  # its cause may show the key

    async def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The body that this request would be sent with, as the provider's SDK builds it; nothing is sent.

        Raises: ModelError: the request can't be built.
        """
        recorder = Recorder()
        key = key_of(self._provider, self._api_key) or NO_KEY
        unsent = DirectModel(
            provider=self._provider, model=self._model, api_key=key, base_url=self._base_url, guard=recorder
        )
        try:
            async for _ in unsent.respond(request):
                pass
        except ModelError:
            if not recorder.body:
                raise
        finally:
            await unsent.aclose()
        payload: dict[str, Any] = json.loads(recorder.body)
        return payload

    async def aclose(self) -> None:
        """Close the connections. The model can still be used: it opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.close()

    async def _get_connection(self) -> Connection:
        """The connection of the running event loop; opened first if there is none."""
        loop = asyncio.get_running_loop()
        if (connection := self._connection) is not None and connection.loop is loop:
            return connection
        new = await asyncio.to_thread(  # seconds of CPU at first, outside the event loop
            connect,
            self._provider,
            self._model,
            api_key=self._api_key,
            base_url=self._base_url,
            timeout_s=self._timeout_s,
            guard=self._guard,
            loop=loop,
        )
        if (connection := self._connection) is not None and connection.loop is loop:  # another request connected first
            await new.close()
            return connection
        self._connection = new
        return new

    @property
    def _secrets(self) -> tuple[str, ...]:
        """The key, to be masked in texts."""
        key = key_of(self._provider, self._api_key)
        return (key,) if key else ()

    def _exchange(self, wire: dict[str, Any], response: ModelResponse | None) -> Exchange:
        """The request and the answer for the trace, without messages and secrets."""
        request: dict[str, Any] = {"provider": self._provider, "model": self._model}
        if "url" in wire:
            request |= {"url": mask_text(wire["url"], self._secrets), "bytes": wire["bytes"]}
        if "settings" in wire:
            request |= {"options": mask_fields(wire["settings"], self._secrets), "tools": wire["tools"]}
        answer: dict[str, Any] = {name: wire[name] for name in _RESPONSE_FACTS if name in wire}
        if response is not None:
            answer |= {
                "id": response.provider_response_id,
                "model": response.model_name,
                "finish_reason": (response.provider_details or {}).get("finish_reason") or response.finish_reason,
                "parts": json.loads(parts_to_json(to_parts(response))),
            }
        return Exchange(request=request, response=answer)


async def _open(
    stack: AsyncExitStack,
    connection: Connection,
    messages: list[ModelMessage],
    settings: dict[str, Any],
    parameters: ModelRequestParameters,
    wire: dict[str, Any],
) -> StreamedResponse:
    """Open the stream of the answer. A provider that can't combine reasoning with a forced tool call gets no
    tool choice: the engine checks the calls of the answer anyway."""
    from pydantic_ai.direct import model_request, model_request_stream
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import CompletedStreamedResponse

    token = WIRE.set(wire)
    try:
        while True:
            options: Any = {"model_settings": settings, "model_request_parameters": parameters}
            try:
                return await stack.enter_async_context(model_request_stream(connection.model, messages, **options))
            except UserError as error:
                if settings.get("tool_choice", "auto") in ("auto", "none") or "tool_choice" not in str(error):
                    raise
                wire["settings"] = settings = settings | {"tool_choice": "auto"}
            except NotImplementedError:  # it can't stream
                whole = await model_request(connection.model, messages, **options)
                return CompletedStreamedResponse(
                    replace(whole), model_request_parameters=parameters, replay_events=True
                )
    finally:
        WIRE.reset(token)
