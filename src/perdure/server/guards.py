"""What stands before every route: who may ask, how much, and that no answer is ever a traceback.

One pure ASGI middleware, because it runs on every request: a web page that the user of this machine has open must not
reach the agents (`perdure.server.origins`), a key is compared in constant time, bodies are bounded before they are
parsed.

`GET /v1/health/` and `GET /v1/ready/` need no key, so that probes can ask; they tell the version and whether the store
answers, nothing else.
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

__all__ = ["OPEN_PATHS", "RETRY_AFTER", "Guard", "answer"]

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})

VALUES_MAX = 250_000
"""Values in one body: all numbers of 5 MB of vectors in full precision. Reading holds the event loop: 700,000 floats or
400,000 fields take 0.4 s, so many 0.15 s."""

HELD_BYTES = 200 * 2**20
"""Of all bodies that are arriving: hundreds of slow clients must not fill the memory together."""

RETRY_AFTER = (b"retry-after", b"1")

FORM_BYTES = 100_000
"""What the form around an uploaded file may take."""

DRAINED_BYTES = 64 * 2**20
DRAINED_S = 5.0
"""Of a body that is too long, how much is still taken in and for how long, before the answer: many clients read none
before all is sent, and what lies unread when the connection closes takes the answer away with it."""

_UPLOAD = re.compile(r"/v1/(?:folders|sources)/[^/]+/upload/?")


class Guard:
    """Lets through what may be asked; answers the rest itself, in the wire's error shape.

    Args:
        upload_bytes: the largest file that can be uploaded. Such a body is not held in memory.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, upload_bytes: int = 0) -> None:
        self._app, self._config, self._upload_bytes = app, config, upload_bytes
        self._origins = Origins(config)
        self._limits = JsonLimits(size_bytes=config.max_body_bytes, depth=config.max_depth, values=VALUES_MAX)
        self._key = config.api_key.encode() if config.api_key else None
        self._held_bytes = 0  # of bodies that are arriving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        with new_trace():
            await self._checked(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _wanted(scope["headers"])
        refusal = self._refusal(scope, headers)
        # Probes need no key, so nothing that is sent with one is read.
        has_body = scope["path"] not in OPEN_PATHS and _has_body(scope, headers)
        if refusal is None and has_body and _asks_for_upgrade(headers):
            # Uvicorn's parser takes what follows such a request's head for another protocol, and the body is lost.
            text = "this server speaks HTTP/1.1 and no other protocol: send the request without an Upgrade header"
            refusal = 400, {"detail": text}
        if refusal is None and has_body and _is_upload(scope, headers):
            # It is taken in as it comes: what is counted here is what has come so far.
            receive = self._counted(headers, receive)
            refusal = _unsupported(upload_problem(headers))
        elif refusal is None and has_body:
            body = await self._body(headers, receive)
            if body is None:
                return  # the client left before it had sent everything
            if isinstance(body, bytes):
                refusal = _unsupported(body_type_problem(headers) if body else None) or self._too_deep(body)
                receive = _replay([body], receive)
            else:
                refusal = body
            del body  # the answer may take an hour
        if refusal is not None:
            await answer(send, *refusal)
            return
        await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass  # in the middle of an upload: there is nobody to answer
        except Exception:
            log.exception("%s %s stopped at a defect", scope["method"], scope["path"])
            # An answer that has begun can't be taken back: the connection closes without its end.
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
        word, _, bare = headers.get(b"x-bare-password", b"").partition(b" ")
        # Both are always compared, so that the time tells nothing.
        by_bearer = hmac.compare_digest(bearer.strip(), self._key) and scheme.lower() == b"bearer"
        by_password = hmac.compare_digest(bare.strip(), self._key) and word.lower() == b"password"
        return by_bearer or by_password

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | _Refusal | None:
        limit = self._config.max_body_bytes
        too_large: _Refusal = (413, {"detail": f"the request body is larger than {limit:,} bytes"})
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            # Who waits for a 100 Continue sends nothing more once it has this answer.
            if length.isdigit() and int(length[:20]) <= DRAINED_BYTES and b"expect" not in headers:
                await _drained(receive)
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
                self._held_bytes += len(piece)
                if size > limit:
                    if message.get("more_body", False):
                        await _drained(receive)
                    return too_large
                if self._held_bytes > HELD_BYTES:
                    log.warning("a body was refused: more than %d bytes of bodies arrive at once", HELD_BYTES)
                    return 503, {"detail": "too many large bodies arrive at once: try again"}, RETRY_AFTER
                pieces.append(piece)
                if not message.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            self._held_bytes -= size

    def _counted(self, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """A `receive` that raises FileTooLarge where the body of an upload is larger than it may be."""
        limit = self._upload_bytes
        length = headers.get(b"content-length", b"")
        size = int(length[:20]) if length.isdigit() else 0

        async def counted() -> Message:
            nonlocal size
            if size > limit + FORM_BYTES:
                raise FileTooLarge("of this upload", size=size, limit=limit)
            message = await receive()
            if not length:
                size += len(message.get("body", b""))
            return message

        return counted

    def _too_deep(self, body: bytes) -> _Refusal | None:
        try:
            check_json(body, self._limits)
        except DataTooLarge as error:
            return 422, {"trace_id": "", "detail": f"body: {error}", "examples": []}
        return None


_Refusal = tuple[int, dict[str, Any]] | tuple[int, dict[str, Any], tuple[bytes, bytes]]
"""Status, shape, and a header where one helps."""

_WANTED = HEADERS | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}


def _wanted(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that matter here. Those that must be unique have both values when they are not, which nothing
    equals."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED:
            found[name] = value if name not in found else found[name] + b"," + value
    return found


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


def _unsupported(problem: str | None) -> _Refusal | None:
    return None if problem is None else (415, {"detail": problem})


def _asks_for_upgrade(headers: Mapping[bytes, bytes]) -> bool:
    return b"upgrade" in headers and b"upgrade" in headers.get(b"connection", b"").lower()


def _replay(bodies: list[bytes], receive: Receive) -> Receive:
    """A `receive` that hands out the body in the list, keeps nothing of it, and then says what follows: that the
    client leaves."""

    async def replay() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return replay


async def _drained(receive: Receive) -> None:
    """Take in the rest of a body, within bounds, and keep nothing of it."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAINED_S):
            while size <= DRAINED_BYTES:
                message = await receive()
                if not message.get("more_body", False):  # all of it, or the client left
                    return
                size += len(message.get("body", b""))


async def answer(send: Send, status: int, shape: Mapping[str, Any], *more: tuple[bytes, bytes]) -> None:
    """Send the shape as JSON, with more headers; from 500 on with the trace id of the request."""
    headers = [(b"content-type", b"application/json"), *more]
    if status >= 500:
        shape = {**shape, "trace_id": trace_id()}
        headers.append((TRACE_HEADER.encode(), shape["trace_id"].encode()))
    if status in (400, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    body = json.dumps(shape).encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
