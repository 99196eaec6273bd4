"""`Model` over pydantic-ai's direct layer, and the HTTP client beneath it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.core.errors import InvalidInput, ModelError, ModelReplyInvalid, ModelRequestRefused
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.core.messages import parts_to_json
from perdure.core.models import Exchange, ModelDelta, ModelReply, ModelRequest
from perdure.providers.answer_schemas import REFUSED_SCHEMA, with_schema_in_prompt
from perdure.providers.masking import ANSWER_BYTES, EVENT, WHOLE, HostGuard, mask_fields, mask_text
from perdure.providers.provider import NO_KEY, PROVIDERS
from perdure.providers.pydantic_ai.faults import fault, missing_package_error, redirect_error
from perdure.providers.pydantic_ai.options import dialect_of, takes_schema, to_parameters, to_settings
from perdure.providers.pydantic_ai.to_provider import AnswerDeltas, to_messages, to_parts, to_stop_reason, to_usage

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.providers import Provider


WIRE: ContextVar[dict[str, Any] | None] = ContextVar("perdure_wire_seen", default=None)
"""Where the HTTP client notes its request and response while a call opens."""

CONNECT_TIMEOUT_S = 10.0
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid")


@dataclass(frozen=True, slots=True)
class SdkConnection:
    """A model and the event loop that it belongs to. `http` is None if the SDK has its own client."""

    model: Model[Any]
    loop: asyncio.AbstractEventLoop
    http: httpx2.AsyncClient | None = None
    provider: Provider[Any] | None = None

    async def close(self) -> None:
        """Close the HTTP client, ours or the provider's."""
        if self.http is not None:
            await self.http.aclose()
        elif self.provider is not None:
            async with self.provider:  # the exit closes the provider's own client
                pass


class Recorder:
    """In place of a guard: it keeps the body of a request, and refuses it instead of sending it."""

    def __init__(self) -> None:
        self.body = b""

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        raise NotImplementedError("requests of the SDKs are sent by httpx2")

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """A transport that sends nothing, and keeps the body of the request."""
        import httpx2

        async def record(request: httpx2.Request) -> httpx2.Response:
            """Keep the body of the request; answer it with an error."""
            self.body = await request.aread()
            return httpx2.Response(400)

        return httpx2.MockTransport(record)


def _takes_client(parameter: inspect.Parameter) -> bool:
    """Whether a provider's SDK sends its requests by a client of `httpx2`. Some take one of `httpx`, or ignore it."""
    name = str(parameter.annotation).partition(" |")[0]
    return name in ("httpx2.AsyncClient", "AsyncHTTPClient", "_OpenAIHTTPClient")


def _http_client(timeout_s: float, guard: HostGuard | None) -> httpx2.AsyncClient:
    """A closable client that notes traffic in WIRE and limits answers; with a guard it uses no proxy."""
    import httpx2

    from perdure.core.incoming.http_answers import bound_body

    async def note_request(request: httpx2.Request) -> None:
        """Note the request's URL and size for the trace."""
        if (wire := WIRE.get()) is not None:
            wire["url"] = str(request.url)
            wire["bytes"] = int(request.headers.get("content-length", 0))

    async def note_response(response: httpx2.Response) -> None:
        """Limit the size of the answer, and note its status for the trace."""
        wire = WIRE.get()
        notes = {} if wire is None else wire
        bound_body(
            response, whole=WHOLE, event=EVENT, total_bytes=ANSWER_BYTES, refused=lambda why: notes.update(not_read=why)
        )
        if wire is not None:
            wire["status"] = response.status_code
            wire.pop("location", None)  # of an earlier try
            if response.has_redirect_location:
                wire["location"] = response.headers["location"]
            if request_id := next(filter(None, map(response.headers.get, _REQUEST_IDS)), None):
                wire["request_id"] = request_id

    verify = _certificates()
    guarded: dict[str, Any] = {"verify": verify}
    if guard is not None:
        guarded = {"transport": guard.transport2(verify), "trust_env": False}
    return httpx2.AsyncClient(
        **guarded,
        timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        event_hooks={"request": [note_request], "response": [note_response]},
        headers={"Accept-Encoding": ACCEPT_ENCODING},
        follow_redirects=False,  # a redirect would carry the key and the conversation to its target
    )


@cache
def _certificates() -> ssl.SSLContext:
    """The certificates, loaded once for all clients: 50 ms of CPU."""
    import httpx2

    return httpx2.create_ssl_context()


DirectProvider: TypeAlias = Literal["anthropic", "google", "openai-responses"] | str
"""These three are tested; any other name is one of pydantic-ai's: "bedrock", "groq", "mistral", "cohere", ..."""

_RESPONSE_FACTS = ("status", "request_id")


class DirectModel:
    """A model whose provider has its own API, such as Anthropic or Gemini, reached through Pydantic AI.

    Args:
        provider: the provider, such as `anthropic`.
        model: the provider's name of the model.
        api_key: None: none for another server, and for the provider itself what its SDK finds in the environment.
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
        guard: HostGuard | None = None,
    ) -> None:
        if not provider or not model:
            raise InvalidInput(f"a model needs a provider and a name, not {provider!r} and {model!r}")
        if not timeout_s > 0:
            raise InvalidInput(f"timeout_s is {timeout_s}: give the seconds to wait, more than 0")
        self._provider, self._model, self._timeout_s = provider, model, timeout_s
        self._api_key, self._base_url, self._guard = api_key, base_url, guard
        self._dialect = dialect_of(provider)
        self._connection: SdkConnection | None = None
        self._takes_schema = True

    def __repr__(self) -> str:
        return f"DirectModel(provider={self._provider!r}, model={self._model!r})"

    @property
    def takes_images(self) -> bool:
        """Whether its provider takes pictures."""
        return self._dialect.images

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
            forms = [to_parameters(request, self._dialect)]
            if forms[0].output_object is not None:
                plain = to_parameters(with_schema_in_prompt(request), self._dialect)
                forms = [*(forms if self._takes_schema and takes_schema(request, self._dialect) else ()), plain]
            settings = to_settings(
                request,
                self._provider,
                self._dialect,
                timeout_s=self._timeout_s,
                profile=connection.model.profile,
                unsupported=connection.model.unsupported_settings,
            )
            wire["settings"], wire["tools"] = settings, len(request.tools)
            deltas = AnswerDeltas()
            async with AsyncExitStack() as stack:
                stream = await _open(stack, connection, messages, settings, forms, wire)
                self._takes_schema = wire.get("takes_schema", self._takes_schema)
                async for event in stream:
                    streaming = True
                    for delta in deltas.of(event):
                        yield delta
                response = stream.get()
            parts = to_parts(response)
            yield ModelReply(
                parts=parts,
                usage=to_usage(response.usage),
                stop_reason=to_stop_reason(response, parts, may_stay_empty=request.may_stay_empty),
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
                model_error = redirect_error(wire["status"], wire["location"], handle=handle, secrets=self._secrets)
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
        unsent = DirectModel(
            provider=self._provider,
            model=self._model,
            api_key=self._api_key or NO_KEY,
            base_url=self._base_url,
            guard=recorder,
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

    async def _get_connection(self) -> SdkConnection:
        """The connection of the running event loop; opened first if there is none."""
        loop = asyncio.get_running_loop()
        if (connection := self._connection) is not None and connection.loop is loop:
            return connection
        new = await asyncio.to_thread(self._connect, loop)  # seconds of CPU at first, outside the event loop
        if (connection := self._connection) is not None and connection.loop is loop:  # another request connected first
            await new.close()
            return connection
        self._connection = new
        return new

    def _connect(self, loop: asyncio.AbstractEventLoop) -> SdkConnection:
        """A connection for use in this event loop; nothing is sent yet.

        To be called in a thread: it imports the provider's SDK, which takes seconds, and reads certificates.

        Raises: ModelRequestRefused: the provider is not known, or its package not installed.
        """
        clients: list[httpx2.AsyncClient] = []

        def make_provider(name: str) -> Provider[Any]:
            """Make the SDK's provider of this name with our key, address and HTTP client."""
            kind = infer_provider_class(name)
            parameters = inspect.signature(kind.__init__).parameters
            options: dict[str, Any] = {"api_key": self._api_key, "base_url": self._base_url}
            if self._base_url and "api_key" in parameters:
                # Own servers often need no key, and the SDKs do: they would send that of the environment.
                options["api_key"] = self._api_key or NO_KEY
            if "http_client" in parameters and _takes_client(parameters["http_client"]):
                clients.append(_http_client(self._timeout_s, self._guard))
                options["http_client"] = clients[-1]
            return kind(**{name: value for name, value in options.items() if value})

        try:
            import pydantic_ai.direct  # noqa: F401 - the first request needs it, and must not wait for it in the loop
            from pydantic_ai.models import infer_model
            from pydantic_ai.providers import infer_provider_class

            pydantic_model = infer_model(f"{self._provider}:{self._model}", make_provider)
        except ImportError as error:
            raise missing_package_error(self._provider, self._dialect.extra, error) from error
        except (ValueError, TypeError) as error:  # no such provider; one that takes no key or address
            raise ModelRequestRefused(f"{self._provider}/{self._model} can't be reached: {error}") from error
        if self._guard is not None and not clients:
            raise ModelRequestRefused(
                f"{self._provider}/{self._model} can't be reached: its SDK would connect to any address"
            )
        return SdkConnection(pydantic_model, loop, clients[0] if clients else None, provider=pydantic_model.provider)

    @property
    def _secrets(self) -> tuple[str, ...]:
        """The keys that may have been sent, to be masked in texts: the given one, or those of the environment."""
        if self._api_key:
            return (self._api_key,)
        return tuple(filter(None, (os.environ.get(name) for kind in PROVIDERS.values() for name in kind.keys)))

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
    connection: SdkConnection,
    messages: list[ModelMessage],
    settings: dict[str, Any],
    forms: list[ModelRequestParameters],
    wire: dict[str, Any],
) -> StreamedResponse:
    """Open the stream of the answer, in `stack`. A provider that can't combine reasoning with a forced tool call gets
    no tool choice: the engine checks the calls of the answer anyway. One that refuses the answer's schema is sent the
    next of `forms`, which has none. `wire` notes what was sent and answered, for the trace."""
    from pydantic_ai.direct import model_request, model_request_stream
    from pydantic_ai.exceptions import ModelHTTPError, UserError
    from pydantic_ai.models import CompletedStreamedResponse

    token = WIRE.set(wire)
    try:
        while True:
            options: Any = {"model_settings": settings, "model_request_parameters": forms[0]}
            try:
                return await stack.enter_async_context(model_request_stream(connection.model, messages, **options))
            except (UserError, ModelHTTPError, ValueError, TypeError) as error:
                if len(forms) > 1 and _refuses_schema(error, wire):
                    forms = forms[1:]
                elif settings.get("tool_choice", "auto") in ("auto", "none") or "tool_choice" not in str(error):
                    raise
                else:
                    wire["settings"] = settings = settings | {"tool_choice": "auto"}
            except NotImplementedError:  # it can't stream
                whole = await model_request(connection.model, messages, **options)
                return CompletedStreamedResponse(replace(whole), model_request_parameters=forms[0], replay_events=True)
    finally:
        WIRE.reset(token)


def _refuses_schema(error: Exception, wire: dict[str, Any]) -> bool:
    """Whether an error says that an answer's schema can't be sent, or is refused, which is then noted in `wire`."""
    if "url" not in wire:
        return isinstance(error, ValueError | TypeError) or REFUSED_SCHEMA.search(str(error)) is not None
    if getattr(error, "status_code", None) not in (400, 422) or not REFUSED_SCHEMA.search(str(error)):
        return False
    wire["takes_schema"] = False
    return True
