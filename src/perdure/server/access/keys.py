"""Who a request is for: the server's own key, keys of the store, or whoever sits at this machine.

What the store says about a key is kept for `KEY_KEPT_S`, so that a request costs no query, and a revocation counts in
every process within that time.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from perdure.core.access.values import LOCAL, ApiKey, Principal, digest_of, is_key
from perdure.core.errors import NotFound, StoreError
from perdure.core.ids import KeyId, OrgId
from perdure.core.ports import Clock
from perdure.library.access import KEY_KEPT_S, Store
from perdure.server.config import ServerConfig, is_loopback

log = logging.getLogger(__name__)

KEPT_MAX = 10_000
"""How many keys, real and wrong ones, are known at most."""

NOTED_S = 20.0
"""How often the times of use are written; the store writes each at most once a minute."""


class KeyRing:
    """The keys that a server accepts."""

    def __init__(self, config: ServerConfig, store: Store, clock: Clock) -> None:
        self._own = config.api_key.encode() if config.api_key else None
        self._is_guarded = self._own is not None or not is_loopback(config.host)
        self._store, self._clock = store, clock
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._used: set[KeyId] = set()
        self._noted_at = time.monotonic()
        self._noting: asyncio.Task[None] | None = None
        self._exist: tuple[float, bool] = (float("-inf"), False)

    @property
    def needed(self) -> bool:
        """Whether a request needs a key, as far as is known: it does where other machines reach the server, and where
        there are any keys, also if none of them counts any more: nobody is let in because a key expires."""
        return self._is_guarded or self._exist[1]

    async def look(self) -> bool:
        """Whether a request needs a key now. Raises: StoreError."""
        if self._is_guarded:
            return True
        if self._exist[0] + KEY_KEPT_S <= time.monotonic():
            exist = await self._store.read_directory(lambda one: one.keys.are_there())
            self._exist = (time.monotonic(), exist)
        return self._exist[1]

    async def usable(self) -> bool:
        """Whether anybody can send a request that counts. Raises: StoreError."""
        if self._own is not None:
            return True
        if not self._is_guarded:
            await self.look()
            # For `recall`, should the store go away before the first request, which looks again.
            self._exist = (time.monotonic() - KEY_KEPT_S, self._exist[1])
            return True
        at = self._clock.now()
        return await self._store.read_directory(lambda one: one.keys.exist(at=at))

    async def find(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Who the key in a request's headers stands for, in either form; None: it has none that counts."""
        for text in _keys_in(headers):
            if (principal := await self.principal_of(text)) is not None:
                return principal
        return None

    def recall(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The same as it was known last, for while the store does not answer; without a key, whoever sits at this
        machine if none was needed."""
        for text in _keys_in(headers):
            _, key = self._known.get(digest_of(text.decode("latin-1")), (0.0, None))
            if (principal := self._counted(key)) is not None:
                return principal
        looked = self._exist[0] > float("-inf")
        return LOCAL if looked and not self.needed else None

    async def principal_of(self, text: bytes) -> Principal | None:
        """Who a key stands for; None: it does not count."""
        if self._own is not None and hmac.compare_digest(text, self._own):  # in constant time
            return LOCAL
        key = text.decode("latin-1")
        if not is_key(key):
            return None
        digest = digest_of(key)
        found = await self._kept(
            digest, lambda: self._store.read_directory(lambda one: one.keys.find_by_digest(digest))
        )
        return self._counted(found)

    async def principal_of_id(self, org_id: OrgId, key_id: KeyId) -> Principal | None:
        """Who the key of this id stands for; None: it does not count."""

        async def load() -> ApiKey | None:
            try:
                key = await self._store.read_directory(lambda one: one.keys.get(org_id, key_id))
            except NotFound:
                return None
            return await self._store.read_directory(lambda one: one.keys.find_by_digest(key.digest))

        return self._counted(await self._kept(f"{org_id} {key_id}", load))

    async def key_of(self, text: str) -> ApiKey | None:
        """The stored key of a text that counts; None: it is none."""
        if not is_key(text):
            return None
        digest = digest_of(text)
        key = await self._store.read_directory(lambda one: one.keys.find_by_digest(digest))
        return key if key is not None and key.counts_at(self._clock.now()) else None

    async def close(self) -> None:
        """Write the last times of use."""
        if self._noting is not None:
            await asyncio.wait({self._noting})
        await self._note()

    async def _kept(self, name: str, load: Callable[[], Awaitable[ApiKey | None]]) -> ApiKey | None:
        """What is known under a name, or is loaded."""
        known = self._known.get(name)
        if known is not None and known[0] + KEY_KEPT_S > time.monotonic():
            return known[1]
        key = await load()
        if key is not None:  # where everybody sends a key, nobody else asks whether there are any
            self._exist = (time.monotonic(), True)
        self._known[name] = (time.monotonic(), key)
        self._known.move_to_end(name)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return key

    def _counted(self, key: ApiKey | None) -> Principal | None:
        if key is None or not key.counts_at(self._clock.now()):
            return None
        self._used.add(key.id)
        if time.monotonic() - self._noted_at >= NOTED_S and (self._noting is None or self._noting.done()):
            self._noted_at = time.monotonic()
            self._noting = asyncio.ensure_future(self._note())
        return Principal(org_id=key.org_id, user_id=key.user_id, key_id=key.id, scope=key.scope, limits=key.limits)

    async def _note(self) -> None:
        """Write when the keys were used."""
        used, self._used = list(self._used), set()
        if not used:
            return
        at = self._clock.now()
        try:
            await self._store.write_directory(lambda one: one.keys.touch(used, at=at))
        except StoreError as error:
            log.warning("the times of use of %d keys were not written: %s", len(used), error)


def _keys_in(headers: Mapping[bytes, bytes]) -> list[bytes]:
    """The keys in a request's headers, in either form."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    word, _, password = headers.get(b"x-bare-password", b"").partition(b" ")
    return [
        text.strip()
        for name, wanted, text in ((scheme, b"bearer", bearer), (word, b"password", password))
        if name.lower() == wanted
    ]
