"""Signing in to the dashboard: one-time links, and the cookie that a link is exchanged for.

Both are signed with the API key, so that a server needs to store neither, and `perdure ui` can make a link for a server
that runs already. Without a key nobody has to sign in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from perdure.core.ports import Clock

COOKIE = "perdure_session"
LINK_S = 10 * 60
SESSION_S = 7 * 24 * 3_600

NONCES_MAX = 10_000


def make_token(api_key: str, clock: Clock) -> str:
    """Make the token of a sign-in link, which works once, for ten minutes."""
    return _signed(api_key, "link", f"{secrets.token_urlsafe(12)}.{_now(clock) + LINK_S}")


class Sessions:
    """Checks the tokens and cookies of one server."""

    def __init__(self, api_key: str | None, clock: Clock) -> None:
        self._key, self._clock = api_key, clock
        self._redeemed: dict[str, int] = {}  # token -> when it would have ended

    @property
    def needed(self) -> bool:
        """Whether somebody has to sign in."""
        return self._key is not None

    def redeem(self, token: str) -> str | None:
        """The value of the cookie for a token, which can't be used again; None: it is wrong, used or too old."""
        now = _now(self._clock)
        if self._key is None or not self._holds("link", token, now) or token in self._redeemed:
            return None
        self._redeemed = {one: end for one, end in self._redeemed.items() if end > now}
        if len(self._redeemed) >= NONCES_MAX:
            return None
        self._redeemed[token] = now + LINK_S
        return self._cookie(self._key, now)

    def sign_in(self, api_key: str) -> str | None:
        """The value of the cookie for somebody who knows the key; None: it is another one."""
        given = api_key.strip().encode("utf-8", "surrogateescape")
        if self._key is None or not hmac.compare_digest(given, self._key.encode()):
            return None
        return self._cookie(self._key, _now(self._clock))

    def accepts(self, cookies: bytes) -> bool:
        """Whether the `Cookie` header of a request holds a valid session."""
        try:
            morsel = SimpleCookie(cookies.decode("latin-1")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and self._holds("session", morsel.value, _now(self._clock))

    def _cookie(self, api_key: str, now: int) -> str:
        return _signed(api_key, "session", f"{secrets.token_urlsafe(12)}.{now + SESSION_S}")

    def _holds(self, purpose: str, token: str, now: int) -> bool:
        """Whether the token was signed for this purpose, and its time has not passed."""
        text, _, _ = token.rpartition(".")
        end = text.rpartition(".")[2]
        if self._key is None or not token.isascii() or not end.isdigit() or len(end) > 12:
            return False
        return hmac.compare_digest(token, _signed(self._key, purpose, text)) and int(end) > now


def _signed(api_key: str, purpose: str, text: str) -> str:
    digest = hmac.new(api_key.encode(), f"perdure dashboard {purpose} {text}".encode(), hashlib.sha256)
    return f"{text}.{digest.hexdigest()}"


def _now(clock: Clock) -> int:
    return int(clock.now().timestamp())
