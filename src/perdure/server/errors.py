"""Every error in the wire's shapes: a status, `{"detail": ...}`, and a header that says whether a retry can help."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import (
    AnswerInvalid,
    ApprovalPending,
    Conflict,
    ConversationBusy,
    ExtraMissing,
    FileTooLarge,
    HookBlocked,
    InvalidInput,
    McpPrivateRefused,
    McpStdioRefused,
    McpUnreachable,
    ModelError,
    ModelNotFound,
    NotAStore,
    NotFound,
    PerdureError,
    RunFailed,
    SandboxUnavailable,
    SecretKeyMissing,
    SecretUnreadable,
    SourceInvalid,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    ToolError,
)
from perdure.core.errors.store import disk_error
from perdure.core.ids import PREFIXES, is_id
from perdure.core.runs import Failure
from perdure.library.reply import Reply
from perdure.server.encoding import json_bytes
from perdure.server.methods import methods_at
from perdure.server.problems import problems_text
from perdure.server.trace import TRACE_HEADER, trace_id
from perdure.server.unsupported import NotSupported

log = logging.getLogger(__name__)

NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
"""For clients that retry 409 and 5xx by themselves: a retry of this one can't succeed."""

NOT_IMPLEMENTED = 501
"""Not a failure: the server lacks the feature. All other answers from 500 on carry a trace id."""

UNKNOWN = {"detail": "An unknown error occurred"}

FAILURE_STATUSES: Mapping[str, int] = {
    "llm_rate_limit": 429,
    "llm_insufficient_credits": 402,
    "llm_authentication": 401,
    "llm_timeout": 504,
    "llm_bad_request": 400,
    "llm_refusal": 400,
    "context_window_exceeded": 400,
    "hook_blocked": 403,
    "mcp_connection_error": 502,
}
"""The wire's error type -> status; all others are 500."""

_EXAMPLE = "123e4567-e89b-42d3-a456-426614174000"


def add_error_handlers(app: FastAPI) -> None:
    """Turn the errors that routes raise into answers. The guard answers any other error with 500."""
    app.add_exception_handler(PerdureError, _perdure_error)
    app.add_exception_handler(OSError, _os_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


def error_answer(error: PerdureError) -> Response:
    """The answer for an error of Perdure."""
    match error:
        case ModelNotFound():
            known = ", ".join(map(repr, error.known))
            detail = f"NOT_FOUND: Handle {error.handle} not found, must be one of [{known}]"
            return _answer(404, {"detail": f"{detail}. {error.helps}" if error.helps else detail})
        case NotFound():
            return _answer(404, {"detail": _not_found(error)})
        case AnswerInvalid():
            return _answer(400, {"detail": str(error)}, NO_RETRY)
        case FileTooLarge():
            return _answer(413, {"detail": str(error)}, {"connection": "close"})
        case SourceInvalid():
            return _answer(400, {"detail": f"Failed to derive json schema: {error}"})
        case InvalidInput():
            return _answer(422, _unprocessable(str(error)))
        case ApprovalPending():
            pending = {
                "code": "PENDING_APPROVAL",
                "message": f"CONFLICT: {error}",
                "pending_request_id": error.message_id,
            }
            return _answer(409, {"detail": pending}, NO_RETRY)
        case ConversationBusy():
            return _answer(409, {"detail": str(error), "run_id": error.run_id})  # free again when that run has ended
        case Conflict():
            return _answer(409, {"detail": str(error)}, NO_RETRY)
        case NotSupported() | SecretKeyMissing() | ExtraMissing() | SandboxUnavailable():
            return _answer(501, {"detail": str(error)}, NO_RETRY)
        case McpStdioRefused() | McpPrivateRefused():
            return _answer(403, {"detail": str(error)}, NO_RETRY)
        case McpUnreachable():
            log.warning("%s", error)
            return _answer(502, {"detail": str(error)}, NO_RETRY)
        case SecretUnreadable():
            log.error("%s", error, exc_info=error)
            return _answer(500, {"detail": str(error)}, NO_RETRY)
        case HookBlocked():
            return _answer(403, {"detail": str(error)}, NO_RETRY)
        case RunFailed(reply=Reply(failure=Failure() as failure)):
            return failure_answer(failure, run_id=error.run_id)
        case ModelError():
            return failure_answer(Failure(kind=error.kind, message=str(error)))
        case ToolError():
            return _answer(400, {"detail": str(error)})
        case StoreBusy() | StoreClosed():
            log.warning("%s", error)
            return _answer(503, {"detail": str(error)}, {"retry-after": "1"})
        case StoreFull():
            log.error("%s", error)
            return _answer(507, {"detail": str(error)}, NO_RETRY)
        case StoreReadOnly() | StoreUnavailable() | StoreDamaged() | NotAStore():
            log.error("%s", error)
            return _answer(503, {"detail": str(error)}, NO_RETRY)
        case _:
            log.error("%s: %s", type(error).__name__, error, exc_info=error)
            return _answer(500, UNKNOWN)


def failure_answer(failure: Failure, *, run_id: str | None = None) -> Response:
    """The answer for a failed run. The message is stored, so clients must not send it again."""
    shape: dict[str, Any] = {"type": failure.kind, "message": _title(failure.kind), "detail": failure.message}
    if run_id is not None:
        shape["run_id"] = run_id
    status = FAILURE_STATUSES.get(failure.kind, 500)
    if status >= 500:  # without the provider's text, which may quote the message
        log.warning("%s failed: %s, answered with %d", run_id or "a model", failure.kind, status)
    return _answer(status, {"error": shape}, NO_RETRY)


def kept_answer(error: PerdureError | None, run_id: str) -> Response:
    """The answer for a message whose run goes on, while this request ends: by `error`, or because the server stops."""
    why = "the server is stopping" if error is None else str(error)
    if error is not None:
        known = isinstance(error, StoreError)
        log.error("%s: %s", run_id, error, exc_info=None if known else error)
        why = why if known else "an unknown error occurred"
    detail = f"the message is kept and its run goes on ({run_id}), look there for the reply: {why}"
    status = 507 if isinstance(error, StoreFull) else 503
    return _answer(status, {"detail": detail, "run_id": run_id}, NO_RETRY)


def invalid_body(error: ValidationError, *path: str | int) -> RequestValidationError:
    """The validator's error as that of a body, or of its part at `path`, which a route parses itself."""
    return RequestValidationError(
        [{**one, "loc": ("body", *path, *one["loc"])} for one in error.errors(include_url=False)]
    )


async def _perdure_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PerdureError)
    return error_answer(error)


async def _os_error(request: Request, error: Exception) -> Response:
    """Answer a failed write of a file beside the database, such as an upload's."""
    assert isinstance(error, OSError)
    known = disk_error(error)
    if known is None:
        raise error
    return error_answer(known)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors: Sequence[Mapping[str, Any]] = error.errors()
    examples = [
        f"{PREFIXES[kind]}-{_EXAMPLE}"
        for kind in PREFIXES
        if any(f"{PREFIXES[kind]}-{{uuid4}}" in one["msg"] for one in errors)
    ]
    return _answer(422, _unprocessable(problems_text(errors), examples))


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses; for an unreadable body, add the reason, which the framework leaves out."""
    assert isinstance(error, HTTPException)
    match error.__cause__:
        case UnicodeDecodeError() as cause:
            return _answer(422, _unprocessable(f"body: it is not UTF-8 ({cause.reason} at byte {cause.start:,})"))
        case ValueError() as cause if "digits" in str(cause):
            limit = sys.get_int_max_str_digits()
            return _answer(422, _unprocessable(f"body: a whole number in it has more than {limit:,} digits"))
        case ValueError() as cause:
            return _answer(422, _unprocessable(f"body: it can't be read: {cause}"))
        case _:
            if error.status_code == 405:
                return _answer(405, {"detail": error.detail}, {"allow": ", ".join(methods_at(request))})
            return await http_exception_handler(request, error)


def _unprocessable(detail: str, examples: Sequence[str] = ()) -> dict[str, Any]:
    return {"trace_id": "", "detail": detail, "examples": list(examples)}


def _not_found(error: NotFound) -> str:
    if error.kind in PREFIXES and is_id(error.kind, error.key):
        kind = "MCP server" if error.kind == "mcp_server" else error.kind.capitalize()
        return f"{kind} with ID {error.key} not found"
    return str(error)


def _title(kind: str) -> str:
    """A short sentence for a kind of failure; `detail` holds the provider's own text."""
    return _TITLES.get(kind, "The run failed." if not kind.startswith("llm_") else "The model did not answer.")


_TITLES = {
    "llm_rate_limit": "The model's rate limit is reached.",
    "llm_insufficient_credits": "The model provider's account has no credit left.",
    "llm_authentication": "The model provider does not accept the key.",
    "llm_timeout": "The model did not answer in time.",
    "llm_bad_request": "The model provider refused the request.",
    "llm_refusal": "The model declined to answer.",
    "llm_empty_response": "The model answered nothing.",
    "context_window_exceeded": "The request is larger than the model's window.",
    "stream_incomplete": "The model's answer stopped before its end.",
    "internal_error": "An unknown error occurred",
}


def _answer(status: int, shape: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    headers = dict(headers or {})
    if status >= 500 and status != NOT_IMPLEMENTED:
        trace = headers[TRACE_HEADER] = trace_id()
        shape = {**shape, "trace_id": trace}
    return Response(json_bytes(shape), status, headers, "application/json")
