"""The keys of the store: who they stand for, in requests and in sessions of the dashboard.

What the store says about a key is kept for `KEY_KEPT_S`, so that a request costs no query, and a revocation counts in
every process within that time.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from perdure.core.errors import NotFound, SecretUnreadable, StoreError
from perdure.core.ids import KeyId, OrgId
from perdure.core.incoming.principals import Principal
from perdure.core.ports import Clock
from perdure.core.secrets import Cipher
from perdure.features.access.directory import Keys
from perdure.features.access.service import KEY_KEPT_S, find_key
from perdure.features.access.values import ApiKey, digest_of, is_key
from perdure.server.access.session import SESSION_S, DashboardSessions
from perdure.storage.store import Store
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

KEPT_MAX = 10_000
"""How many keys, real and wrong ones, are known at most."""

NOTED_S = 20.0
"""How often the times of use are written; the store writes each at most once a minute."""


class KeyRing:
    """The keys of the store, each remembered for `KEY_KEPT_S` after it was read.

    Attributes:
        are_there: whether the store had any keys, of whatever organisation, when this was last looked up.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        # Digest, or organisation and id -> the second (monotonic) when the key was read, and the key if there is one.
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._used: set[KeyId] = set()  # whose time of use is not written yet
        self._noted_at = time.monotonic()
        self._noting: asyncio.Task[None] | None = None
        self._looked_at, self.are_there = float("-inf"), False

    @property
    def has_looked(self) -> bool:
        """Whether this process has looked up yet whether the store has keys."""
        return self._looked_at > float("-inf")

    async def look(self) -> bool:
        """Whether the store has any keys, as of at most `KEY_KEPT_S` ago. Raises: StoreError."""
        if self._looked_at + KEY_KEPT_S <= time.monotonic():
            self.are_there = await self._store.read(lambda tx: tx.of(Keys).are_there())
            self._looked_at = time.monotonic()
        return self.are_there

    async def look_ahead(self) -> None:
        """Look now, in case the store goes away before the first request, which looks again. Raises: StoreError."""
        await self.look()
        self._looked_at = time.monotonic() - KEY_KEPT_S

    async def is_one_current(self) -> bool:
        """Whether any key counts now. Raises: StoreError."""
        at = self._clock.now()
        return await self._store.read(lambda tx: tx.of(Keys).exist(at=at))

    def recall(self, text: bytes) -> Principal | None:
        """Return who a key stands for as last read, for when the store does not answer."""
        return self._principal(self._known.get(digest_of(text.decode("latin-1")), (0.0, None))[1])

    async def principal_of(self, text: bytes) -> Principal | None:
        """Who a key stands for; None: it does not count. Raises: StoreError."""
        key = text.decode("latin-1")
        if not is_key(key):
            return None
        return self._principal(await self._remembered(digest_of(key), lambda: find_key(self._store, key)))

    async def principal_of_id(self, org_id: OrgId, key_id: KeyId) -> Principal | None:
        """Who the key of this id stands for; None: it does not count."""

        def load(tx: Tx) -> ApiKey | None:
            keys = tx.of(Keys)
            try:
                return keys.find_by_digest(keys.get(key_id).digest)
            except NotFound:
                return None

        return self._principal(
            await self._remembered(f"{org_id} {key_id}", lambda: self._store.for_organisation(org_id).read(load))
        )

    async def key_of(self, text: str) -> ApiKey | None:
        """The stored key of a text, read anew; None: it is no key, or revoked or expired. Raises: StoreError."""
        key = await find_key(self._store, text)
        return key if key is not None and key.counts_at(self._clock.now()) else None

    async def close(self) -> None:
        """Write the last times of use."""
        if self._noting is not None:
            await asyncio.wait({self._noting})
        await self._note()

    async def _remembered(self, name: str, load: Callable[[], Awaitable[ApiKey | None]]) -> ApiKey | None:
        """The key that is remembered under `name`; if there is none, or too old a one, the key that `load` reads."""
        known = self._known.get(name)
        if known is not None and known[0] + KEY_KEPT_S > time.monotonic():
            return known[1]
        key = await load()
        if key is not None:  # where everybody sends a key, nobody else asks whether there are any
            self._looked_at, self.are_there = time.monotonic(), True
        self._known[name] = (time.monotonic(), key)
        self._known.move_to_end(name)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return key

    def _principal(self, key: ApiKey | None) -> Principal | None:
        """Return who a key stands for, and note its use; None: there is no key, or it is revoked or expired."""
        if key is None or not key.counts_at(self._clock.now()):
            return None
        self._used.add(key.id)
        if time.monotonic() - self._noted_at >= NOTED_S and (self._noting is None or self._noting.done()):
            self._noted_at = time.monotonic()
            self._noting = asyncio.ensure_future(self._note())
        return Principal(org_id=key.org_id, user_id=key.user_id, key_id=key.id, scope=key.scope, limits=key.limits)

    async def _note(self) -> None:
        """Store that the keys in `_used` were used now; if the store fails, only a log line tells."""
        used, self._used = list(self._used), set()
        if not used:
            return
        at = self._clock.now()
        try:
            await self._store.write(lambda tx: tx.of(Keys).touch(used, at=at))
        except StoreError as error:
            log.warning("the times of use of %d keys were not written: %s", len(used), error)


BOUND_TO = "dashboard session"
OF_KEY = "key."
"""How the cookie of a stored key begins."""


class KeySessions(DashboardSessions):
    """Makes and checks the cookies of the dashboard. The cookie of a stored key holds the key's id, encrypted, and
    counts for as long as the key does, `SESSION_S` at most."""

    def __init__(
        self,
        api_key: str | None,
        clock: Clock,
        claim: Callable[[str, str], Awaitable[bool]],
        ring: KeyRing,
        cipher: Cipher,
    ) -> None:
        super().__init__(api_key, clock, claim)
        self._ring, self._cipher = ring, cipher

    async def sign_in(self, api_key: str) -> str | None:
        """Return the cookie of a session for whoever has this key; None: the key does not count."""
        if (cookie := await super().sign_in(api_key)) is not None:
            return cookie
        if (key := await self._ring.key_of(api_key.strip())) is None:
            return None
        text = json.dumps({"org": key.org_id, "key": key.id, "end": self.now + SESSION_S})
        sealed = self._cipher.encrypt(text.encode(), bound_to=BOUND_TO)
        return OF_KEY + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    async def principal_of(self, value: str) -> Principal | None:
        """Return who a cookie stands for; None: it is not of this server, has ended, or its key is no longer valid."""
        if not value.startswith(OF_KEY):
            return await super().principal_of(value)
        sealed = value.removeprefix(OF_KEY)
        try:
            data = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
            session = json.loads(self._cipher.decrypt(data, bound_to=BOUND_TO))
        except (SecretUnreadable, ValueError):
            return None
        return await self._ring.principal_of_id(session["org"], session["key"]) if session["end"] > self.now else None
