"""A pydantic-ai model and the HTTP client beneath it."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelRequestRefused
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.providers.bounded import ANSWER_BYTES, EVENT, WHOLE, Guard
from perdure.providers.pydantic_ai.faults import missing
from perdure.providers.pydantic_ai.options import dialect_of

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider

WIRE: ContextVar[dict[str, Any] | None] = ContextVar("perdure_wire_seen", default=None)
"""Where the HTTP client notes its request and response while a call opens."""

CONNECT_TIMEOUT_S = 10.0
NO_KEY = "none"
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid")


@dataclass(frozen=True, slots=True)
class Connection:
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
        import httpx2

        async def record(request: httpx2.Request) -> httpx2.Response:
            self.body = await request.aread()
            return httpx2.Response(400)

        return httpx2.MockTransport(record)


def key_of(provider: str, api_key: str | None) -> str | None:
    """The given key, else the environment's."""
    return api_key or next(filter(None, map(os.environ.get, dialect_of(provider).keys)), None)


def connect(
    provider: str,
    model: str,
    *,
    api_key: str | None,
    base_url: str | None,
    timeout_s: float,
    guard: Guard | None,
    loop: asyncio.AbstractEventLoop,
) -> Connection:
    """A connection for use in this event loop; nothing is sent yet.

    To be called in a thread: it imports the provider's SDK, which takes seconds, and reads certificates.

    Raises: ModelRequestRefused: the provider is not known, or its package not installed.
    """
    clients: list[httpx2.AsyncClient] = []

    def make_provider(name: str) -> Provider[Any]:
        kind = infer_provider_class(name)
        parameters = inspect.signature(kind.__init__).parameters
        options: dict[str, Any] = {"api_key": key_of(provider, api_key), "base_url": base_url}
        if base_url and "api_key" in parameters:
            options["api_key"] = options["api_key"] or NO_KEY  # own servers often need no key; the SDKs do
        if "http_client" in parameters and _takes_client(parameters["http_client"]):
            clients.append(_http_client(timeout_s, guard))
            options["http_client"] = clients[-1]
        return kind(**{name: value for name, value in options.items() if value})

    try:
        import pydantic_ai.direct  # noqa: F401 - the first request needs it, and must not wait for it in the loop
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class

        pydantic_model = infer_model(f"{provider}:{model}", make_provider)
    except ImportError as error:
        raise missing(provider, dialect_of(provider).extra, error) from error
    except (ValueError, TypeError) as error:  # no such provider; one that takes no key or address
        raise ModelRequestRefused(f"{provider}/{model} can't be reached: {error}") from error
    if guard is not None and not clients:
        raise ModelRequestRefused(f"{provider}/{model} can't be reached: its SDK would connect to any address")
    return Connection(pydantic_model, loop, clients[0] if clients else None, provider=pydantic_model.provider)


def _takes_client(parameter: inspect.Parameter) -> bool:
    """Whether a provider's SDK sends its requests by a client of `httpx2`. Some take one of `httpx`, or ignore it."""
    name = str(parameter.annotation).partition(" |")[0]
    return name in ("httpx2.AsyncClient", "AsyncHTTPClient", "_OpenAIHTTPClient")


def _http_client(timeout_s: float, guard: Guard | None) -> httpx2.AsyncClient:
    """A client that can be closed, notes requests and responses in WIRE, and limits the size of answers. With a guard
    it uses no proxy."""
    import httpx2

    from perdure.core.incoming.http_answers import bound_body

    async def note_request(request: httpx2.Request) -> None:
        if (wire := WIRE.get()) is not None:
            wire["url"] = str(request.url)
            wire["bytes"] = int(request.headers.get("content-length", 0))

    async def note_response(response: httpx2.Response) -> None:
        wire = WIRE.get()
        notes = {} if wire is None else wire
        bound_body(
            response,
            whole=WHOLE,
            event=EVENT,
            total_bytes=ANSWER_BYTES,
            refused=lambda why: notes.update(not_read=why),
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
