"""Signing in to the dashboard with a key of the store."""

from __future__ import annotations

from datetime import timedelta

from perdure.core.incoming.principals import LOCAL
from perdure.features.access.keys import KeyRing, KeySessions
from perdure.features.access.service import Access
from perdure.server.access.session import COOKIE, SESSION_S
from perdure.storage.cipher import AesCipher
from perdure.testing import FakeClock, InlineStore, SequentialIds
from tests.ui.browser import claim_in


def new_sessions(clock: FakeClock, store: InlineStore) -> KeySessions:
    """Those of a server over this store."""
    ring, cipher = KeyRing(store, clock), AesCipher("s" * 32, file=None)
    return KeySessions("a-key-that-is-long-enough", clock, claim_in(store), ring, cipher)


async def test_the_session_of_a_stored_key_ends_before_the_key() -> None:
    """After a week somebody has to know the key again."""
    clock, store = FakeClock(), InlineStore()
    sessions = new_sessions(clock, store)
    _, text = await Access(store, clock, SequentialIds(), LOCAL).create_key("ann", "user")
    cookie = f"{COOKIE}={await sessions.sign_in(text)}".encode()
    clock.advance(SESSION_S - 1)

    assert await sessions.find(cookie) is not None
    clock.advance(1)
    assert await sessions.find(cookie) is None
    assert await sessions.sign_in(text) is not None


async def test_a_stored_key_signs_in_for_as_long_as_it_counts() -> None:
    clock, store = FakeClock(), InlineStore()
    sessions = new_sessions(clock, store)
    access = Access(store, clock, SequentialIds(), LOCAL)
    key, text = await access.create_key("ann", "user", expires_at=clock.now() + timedelta(hours=1))
    cookie = f"{COOKIE}={await sessions.sign_in(text)}".encode()

    found = await sessions.find(cookie)
    assert found is not None and (found.key_id, found.scope) == (key.id, "user")
    assert text.encode() not in cookie
    clock.advance(3_600)
    assert await sessions.find(cookie) is None
    assert await sessions.sign_in(text) is None
