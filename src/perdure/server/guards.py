"""What stands before every route: who may ask, how much, and that no answer is ever a traceback.

One pure ASGI middleware, because it runs on every request: a web page that the user of this machine has open must not
reach the agents (`Host` and `Origin` are compared with a list, which also stops DNS rebinding), a key is compared in
constant time, bodies are bounded before they are parsed.

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

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.errors import FileTooLarge, JsonTooLarge
from perdure.core.json_limits import JsonLimits, check_json
from perdure.server.config import ANY, LOOPBACK_NAMES, ServerConfig

__all__ = ["Guard"]

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/@?#\s]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"https?://(?P<host>[^/]+)")

FORM_BYTES = 100_000
"""What the form around an uploaded file may take."""

DRAINED_BYTES = 64 * 2**20
DRAINED_S = 5.0
"""Of a body that is too long, how much is still taken in and for how long, before the answer: many clients read none
before all is sent, and what lies unread when the connection closes takes the answer away with it."""

_UPLOAD = re.compile(r"/v1/(?:folders|sources)/[^/]+/upload/?")

DEFAULT_PORTS = ("80", "443")


def _as_compared(allowed: str) -> str:
    """An allowed host in the form that requests are compared in: no brackets, no dot at the end."""
    match = _HOST.fullmatch(allowed)
    if match is None:
        return allowed
    name = match["name"].strip("[]").rstrip(".")
    return name if match["port"] is None else f"{name}:{match['port']}"


class Guard:
    """Lets through what may be asked; answers the rest itself, in the wire's error shape.

    Args:
        upload_bytes: the largest file that can be uploaded. Such a body is not held in memory.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, upload_bytes: int = 0) -> None:
        self._app, self._config, self._upload_bytes = app, config, upload_bytes
        own = config.host.strip("[]").lower()
        self._names = {*LOOPBACK_NAMES, own, *map(_as_compared, config.allowed_hosts)}
        self._any = ANY in config.allowed_hosts
        self._key = config.api_key.encode() if config.api_key else None
        self._known: dict[bytes, bool] = {}  # few different hosts are sent, again and again

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        headers = _wanted(scope["headers"])
        refusal = self._refusal(scope, headers)
        has_body = _has_body(scope, headers)
        if refusal is None and has_body and _asks_for_upgrade(headers):
            # Uvicorn's parser takes what follows such a request's head for another protocol, and the body is lost.
            text = "this server speaks HTTP/1.1 and no other protocol: send the request without an Upgrade header"
            refusal = 400, {"detail": text}
        if refusal is None and has_body and _is_upload(scope, headers):
            # It is taken in as it comes: what is counted here is what has come so far.
            receive = self._counted(headers, receive)
        elif refusal is None and has_body:
            body = await self._body(headers, receive)
            if body is None:
                return  # the client left before it had sent everything
            if isinstance(body, bytes):
                receive = _again(body, receive)
                refusal = self._too_deep(headers, body)
            else:
                refusal = body
        if refusal is not None:
            await _answer(send, *refusal)
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
        except Exception:
            log.exception("%s %s stopped at a defect", scope["method"], scope["path"])
            # An answer that has begun can't be taken back: the connection closes without its end.
            if not started:
                await _answer(send, 500, {"detail": "An unknown error occurred"})

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> _Refusal | None:
        host = headers.get(b"host", b"")
        if not self._is_known(host):
            shown = host.decode("latin-1")[:80]
            return 403, {
                "detail": f"Host {shown!r} is not allowed here; add it to PERDURE_ALLOWED_HOSTS if it is yours"
                if host
                else "the request has no Host header"
            }
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own_origin(origin):
            shown = origin.decode("latin-1")[:80]
            return 403, {"detail": f"Origin {shown!r} is not allowed here; add its host to PERDURE_ALLOWED_HOSTS"}
        if self._key is not None and scope["path"] not in OPEN_PATHS and not self._has_key(headers):
            return 401, {"detail": "Unauthorized"}
        return None

    def _is_known(self, host: bytes) -> bool:
        known = self._known.get(host)
        if known is None:
            known = self._looked_up(host)
            if len(self._known) < 1_000:  # whoever sends ever new names must not fill the memory
                self._known[host] = known
        return known

    def _looked_up(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host.decode("latin-1").lower())
        if match is None:
            return False
        if self._any:
            return True
        name, port = match["name"].strip("[]").rstrip("."), match["port"]
        ports = DEFAULT_PORTS if port is None else (port,)  # clients leave the usual one out
        return name in self._names or any(f"{name}:{number}" in self._names for number in ports)

    def _is_own_origin(self, origin: bytes) -> bool:
        match = _ORIGIN.fullmatch(origin.decode("latin-1").lower())
        return match is not None and self._is_known(match["host"].encode("latin-1"))

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
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                if message.get("more_body", False):
                    await _drained(receive)
                return too_large
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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

    def _too_deep(self, headers: Mapping[bytes, bytes], body: bytes) -> _Refusal | None:
        if headers.get(b"content-type", b"").startswith(b"multipart/"):
            return None
        try:
            check_json(body, JsonLimits(size_bytes=self._config.max_body_bytes, depth=self._config.max_depth))
        except JsonTooLarge as error:
            return 422, {"trace_id": "", "detail": f"body: {error}", "examples": []}
        return None


_Refusal = tuple[int, dict[str, Any]]

_WANTED = frozenset(
    {
        *(b"host", b"origin", b"authorization", b"x-bare-password"),
        *(b"content-length", b"content-type", b"transfer-encoding", b"connection", b"upgrade", b"expect"),
    }
)


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


def _asks_for_upgrade(headers: Mapping[bytes, bytes]) -> bool:
    return b"upgrade" in headers and b"upgrade" in headers.get(b"connection", b"").lower()


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the whole body once, and then what follows: that the client leaves."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

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


async def _answer(send: Send, status: int, shape: dict[str, Any]) -> None:
    body = json.dumps(shape).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status in (400, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
