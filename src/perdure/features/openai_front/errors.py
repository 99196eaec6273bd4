"""Errors of `/openai/v1` in OpenAI's form, whoever answers with them: a route, the guard, or the gate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Scope, Send

from perdure.server.wire.http import json_bytes

PREFIX = "/openai/v1/"

STATUSES: Mapping[int, int] = {402: 429, 422: 400, 501: 400}
"""Status of an error here -> that of OpenAI's API, where it is another."""

_TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 409: "conflict_error"}
_CODES: Mapping[int, str] = {
    **{401: "invalid_api_key", 402: "insufficient_quota", 403: "permission_denied", 404: "not_found"},
    **{409: "conflict", 413: "request_too_large", 429: "rate_limit_exceeded", 501: "unsupported"},
}


def error_form(scope: Scope, send: Send) -> Send | None:
    """What sends an answer to a request, an error in OpenAI's form; None: the path is none of OpenAI's API."""
    if not scope["path"].startswith(PREFIX):
        return None
    start: Message | None = None
    body = b""

    async def send_in_form(message: Message) -> None:
        """Hold an error back until its body is whole."""
        nonlocal start, body
        if message["type"] == "http.response.start" and message["status"] >= 400:
            start = message
            return
        if start is None:
            await send(message)
            return
        body += message.get("body", b"")
        if message.get("more_body", False):
            return
        status = start["status"]
        shape = json_bytes(error_shape(status, body, scope["path"]))
        kept = [(name, value) for name, value in start["headers"] if name not in (b"content-length", b"content-type")]
        headers = [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(shape))]
        await send({**start, "status": STATUSES.get(status, status), "headers": headers})
        await send({**message, "body": shape})

    return send_in_form


def error_shape(status: int, body: bytes, path: str) -> dict[str, Any]:
    """The body of an error at a path, of one in Letta's form."""
    try:
        shape = json.loads(body)
    except ValueError:
        shape = {"detail": body.decode("utf-8", "replace")}
    found = shape.get("error") if isinstance(shape, dict) else None
    if isinstance(found, dict) and {"message", "type", "code", "param"} <= found.keys():
        return {"error": found}
    code: str | None = _CODES.get(status)
    if status == 404 and ("/models/" in path or b"gent" in body or b"andle" in body):
        code = "model_not_found"
    if isinstance(found, dict):  # of a run that failed
        code, message = found.get("type"), f"{found.get('message', '')} {found.get('detail', '')}".strip()
    else:
        detail = shape.get("detail") if isinstance(shape, dict) else shape
        message = detail if isinstance(detail, str) else str((detail or {}).get("message", detail))
        if isinstance(detail, dict) and isinstance(detail.get("code"), str):
            code = detail["code"].lower()
    return {"error": {"message": message, "type": error_type(status), "code": code, "param": None}}


def error_type(status: int) -> str:
    """OpenAI's word for a kind of error."""
    if status in (402, 429):
        return "insufficient_quota" if status == 402 else "rate_limit_error"
    return _TYPES.get(status, "server_error" if status >= 500 and status != 501 else "invalid_request_error")
