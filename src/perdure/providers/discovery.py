"""Find the providers of this environment: keys and addresses in variables, servers on this machine, their models.

Only `list_models` and `probe_local` use the network; their failures are values. No `repr` contains a key, and addresses
are shown without user and password.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import AddressRefused, InvalidInput, ModelError
from perdure.core.incoming.addresses import is_loopback
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.core.incoming.json_limits import parse_json
from perdure.providers.masking import LISTING, HostGuard, api_path, error_body, mask_text, read_answer, without_secrets
from perdure.providers.provider import ALIASES, NO_KEY, PROVIDERS, Endpoint, ProviderKind
from perdure.providers.traits import ServerTraits, served_in

PROBE_VARIABLE = "PERDURE_PROBE_LOCAL"
LIST_TIMEOUT_S = 3.0
PROBE_TIMEOUT_S = 0.3
LOOK_TIMEOUT_S = 1.0
LOADING_TRIES, LOADING_PAUSE_S = 60, 2.0
MODELS_MAX = 10_000
DETAIL_CHARS = 200


@dataclass(frozen=True, slots=True)
class ModelListing:
    """The models of a provider, or why it did not list them.

    `status` is the HTTP status of a refusal; 0 for no answer at all. `served`: name of a model -> its traits there.
    """

    models: tuple[str, ...] = ()
    problem: str = ""
    status: int = 0
    served: Mapping[str, ServerTraits] = field(default_factory=dict)


def find_providers(environment: Mapping[str, str] | None = None) -> list[Endpoint]:
    """The providers that environment variables name, in the order of preference. No network."""
    environment = os.environ if environment is None else environment
    return [endpoint for provider in PROVIDERS.values() if (endpoint := _find(provider, environment)) is not None]


OTHER_ADDRESSES: Mapping[str, str] = {
    "baseten": "https://inference.baseten.co/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "zai": "https://api.z.ai/api/paas/v4",
    "zai_coding": "https://api.z.ai/api/coding/paas/v4",
}
"""Addresses of further providers with OpenAI's chat API, which no variable names."""


def endpoint_of_type(name: str, kind: str, *, base_url: str, api_key: str, guard: HostGuard | None = None) -> Endpoint:
    """The endpoint of a provider that somebody registers: models have the handle `name/...`.

    Args:
        kind: an entry of `PROVIDERS` or `ALIASES`, one of `OTHER_ADDRESSES`, or with a `base_url` any other name, which
            then has OpenAI's chat API.
        guard: of the address, if it is not the provider's own one.
    Raises: InvalidInput: no address, or a malformed one; a key that can't be sent.
    """
    known = PROVIDERS.get(ALIASES.get(kind, kind))
    like = PROVIDERS["openai"] if known is None else known
    address = base_url or OTHER_ADDRESSES.get(kind, "") or (known.default_url if known is not None else "")
    address = address or like.local_url
    try:
        url = _base_url(address, like, host_only=False) if base_url else address
        if urllib.parse.urlsplit(url).username is not None:
            raise InvalidInput("base_url holds a user name or password, which everybody could read: give it as api_key")
    except ValueError:
        raise InvalidInput(f"base_url is {without_secrets(base_url)[:DETAIL_CHARS]!r}: it is not an address") from None
    if not url:
        raise InvalidInput(f"base_url: a provider of the type {kind!r} needs one, such as http://127.0.0.1:8000/v1")
    if not _can_be_sent(api_key):
        raise InvalidInput("api_key has characters that no key has: copy it again")
    return Endpoint(
        provider=name,
        base_url=url,
        api_key=api_key or NO_KEY,
        source=name,
        like=like.name,
        type=kind,
        guard=guard if base_url or like.local else None,
    )


def local_providers() -> list[Endpoint]:
    """The default addresses of servers on this machine: Ollama and LM Studio. No network."""
    return [
        Endpoint(provider=provider.name, base_url=provider.local_url, source=f"port {provider.port}")
        for provider in PROVIDERS.values()
        if provider.port
    ]


def may_probe() -> bool:
    """Whether PERDURE_PROBE_LOCAL allows probing ports of this machine."""
    return os.environ.get(PROBE_VARIABLE, "").strip().lower() not in ("0", "no", "off", "false")


async def probe_local(candidates: Sequence[Endpoint] | None = None) -> list[tuple[Endpoint, ModelListing]]:
    """The candidates (default: Ollama and LM Studio on their own ports) that answer, each with its models.

    All are probed at once; none with `PERDURE_PROBE_LOCAL=0` in the environment.
    """
    if candidates is None:
        candidates = local_providers() if may_probe() else []
    # The import of an HTTP client is slow: it waits until a port is open.
    open_ports = await asyncio.gather(*map(_listens, candidates))
    running = [endpoint for endpoint, is_open in zip(candidates, open_ports, strict=True) if is_open]
    listings = await asyncio.gather(*(list_models(endpoint, timeout_s=LOOK_TIMEOUT_S) for endpoint in running))
    return [(endpoint, listing) for endpoint, listing in zip(running, listings, strict=True) if not listing.problem]


async def list_models(endpoint: Endpoint, *, timeout_s: float = LIST_TIMEOUT_S) -> ModelListing:
    """The models of a provider, by `GET {base_url}/models`. Never raises; `problem` says what went wrong."""
    if endpoint.problem:
        return ModelListing(problem=endpoint.problem)
    if not _can_be_sent(endpoint.api_key):  # the error of the HTTP library would show it
        return ModelListing(problem=f"the key for {endpoint.address} has characters that no key has: copy it again")
    url, headers, params = endpoint.entry.api.listing_request(endpoint)
    answer = await fetch_json(endpoint, url, timeout_s=timeout_s, headers=headers, params=params)
    if answer.problem:
        return ModelListing(problem=f"{endpoint.address} {answer.problem}")
    if answer.status != 200:
        return ModelListing(problem=_refusal(endpoint, answer.status), status=answer.status)
    try:
        return ModelListing(_names(answer.data), served=served_in(answer.data))
    except ValueError:
        return ModelListing(
            problem=f"{endpoint.address}/models is not a list of models: is this the address of its API?"
        )


async def list_when_loaded(endpoint: Endpoint, listing: ModelListing, progress: Callable[[str], None]) -> ModelListing:
    """Ask a local server that is loading its model again until it has, for up to two minutes; the last listing. Any
    other endpoint's listing is returned as it is. `progress` is told what is waited for."""
    for _ in range(LOADING_TRIES):
        if not endpoint.local or listing.status != 503:
            break
        progress(f"{endpoint.address} is loading its model…")
        await asyncio.sleep(LOADING_PAUSE_S)
        listing = await list_models(endpoint)
    return listing


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """The answer to a short request.

    Args:
        status: the HTTP status; 0 for no answer at all.
        data: the JSON, None for what is no JSON; for a status other than 200 the text on one line.
        problem: why there is no answer, as the rest of a sentence; empty if there is one.
    """

    status: int = 0
    data: Any = None
    problem: str = ""


async def fetch_json(
    endpoint: Endpoint,
    url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, int] | None = None,
    body: Mapping[str, Any] | None = None,
) -> ShortAnswer:
    """Send a GET, or a POST with a body. Never raises, and nothing in the answer shows the key.

    Proxies of the environment are used except for this machine and an address with a guard.
    """
    import httpx

    secrets = [endpoint.api_key] if endpoint.has_key else []
    guarded: dict[str, Any] = {}
    if is_loopback(urllib.parse.urlsplit(url).hostname or ""):  # certificates take 20 ms to read
        guarded = {"trust_env": False, "verify": url.lower().startswith("https:")}
    if endpoint.guard is not None:
        guarded = {"trust_env": False, "transport": endpoint.guard.transport(httpx.create_ssl_context())}
    status = 0
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(timeout=timeout_s, **guarded) as client,
            client.stream(
                "GET" if body is None else "POST",
                url,
                headers={"Accept-Encoding": ACCEPT_ENCODING, **(headers or {})},
                params=params or None,
                json=body,
            ) as response,
        ):
            status = response.status_code
            if status == 200:
                return ShortAnswer(status, parse_json(await read_answer(response, LISTING.size_bytes), LISTING))
            return ShortAnswer(status, " ".join(mask_text(await error_body(response), secrets).split()))
    except (TimeoutError, httpx.TimeoutException):
        return ShortAnswer(problem=f"did not answer within {timeout_s:g} s")
    except AddressRefused as error:
        return ShortAnswer(problem=f"is not asked: {error.reason}")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError, ModelError) as error:
        detail = mask_text(str(error) or type(error).__name__, secrets)
        return ShortAnswer(problem=f"can't be reached: {detail[:DETAIL_CHARS]}")
    except ValueError:
        return ShortAnswer(status)


def _find(provider: ProviderKind, environment: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint of a provider by its environment variables; None if none of them is set."""
    key_name, key = _first(environment, provider.keys)
    url_name, url = _first(environment, provider.urls)
    # A key alone names a local server at its default port.
    if not url and (not key or not (provider.default_url or provider.port)):
        return None
    source = ", ".join(filter(None, (url_name, key_name)))
    base_url, problem = provider.default_url, ""
    if url:
        try:
            base_url = _base_url(url, provider, host_only=url_name == "OLLAMA_HOST")
        except ValueError:
            base_url = ""
            example = f"http://127.0.0.1:{provider.port or 8000}/v1"
            problem = f"{url_name} is {without_secrets(url)[:DETAIL_CHARS]!r}: it is not an address, such as {example}"
    elif not base_url:
        base_url = provider.local_url
    if not _can_be_sent(key):
        problem = problem or f"{key_name} has characters that no key has: copy it again"
    if not key and not provider.local and provider.name != "openai":
        problem = problem or f"{url_name} is set, but {' or '.join(provider.keys)} is not: set the key too"
    return Endpoint(provider=provider.name, base_url=base_url, api_key=key or NO_KEY, source=source, problem=problem)


def _first(environment: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    """(name, value) of the first variable that is set to something; both empty if none is."""
    for name in names:
        if value := environment.get(name, "").strip():
            return name, value
    return "", ""


def _can_be_sent(key: str) -> bool:
    """Whether an HTTP header can carry the key; it can't carry a line break, from a bad paste."""
    return key.isascii() and key.isprintable()


def _base_url(text: str, provider: ProviderKind, *, host_only: bool) -> str:
    """Complete an address with scheme, port and path of the API (`host_only`: without its own). Raises: ValueError."""
    url = text if "://" in text else f"http://{text if not text.startswith(':') else '127.0.0.1' + text}"
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in url):
        raise ValueError(text)
    port = parts.port  # ValueError, if it is no number
    if port == 0:
        raise ValueError(text)
    host = parts.hostname
    if provider.local and host in ("0.0.0.0", "::"):  # an address to listen on, not to connect to
        host = "127.0.0.1"
    if port is None and "://" not in text and provider.port:
        port = provider.port  # OLLAMA_HOST=192.168.1.5 means Ollama's own port
    user, at, _ = parts.netloc.rpartition("@")
    place = f"[{host}]" if ":" in host else host
    netloc = f"{user}{at}{place}{f':{port}' if port is not None else ''}"
    path, query = ("", "") if host_only else (api_path(parts.path), parts.query)
    path, query = provider.api.complete_path(provider, path, query)
    return urllib.parse.urlunsplit((parts.scheme, netloc, path, query, ""))


async def _listens(endpoint: Endpoint) -> bool:
    """Whether the port of an endpoint is open."""
    parts = urllib.parse.urlsplit(endpoint.base_url)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _names(answer: Any) -> tuple[str, ...]:
    """The names in a list of models, whichever shape it has. Raises: ValueError."""
    rows = answer
    if isinstance(answer, dict):
        rows = answer.get("data", answer.get("models"))
        if rows is None and "data" in answer:
            rows = []  # Ollama without any model
    if not isinstance(rows, list):
        raise ValueError("no list")
    names = [row.get("id") or row.get("name") for row in rows[:MODELS_MAX] if isinstance(row, dict)]
    return tuple(dict.fromkeys(name.removeprefix("models/") for name in names if isinstance(name, str) and name))


def _refusal(endpoint: Endpoint, status: int) -> str:
    """Words for the HTTP status with which a server refuses to list its models."""
    match status:
        case 401 | 403 if endpoint.has_key:
            return (
                f"{endpoint.address} refused the key in {endpoint.source} ({status}): check that it is whole and active"
            )
        case 401 | 403:
            return f"{endpoint.address} wants a key ({status}): set {endpoint.entry.keys[0]}"
        case 404:
            return f"{endpoint.address}/models is not there (404): is this the address of its API?"
        case _:
            return f"{endpoint.address} answered {status} to the question for its models"
