"""Signing in to the dashboard: one-time links, and the cookie that a link or a key is exchanged for.

Both are signed with the server's own key, so that every process knows them, and `perdure ui` can make a link for a
server that runs already. Where no key is needed nobody has to sign in.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie

from perdure.core.incoming.addresses import network_of
from perdure.core.incoming.backoff import backoff_s
from perdure.core.incoming.principals import LOCAL, Principal
from perdure.core.ports import Clock

COOKIE = "perdure_session"
LINK_S = 10 * 60
SESSION_S = 7 * 24 * 3_600

GUESSES_FREE = 3
"""How many wrong keys in a row an address may send before it has to wait."""
GUESS_WAIT_MAX_S = 300.0
SOURCES_MAX = 10_000
"""How many addresses with wrong keys are remembered."""


def make_token(api_key: str, clock: Clock) -> str:
    """Make the token of a sign-in link, which works once, for ten minutes."""
    return _sign(api_key, "link", f"{secrets.token_urlsafe(12)}.{_now(clock) + LINK_S}")


class SignInThrottle:
    """Makes a source that signs in with wrong keys wait, longer with each, before its next one is looked at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, source: str) -> int:
        """How many seconds an address still has to wait; all IPv6 addresses of a network count as one."""
        _, until = self._wrong.get(network_of(source), (0, 0.0))
        return max(0, math.ceil(until - self._clock.now().timestamp()))

    def note(self, source: str) -> None:
        """Note that an address has sent a wrong key."""
        name = network_of(source)
        count = self._wrong.pop(name, (0, 0.0))[0] + 1
        pause_s = backoff_s(count - GUESSES_FREE, first_s=1.0, most_s=GUESS_WAIT_MAX_S) if count > GUESSES_FREE else 0.0
        self._wrong[name] = (count, self._clock.now().timestamp() + pause_s)
        if len(self._wrong) > SOURCES_MAX:
            self._wrong.popitem(last=False)

    def forget(self, source: str) -> None:
        """Forget the wrong keys of an address: it has signed in."""
        self._wrong.pop(network_of(source), None)


class DashboardSessions:
    """Checks the tokens and cookies of one server.

    Args:
        claim: notes the use of a name in a period, and says whether it was the first use by any process.
    """

    def __init__(self, api_key: str | None, clock: Clock, claim: Callable[[str, str], Awaitable[bool]]) -> None:
        self._key, self._clock, self._claim = api_key, clock, claim
        self.guesses = SignInThrottle(clock)

    @property
    def has_own_key(self) -> bool:
        """Whether the server has a key of its own, with which links sign in."""
        return self._key is not None

    async def redeem(self, token: str) -> str | None:
        """The value of the cookie for a token, which can't be used again; None: it is wrong, used or too old."""
        now = self.now
        if self._key is None or not self._holds("link", token, now):
            return None
        used = hashlib.sha256(token.encode()).hexdigest()
        day = datetime.fromtimestamp(int(token.split(".")[1]), UTC).date().isoformat()  # of its end
        # The store remembers it, so that no other process takes it either.
        if not await self._claim(f"link-{used}", day):
            return None
        return self._cookie(self._key, now)

    async def sign_in(self, api_key: str) -> str | None:
        """The value of the cookie for somebody who knows a key; None: it is none. Raises: SecretKeyMissing."""
        if self._key is None:
            return None
        given = api_key.strip().encode("utf-8", "surrogateescape")
        return self._cookie(self._key, self.now) if hmac.compare_digest(given, self._key.encode()) else None

    async def find(self, cookies: bytes) -> Principal | None:
        """Return who the `Cookie` header of a request stands for; None: it has no valid session. Raises: StoreError."""
        try:
            morsel = SimpleCookie(cookies.decode("latin-1")).get(COOKIE)
        except CookieError:
            return None
        return None if morsel is None else await self.principal_of(morsel.value)

    async def principal_of(self, value: str) -> Principal | None:
        """Who the value of a cookie stands for; None: it is no valid session. Raises: StoreError."""
        return LOCAL if self._holds("session", value, self.now) else None

    @property
    def now(self) -> int:
        """The time in whole seconds."""
        return _now(self._clock)

    def _cookie(self, api_key: str, now: int) -> str:

        return _sign(api_key, "session", f"{secrets.token_urlsafe(12)}.{now + SESSION_S}")

    def _holds(self, purpose: str, token: str, now: int) -> bool:
        """Whether the token was signed for this purpose, and its time has not passed."""
        text, _, _ = token.rpartition(".")
        end = text.rpartition(".")[2]
        if self._key is None or not token.isascii() or not end.isdigit() or len(end) > 12:
            return False
        return hmac.compare_digest(token, _sign(self._key, purpose, text)) and int(end) > now


def _sign(api_key: str, purpose: str, text: str) -> str:
    """The text, a dot, and its signature by the key for one purpose, "link" or "session"."""
    digest = hmac.new(api_key.encode(), f"perdure dashboard {purpose} {text}".encode(), hashlib.sha256)
    return f"{text}.{digest.hexdigest()}"


def _now(clock: Clock) -> int:
    return int(clock.now().timestamp())
