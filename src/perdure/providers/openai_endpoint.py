"""The address of a server, the dialect of the chat API there, and the connections to it."""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from perdure.core.errors import InvalidInput, ModelError, ModelOverloaded
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.providers.answer_schemas import REFUSED_SCHEMA
from perdure.providers.masking import HostGuard, api_path, mask_text

CONNECT_S = 10.0
IDLE_MAX = 100
IDLE_S = 30.0

_OWN_HOSTS = ("openai.com", "openai.azure.com")
_TAKING_SYSTEM = ("openai", "deepseek", "groq", "together", "xai")
"""Providers that take system messages anywhere. A server behind the name of `openai` may still refuse them; then the
model goes on with the role `user` (`simpler`).

No other name is among them. Mistral refuses a system message at the end. Templates of open models (Qwen 3.5, Gemma,
Mistral) refuse one that is not first, or move it to the front without a word, as Ollama does and OpenRouter for Claude:
then the cache is lost with each change of the tail."""
_REFUSED_ROLE = re.compile(r"\bsystem\b|\brole|alternat|template", re.IGNORECASE)
_REFUSED_CALLS = re.compile(r"\brole|alternat|template|\btool", re.IGNORECASE)
_REFUSED_PARTS = re.compile(r"\b(?:string|str|list|array|sequence)\b", re.IGNORECASE)
_MISTRAL = re.compile(r"[sx]tral\b")

_REASONING_MODEL = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d))")
_TEXT_ONLY = re.compile(
    r"gpt-3|gpt-oss|^o1-(?:mini|preview)|^o3-mini|deepseek|codestral|mixtral|llama-?(?:2|3(?:\.[13])?)(?![.\d])"
    r"|qwen(?:2\.5|3)(?!.*(?:vl|omni))"
)  # servers refuse the whole request for a picture in it
_NO_EFFORT = re.compile(r"-chat|^o1-(?:mini|preview)")  # of the same families, but without the field


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The differences between servers of the chat API.

    Args:
        engine_role: the role of the engine's messages (memory deltas, heartbeats, summaries, alerts, the tail). It is
            `user` where the templates of open models allow `system` only first, and want `user` and `assistant` to
            alternate; adjacent user messages are then one message, with a part for each.
        parts: whether a user's message may hold several texts; else they are joined.
        calls_as_text: whether calls and results are texts, for templates that know only users and assistants.
        user_after_tool: whether a user may follow a tool. Mistral's models refuse that: what the engine says there is
            added to the last result, and a message of a person follows a short answer.
        output_limit: the field for the most tokens of an answer.
        allowed_tools: whether a choice among several tools can be asked for without leaving the others out.
        reasoning: "effort" is OpenAI's field `reasoning_effort`, "object" OpenRouter's `reasoning`.
        budget_as_effort: whether a budget of reasoning tokens is sent as an effort: the model reasons, and takes no
            budget.
        reasoning_back: the field under which earlier reasoning is sent back; None: it is not.
        cache_marks: whether the prompt is cached only up to where the request says so.
        logprobs: whether the model tells the probabilities of its tokens.
        images: whether the model takes pictures, as far as its name tells.
        temperature: whether the model takes one; one that reasons on OpenAI's own hosts refuses it.
        reports_progress: whether the server may be asked how far it is with the prompt; others refuse unknown fields.
        json_answers: how an answer of a schema is asked for: by `json_schema`, as any JSON `object` with the schema in
            the prompt, or by the `prompt` alone.
        token_ids: whether the field `return_token_ids` of vLLM may be sent; its own hosts refuse unknown fields.
    """

    engine_role: Literal["system", "user"] = "user"
    parts: bool = True
    calls_as_text: bool = False
    user_after_tool: bool = True
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    allowed_tools: bool = False
    reasoning: Literal["effort", "object"] = "effort"
    budget_as_effort: bool = False
    reasoning_back: str | None = None
    cache_marks: bool = False
    logprobs: bool = True
    images: bool = True
    temperature: bool = True
    json_answers: Literal["schema", "object", "prompt"] = "schema"
    token_ids: bool = True
    reports_progress: bool = False


def dialect_of(provider: str, base_url: str, model: str, *, reasoning_back: str | None = None) -> Dialect:
    """The dialect of the server at this address.

    Any server can be configured as `openai`, so fields that open servers refuse are used on OpenAI's own hosts only.
    """
    own = is_openai(base_url)
    takes_system = own or provider in _TAKING_SYSTEM
    completion = own or (provider == "openai" and _REASONING_MODEL.match(model) is not None)
    return Dialect(
        engine_role="system" if takes_system else "user",
        user_after_tool=provider != "mistral" and not _MISTRAL.search(model.lower()),
        output_limit="max_completion_tokens" if completion else "max_tokens",
        allowed_tools=own,
        reasoning="object" if provider == "openrouter" else "effort",
        budget_as_effort=own and _REASONING_MODEL.match(model) is not None and not _NO_EFFORT.search(model),
        reasoning_back=reasoning_back,
        # Anthropic caches only what is marked; OpenRouter passes the marks on.
        cache_marks=provider == "openrouter" and model.startswith("anthropic/"),
        logprobs=not (own and _REASONING_MODEL.match(model)),
        images=provider != "deepseek" and not _TEXT_ONLY.search(model.lower()),
        temperature=not (own and _REASONING_MODEL.match(model)),
        token_ids=not own,
    )


def simpler(dialect: Dialect, fault: ModelError, *, local: bool) -> Dialect | None:
    """Return a simpler dialect to try after a server refused this one with `fault`. It avoids what the error names:
    response format, system messages, several parts of a message, or, for a `local` server, calls and results. None:
    nothing is left to avoid."""
    if fault.status not in (400, 422, 500) or isinstance(fault, ModelOverloaded):  # which says nothing of its words
        return None
    text = str(fault)
    if dialect.json_answers != "prompt" and REFUSED_SCHEMA.search(text):
        return replace(dialect, json_answers="object" if dialect.json_answers == "schema" else "prompt")
    if dialect.engine_role == "system" and _REFUSED_ROLE.search(text):
        return replace(dialect, engine_role="user")
    if dialect.engine_role == "user" and dialect.parts and _REFUSED_PARTS.search(text):
        return replace(dialect, parts=False)
    if local and not dialect.calls_as_text and _REFUSED_CALLS.search(text):
        return replace(dialect, engine_role="user", calls_as_text=True)
    return None


def is_openai(base_url: str) -> bool:
    """Whether this is a host of OpenAI's own, or of Azure's. Raises: InvalidInput: no http address."""
    host = _split(base_url).hostname or ""
    return any(host == own_host or host.endswith(f".{own_host}") for own_host in _OWN_HOSTS)


def api_url(base_url: str, suffix: str = "", *, without: str = "") -> str:
    """An address of the API: `http://` if no scheme is given, `/v1` if there is no path, then the suffix.

    A query in the base address stays behind the path.

    >>> api_url("localhost:11434", "/chat/completions"), api_url("https://openrouter.ai/api/v1/")
    ('http://localhost:11434/v1/chat/completions', 'https://openrouter.ai/api/v1')

    Args:
        without: what the path loses at its end before it gets the suffix.
    Raises: InvalidInput: no http address.
    """
    parts = _split(base_url)
    path = (api_path(parts.path) or "/v1").removesuffix(without or suffix)
    return urlunsplit((parts.scheme, parts.netloc, f"{path}{suffix}", parts.query, ""))


def request_headers(api_key: str | None, *, accept: str) -> dict[str, str]:
    """The headers of every request. Checked here, because a later error would show the key. Raises: InvalidInput."""
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise InvalidInput("the API key holds characters that can't be sent: only printable ASCII can")
    login = {"authorization": f"Bearer {key}"} if key else {}
    return {"content-type": "application/json", "accept": accept, "accept-encoding": ACCEPT_ENCODING, **login}


def _split(base_url: str) -> SplitResult:
    """The parts of an http address. Raises: InvalidInput: it is none."""
    text = base_url.strip()
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable or any(char.isspace() or not char.isprintable() for char in text):
        raise InvalidInput(
            f"{mask_text(base_url)[:200]!r} is not the address of a server: give one such as http://localhost:11434/v1"
        )
    return parts


class HttpClients:
    """An HTTP client for each event loop, made at its first use; all models of one endpoint share it.

    Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), except for this machine's own addresses. Redirects
    are not followed: they would carry the key to their target.

    Args:
        client: used in place of a new one; `aclose` leaves it open.
        guard: of the endpoint's address; then no proxy is used.
    """

    def __init__(self, client: httpx.AsyncClient | None = None, *, guard: HostGuard | None = None) -> None:
        self._own_client, self._guard = client, guard
        self._pooled: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    def client(self) -> httpx.AsyncClient:
        """The client for the running loop."""
        if self._own_client is not None:
            return self._own_client
        loop = asyncio.get_running_loop()
        if self._pooled is None or self._pooled[0] is not loop or self._pooled[1].is_closed:
            # The client of another loop can't be closed from this one; its connections went with its loop.
            self._pooled = loop, _new_client(self._guard)
        return self._pooled[1]

    async def aclose(self) -> None:
        """Close the connections; the next request would open new ones."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None and pooled[0] is asyncio.get_running_loop():
            await pooled[1].aclose()


def _new_client(guard: HostGuard | None) -> httpx.AsyncClient:
    # Each model limits the time of its answer, see `OpenAIChat`.
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    if guard is not None:
        return httpx.AsyncClient(transport=guard.transport(_tls()), trust_env=False, timeout=timeout)
    return httpx.AsyncClient(
        verify=_tls(),
        mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")),
        timeout=timeout,
        # The engine limits how many runs, and so requests, there are at once.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX, keepalive_expiry=IDLE_S),
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """The TLS settings, loaded once: httpx would load them for each client and proxy, 40 ms each."""
    return httpx.create_ssl_context()
