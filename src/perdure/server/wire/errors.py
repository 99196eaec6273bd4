"""Every error in the wire's shapes: a status, `{"detail": ...}`, and a header that says whether a retry can help."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from perdure.core import errors
from perdure.core.ids import PREFIXES, is_id
from perdure.core.incoming.principals import ScopeTooSmall
from perdure.core.runs import MAX_COST, Failure
from perdure.core.store_errors import disk_error
from perdure.library.messages.reply import Reply
from perdure.server.log import TRACE_HEADER, trace_id
from perdure.server.problems import problems_text
from perdure.server.wire.http import Json, json_bytes, wants_page

log = logging.getLogger(__name__)

NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
"""For clients that retry 409 and 5xx by themselves: a retry of this one can't succeed."""

NOT_IMPLEMENTED = 501
"""Not a failure: the server lacks the feature. All other answers from 500 on carry a trace id."""

UNKNOWN = {"detail": "An unknown error occurred"}

FAILURES: Mapping[str, tuple[int, str]] = {
    "llm_rate_limit": (429, "The model's rate limit is reached."),
    "llm_insufficient_credits": (402, "The model provider's account has no credit left."),
    MAX_COST: (402, "The budget is used up."),
    "llm_authentication": (401, "The model provider does not accept the key."),
    "llm_timeout": (504, "The model did not answer in time."),
    "llm_bad_request": (400, "The model provider refused the request."),
    "llm_refusal": (400, "The model declined to answer."),
    "llm_empty_response": (500, "The model answered nothing."),
    "context_window_exceeded": (400, "The request is larger than the model's window."),
    "stream_incomplete": (500, "The model's answer stopped before its end."),
    "internal_error": (500, "An unknown error occurred"),
    "hook_blocked": (403, "The run failed."),
    "mcp_connection_error": (502, "The run failed."),
}
"""Kind of a failure -> status and short sentence; `detail` holds the provider's own text. All others are 500."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


class AgentFileInvalid(errors.InvalidInput):
    """The file that was sent is no agent file that this server reads."""


class NotSupported(errors.PerdureError):
    """The request is valid, but this server does not support it. Nothing was written; a retry can't succeed."""


_EXAMPLE = "123e4567-e89b-42d3-a456-426614174000"


def add_error_handlers(app: FastAPI) -> None:
    """Turn the errors that routes raise into answers. The guard answers any other error with 500."""
    app.add_exception_handler(errors.PerdureError, _perdure_error)
    app.add_exception_handler(OSError, _os_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


def error_answer(error: errors.PerdureError) -> Json[Any]:
    """The answer for an error of Perdure."""
    match error:
        case errors.ModelNotFound():
            handles = ", ".join(map(repr, error.known))
            detail = f"NOT_FOUND: Handle {error.handle} not found, must be one of [{handles}]"
            return _answer(404, {"detail": f"{detail}. {error.helps}" if error.helps else detail})
        case errors.NotFound():
            return _answer(404, {"detail": _not_found(error)})
        case errors.RequestRefused():
            return _answer_of_request(error)
        case errors.FileTooLarge():
            return _answer(413, {"detail": str(error)}, {"connection": "close"})
        case errors.FileTypeUnsupported():
            return _answer(415, {"detail": str(error)})
        case errors.SourceInvalid():
            return _answer(400, {"detail": f"Failed to derive json schema: {error}"})
        case errors.InvalidInput() if not isinstance(
            error, errors.AnswerInvalid | errors.NothingToCompact | AgentFileInvalid
        ):
            return _answer(422, _unprocessable(str(error)))
        case errors.ApprovalPending():
            message = f"CONFLICT: {error.summary}"
            pending = {"code": "PENDING_APPROVAL", "message": message, "pending_request_id": error.message_id}
            return _answer(409, {"detail": pending}, NO_RETRY)
        case errors.ConversationBusy():
            return _answer(409, {"detail": str(error), "run_id": error.run_id})  # free again when that run has ended
        case errors.GroupBusy():
            return _answer(409, {"detail": str(error), "group_id": error.group_id, "turn_seq": error.turn_seq})
        case errors.RunFailed(reply=Reply(failure=Failure() as failure)):
            return failure_answer(failure, run_id=error.run_id)
        case errors.ModelError():
            return failure_answer(Failure(kind=error.kind, message=str(error)))
        case errors.ToolError() if not isinstance(error, errors.HookBlocked | errors.SandboxUnavailable):
            return _answer(400, {"detail": str(error)})
        case errors.LimitReached():
            return _answer(429, {"detail": str(error)}, {"retry-after": str(error.retry_after_s)})
        case errors.StoreBusy() | errors.StoreClosed():
            log.warning("%s", error)
            return _answer(503, {"detail": str(error)}, {"retry-after": "1"})
    for kinds, status, level in _FINAL_ERRORS:
        if isinstance(error, kinds):
            if level:
                log.log(level, "%s", error, exc_info=error if status == 500 else None)
            return _answer(status, {"detail": str(error)}, NO_RETRY)
    log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return _answer(500, UNKNOWN)


def _answer_of_request(error: errors.RequestRefused) -> Json[Any]:
    """The answer for a refused request of a batch: that of the request alone, with its place."""
    answer = error_answer(error.refusal)
    shape = json.loads(bytes(answer.body))
    detail, place = shape.get("detail"), f"requests.{error.place}: "
    if isinstance(detail, dict):
        detail["message"] = place + detail["message"]
    elif detail is not None:
        shape["detail"] = f"{place}{detail}"
    kept = {name: answer.headers[name] for name in ("x-should-retry", "retry-after") if name in answer.headers}
    return _answer(answer.status_code, shape, kept)


_FINAL_ERRORS: Sequence[tuple[UnionType | type[errors.PerdureError], int, int]] = (
    (errors.AnswerInvalid | errors.NothingToCompact | AgentFileInvalid, 400, 0),
    (errors.McpStdioRefused | errors.McpPrivateRefused | errors.HookBlocked | ScopeTooSmall, 403, 0),
    (errors.Conflict, 409, 0),
    (errors.SecretUnreadable, 500, logging.ERROR),
    (NotSupported | errors.SecretKeyMissing | errors.ExtraMissing | errors.SandboxUnavailable, 501, 0),
    (errors.McpUnreachable, 502, logging.WARNING),
    (errors.StoreFull, 507, logging.ERROR),
    (errors.StoreReadOnly | errors.StoreUnavailable | errors.StoreDamaged | errors.NotAStore, 503, logging.ERROR),
)
"""Errors that a retry can't change -> status, and level in the log; 0: not logged."""


def failure_answer(failure: Failure, *, run_id: str | None = None, messages: Sequence[Any] = ()) -> Json[Any]:
    """The answer for a failed run, with its messages. The message is stored: clients must not send it again."""
    default = "The model did not answer." if failure.kind.startswith("llm_") else "The run failed."
    status, title = FAILURES.get(failure.kind, (500, default))
    shape: dict[str, Any] = {"type": failure.kind, "message": title, "detail": failure.message}
    if run_id is not None:
        shape["run_id"] = run_id
    if status >= 500:  # without the provider's text, which may quote the message
        log.warning("%s failed: %s, answered with %d", run_id or "a model", failure.kind, status)
    return _answer(status, {"error": shape} | ({"messages": messages} if messages else {}), NO_RETRY)


def continuing_run_answer(error: errors.PerdureError | None, run_id: str) -> Json[Any]:
    """The answer for a message whose run goes on, while this request ends: by `error`, or because the server stops."""
    reason = "the server is stopping" if error is None else str(error)
    if error is not None and not isinstance(error, errors.StoreError):
        reason = "an unknown error occurred"
    if error is not None:
        log.error("%s: %s", run_id, error, exc_info=None if isinstance(error, errors.StoreError) else error)
    detail = f"the message is kept and its run goes on ({run_id}), look there for the reply: {reason}"
    status = 507 if isinstance(error, errors.StoreFull) else 503
    return _answer(status, {"detail": detail, "run_id": run_id}, NO_RETRY)


def refusal_answer(status: int, detail: str, *headers: tuple[bytes, bytes]) -> Json[Any]:
    """The answer for a request that reaches no route."""
    refusal = _answer(status, _unprocessable(detail) if status == 422 else {"detail": detail})
    refusal.raw_headers.extend(headers)
    if status in (400, 413):
        refusal.raw_headers.append((b"connection", b"close"))  # the rest of the body is not read
    return refusal


async def _perdure_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.PerdureError)
    answer = error_answer(error)
    return _error_page(request, answer.status_code, str(error)) or answer


async def _os_error(request: Request, error: Exception) -> Response:
    """Answer a failed write of a file beside the database, such as an upload's."""
    assert isinstance(error, OSError)
    store_error = disk_error(error)
    if store_error is None:
        raise error
    return error_answer(store_error)


async def _invalid(request: Request, error: Exception) -> Response:
    """Return the answer to an invalid request, with an example of each id of a wrong form. It is 405 for a literal
    path, such as `/v1/agents/count`, if only a route with an id there has the method."""
    assert isinstance(error, RequestValidationError)
    found: Sequence[Mapping[str, Any]] = error.errors()
    if any(one["loc"][0] == "path" for one in found) and request.method not in methods_at(request):
        return await _http_error(request, HTTPException(405))
    examples = [
        f"{PREFIXES[kind]}-{_EXAMPLE}"
        for kind in PREFIXES
        if any(f"{PREFIXES[kind]}-{{uuid4}}" in one["msg"] for one in found)
    ]
    return _answer(422, _unprocessable(problems_text(found), examples))


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses; for an unreadable body, add the reason, which the framework leaves out."""
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        shown = short_path(str(request.scope.get("perdure.path", request.scope["path"])))
        if page := _error_page(request, error.status_code, f"There is no page at {shown}."):
            return page
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


def _error_page(request: Request, status: int, text: str) -> Response | None:
    """The page in place of an error, for a browser that opens an address; None: a program sent the request."""
    page = request.app.state.refused_page if wants_page(request) else None
    return None if page is None else page(request, status, text)


def short_path(path: str, chars: int = 120) -> str:
    """The beginning of a path."""
    return path if len(path) <= chars else f"{path[:chars]}…"


def _unprocessable(detail: str, examples: Sequence[str] = ()) -> dict[str, Any]:
    """The body of a 422."""
    return {"trace_id": "", "detail": detail, "examples": list(examples)}


def _not_found(error: errors.NotFound) -> str:
    """The text of a 404, in the wire's words if the id is a valid one."""
    if error.kind in PREFIXES and is_id(error.kind, error.key):
        kind = "MCP server" if error.kind == "mcp_server" else error.kind.capitalize()
        return f"{kind} with ID {error.key} not found"
    return str(error)


def _answer(status: int, shape: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Json[Any]:
    """A JSON answer; from 500 on, except for 501, with the trace id."""
    headers = dict(headers or {})
    if status >= 500 and status != NOT_IMPLEMENTED:
        trace = headers[TRACE_HEADER] = trace_id()
        shape = {**shape, "trace_id": trace}
    return Json(json_bytes(shape), status, headers, "application/json")


def methods_at(request: Request) -> Sequence[str]:
    """The methods of the request's path, sorted. Each method may have a route of its own."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    path = request.scope["path"].rstrip("/")
    scopes = [{**request.scope, "path": form} for form in (path, f"{path}/")]
    found = [route for route in routes if any(route.matches(scope)[0] is not Match.NONE for scope in scopes)]
    # `.../passages/delete` rather than `.../passages/{passage_id}`
    first = min(found, key=lambda route: len(route.param_convertors), default=None)
    same = [route for route in found if first is not None and route.path.rstrip("/") == first.path.rstrip("/")]
    return sorted({method for route in same for method in route.methods or ()})
