"""From what a server answered instead of an answer to a typed error: pure functions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from perdure.core.errors import (
    BodyUnreadable,
    DataTooLarge,
    ModelAuthenticationFailed,
    ModelError,
    ModelOverflow,
    ModelOverloaded,
    ModelQuotaExceeded,
    ModelRateLimited,
    ModelRefused,
    ModelReplyInvalid,
    ModelRequestRefused,
    ModelStreamCut,
    ModelTimeout,
    ModelUnreachable,
)
from perdure.core.incoming.json_limits import parse_json
from perdure.providers.bounded import EVENT
from perdure.providers.masking import masked_text

__all__ = ["Target", "error_in_answer", "error_of_connection", "error_of_status", "retry_after_s"]

SAID_CHARS_MAX = 500

_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "model_context_window_exceeded"}
)
# OpenAI, DeepSeek, vLLM | vLLM | llama.cpp | Anthropic | Bedrock | xAI | Gemini | Mistral | LM Studio | Ollama | Groq
_OVERFLOW = re.compile(
    r"maximum context length|max_model_len|longer than the maximum model length"
    r"|exceeds? the (?:available |model'?s? )?(?:maximum )?context (?:size|length|window)"
    r"|prompt is too long|input is too long|prompt too long|maximum prompt length"
    r"|input token count .{0,40}exceeds the maximum|too large for model with \d+ maximum context"
    r"|greater than the context length|context the overflows|context window (?:is )?(?:exceeded|full)"
    r"|reduce the length of the (?:messages|prompt|input)|context[_ ]length[_ ]exceeded",
    re.IGNORECASE,
)
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_credits",
        "insufficient_funds",
        "credit_balance_too_low",
        "quota_exceeded",
    }
)
_QUOTA = re.compile(
    r"exceeded your current quota|insufficient (?:balance|credits?|funds)|credit balance is too low"
    r"|billing hard limit|out of credits|requires more credits|never purchased credits",
    re.IGNORECASE,
)
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsible_ai_policy_violation"})

# For errors inside an answer of status 200, which have only words.
_WORDS: Sequence[tuple[re.Pattern[str], int]] = (
    (re.compile(r"rate.?limit|too many requests", re.IGNORECASE), 429),
    (re.compile(r"authentication|invalid.api.key|permission|unauthorized", re.IGNORECASE), 401),
    (re.compile(r"insufficient.(?:quota|credits)|billing", re.IGNORECASE), 402),
    (re.compile(r"not.?found", re.IGNORECASE), 404),
    (re.compile(r"time.?out|timed out", re.IGNORECASE), 504),
    (re.compile(r"invalid.?request|bad.?request", re.IGNORECASE), 400),
)


@dataclass(frozen=True, slots=True)
class Target:
    """Who was asked, for the messages. `url` is shown, so it holds no secret; `secrets` are blanked out of whatever the
    server says."""

    model: str
    url: str
    secrets: Sequence[str] = ()

    @property
    def who(self) -> str:
        return f"model {self.model!r} at {self.url}"


@dataclass(frozen=True, slots=True)
class _Said:
    """What an error body says, whatever its shape."""

    message: str
    words: frozenset[str] = field(default_factory=frozenset)
    status: int | None = None
    status_word: str = ""


def error_of_status(status: int, headers: Mapping[str, str], body: str, target: Target, *, now: datetime) -> ModelError:
    """The error of an HTTP answer that is none.

    Args:
        headers: names in lower case.
        body: as much of it as was read: JSON of OpenAI's, Ollama's, vLLM's or OpenRouter's shape, or any text.
        now: what a date in `Retry-After` is compared with.
    """
    try:
        said = _said(parse_json(body, EVENT))
    except ValueError:
        said = _Said(_plain(masked_text(body, target.secrets)))
    return _error(status, said, target, retry_after=retry_after_s(headers, now=now), location=headers.get("location"))


def error_in_answer(error: Any, target: Target) -> ModelError:
    """The error of an error object inside an answer that began well (status 200)."""
    said = _said(error)
    text = " ".join((*sorted(said.words), said.message))
    status = said.status or next((status for words, status in _WORDS if words.search(text)), 500)
    return _error(status, said, target, retry_after=None, location=None)


def error_of_connection(error: Exception, target: Target, *, timeout_s: float, begun: bool) -> ModelError:
    """The error of a connection that could not be made, or broke; one that is typed already stays as it is.

    Args:
        timeout_s: how long the answer was waited for; `begun`: whether something of it had come.
    """
    who = target.who
    said = masked_text(str(error) or type(error).__name__, target.secrets)
    match error:
        case ModelError():
            return error
        case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.ProxyError():
            return ModelUnreachable(f"{who} can't be reached ({said}): is the server running, the address right?")
        case TimeoutError() | httpx.TimeoutException():
            return ModelTimeout(f"{who} did not finish its answer within {timeout_s:g} s")
        case httpx.LocalProtocolError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return ModelRequestRefused(f"{who} can't be asked: {said}")
        case DataTooLarge():
            return ModelReplyInvalid(f"{who} gave an answer that is not read: it is {said}")
        case httpx.DecodingError() | BodyUnreadable():
            return ModelReplyInvalid(f"{who} answered what can't be decoded: {said}")
        case _ if not begun:
            return ModelUnreachable(f"{who} closed the connection without an answer ({said})")
        case _:
            return ModelStreamCut(f"{who} broke off in the middle of its answer ({said})")


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """How long the server asks us to wait, in seconds, at least 0: `retry-after-ms`, or `Retry-After` as seconds or
    date. None if it does not say, or nothing sensible."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) * unit_s
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, IndexError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)  # "-0000" is given back without a zone
    return max(0.0, (at - now).total_seconds())


def _error(status: int, said: _Said, target: Target, *, retry_after: float | None, location: str | None) -> ModelError:
    message = masked_text(said.message, target.secrets).strip()[:SAID_CHARS_MAX]
    what = f"{target.who} answered {status}" + (f": {message}" if message else "")
    kind, help_text = _kind(status, said, target)
    if location:
        help_text = f"it points to {masked_text(location, target.secrets)[:200]}; set the base address to where it is"
    # A sentence may end in the server's own full stop.
    text = f"{what.rstrip('.')}. {help_text[0].upper()}{help_text[1:]}." if help_text else what
    return kind(text, status=status, retry_after_s=retry_after)


def _kind(status: int, said: _Said, target: Target) -> tuple[type[ModelError], str]:
    """The class of the error, and what helps."""
    text, words = said.message, said.words
    if words & _OVERFLOW_CODES or (status in (400, 413, 422, 500) and _OVERFLOW.search(text)):
        return ModelOverflow, "the request is larger than the model's window: set context_window_tokens to its size"
    if words & _FILTER_CODES:
        return ModelRefused, ""
    if status == 402 or (status in (400, 403, 429) and _no_credit(said)):
        return ModelQuotaExceeded, "the account has no credit left: waiting does not help; look at its plan and billing"
    match status:
        case 429:
            return ModelRateLimited, "too many requests or tokens a minute"
        case 401 | 403:
            return ModelAuthenticationFailed, "check the API key, and whether it may use this model"
        case 404:
            return ModelRequestRefused, f"either it has no model {target.model!r}, or the base address is not right"
        case 405 | 301 | 302 | 303 | 307 | 308:
            return ModelRequestRefused, "the base address is not right"
        case 408 | 504 | 524:
            return ModelTimeout, ""
        case 413:
            return ModelOverflow, "the request is too large"
        case _ if status >= 500:
            return ModelOverloaded, "the server failed or is overloaded"
        case _:
            return ModelRequestRefused, ""


def _no_credit(said: _Said) -> bool:
    if said.words & _QUOTA_CODES:
        return True
    # Gemini says "exceeded your current quota" of the requests a minute.
    return bool(_QUOTA.search(said.message)) and said.status_word != "RESOURCE_EXHAUSTED"


def _said(body: Any) -> _Said:
    """What a parsed error body says: `{"error": {...}}` or what stands in there, `{"error": "text"}`,
    `{"detail": ...}`, `{"message": ...}`, a list of one of these, a text."""
    match body:
        case [first, *_]:
            return _said(first)
        case {"error": dict() | str() | list() as inner} if inner:
            return _said(inner)
        case str():
            return _Said(_plain(body))
        case dict():
            pass
        case _:
            return _Said("")
    detail = body.get("detail")
    message = body.get("message") or detail or body.get("msg") or ""
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(raw := metadata.get("raw"), str) and raw:
        text = f"{text}: {raw}"  # OpenRouter says only here what the provider behind it said
    words = frozenset(word.lower() for name in ("code", "type") if isinstance(word := body.get(name), str))
    return _Said(text, words, _status_of(body), str(body.get("status") or ""))


def _status_of(body: Mapping[str, Any]) -> int | None:
    for name in ("code", "status", "status_code"):
        value = body.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None


def _plain(text: str) -> str:
    """Text without the tags of an HTML page, white space made small."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text[:20_000], flags=re.DOTALL | re.IGNORECASE)
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())
