"""The guard before every route: it checks origin, key and body of each request, and turns defects into answers.

It limits bodies before they are parsed. Who a request is for, and what that may do, the gate decides.

A web page can send requests to this machine's loopback, except those that need a preflight, which this server never
grants. `Host` is compared with a list, which stops DNS rebinding. `Origin` and `Sec-Fetch-Site` reveal a foreign page.
A body must have a type that no form and no plain `fetch` can send without a preflight.

Probes call `GET /v1/health/` and `GET /v1/ready/` without a key. Both return the version and whether the store answers,
nothing else. `/docs` is a file that shows the OpenAPI document, for which it asks with the user's key.

The pages of the dashboard are opened by a browser, which sends no key: there a cookie counts too, but never for the
API. Their forms need the header that htmx sets, which no page of another origin can send without a preflight.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.core.errors import DataTooLarge, FileTooLarge, StoreError
from perdure.core.features import Point
from perdure.core.incoming.addresses import is_loopback
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.core.incoming.limits import Limits
from perdure.core.incoming.principals import LOCAL, current_principal
from perdure.server.access.gate import PAGE_HEADER, WITHOUT_BODY, Gate, RequestRejected
from perdure.server.config import ANY, NULL_ORIGIN, ServerConfig
from perdure.server.log import current_trace
from perdure.server.wire.errors import UNKNOWN, error_answer, refusal_answer
from perdure.server.wire.fields import request_limits
from perdure.server.wire.http import wants_page

log = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
OPEN_PATHS = frozenset({"/v1/health", "/v1/health/", "/v1/ready", "/v1/ready/", "/docs", "/docs/"})
OPEN_PAGES = frozenset({"static", "sign-in"})
"""The first segments of the dashboard's paths that need no session."""

PAGES = ("agents", "runs", "approvals", "connections", "data", "search", "events", "groups", "why")
"""The first segments of the paths of the dashboard's pages, but for the settings."""

PAGE_ROOTS = frozenset({"", "settings", *PAGES, *OPEN_PAGES})
"""The first segments of all paths of the dashboard."""

VALUES_MAX = 250_000
"""Values in one body; enough for 5 MB of vectors in full precision. Parsing blocks the event loop: 250,000 values take
0.15 s, 700,000 floats 0.4 s."""

ERROR_FORM: Point[[Scope, Send], Send | None] = Point("error_form")
"""What sends an answer whose errors have another form than Letta's; None: the path is not the feature's.
Paths below `/v1/` are Letta's."""

RefusedPage = Callable[[Request, int, str], Response]
"""The page for a request that is refused, with this status and text."""

PENDING_BODY_BYTES = 200 * 2**20
"""The limit of all bodies that are arriving at once: hundreds of slow clients must not fill the memory."""

RETRY_AFTER = (b"retry-after", b"1")

FORM_BYTES = 100_000
"""The size that the form around an uploaded file may have."""

DRAIN_BYTES = 64 * 2**20
DRAIN_S = 5.0
"""How much of a body that is too long is still read, and for how long, before the answer is sent. Many clients read no
answer before they have sent the whole body, and closing a connection with unread bytes discards the answer."""

_UPLOAD = re.compile(
    r"/v1/(?:(?:folders|sources)/[^/]+/upload|agents/import|imports)/?|/data/(?:folders/[^/]+/files|imports)"
    r"|/agents/(?:import|[^/]+/(?:files/(?:upload|drop)|messages))"
)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/@?#\s]+)(?::(?P<port>\d{1,5}))?")
_GIT = re.compile(r"/v1/git/.*")
_GIT_BODY = re.compile(rb"application/x-git-(?:upload|receive)-pack-request")
_JSON = re.compile(rb"application/(?:json|[a-z0-9!#$&^_.+-]+\+json)")

DEFAULT_PORTS = {"http": "80", "https": "443"}

SCRIPT_HEADERS = (b"x-bare-password", b"x-stainless-lang", b"x-fern-language", b"x-requested-with", PAGE_HEADER)
"""Headers that a page of another origin can't send without a preflight."""

CACHE_MAX = 1_000

PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})

HEADERS = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"content-type", b"authorization", b"cookie", *SCRIPT_HEADERS}
    | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}
)
"""The headers that the guard reads."""


class Guard:
    """Passes allowed requests on, and answers all others with an error in the wire's shape.

    Args:
        limits: the limits of lists in bodies, which routes check.
        upload_bytes: the largest file that can be uploaded. Uploads are streamed, not held in memory.
        gate: it decides who a request is for, and what that may do.
        refused_page: the page for a signed-in browser whose request is refused by 403 or 429; None: the error as JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        limits: Limits,
        upload_bytes: int,
        gate: Gate,
        refused_page: RefusedPage | None = None,
    ) -> None:
        self._app, self._config, self._limits, self._upload_bytes = app, config, limits, upload_bytes
        self._gate, self._refused_page = gate, refused_page
        self._origins = Origins(config)
        self._json_limits = JsonLimits(size_bytes=config.max_body_bytes, depth=config.max_depth, values=VALUES_MAX)
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
        if not scope["path"].startswith("/v1/"):
            send = next(filter(None, ERROR_FORM(scope, send)), send)

        async def send_and_note(message: Message) -> None:
            """Send a message of the answer, and note that the answer began."""
            nonlocal started
            started = True
            await send(message)

        try:
            admitted = await self._admit(scope, receive)
            principal = scope.get("perdure.principal", LOCAL)
            current_principal.set(principal)
            async with self._gate.open_library(principal.org_id) as library:
                scope["perdure.library"] = library
                await self._app(scope, admitted, self._gate.note_success(scope, principal, send_and_note))
        except RequestRejected as refusal:
            status, detail = refusal.status, refusal.detail
            is_form = status in (403, 429) and _is_of_browser(scope)
            answer = self._page(scope, status, detail, is_form=is_form)
            if answer is None:
                answer = refusal_answer(status, detail, *refusal.headers)
            else:
                answer.raw_headers.extend(refusal.headers)
            await answer(scope, receive, send)
        except StoreError as error:
            if started:
                raise
            shape = error_answer(error)
            await (self._page(scope, shape.status_code, str(error)) or shape)(scope, receive, send)
        except ClientDisconnect:
            pass  # nobody waits for an answer
        except Exception:
            log.exception("%s %s stopped at a defect", scope["method"], scope["path"])
            # A response that has begun can't be replaced: the connection closes without its end.
            if not started:
                text = UNKNOWN["detail"]
                await (self._page(scope, 500, text) or refusal_answer(500, text))(scope, receive, send)

    def _page(self, scope: Scope, status: int, text: str, *, is_form: bool = False) -> Response | None:
        """Return an error page for a browser that opens an address or, with `is_form`, sends a form; None: for a
        program, or if the request is redirected."""
        request = Request(scope)
        if self._refused_page is None or status < 400 or not (is_form or wants_page(request)):
            return None
        return self._refused_page(request, status, text)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Check a request; return the `receive` for its body. Raises: RequestRejected, ClientDisconnect, StoreError."""
        headers = _relevant_headers(scope["headers"])
        if (problem := self._origins.problem(headers)) is not None:
            raise RequestRejected(403, problem)
        if scope["path"] in OPEN_PATHS:  # they need no key, so their bodies are not read
            return receive
        if scope["path"] == METRICS_PATH and self._config.metrics == "loopback" and is_of_this_machine(scope):
            return receive
        segment = _segment(scope)
        is_page = segment in PAGE_ROOTS
        if scope["path"] == METRICS_PATH:
            await self._gate.admit_promptly(scope, headers)
        elif _GIT.fullmatch(scope["path"]):
            await self._admit_git(scope, headers)
        elif segment not in OPEN_PAGES:
            await self._gate.admit(scope, headers, is_page=is_page)
        if is_page and scope["method"] not in WITHOUT_BODY and PAGE_HEADER not in headers:
            raise RequestRejected(403, "a form of the dashboard needs the header HX-Request, which its pages set")
        if b"content-length" in headers or b"transfer-encoding" in headers:
            if headers.get(b"content-length") == b"0":
                return receive
        elif scope["method"] in WITHOUT_BODY:
            return receive
        if b"upgrade" in headers and b"upgrade" in headers.get(b"connection", b"").lower():
            # Uvicorn's parser would take the body for bytes of another protocol, and lose it.
            text = "this server speaks HTTP/1.1 and no other protocol: send the request without an Upgrade header"
            raise RequestRejected(400, text)
        is_form = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        if is_form and scope["method"] == "POST" and _UPLOAD.fullmatch(scope["path"]):
            if (problem := upload_problem(headers)) is not None:
                raise RequestRejected(415, problem)
            return self._limit_upload(headers, receive)
        bodies = [await self._read(headers, receive)]
        if not is_page:
            self._check_body(bodies[0], headers)

        async def replay() -> Message:
            """Return the body that was read, then further messages."""
            if bodies:  # dropped when it is read: the answer may take an hour
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()

        return replay

    async def _admit_git(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Admit a request of a git program, which sends a key as the password of a user with any name, and only when it
        is asked to. Raises: RequestRejected; StoreError."""
        scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"basic":
            with contextlib.suppress(ValueError):
                key = base64.b64decode(text.strip(), validate=True).partition(b":")[2]
                headers = {**headers, b"authorization": b"Bearer " + key}
        try:
            await self._gate.admit(scope, headers, is_page=False)
        except RequestRejected as refusal:
            asks = [(b"www-authenticate", b'Basic realm="perdure", charset="UTF-8"')] if refusal.status == 401 else []
            raise RequestRejected(refusal.status, refusal.detail, *refusal.headers, *asks) from None

    def _check_body(self, body: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Raise RequestRejected if the body is not JSON within the limits or of a type any web page could send."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if _GIT_BODY.fullmatch(kind):  # needs a preflight, too
            return
        if body and not _JSON.fullmatch(kind):
            what = (
                f"the body's Content-Type is {_quote(kind)}" if kind else "the request has a body and no Content-Type"
            )
            raise RequestRejected(415, f"{what}: send JSON with `Content-Type: application/json`")
        try:
            check_json(body, self._json_limits)
        except DataTooLarge as error:
            raise RequestRejected(422, f"body: {error}") from error

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read a body. Raises: RequestRejected: it is too large; ClientDisconnect."""
        limit = self._config.max_body_bytes
        too_large = f"the request body is larger than {limit:,} bytes"
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            # A client that waits for 100 Continue sends no body after this answer.
            if length.isdigit() and int(length[:20]) <= DRAIN_BYTES and b"expect" not in headers:
                await _drain(receive)
            raise RequestRejected(413, too_large)
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
                    raise RequestRejected(413, too_large)
                if self._pending_bytes > PENDING_BODY_BYTES:
                    log.warning("a body was refused: more than %d bytes of bodies arrive at once", PENDING_BODY_BYTES)
                    raise RequestRejected(503, "too many large bodies arrive at once: try again", RETRY_AFTER)
            return b"".join(pieces)
        finally:
            self._pending_bytes -= size

    def _limit_upload(self, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """Return a `receive` that raises FileTooLarge when the body of an upload is larger than the limit."""
        limit = self._upload_bytes
        length = headers.get(b"content-length", b"")
        size = int(length[:20]) if length.isdigit() else 0

        async def receive_and_count() -> Message:
            """Receive a part of the body. Raises: FileTooLarge: the parts exceed the limit."""
            nonlocal size
            if size > limit + FORM_BYTES:
                raise FileTooLarge("of this upload", size=size, limit=limit)
            message = await receive()
            if not length:
                size += len(message.get("body", b""))
            return message

        return receive_and_count


def _relevant_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that the guard reads. Values of a repeated header are joined with a comma; no check accepts that."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in HEADERS:
            values[name] = value if name not in values else values[name] + b"," + value
    return values


def _segment(scope: Scope) -> str | None:
    """The first segment of a request's path."""
    return scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else None


def _is_of_browser(scope: Scope) -> bool:
    """Whether a request is for a page of the dashboard, not for its JSON, and of somebody who may see some page."""
    wants_json = parse_qs(scope["query_string"].decode("latin-1")).get("format") == ["json"]
    return "perdure.principal" in scope and _segment(scope) in PAGE_ROOTS and not wants_json


def is_of_this_machine(scope: Scope) -> bool:
    """Whether a program of this machine sends the request, and not a proxy for somebody else."""
    host = (scope.get("client") or ("",))[0]
    return is_loopback(host) and not any(name in PROXY_HEADERS for name, _ in scope["headers"])


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


@dataclass(frozen=True, slots=True)
class Host:
    """A host as clients name it: without brackets and a final dot; `port` is None if they leave it out."""

    name: str
    port: str | None

    @classmethod
    def parse(cls, text: str) -> Host | None:
        """The host of a header or a setting; None: it is none."""
        match = _HOST.fullmatch(text.lower())
        return match and cls(match["name"].strip("[]").rstrip("."), match["port"])

    def is_one_of(self, hosts: Collection[Host], *default_ports: str) -> bool:
        """Whether the host is in the list, whose entries may have a port. `default_ports`: ports that clients omit."""
        ports = default_ports if self.port is None else (self.port,)
        return any(Host(self.name, port) in hosts for port in (None, *ports))


class Origins:
    """The hosts and origins that a configuration allows."""

    def __init__(self, config: ServerConfig) -> None:
        self._origins = frozenset(name.lower() for name in config.allowed_hosts if name == NULL_ORIGIN or "://" in name)
        self._allowed = frozenset(filter(None, map(Host.parse, set(config.allowed_hosts) - self._origins)))
        own = (Host(name, None) for name in ("localhost", "127.0.0.1", "::1", config.host.strip("[]").lower()))
        self._names = self._allowed.union(own)
        self._any = ANY in config.allowed_hosts
        self._cache: dict[bytes, bool] = {}  # by the Host header: clients repeat few different ones

    def problem(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Why a request with these headers is refused; None: it is allowed."""
        host = headers.get(b"host", b"")
        if not self._is_known_host(host):
            if not host:
                return "the request has no Host header"
            name = Host.parse(host.decode("latin-1"))
            example = "" if name is None else f": PERDURE_ALLOWED_HOSTS={name.name}"
            return f"Host {_quote(host)} is not allowed here; add it to PERDURE_ALLOWED_HOSTS if it is yours{example}"
        origin = headers.get(b"origin")
        allowed = origin is not None and self._is_allowed(origin)
        if origin is not None and not allowed and not _is_same(origin, host):
            return (
                f"Origin {_quote(origin)} is not allowed here: it is not the server's own; add its host (and port) to"
                " PERDURE_ALLOWED_HOSTS if it is yours"
            )
        site = headers.get(b"sec-fetch-site", b"none").lower()
        if site not in (b"same-origin", b"none") and not allowed:
            return (
                f"Sec-Fetch-Site {_quote(site)} is not allowed here: a page of another origin sent the request; add"
                " its host (and port) to PERDURE_ALLOWED_HOSTS if it is yours"
            )
        return None

    def _is_known_host(self, text: bytes) -> bool:
        """Whether `Host` names this server."""
        is_known = self._cache.get(text)
        if is_known is None:
            host = Host.parse(text.decode("latin-1"))
            is_known = host is not None and (self._any or host.is_one_of(self._names, *DEFAULT_PORTS.values()))
            if len(self._cache) < CACHE_MAX:  # ever new names must not fill the memory
                self._cache[text] = is_known
        return is_known

    def _is_allowed(self, origin: bytes) -> bool:
        """Whether `allowed_hosts` names this origin or its host."""
        text = origin.decode("latin-1").lower()
        if not self._origins.isdisjoint((text, f"{text.partition('://')[0]}://{ANY}")):
            return True
        scheme, host = _parts(origin)
        return host is not None and (self._any or host.is_one_of(self._allowed, DEFAULT_PORTS[scheme]))


def upload_problem(headers: Mapping[bytes, bytes]) -> str | None:
    """Why an upload is refused; None: it is allowed.

    A form on any web page can send a multipart body, but not set a header. So one such header is required.
    """
    if any(name in headers for name in SCRIPT_HEADERS) or headers.get(b"authorization", b"")[:7].lower() == b"bearer ":
        return None
    return (
        "an upload needs a header that no web page's form can send: the API key as `Authorization: Bearer`, or"
        " `X-Requested-With` with any value"
    )


def _parts(origin: bytes) -> tuple[str, Host | None]:
    """Return (scheme, host) of an origin; the host is None if it is not a web page's (http, https)."""
    scheme, _, rest = origin.decode("latin-1").lower().partition("://")
    return scheme, Host.parse(rest) if scheme in DEFAULT_PORTS else None


def _is_same(origin: bytes, text: bytes) -> bool:
    """Whether a page's origin has the same name and port as the request's host."""
    (scheme, page), host = _parts(origin), Host.parse(text.decode("latin-1"))
    if page is None or host is None:
        return False
    default = DEFAULT_PORTS[scheme]
    return (page.name, page.port or default) == (host.name, host.port or default)


def _quote(value: bytes) -> str:
    """The beginning of a header's value, for an error text."""
    return repr(value.decode("latin-1")[:80])
