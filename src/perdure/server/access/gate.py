"""The gate behind the guard: who a request is for. Whoever has the server's own key may do everything; who else may use
a server that other machines reach, a feature knows. It also says which addresses clients of the API may name, for MCP
servers, providers and callbacks: the library and the CLI belong to the admin and have no such check."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope, Send

from perdure.core.errors import StoreError
from perdure.core.features import Point
from perdure.core.ids import OrgId
from perdure.core.incoming.addresses import is_loopback
from perdure.core.incoming.principals import LOCAL, Principal
from perdure.core.runs import Callback
from perdure.library.perdure import AsyncPerdure
from perdure.server.access.session import DashboardSessions
from perdure.server.config import ServerConfig

SIGN_IN = "/sign-in"
PAGE_HEADER = b"hx-request"
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestRejected(Exception):
    """The answer to a request that is not passed on: its status, text and headers. The guard sends it."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Gate:
    """Decides about each request by its key: the server's own one, or none where only this machine reaches it."""

    def __init__(self, library: AsyncPerdure, config: ServerConfig) -> None:
        self.library = library
        self.own_key = config.api_key.encode() if config.api_key else None
        self.is_guarded = self.own_key is not None or not is_loopback(config.host)
        self._has_no_hosts = not config.allowed_hosts
        self.sessions = DashboardSessions(config.api_key, library.app.ports.clock, library.upkeep.claim)

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key, by what is known without reading the store."""
        return self.is_guarded

    async def needs_key_now(self) -> bool:
        """Whether a request needs a key, by what the store says now. Raises: StoreError."""
        return self.is_guarded

    async def is_usable(self) -> bool:
        """Whether any request can be admitted: none needs a key, or there is a valid key. Raises: StoreError."""
        return self.own_key is not None or not self.is_guarded

    @property
    def allows_private(self) -> bool:
        """Whether clients may name addresses on this machine and in private networks. Without the setting they may when
        only this machine reaches the server: it listens on loopback, and has no keys and no further allowed hosts."""
        if setting := self.library.app.settings.mcp_private:
            return setting == "on"
        return self._has_no_hosts and not self.needs_key

    def callback(self, url: str | None) -> Callback | None:
        """Return a callback to this address, checked as any address that a client gives; None: no address."""
        return None if url is None else Callback(url=url, private=self.allows_private)

    async def admit(self, scope: Scope, headers: Mapping[bytes, bytes], *, is_page: bool) -> Principal:
        """Who a request is for. Raises: RequestRejected: 401 without a key that counts; a browser without a session is
        sent to where it can sign in. StoreError."""
        principal = scope["perdure.principal"] = await self.identify(scope, headers, is_page=is_page)
        return principal

    async def admit_promptly(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
        """As `admit`, for a program that also asks while the store does not answer, such as a reader of `/metrics`."""
        return await self.admit(scope, headers, is_page=False)

    async def identify(self, scope: Scope, headers: Mapping[bytes, bytes], *, is_page: bool) -> Principal:
        """Who a request is for, by its key or session. Raises: as `admit`."""
        for text in keys_in(headers):
            if (principal := await self.principal_of(text)) is not None:
                return principal
        if not await self.needs_key_now():
            return LOCAL
        if not is_page:
            raise RequestRejected(401, "Unauthorized")
        if (principal := await self.sessions.find(headers.get(b"cookie", b""))) is not None:
            return principal
        if PAGE_HEADER in headers or scope["method"] not in WITHOUT_BODY:
            raise RequestRejected(401, "sign in first")  # the page stays, with what was entered
        raise RequestRejected(303, "sign in first", (b"location", SIGN_IN.encode()))

    async def principal_of(self, key: bytes) -> Principal | None:
        """Who a key stands for; None: it is not valid. Raises: StoreError."""
        return LOCAL if self.own_key is not None and hmac.compare_digest(key, self.own_key) else None

    async def still_admits(self, scope: Scope) -> bool:
        """Whether a request that was admitted before would be admitted now too. False also if the store can't say."""
        try:
            now = await self.identify(scope, dict(scope["headers"]), is_page=True)
        except (RequestRejected, StoreError):
            return False
        principal: Principal = scope["perdure.principal"]
        return now == principal

    def open_library(self, org_id: OrgId) -> AbstractAsyncContextManager[AsyncPerdure]:
        """Open an organisation's store, which stays open inside the context. Raises: RequestRejected, StoreError."""
        return contextlib.nullcontext(self.library)

    def note_success(self, scope: Scope, principal: Principal, send: Send) -> Send:
        """A `send` for the answer of a request, which also records that the request has succeeded."""
        return send

    def check_allowed(self, scope: Scope, method: str, path: str) -> None:
        """Check that a request's key may send this method and path as well. Raises: ScopeTooSmall."""

    async def note(self, scope: Scope, action: str, object_id: str) -> None:
        """Write what a request did to the audit log, if its path does not say that; see `note_success`."""

    async def start(self) -> None:
        """Begin the gate's background work, in the running event loop."""

    async def drain(self, within_s: float) -> None:
        """Drain what is open, see `App.drain`."""
        await self.library.app.drain(within_s)

    async def close(self) -> None:
        """Close what the gate has opened."""


GATE: Point[[AsyncPerdure, ServerConfig], Gate] = Point("gate")
"""The gate of a server whose store may have keys."""


def gate_of(perdure: AsyncPerdure, config: ServerConfig) -> Gate:
    """The gate of a server over this store."""
    return next(iter(GATE(perdure, config)), None) or Gate(perdure, config)


async def _gate_of_server(request: Request) -> Gate:  # no thread is needed for a coroutine
    gate: Gate = request.app.state.gate
    return gate


ServerGate = Annotated[Gate, Depends(_gate_of_server)]


def keys_in(headers: Mapping[bytes, bytes]) -> list[bytes]:
    """The keys in a request's headers, in either form."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    word, _, password = headers.get(b"x-bare-password", b"").partition(b" ")
    return [
        text.strip()
        for name, wanted, text in ((scheme, b"bearer", bearer), (word, b"password", password))
        if name.lower() == wanted
    ]
