"""Typed errors from the error responses of servers."""

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
    AddressRefused,
    BodyUnreadable,
    DataTooLarge,
    ModelAuthenticationFailed,
    ModelError,
    ModelLoading,
    ModelOverflow,
    ModelOverloaded,
    ModelQuotaExceeded,
    ModelRateLimited,
    ModelRefused,
    ModelReplyInvalid,
    ModelRequestRefused,
    ModelStreamCut,
    ModelTakesNoTools,
    ModelTimeout,
    ModelUnreachable,
)
from perdure.core.incoming.json_limits import parse_json
from perdure.providers.masking import EVENT, error_body, mask_text, request_secrets

DETAIL_CHARS_MAX = 500

_OVERFLOW_CODES = frozenset(
    ("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "model_context_window_exceeded")
)
_LIMIT = r"(?:context|window|max_(?:model|seq|context)_len|max_(?:total|new|input)_(?:tokens|length)|model length)"
_EXCEEDS = r"(?:exceed(?:s|ed|ing)?|(?:longer|greater|larger|more) than|too large for)\b"
# Something is more than the limit; the limit is passed; the prompt is too long; and what only xAI and LM Studio say.
_OVERFLOW = re.compile(
    rf"{_EXCEEDS}.{{0,40}}\b{_LIMIT}|\b(?:prompt|inputs?) (?:tokens?|length)\b.{{0,40}}{_EXCEEDS}"
    rf"|{_LIMIT}\b.{{0,20}}(?:must be <=|exceeded|is full|full\b)|maximum context length|max_model_len"
    r"|\b(?:prompt|inputs?|request|context|messages|conversation)\b[\w ]{0,12}\btoo long"
    r"|maximum prompt length|context the overflows"
    r"|reduce the length of the (?:messages|prompt|input)|context[_ ]length[_ ]exceeded",
    re.IGNORECASE,
)
_TOKENS = r"(\d[\d,_]{0,11})"
# OpenAI, vLLM, DeepSeek | llama.cpp | xAI | Mistral | Anthropic | TabbyAPI, TGI | LM Studio, SGLang
_WINDOW_WORDS = re.compile(
    rf"maximum context length (?:is|of) {_TOKENS}|available context size \({_TOKENS}"
    rf"|maximum prompt length is {_TOKENS}|with {_TOKENS} maximum context|> {_TOKENS} maximum"
    rf"|(?:max_model_len|max_seq_len|max_total_tokens)\D{{1,9}}{_TOKENS}|must be <= {_TOKENS}"
    rf"|context (?:length|window|size) (?:is |of |\()?(?:only )?{_TOKENS}",
    re.IGNORECASE,
)
_IN_MESSAGES = re.compile(
    rf"{_TOKENS} (?:tokens )?(?:in|from|of) (?:the |your )?(?:input )?(?:messages|prompt|input)", re.IGNORECASE
)
_PROMPT_WORDS = re.compile(
    r"(?:prompt|inputs?|request(?:ed tokens)?)(?: length| contains| has| is too long)?(?: of| is| at least|:)?"
    rf" \(?{_TOKENS}|messages resulted in {_TOKENS} tokens|given: {_TOKENS}",
    re.IGNORECASE,
)
# llama.cpp | Ollama, OpenRouter | vLLM | others
_NO_TOOLS = re.compile(
    r"--jinja|does(?:n't| not) support (?:tools|tool|function)|tools param requires|enable-auto-tool-choice"
    r"|support tool use|tool(?: use|s| calling)? (?:is|are) not supported",
    re.IGNORECASE,
)
# Of the models' templates: the same request fails again.
_TEMPLATE = re.compile(
    r"roles? must alternate|roles? (?:is |are )?(?:not |un)?supported|chat.?template|jinja"
    r"|system (?:message|prompt|role)s? (?:must|should|can|is|are|not)\b",
    re.IGNORECASE,
)
_LOADING = re.compile(r"\bload(?:ing)?\b", re.IGNORECASE)
_QUOTA_CODES = frozenset(
    (
        *("insufficient_quota", "quota_exceeded", "billing_hard_limit_reached", "billing_not_active"),
        *("insufficient_credits", "insufficient_funds", "credit_balance_too_low"),
    )
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
class RequestTarget:
    """The model and address of a request, for error messages.

    `url` holds no secret; `secrets` are masked in texts of the server.
    """

    model: str
    url: str
    secrets: Sequence[str] = ()

    @classmethod
    def of_request(cls, model: str, url: str, headers: Mapping[str, str]) -> RequestTarget:
        """The target of a request with this address and these headers."""
        secrets = request_secrets(headers, url)
        return cls(model, mask_text(url, secrets), secrets)

    @property
    def who(self) -> str:
        """The model and its address, as the subject of a sentence."""
        return f"model {self.model!r} at {self.url}"

    def mask(self, text: str) -> str:
        """The text without the secrets of the request."""
        return mask_text(text, self.secrets)


@dataclass(frozen=True, slots=True)
class _Detail:
    """The parts of an error body."""

    message: str
    words: frozenset[str] = field(default_factory=frozenset)
    status: int | None = None
    status_word: str = ""
    window_tokens: int | None = None
    prompt_tokens: int | None = None


async def error_of_response(response: httpx.Response, target: RequestTarget, deadline: float) -> ModelError:
    """The error of a streamed response whose status is no success; see `error_body`."""
    text = await error_body(response, deadline)
    return error_of_status(response.status_code, response.headers, text, target, now=datetime.now(UTC))


def error_of_status(
    status: int, headers: Mapping[str, str], body: str, target: RequestTarget, *, now: datetime
) -> ModelError:
    """The error of a response whose status is no success.

    Args:
        headers: names in lower case.
        body: as much of it as was read: JSON of OpenAI's, Ollama's, vLLM's or OpenRouter's shape, or any text.
        now: what a date in `Retry-After` is compared with.
    """
    try:
        detail = _parse_detail(parse_json(body, EVENT))
    except ValueError:
        detail = _Detail(_plain(target.mask(body)))
    return _error(status, detail, target, retry_after=retry_after_s(headers, now=now), location=headers.get("location"))


def error_in_answer(error: Any, target: RequestTarget) -> ModelError:
    """The error of an error object inside a response of status 200."""
    detail = _parse_detail(error)
    text = " ".join((*sorted(detail.words), detail.message))
    status = detail.status or next((status for words, status in _WORDS if words.search(text)), 500)
    return _error(status, detail, target, retry_after=None, location=None)


def error_of_connection(error: Exception, target: RequestTarget, *, silence_s: float, begun: bool) -> ModelError:
    """The error of a connection that failed or broke; a ModelError stays as it is. `silence_s`: how long the server may
    say nothing; `begun`: whether a part of the answer came."""
    who = target.who
    detail = target.mask(str(error) or type(error).__name__)
    match error:
        case ModelError():
            return error
        case AddressRefused(reason=reason):
            return ModelRequestRefused(f"{who} is not asked: {reason}")
        case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.ProxyError():
            return ModelUnreachable(f"{who} can't be reached ({detail}): is the server running, the address right?")
        case TimeoutError() | httpx.TimeoutException():
            return ModelTimeout(f"{who} said nothing for {silence_s:g} s")
        case httpx.LocalProtocolError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return ModelRequestRefused(f"{who} can't be asked: {detail}")
        case DataTooLarge():
            return ModelReplyInvalid(f"{who} gave an answer that is not read: it is {detail}")
        case httpx.DecodingError() | BodyUnreadable():
            return ModelReplyInvalid(f"{who} answered what can't be decoded: {detail}")
        case _ if not begun:
            return ModelUnreachable(f"{who} closed the connection without an answer ({detail})")
        case _:
            return ModelStreamCut(f"{who} broke off in the middle of its answer ({detail})")


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the wait that the server asks for by `retry-after-ms` or `Retry-After`, in seconds; None: none."""
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


def _error(
    status: int, detail: _Detail, target: RequestTarget, *, retry_after: float | None, location: str | None
) -> ModelError:
    """The error of an answer with this status; `retry_after`: a wait in seconds; `location`: where it redirects to."""
    message = target.mask(detail.message).strip()[:DETAIL_CHARS_MAX]
    what = f"{target.who} answered {status}" + (f": {message}" if message else "")
    kind, help_text = _kind(status, detail, target)
    if location:
        help_text = f"it points to {target.mask(location)[:200]}; set the base address to where it is"
    # A sentence may end in the server's own full stop.
    text = f"{what.rstrip('.')}. {help_text[0].upper()}{help_text[1:]}." if help_text else what
    if kind is ModelOverflow:
        # The window and the tokens of the request stand in fields, or in words. vLLM counts the answer along, and then
        # says how many tokens of the sum are in the messages.
        window = detail.window_tokens or _number(_WINDOW_WORDS.search(detail.message))
        prompt = _IN_MESSAGES.search(detail.message) or _PROMPT_WORDS.search(detail.message)
        prompt_tokens = detail.prompt_tokens or _number(prompt)
        return ModelOverflow(text, status=status, window_tokens=window, prompt_tokens=prompt_tokens)
    return kind(text, status=status, retry_after_s=retry_after)


def _kind(status: int, detail: _Detail, target: RequestTarget) -> tuple[type[ModelError], str]:
    """Return the error class, and what helps."""
    text, words = detail.message, detail.words
    if words & _OVERFLOW_CODES or (status in (400, 413, 422, 500) and _OVERFLOW.search(text)):
        return ModelOverflow, "the request is larger than the model's window: set context_window_tokens to its size"
    if status in (400, 404, 422, 500, 501) and _NO_TOOLS.search(text):
        return ModelTakesNoTools, ""
    if status == 503 and _LOADING.search(text):
        return ModelLoading, "wait until it has loaded the model"
    if words & _FILTER_CODES:
        return ModelRefused, ""
    if status == 402 or (status in (400, 403, 429) and _no_credit(detail)):
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
        case _ if status >= 500 and not _TEMPLATE.search(text):
            return ModelOverloaded, "the server failed or is overloaded"
        case _:
            return ModelRequestRefused, ""


def _number(match: re.Match[str] | None) -> int | None:
    """The number of tokens in the first group of a match that has text; None: there is no match, or it is too large."""
    digits = next(filter(None, match.groups() if match else ()), "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdigit() and 0 < len(digits) <= 9 else None


def _no_credit(detail: _Detail) -> bool:
    """Whether an error says that the account is empty."""
    if detail.words & _QUOTA_CODES:
        return True
    # Gemini says "exceeded your current quota" of the requests a minute.
    return bool(_QUOTA.search(detail.message)) and detail.status_word != "RESOURCE_EXHAUSTED"


def _parse_detail(body: Any) -> _Detail:
    """The detail of a parsed error body: `{"error": {...}}` or its content, `{"error": "text"}`, `{"detail": ...}`,
    `{"message": ...}`, a list of one of these, or a text."""
    match body:
        case [first, *_]:
            return _parse_detail(first)
        case {"error": dict() | str() | list() as inner} if inner:
            return _parse_detail(inner)
        case str():
            return _Detail(_plain(body))
        case dict():
            pass
        case _:
            return _Detail("")
    detail = body.get("detail")
    message = body.get("message") or detail or body.get("msg") or ""
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(raw := metadata.get("raw"), str) and raw:
        text = f"{text}: {raw}"  # OpenRouter has the error of the provider behind it only here
    words = frozenset(word.lower() for name in ("code", "type") if isinstance(word := body.get(name), str))
    sizes = (one if type(one := body.get(name)) is int and one > 0 else None for name in ("n_ctx", "n_prompt_tokens"))
    return _Detail(text, words, _status_of(body), str(body.get("status") or ""), *sizes)


def _status_of(body: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error body names, if it names one."""
    for name in ("code", "status", "status_code"):
        value = body.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None


def _plain(text: str) -> str:
    """Text without HTML tags, with single spaces."""
    *scripts, rest = re.split(r"(?i)</(?:script|style)>", text[:20_000])
    shown = [re.split(r"(?i)<(?:script|style)\b", script, maxsplit=1)[0] for script in scripts]
    return " ".join(re.sub(r"<[^<>]*>", " ", " ".join([*shown, rest])).split())
