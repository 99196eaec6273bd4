"""The address of a model, and the dialect of the chat API there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit, urlunsplit

from perdure.core.errors import InvalidInput
from perdure.providers.discovery import api_path
from perdure.providers.masking import mask_url

_OWN_HOSTS = ("openai.com", "openai.azure.com")
_REASONING_MODEL = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d))")
_NO_EFFORT = re.compile(r"-chat|^o1-(?:mini|preview)")  # of the same families, but without the field


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The differences between servers of the chat API.

    Args:
        engine_role: the role of the engine's messages (memory deltas, heartbeats, summaries, alerts, the tail). It is
            `user` where the templates of open models allow `system` only first, and want `user` and `assistant` to
            alternate; adjacent user messages are then joined.
        output_limit: the field for the most tokens of an answer.
        allowed_tools: whether a choice among several tools can be asked for without leaving the others out.
        reasoning: "effort" is OpenAI's field `reasoning_effort`, "object" OpenRouter's `reasoning`.
        budget_as_effort: whether a budget of reasoning tokens is sent as an effort: the model reasons, and takes no
            budget.
        reasoning_back: the field under which earlier reasoning is sent back; None: it is not.
        cache_marks: whether the prompt is cached only up to where the request says so.
    """

    engine_role: Literal["system", "user"] = "user"
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    allowed_tools: bool = False
    reasoning: Literal["effort", "object"] = "effort"
    budget_as_effort: bool = False
    reasoning_back: str | None = None
    cache_marks: bool = False


def dialect_of(provider: str, base_url: str, model: str, *, reasoning_back: str | None = None) -> Dialect:
    """The dialect of the server at this address.

    Any server can be configured as `openai`, so fields that open servers refuse are used on OpenAI's own hosts only.
    """
    own = is_openai(base_url)
    completion = own or (provider == "openai" and _REASONING_MODEL.match(model) is not None)
    return Dialect(
        engine_role="system" if own else "user",
        output_limit="max_completion_tokens" if completion else "max_tokens",
        allowed_tools=own,
        reasoning="object" if provider == "openrouter" else "effort",
        budget_as_effort=own and _REASONING_MODEL.match(model) is not None and not _NO_EFFORT.search(model),
        reasoning_back=reasoning_back,
        # Anthropic caches only what is marked; OpenRouter passes the marks on.
        cache_marks=provider == "openrouter" and model.startswith("anthropic/"),
    )


def is_openai(base_url: str) -> bool:
    """Whether this is a host of OpenAI's own, or of Azure's. Raises: InvalidInput: no http address."""
    host = _split(base_url).hostname or ""
    return any(host == known or host.endswith(f".{known}") for known in _OWN_HOSTS)


def normalise_url(base_url: str) -> str:
    """The base address of the API: `http://` if no scheme is given, `/v1` if there is no path, no slash at the end.

    >>> normalise_url("localhost:11434"), normalise_url("https://openrouter.ai/api/v1/")
    ('http://localhost:11434/v1', 'https://openrouter.ai/api/v1')

    Raises: InvalidInput: no http address.
    """
    parts = _split(base_url)
    return urlunsplit((parts.scheme, parts.netloc, api_path(parts.path) or "/v1", parts.query, ""))


def chat_url(base_url: str) -> str:
    """The address that chat requests go to; a query in the base address stays behind the path.

    >>> chat_url("http://localhost:11434")
    'http://localhost:11434/v1/chat/completions'

    Raises: InvalidInput: no http address.
    """
    parts = urlsplit(normalise_url(base_url))
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path}/chat/completions", parts.query, ""))


def embeddings_url(base_url: str) -> str:
    """The address that texts to embed go to.

    >>> embeddings_url("http://localhost:11434")
    'http://localhost:11434/v1/embeddings'

    Raises: InvalidInput: no http address.
    """
    parts = urlsplit(normalise_url(base_url))
    path = parts.path.removesuffix("/embeddings")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/embeddings", parts.query, ""))


def request_headers(api_key: str | None, headers: Mapping[str, str], *, accept: str) -> dict[str, str]:
    """The headers of every request. Checked here, because a later error would show the value. Raises: InvalidInput."""
    made = {"content-type": "application/json", "accept": accept}
    if api_key and api_key.strip():
        made["authorization"] = f"Bearer {api_key.strip()}"
    made |= {name.lower(): value.strip() for name, value in headers.items()}
    for name, value in made.items():
        if not (value.isascii() and value.isprintable() and name.isascii() and name.isprintable() and name.strip()):
            what = "the API key" if name == "authorization" else f"header {name!r}"
            raise InvalidInput(f"{what} holds characters that can't be sent: only printable ASCII can")
    return made


def _split(base_url: str) -> SplitResult:
    text = base_url.strip()
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable or any(char.isspace() or not char.isprintable() for char in text):
        raise InvalidInput(
            f"{mask_url(base_url)[:200]!r} is not the address of a server: give one such as http://localhost:11434/v1"
        )
    return parts
