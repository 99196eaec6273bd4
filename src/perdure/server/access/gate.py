"""The gate behind the guard: who a request is for, whether that is enough for its route, and the audit log."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from starlette.types import Message, Scope, Send

from perdure.core.access.values import LOCAL, Principal
from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import DEFAULT_ORG
from perdure.library.access import Access
from perdure.library.organisations import Organisations
from perdure.server.access.keys import KeyRing
from perdure.server.access.limits import Limiter
from perdure.server.access.scopes import ID, Refusal, Rule, rule_of, without_ids
from perdure.server.access.session import Sessions
from perdure.server.log import trace_id
from perdure.server.prompt import KEY_S, within

log = logging.getLogger(__name__)

SIGN_IN = "/sign-in"
PAGE_HEADER = b"hx-request"
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})

_ID = re.compile(ID)


class Gate:
    """Decides about each request by its key and its path."""

    def __init__(self, ring: KeyRing, sessions: Sessions, limiter: Limiter, organisations: Organisations) -> None:
        self.ring, self.sessions, self.limiter, self.organisations = ring, sessions, limiter, organisations

    async def admit(self, scope: Scope, headers: Mapping[bytes, bytes], *, is_page: bool) -> Principal:
        """Who a request is for. Raises: Refusal: 401 without a key that counts, 403 with too small a scope, 429 beyond
        a limit; a browser without a session is sent to where it can sign in. StoreError."""
        principal = scope["perdure.principal"] = await self._identify(scope, headers, is_page=is_page)
        if principal is not LOCAL:  # who may do everything, as often as it likes
            self._check_scope(scope, principal)
            await self.limiter.admit(principal)
        return principal

    async def admit_promptly(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
        """The same for a program. While the store does not answer, what was known of its key counts."""
        try:
            return await within(KEY_S, self.admit(scope, headers, is_page=False))
        except StoreError:
            if (principal := self.ring.recall(headers)) is None:
                raise
        self._check_scope(scope, principal)
        return principal

    @staticmethod
    def _check_scope(scope: Scope, principal: Principal) -> None:
        """Raises: Refusal: the route needs more."""
        scope["perdure.principal"] = principal  # also of a request that is refused: a page says so to whom it knows
        rule = rule_of(scope["method"], scope["path"])
        needed = "admin" if rule is None else rule.scope
        if not principal.may(needed):
            raise Refusal(403, f"this needs a key with the scope {needed!r}, and yours has {principal.scope!r}")
        if rule is not None and rule.whole_server and principal.org_id != DEFAULT_ORG:
            raise Refusal(403, "this is about the whole server: only administrators of the default organisation may")

    async def _identify(self, scope: Scope, headers: Mapping[bytes, bytes], *, is_page: bool) -> Principal:
        if (principal := await self.ring.find(headers)) is not None:
            return principal
        if not await self.ring.look():
            return LOCAL
        if not is_page:
            raise Refusal(401, "Unauthorized")
        if (principal := await self.sessions.find(headers.get(b"cookie", b""))) is not None:
            return principal
        if PAGE_HEADER in headers or scope["method"] not in WITHOUT_BODY:
            raise Refusal(401, "sign in first: reload the page", (b"hx-redirect", SIGN_IN.encode()))
        raise Refusal(303, "sign in first", (b"location", SIGN_IN.encode()))

    async def counts(self, scope: Scope) -> bool:
        """Whether who sent a request, which was admitted, could send it now too. False also if the store can't say."""
        try:
            now = await self._identify(scope, dict(scope["headers"]), is_page=True)
        except (Refusal, StoreError):
            return False
        principal: Principal = scope["perdure.principal"]
        return now == principal

    async def close(self) -> None:
        """Close the open organisations, and write what is only counted here."""
        await self.organisations.close()
        try:
            await self.limiter.close()
            await self.ring.close()
        except PerdureError as error:
            log.warning("the last counts of keys are lost: %s", error)

    def noting(self, scope: Scope, principal: Principal, send: Send) -> Send:
        """A `send` that notes an audited request in the log when it has succeeded, before its answer begins."""
        if not self.ring.needed or (rule := rule_of(scope["method"], scope["path"])) is None or not rule.audited:
            return send
        start: Message | None = None  # held back until the body names what was made

        async def send_and_note(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] < 400:
                start = message
                return
            if start is not None:
                found = _ID.findall(scope["path"]) or _ID.findall(_header(start, b"hx-redirect")) or _ids_in(message)
                await self._note(scope, principal, rule, found[-1] if found else "")
                await send(start)
                start = None
            await send(message)

        return send_and_note

    async def _note(self, scope: Scope, principal: Principal, rule: Rule, object_id: str) -> None:
        ports = self.organisations.default.app.ports
        store = self.organisations.default.app.shared.store
        access = Access(store, ports.clock, ports.ids, principal, trace_id=trace_id())
        try:
            await access.note(f"{scope['method']} {without_ids(scope['path'])}"[:200], object_id)
        except PerdureError as error:  # what was done stays done
            log.error("the audit log lacks %s %s: %s", scope["method"], rule.path, error)


def _header(start: Message, name: bytes) -> str:
    """A header of an answer; empty: it has none of this name."""
    return next((value.decode("latin-1") for key, value in start["headers"] if key.lower() == name), "")


def _ids_in(message: Message) -> list[str]:
    """The ids of what an answer shows, if its body is one object that names them; else none."""
    if message.get("more_body"):
        return []
    try:
        shape = json.loads(message.get("body", b""))
    except ValueError:
        return []
    ids = [shape.get("id"), *(shape.get("agent_ids") or ())] if isinstance(shape, dict) else []
    return [one for one in ids if isinstance(one, str) and _ID.fullmatch(one)]
