"""The errors of pydantic-ai and the SDKs as our typed errors, without keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from perdure.core.errors import (
    AddressRefused,
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
from perdure.core.text.pip_line import pip_line
from perdure.providers.masking import mask_text

_DETAIL_CHARS = 1_000
_LOCATION_CHARS = 200
_TRANSPORTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "anyio", "botocore", "urllib3"})


def missing_package_error(provider: str, extra: str, error: ImportError) -> ModelRequestRefused:
    """The error for a provider whose package is missing: install `extra`, such as "perdure[google]"."""
    package = f'"{extra}"'
    return ModelRequestRefused(f"models of {provider} need a package more: {pip_line(package)} ({error})")


def fault(error: Exception, *, handle: str, streaming: bool, secrets: Sequence[str]) -> ModelError | None:
    """The typed error, which names the model by its `handle`; None if the exception is a defect of ours and not a
    failure of a provider. `streaming`: the answer had begun."""
    from pydantic_ai import exceptions as pa

    if (reason := _refused_address(error)) is not None:
        return ModelRequestRefused(f"{handle} is not asked: {reason}")
    detail = mask_text(_detail(error), secrets)[:_DETAIL_CHARS]
    facts: dict[str, Any] = {
        "status": getattr(error, "status_code", None),
        "retry_after_s": getattr(error, "retry_after", None),
    }
    kind, hint = ModelError, ""
    match error:
        case pa.ModelContextWindowExceededError():
            kind, hint = ModelOverflow, "is given more than its window holds"
        case pa.ModelQuotaExceededError():
            kind, hint = ModelQuotaExceeded, "has no credit left"
        case pa.ModelRateLimitError():
            kind, hint = ModelRateLimited, "was asked too often"
        case pa.ModelHTTPError(body=body) if "API_KEY_INVALID" in str(body):  # Gemini calls it a bad request
            kind, hint = ModelAuthenticationFailed, "does not accept the key"
        case pa.ModelAuthenticationError():
            kind, hint = ModelAuthenticationFailed, "does not accept the key, or not for this model"
        case pa.ModelNotFoundError():
            kind, hint = ModelRequestRefused, "is not there: check the model's name and the address"
        case pa.ModelHTTPError(status_code=413):
            kind, hint = ModelOverflow, "is given a larger request than it takes"
        case pa.ModelTimeoutError() | pa.ModelRequestTimeout() | pa.ModelHTTPError(status_code=408 | 504):
            kind, hint = ModelTimeout, "did not answer in time"
        case pa.ModelUnavailableError() | pa.ModelServerError():
            kind, hint = ModelOverloaded, "is down or overloaded"
        case pa.ModelConnectionError():
            kind, hint = _connection(streaming)
        case pa.ModelHTTPError(status_code=status) if status >= 500:
            kind, hint = ModelOverloaded, "is down or overloaded"
        case pa.ModelHTTPError() | pa.ModelRequestRejectedError():
            kind, hint = ModelRequestRefused, "does not take this request"
        case pa.ContentFilterError():
            kind, hint = ModelRefused, "declined to answer"
        case pa.UnexpectedModelBehavior() if "ended without content" in detail:  # not one event came
            kind, hint = ModelStreamCut, "broke off its answer"
        case pa.UnexpectedModelBehavior():
            kind, hint = ModelReplyInvalid, "gave an answer that can't be read"
        case pa.ModelAPIError():
            kind, hint = (ModelStreamCut, "broke off its answer") if streaming else (ModelOverloaded, "failed")
        case pa.UserError():
            missing_key = "api key" in detail.lower() or "_API_KEY" in detail
            kind = ModelAuthenticationFailed if missing_key else ModelRequestRefused
            hint = "has no key" if missing_key else "can't be asked like this"
        case RecursionError():
            kind, hint = ModelReplyInvalid, "gave an answer that nests too deeply to be read"
        case json.JSONDecodeError() | UnicodeDecodeError():
            kind, hint = (ModelStreamCut if streaming else ModelReplyInvalid), "gave an answer that can't be read"
        case _ if type(error).__module__.partition(".")[0] in _TRANSPORTS:
            timed_out = "timeout" in type(error).__name__.lower()
            kind, hint = (ModelTimeout, "did not answer in time") if timed_out else _connection(streaming)
        case _:
            return None
    return kind(f"{handle} {hint}: {detail}", **facts)


def _refused_address(error: BaseException | None) -> str | None:
    """Why a guard refused the address, as it is among the causes of an SDK's error; None: it did not."""
    while error is not None:
        if isinstance(error, AddressRefused):
            return error.reason
        error = error.__cause__ or error.__context__
    return None


def redirect_error(status: int, location: str, *, handle: str, secrets: Sequence[str]) -> ModelRequestRefused:
    """The error of a redirect, which is not followed: the key and the conversation would go there."""
    where = mask_text(location, secrets)[:_LOCATION_CHARS]
    text = f"{handle} answered {status}: it points to {where}; set the base address to where it is"
    return ModelRequestRefused(text, status=status)


def _connection(streaming: bool) -> tuple[type[ModelError], str]:
    """(class, what happened) of a connection that failed."""
    return (ModelStreamCut, "broke off its answer") if streaming else (ModelUnreachable, "can't be reached")


def _detail(error: Exception) -> str:
    """The provider's own sentence, out of whatever shape its error has."""
    if (body := getattr(error, "body", None)) is not None:
        inner = body.get("error", body) if isinstance(body, dict) else body
        if isinstance(inner, dict) and isinstance(message := inner.get("message"), str) and message:
            return message
    return getattr(error, "message", None) or str(error) or type(error).__name__
