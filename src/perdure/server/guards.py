"""The guard before every route: it checks origin, key and body of each request, and turns defects into answers.

It refuses requests of foreign web pages (`perdure.server.origins`), compares the key in constant time, and limits
bodies before they are parsed.

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
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.errors import DataTooLarge, FileTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.core.limits import Limits
from perdure.server.config import ServerConfig
from perdure.server.log import TRACE_HEADER, current_trace, trace_id
from perdure.server.origins import HEADERS, Origins, body_type_problem, upload_problem
from perdure.server.wire.fields import request_limits

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


class _Refusal(Exception):
    """The answer to a request that is not passed on."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Guard:
    """Passes allowed requests on, and answers all others with an error in the wire's shape.

    Args:
        limits: the limits of lists in bodies, which routes check.
        upload_bytes: the largest file that can be uploaded. Uploads are streamed, not held in memory.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, limits: Limits, upload_bytes: int) -> None:
        self._app, self._config, self._limits, self._upload_bytes = app, config, limits, upload_bytes
        self._origins = Origins(config)
        self._json_limits = JsonLimits(size_bytes=config.max_body_bytes, depth=config.max_depth, values=VALUES_MAX)
        self._key = config.api_key.encode() if config.api_key else None
        self._pending_bytes = 0  # of bodies that are arriving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        current_trace.set(secrets.token_hex(16))
        request_limits.set(self._limits)
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, await self._admit(scope, receive), send_and_note)
        except _Refusal as refusal:
            await answer(send, refusal.status, refusal.detail, *refusal.headers)
        except ClientDisconnect:
            pass  # nobody waits for an answer
        except Exception:
            log.exception("%s %s stopped at a defect", scope["method"], scope["path"])
            # A response that has begun can't be replaced: the connection closes without its end.
            if not started:
                await answer(send, 500, "An unknown error occurred")

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request, and return the `receive` for its body. Raises: _Refusal; ClientDisconnect."""
        headers = _relevant_headers(scope["headers"])
        if (problem := self._origins.problem(headers)) is not None:
            raise _Refusal(403, problem)
        if scope["path"] in OPEN_PATHS:  # probes need no key, so their bodies are not read
            return receive
        if self._key is not None and not self._has_key(headers):
            raise _Refusal(401, "Unauthorized")
        if not _has_body(scope["method"], headers):
            return receive
        if b"upgrade" in headers and b"upgrade" in headers.get(b"connection", b"").lower():
            # Uvicorn's parser would take the body for bytes of another protocol, and lose it.
            text = "this server speaks HTTP/1.1 and no other protocol: send the request without an Upgrade header"
            raise _Refusal(400, text)
        is_form = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        if is_form and scope["method"] == "POST" and _UPLOAD.fullmatch(scope["path"]):
            if (problem := upload_problem(headers)) is not None:
                raise _Refusal(415, problem)
            return self._limit_upload(headers, receive)
        bodies = [await self._read(headers, receive)]
        if bodies[0] and (problem := body_type_problem(headers)) is not None:
            raise _Refusal(415, problem)
        try:
            check_json(bodies[0], self._json_limits)
        except DataTooLarge as error:
            raise _Refusal(422, f"body: {error}") from error

        async def replay() -> Message:
            if bodies:  # dropped when it is read: the answer may take an hour
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()

        return replay

    def _has_key(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request carries the API key, in either form."""
        assert self._key is not None
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        word, _, password = headers.get(b"x-bare-password", b"").partition(b" ")
        # Both are always compared, so that the time reveals nothing.
        bearer_matches = hmac.compare_digest(bearer.strip(), self._key) and scheme.lower() == b"bearer"
        password_matches = hmac.compare_digest(password.strip(), self._key) and word.lower() == b"password"
        return bearer_matches or password_matches

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read a body. Raises: _Refusal: it is too large; ClientDisconnect."""
        limit = self._config.max_body_bytes
        too_large = f"the request body is larger than {limit:,} bytes"
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            # A client that waits for 100 Continue sends no body after this answer.
            if length.isdigit() and int(length[:20]) <= DRAIN_BYTES and b"expect" not in headers:
                await _drain(receive)
            raise _Refusal(413, too_large)
        pieces: list[bytes] = []
        size = 0
        more = True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                pieces.append(message.get("body", b""))
                more = message.get("more_body", False)
                size += len(pieces[-1])
                self._pending_bytes += len(pieces[-1])
                if size > limit:
                    if more:
                        await _drain(receive)
                    raise _Refusal(413, too_large)
                if self._pending_bytes > PENDING_BODY_BYTES:
                    log.warning("a body was refused: more than %d bytes of bodies arrive at once", PENDING_BODY_BYTES)
                    raise _Refusal(503, "too many large bodies arrive at once: try again", RETRY_AFTER)
            return b"".join(pieces)
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


_RELEVANT_HEADERS = HEADERS | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}


def _relevant_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that the guard reads. Values of a repeated header are joined with a comma; no check accepts that."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _RELEVANT_HEADERS:
            values[name] = value if name not in values else values[name] + b"," + value
    return values


def _has_body(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request has a body, or may have one."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        return headers.get(b"content-length") != b"0"
    return method not in WITHOUT_BODY


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


async def answer(send: Send, status: int, detail: str, *extra_headers: tuple[bytes, bytes]) -> None:
    """Send an error as JSON. A status from 500 on adds the request's trace id to body and headers."""
    shape: dict[str, Any] = {"detail": detail}
    headers = [(b"content-type", b"application/json"), *extra_headers]
    if status >= 500:
        shape["trace_id"] = trace_id()
        headers.append((TRACE_HEADER.encode(), shape["trace_id"].encode()))
    elif status == 422:
        shape = {"trace_id": "", **shape, "examples": []}
    if status in (400, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    body = json.dumps(shape).encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
