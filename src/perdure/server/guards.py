"""The guard before every route: it checks origin, key and body of each request, and turns defects into answers.

It is one pure ASGI middleware, because it runs on every request. It refuses requests of foreign web pages
(`perdure.server.origins`), compares the key in constant time, and limits bodies before they are parsed.

Probes call `GET /v1/health/` and `GET /v1/ready/` without a key. Both return the version and whether the store answers,
nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.errors import DataTooLarge, FileTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.server.config import ServerConfig
from perdure.server.origins import HEADERS, Origins, body_type_problem, upload_problem
from perdure.server.trace import TRACE_HEADER, new_trace, trace_id

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})

VALUES_MAX = 250_000
"""Values in one body; enough for 5 MB of vectors in full precision. Parsing blocks the event loop: 250,000 values take
0.15 s, 700,000 floats 0.4 s."""

PENDING_BODY_BYTES = 200 * 2**20
"""The limit of all bodies that are arriving at once: hundreds of slow clients must not fill the memory."""

RETRY_AFTER = (b"retry-after", b"1")

FORM_BYTES = 100_000
"""The size that the form around an uploaded file may have."""

DRAIN_BYTES = 64 * 2**20
DRAIN_S = 5.0
"""How much of a body that is too long is still read, and for how long, before the answer is sent. Many clients read no
answer before they have sent the whole body, and closing a connection with unread bytes discards the answer."""

_UPLOAD = re.compile(r"/v1/(?:folders|sources)/[^/]+/upload/?")


class Guard:
    """Passes allowed requests on, and answers all others with an error in the wire's shape.

    Args:
        upload_bytes: the largest file that can be uploaded. Uploads are streamed, not held in memory.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, upload_bytes: int = 0) -> None:
        self._app, self._config, self._upload_bytes = app, config, upload_bytes
        self._origins = Origins(config)
        self._limits = JsonLimits(size_bytes=config.max_body_bytes, depth=config.max_depth, values=VALUES_MAX)
        self._key = config.api_key.encode() if config.api_key else None
        self._pending_bytes = 0  # of bodies that are arriving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        with new_trace():
            await self._check(scope, receive, send)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _relevant_headers(scope["headers"])
        refusal = self._refusal(scope, headers)
        # Probes need no key, so their bodies are not read.
        has_body = scope["path"] not in OPEN_PATHS and _has_body(scope, headers)
        if refusal is None and has_body and _requests_upgrade(headers):
            # Uvicorn's parser would take the body for bytes of another protocol, and lose it.
            text = "this server speaks HTTP/1.1 and no other protocol: send the request without an Upgrade header"
            refusal = 400, {"detail": text}
        if refusal is None and has_body and _is_upload(scope, headers):
            # An upload is streamed, so its size is checked as it arrives.
            receive = self._limit_upload(headers, receive)
            refusal = _unsupported_type(upload_problem(headers))
        elif refusal is None and has_body:
            body = await self._body(headers, receive)
            if body is None:
                return  # the client closed the connection early
            if isinstance(body, bytes):
                refusal = _unsupported_type(body_type_problem(headers) if body else None) or self._json_refusal(body)
                receive = _replay([body], receive)
            else:
                refusal = body
            del body  # free it: the answer may take an hour
        if refusal is not None:
            await answer(send, *refusal)
            return
        await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except ClientDisconnect:
            pass  # during an upload: nobody waits for an answer
        except Exception:
            log.exception("%s %s stopped at a defect", scope["method"], scope["path"])
            # A response that has begun can't be replaced: the connection closes without its end.
            if not started:
                await answer(send, 500, {"detail": "An unknown error occurred"})

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> _Refusal | None:
        problem = self._origins.problem(headers)
        if problem is not None:
            return 403, {"detail": problem}
        if self._key is not None and scope["path"] not in OPEN_PATHS and not self._has_key(headers):
            return 401, {"detail": "Unauthorized"}
        return None

    def _has_key(self, headers: Mapping[bytes, bytes]) -> bool:
        assert self._key is not None
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        word, _, password = headers.get(b"x-bare-password", b"").partition(b" ")
        # Both are always compared, so that the time reveals nothing.
        bearer_matches = hmac.compare_digest(bearer.strip(), self._key) and scheme.lower() == b"bearer"
        password_matches = hmac.compare_digest(password.strip(), self._key) and word.lower() == b"password"
        return bearer_matches or password_matches

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | _Refusal | None:
        limit = self._config.max_body_bytes
        too_large: _Refusal = (413, {"detail": f"the request body is larger than {limit:,} bytes"})
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            # A client that waits for 100 Continue sends no body after this answer.
            if length.isdigit() and int(length[:20]) <= DRAIN_BYTES and b"expect" not in headers:
                await _drain(receive)
            return too_large
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                piece = message.get("body", b"")
                size += len(piece)
                self._pending_bytes += len(piece)
                if size > limit:
                    if message.get("more_body", False):
                        await _drain(receive)
                    return too_large
                if self._pending_bytes > PENDING_BODY_BYTES:
                    log.warning("a body was refused: more than %d bytes of bodies arrive at once", PENDING_BODY_BYTES)
                    return 503, {"detail": "too many large bodies arrive at once: try again"}, RETRY_AFTER
                pieces.append(piece)
                if not message.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            self._pending_bytes -= size

    def _limit_upload(self, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """Return a `receive` that raises FileTooLarge when the body of an upload is larger than the limit."""
        limit = self._upload_bytes
        length = headers.get(b"content-length", b"")
        size = int(length[:20]) if length.isdigit() else 0

        async def receive_and_count() -> Message:
            nonlocal size
            if size > limit + FORM_BYTES:
                raise FileTooLarge("of this upload", size=size, limit=limit)
            message = await receive()
            if not length:
                size += len(message.get("body", b""))
            return message

        return receive_and_count

    def _json_refusal(self, body: bytes) -> _Refusal | None:
        try:
            check_json(body, self._limits)
        except DataTooLarge as error:
            return 422, {"trace_id": "", "detail": f"body: {error}", "examples": []}
        return None


_Refusal = tuple[int, dict[str, Any]] | tuple[int, dict[str, Any], tuple[bytes, bytes]]
"""Status, shape, and one header in some cases."""

_RELEVANT_HEADERS = HEADERS | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}


def _relevant_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that the guard reads. Values of a repeated header are joined with a comma; no check accepts that."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _RELEVANT_HEADERS:
            values[name] = value if name not in values else values[name] + b"," + value
    return values


def _has_body(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    if b"content-length" in headers or b"transfer-encoding" in headers:
        return headers.get(b"content-length") != b"0"
    return scope["method"] not in WITHOUT_BODY


def _is_upload(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    return (
        _UPLOAD.fullmatch(scope["path"]) is not None
        and headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        and scope["method"] == "POST"
    )


def _unsupported_type(problem: str | None) -> _Refusal | None:
    return None if problem is None else (415, {"detail": problem})


def _requests_upgrade(headers: Mapping[bytes, bytes]) -> bool:
    return b"upgrade" in headers and b"upgrade" in headers.get(b"connection", b"").lower()


def _replay(bodies: list[bytes], receive: Receive) -> Receive:
    """Return a `receive` that returns the body in the list once, drops it, and then passes on what follows."""

    async def replay() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return replay


async def _drain(receive: Receive) -> None:
    """Read the rest of a body, up to `DRAIN_BYTES` and `DRAIN_S`, and discard it."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while size <= DRAIN_BYTES:
                message = await receive()
                if not message.get("more_body", False):  # the end of the body, or the client left
                    return
                size += len(message.get("body", b""))


async def answer(send: Send, status: int, shape: Mapping[str, Any], *extra_headers: tuple[bytes, bytes]) -> None:
    """Send the shape as JSON. A status from 500 on adds the request's trace id to body and headers."""
    headers = [(b"content-type", b"application/json"), *extra_headers]
    if status >= 500:
        shape = {**shape, "trace_id": trace_id()}
        headers.append((TRACE_HEADER.encode(), shape["trace_id"].encode()))
    if status in (400, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    body = json.dumps(shape).encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
