"""Errors of `/openai/v1` in OpenAI's form, whoever answers with them: a route, the guard, or the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Scope, Send

from perdure.core.text.json_strings import json_or
from perdure.server.wire.http import json_bytes

PREFIX = "/openai/v1/"

_FORMS: Mapping[int, tuple[int, str, str | None]] = {
    401: (401, "authentication_error", "invalid_api_key"),
    402: (429, "insufficient_quota", "insufficient_quota"),
    403: (403, "permission_error", "permission_denied"),
    404: (404, "invalid_request_error", "not_found"),
    409: (409, "conflict_error", "conflict"),
    413: (413, "invalid_request_error", "request_too_large"),
    422: (400, "invalid_request_error", None),
    429: (429, "rate_limit_error", "rate_limit_exceeded"),
    501: (400, "invalid_request_error", "unsupported"),
}
"""Status of an error here -> status, type and code in OpenAI's API."""


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
        status, shown = _form(start["status"], body, scope["path"])
        shape = json_bytes(shown)
        kept = [(name, value) for name, value in start["headers"] if name not in (b"content-length", b"content-type")]
        headers = [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(shape))]
        await send({**start, "status": status, "headers": headers})
        await send({**message, "body": shape})

    return send_in_form


def _form(status: int, body: bytes, path: str) -> tuple[int, dict[str, Any]]:
    """Return (status, body) of an error for a path, made from an error in Letta's form."""
    default = status, "server_error" if status >= 500 else "invalid_request_error", None
    own_status, kind, code = _FORMS.get(status, default)
    shape = json_or(body, {"detail": body.decode("utf-8", "replace")})
    found, detail = (shape.get("error"), shape.get("detail")) if isinstance(shape, dict) else (None, shape)
    if isinstance(found, dict) and {"message", "type", "code", "param"} <= found.keys():
        return own_status, {"error": found}
    if status == 404 and ("/models/" in path or b"gent" in body or b"andle" in body):
        code = "model_not_found"
    if isinstance(found, dict):  # of a run that failed
        code, message = found.get("type"), f"{found.get('message', '')} {found.get('detail', '')}".strip()
    elif isinstance(detail, dict):
        message = str(detail.get("message", detail))
        code = detail["code"].lower() if isinstance(detail.get("code"), str) else code
    else:
        message = str(detail)
    return own_status, {"error": {"message": message, "type": kind, "code": code, "param": None}}
