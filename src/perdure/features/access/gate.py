"""The gate of a store with keys: who a request is for, whether that is enough for its route, and the audit log."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from starlette.types import Message, Scope, Send

from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.principals import LOCAL, Principal, ScopeTooSmall
from perdure.core.text.json_strings import json_object
from perdure.features.access.keys import KeyRing, KeySessions
from perdure.features.access.limits import Limiter
from perdure.features.access.organisations import OpenOrganisations, OrganisationGone
from perdure.features.access.scopes import ID, ScopeRule, rule_of, without_ids
from perdure.features.access.service import Access
from perdure.library.perdure import AsyncPerdure
from perdure.server.access.gate import Gate, RequestRejected, keys_in
from perdure.server.config import ServerConfig
from perdure.server.log import trace_id
from perdure.server.timed_reads import KEY_S, wait_within

log = logging.getLogger(__name__)

_ID = re.compile(ID)


class StoreGate(Gate):
    """Decides about each request by its key and its path."""

    def __init__(self, library: AsyncPerdure, config: ServerConfig) -> None:
        super().__init__(library, config)
        store, clock = library.app.shared.store, library.app.ports.clock
        self.ring = KeyRing(store, clock)
        self.sessions = KeySessions(config.api_key, clock, library.upkeep.claim, self.ring, library.app.ports.cipher)
        self.limiter = Limiter(store, clock)
        self.organisations = OpenOrganisations(library)

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key, as far as is known: it does where other machines reach the server, and where
        there are any keys, also if none of them counts any more: nobody is let in because a key expires."""
        return self.is_guarded or self.ring.are_there

    async def needs_key_now(self) -> bool:
        """Whether a request needs a key, with the store asked again."""
        return self.is_guarded or await self.ring.look()

    async def is_usable(self) -> bool:
        """Whether anybody can send a request that is let in. Raises: StoreError."""
        if self.own_key is not None:
            return True
        if self.is_guarded:
            return await self.ring.is_one_current()
        await self.ring.look_ahead()
        return True

    async def admit(self, scope: Scope, headers: Mapping[bytes, bytes], *, is_page: bool) -> Principal:
        """Return who sends a request. Raises: StoreError; RequestRejected: 401, 403 (scope) or 429 (limit)."""
        principal = scope["perdure.principal"] = await self.identify(scope, headers, is_page=is_page)
        if principal is not LOCAL:  # who may do everything, as often as it likes
            self._check_scope(scope, principal)
            await self.limiter.admit(principal)
        return principal

    async def admit_promptly(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
        """Who a program's request is for, see `admit`. While the store does not answer, what was known counts."""
        try:
            return await wait_within(KEY_S, self.admit(scope, headers, is_page=False))
        except StoreError:
            if (principal := self._recall(headers)) is None:
                raise
        self._check_scope(scope, principal)
        return principal

    def _recall(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Return who a request is for, by what this process knew last of its key, without the store. Without a key:
        `LOCAL`, if the store had no keys. None: nothing is known."""
        for text in keys_in(headers):
            if (principal := self.ring.recall(text)) is not None:
                return principal
        return LOCAL if self.ring.has_looked and not self.needs_key else None

    @staticmethod
    def _check_scope(scope: Scope, principal: Principal) -> None:
        """Raises: RequestRejected: the key of `principal` may not send this request: its scope is too small."""
        scope["perdure.principal"] = principal  # also of a request that is refused: a page says so to whom it knows
        rule = rule_of(scope["method"], scope["path"])
        if refusal := _find_refusal(principal, rule):
            raise RequestRejected(403, f"this {refusal}")
        if rule is not None and rule.whole_server and principal.org_id != DEFAULT_ORG:
            raise RequestRejected(
                403, "this is about the whole server: only administrators of the default organisation may"
            )

    async def principal_of(self, key: bytes) -> Principal | None:
        """Return who a key stands for, whether the server's own or one of the store; None: the key is not valid."""
        return await super().principal_of(key) or await self.ring.principal_of(key)

    def open_library(self, org_id: OrgId) -> AbstractAsyncContextManager[AsyncPerdure]:
        return contextlib.nullcontext(self.library) if org_id == DEFAULT_ORG else self._use_other(org_id)

    @contextlib.asynccontextmanager
    async def _use_other(self, org_id: OrgId) -> AsyncIterator[AsyncPerdure]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                library = await stack.enter_async_context(self.organisations.use(org_id))
            except OrganisationGone:  # the key is remembered for a moment longer
                raise RequestRejected(401, "Unauthorized") from None
            yield library

    async def start(self) -> None:
        await self.organisations.start()

    async def drain(self, within_s: float) -> None:
        await self.organisations.drain(within_s)

    async def close(self) -> None:
        """Close the open organisations, and write what is only counted here."""
        await self.organisations.close()
        try:
            await self.limiter.close()
            await self.ring.close()
        except PerdureError as error:
            log.warning("the last counts of keys are lost: %s", error)

    def note_success(self, scope: Scope, principal: Principal, send: Send) -> Send:
        """Wrap the ASGI `send` of a request: if the request is an audited one and succeeds, the audit log has it before
        its answer begins. The entry names the last id of the path, or of what the answer leads to or shows."""
        if not self.needs_key or (rule := rule_of(scope["method"], scope["path"])) is None or not rule.audited:
            return send
        start: Message | None = None  # held back until the body names what was made

        async def send_and_note(message: Message) -> None:
            """Pass on a part of the answer; write to the audit log once it is a success."""
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] < 400:
                start = message
                return
            if start is not None:
                leads_to = dict(start["headers"]).get(b"hx-redirect", b"").decode("latin-1")
                ids = _ID.findall(scope["path"]) or _ID.findall(leads_to) or _ids_in(message)
                await self.note(scope, f"{scope['method']} {without_ids(scope['path'])}", ids[-1] if ids else "")
                await send(start)
                start = None
            await send(message)

        return send_and_note

    def check_allowed(self, scope: Scope, method: str, path: str) -> None:
        if refusal := _find_refusal(scope.get("perdure.principal", LOCAL), rule_of(method, path)):
            raise ScopeTooSmall(f"this does what {method} {path} does, and that {refusal}. Nothing was done.")

    async def note(self, scope: Scope, action: str, object_id: str) -> None:
        if not self.needs_key:
            return
        access = Access.of(self.library.app, scope.get("perdure.principal", LOCAL), trace_id())
        try:
            await access.note(action[:200], object_id)
        except PerdureError as error:  # what was done stays done
            log.error("the audit log lacks %s: %s", action, error)


def _find_refusal(principal: Principal, rule: ScopeRule | None) -> str:
    """Why the scope of `principal` does not do for a rule; empty: it does. Without a rule it has to be the largest."""
    needed = "admin" if rule is None else rule.scope
    return "" if principal.may(needed) else f"needs a key with the scope {needed!r}, and yours has {principal.scope!r}"


def _ids_in(message: Message) -> list[str]:
    """The ids in `id` and `agent_ids` of an answer's body; none if the body is no JSON object or comes in pieces."""
    if message.get("more_body"):
        return []
    shape = json_object(message.get("body", b"")) or {}
    ids = [shape.get("id"), *(shape.get("agent_ids") or ())]
    return [id_ for id_ in ids if isinstance(id_, str) and _ID.fullmatch(id_)]
