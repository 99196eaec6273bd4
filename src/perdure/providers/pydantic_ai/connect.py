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
from perdure.providers.bounded import ANSWER_BYTES, EVENT, WHOLE
from perdure.providers.pydantic_ai.dialects import dialect_of
from perdure.providers.pydantic_ai.faults import missing

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider

__all__ = ["SEEN", "Connection", "connect", "key_of"]

SEEN: ContextVar[dict[str, Any] | None] = ContextVar("perdure_wire_seen", default=None)
"""Where the HTTP client notes what it sent and got while it opens an answer."""

CONNECT_TIMEOUT_S = 10.0
NO_KEY = "none"
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid")


@dataclass(frozen=True, slots=True)
class Connection:
    """A model that can be asked, in the event loop that it was made in. `http` is None if the SDK has its own."""

    model: Model[Any]
    loop: asyncio.AbstractEventLoop
    http: httpx2.AsyncClient | None = None
    provider: Provider[Any] | None = None

    async def close(self) -> None:
        if self.http is not None:
            await self.http.aclose()
        elif self.provider is not None:
            async with self.provider:  # leaving closes the client that the provider has made
                pass


def key_of(provider: str, api_key: str | None) -> str | None:
    """The key that is given, else the environment's."""
    return api_key or next(filter(None, map(os.environ.get, dialect_of(provider).keys)), None)


def connect(
    provider: str,
    model: str,
    *,
    api_key: str | None,
    base_url: str | None,
    timeout_s: float,
    loop: asyncio.AbstractEventLoop,
) -> Connection:
    """A connection for use in this event loop; nothing is sent yet.

    To be called in a thread: it imports the provider's SDK, which takes seconds, and reads certificates.

    Raises: ModelRequestRefused: the provider is not known, or its package not installed.
    """
    try:
        import pydantic_ai.direct  # noqa: F401 - the first request needs it, and must not wait for it in the loop

        return _connect(provider, model, key_of(provider, api_key), base_url, timeout_s, loop)
    except ImportError as error:
        raise missing(provider, dialect_of(provider).extra, error) from error


def _connect(
    provider: str,
    model: str,
    key: str | None,
    base_url: str | None,
    timeout_s: float,
    loop: asyncio.AbstractEventLoop,
) -> Connection:
    if base_url:
        key = key or NO_KEY  # a server of one's own may want none; the SDKs want something
    match provider:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            http = _http_client(timeout_s)
            return Connection(
                AnthropicModel(model, provider=AnthropicProvider(api_key=key, base_url=base_url, http_client=http)),
                loop,
                http,
            )
        case "google":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            http = _http_client(timeout_s)
            return Connection(
                GoogleModel(model, provider=GoogleProvider(api_key=key, base_url=base_url, http_client=http)),
                loop,
                http,
            )
        case "openai-responses":
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            http = _http_client(timeout_s)
            return Connection(
                OpenAIResponsesModel(model, provider=OpenAIProvider(api_key=key, base_url=base_url, http_client=http)),
                loop,
                http,
            )
        case _:
            from pydantic_ai.models import infer_model
            from pydantic_ai.providers import infer_provider_class

            clients: list[httpx2.AsyncClient] = []

            def make_provider(name: str) -> Provider[Any]:
                kind = infer_provider_class(name)
                options: dict[str, Any] = {"api_key": key if key != NO_KEY else None, "base_url": base_url}
                if _takes_client(kind):
                    clients.append(_http_client(timeout_s))
                    options["http_client"] = clients[-1]
                return kind(**{name: value for name, value in options.items() if value})

            try:
                found = infer_model(f"{provider}:{model}", make_provider)
            except (ValueError, TypeError) as error:  # no such provider; one that takes no key or address
                raise ModelRequestRefused(f"{provider}/{model} can't be reached: {error}") from error
            return Connection(found, loop, clients[0] if clients else None, provider=found.provider)


def _takes_client(kind: type[Provider[Any]]) -> bool:
    """Whether a provider's SDK sends its requests by a client of `httpx2`. Some take one of `httpx`, or ignore it."""
    parameter = inspect.signature(kind.__init__).parameters.get("http_client")
    name = "" if parameter is None else str(parameter.annotation).partition(" |")[0]
    return name in ("httpx2.AsyncClient", "AsyncHTTPClient", "_OpenAIHTTPClient")


def _http_client(timeout_s: float) -> httpx2.AsyncClient:
    """A client of our own, so that it is ours to close, says what went over it, and reads no more than it should."""
    import httpx2

    from perdure.core.incoming.http_answers import bound_body

    async def sent(request: httpx2.Request) -> None:
        if (seen := SEEN.get()) is not None:
            seen["url"] = str(request.url)
            seen["bytes"] = int(request.headers.get("content-length", 0))

    async def got(response: httpx2.Response) -> None:
        seen = SEEN.get()
        notes = {} if seen is None else seen
        bound_body(
            response,
            whole=WHOLE,
            event=EVENT,
            total_bytes=ANSWER_BYTES,
            refused=lambda why: notes.update(not_read=why),
        )
        if seen is not None:
            seen["status"] = response.status_code
            seen.pop("location", None)  # of an earlier try
            if response.has_redirect_location:
                seen["location"] = response.headers["location"]
            if request_id := next(filter(None, map(response.headers.get, _REQUEST_IDS)), None):
                seen["request_id"] = request_id

    return httpx2.AsyncClient(
        verify=_certificates(),
        timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        event_hooks={"request": [sent], "response": [got]},
        headers={"Accept-Encoding": ACCEPT_ENCODING},
        follow_redirects=False,  # it would carry the key and the conversation to wherever the answer points
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust: read once, 50 ms of CPU, for the clients of all models."""
    import httpx2

    return httpx2.create_ssl_context()
