"""Who may open the dashboard: a link that works once, the key, and a cookie that the API does not take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.incoming.principals import LOCAL
from perdure.server.access.session import COOKIE, LINK_S, SESSION_S, SOURCES_MAX, DashboardSessions, make_token
from perdure.server.config import ServerConfig
from perdure.testing import FakeClock, InlineStore
from tests.ui.browser import FORM, claim_in, dashboard

KEY = "a-key-that-is-long-enough"
NO_STORE = InlineStore()


def new_sessions(clock: FakeClock, key: str = KEY, store: InlineStore | None = None) -> DashboardSessions:
    """Those of a server with this key, over a store of its own or a shared one."""
    return DashboardSessions(key, clock, claim_in(store or InlineStore()))


async def test_a_link_works_once_and_for_ten_minutes() -> None:
    """In all processes of a store together."""
    clock, store = FakeClock(), InlineStore()
    sessions, other = new_sessions(clock, store=store), new_sessions(clock, store=store)
    token, late = make_token(KEY, clock), make_token(KEY, clock)

    assert await sessions.redeem(token) is not None
    assert await sessions.redeem(token) is None
    assert await other.redeem(token) is None
    clock.advance(LINK_S)
    assert await sessions.redeem(late) is None


async def test_a_session_ends_and_belongs_to_its_key() -> None:
    clock = FakeClock()
    sessions = new_sessions(clock)
    cookie = f"{COOKIE}={await sessions.sign_in(KEY)}".encode()

    assert await sessions.find(cookie) == LOCAL
    assert await new_sessions(clock, "another key, also long").find(cookie) is None
    clock.advance(SESSION_S)
    assert await sessions.find(cookie) is None


@given(st.text(max_size=80))
async def test_no_other_text_signs_in(text: str) -> None:
    sessions = new_sessions(FakeClock(), store=NO_STORE)

    assert await sessions.redeem(text) is None
    assert await sessions.sign_in(text) is None
    assert await sessions.find(f"{COOKIE}={text}".encode("utf-8", "surrogateescape")) is None


async def test_who_guesses_keys_waits_longer_with_each() -> None:
    """By address, of IPv6 by network; the first three cost nothing, and after a right one the count begins anew."""
    clock = FakeClock()
    guesses = new_sessions(clock).guesses
    waits = []
    for number in range(16):
        guesses.note(f"2001:db8:1:2::{number:x}")
        waits.append(guesses.wait_s("2001:db8:1:2::ffff"))
        clock.advance(waits[-1])
        assert guesses.wait_s("2001:db8:1:2::ffff") == 0

    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    guesses.note("2001:db8:1:2::1")
    assert guesses.wait_s("2001:db8:1:2:3:4:5:6") == 300
    assert guesses.wait_s("2001:db8:1:3::1") == guesses.wait_s("198.51.100.1") == 0
    guesses.forget("2001:db8:1:2::1")
    assert guesses.wait_s("2001:db8:1:2::1") == 0
    for number in range(4):
        guesses.note(f"2001:db8::{number}")
        guesses.note("::ffff:198.51.100.2")
    assert guesses.wait_s("2001:db8::9") == guesses.wait_s("198.51.100.2") == 1
    assert guesses.wait_s("::ffff:198.51.100.3") == 0


async def test_only_so_many_addresses_that_guess_are_remembered() -> None:
    """Their number is the guesser's choice."""
    guesses = new_sessions(FakeClock()).guesses
    for _ in range(5):
        guesses.note("198.51.100.1")
    for number in range(SOURCES_MAX):
        guesses.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")

    assert guesses.wait_s("198.51.100.1") == 0


async def test_a_guess_that_comes_too_early_is_not_looked_at() -> None:
    """Not even the right key, or the wait would tell nothing."""
    async with dashboard(config=ServerConfig(api_key=KEY)) as (client, _):
        wrong = [await client.post("/sign-in", data={"key": f"guess {number}"}) for number in range(5)]
        right = await client.post("/sign-in", data={"key": KEY})
        api = await client.get("/v1/agents/", headers={"authorization": f"Bearer {KEY}"})

    assert [answer.status_code for answer in wrong] == [401, 401, 401, 401, 429]
    assert (right.status_code, right.headers["retry-after"], api.status_code) == (429, "1", 200)
    assert "set-cookie" not in right.headers and "wait 1 s" in right.text


async def test_a_link_is_no_cookie() -> None:
    clock = FakeClock()

    assert await new_sessions(clock).find(f"{COOKIE}={make_token(KEY, clock)}".encode()) is None


async def test_a_page_sends_who_is_not_signed_in_to_the_form() -> None:
    async with dashboard(config=ServerConfig(api_key=KEY)) as (client, _):
        page = await client.get("/", headers={"hx-request": ""})
        client.headers.pop("hx-request")
        plain = await client.get("/")
        form = await client.post("/agents", data={"name": "ann"}, headers=FORM)

    assert (plain.status_code, plain.headers["location"]) == (303, "/sign-in")
    assert page.status_code == form.status_code == 401


async def test_a_link_opens_the_pages_and_not_the_api() -> None:
    config = ServerConfig(api_key=KEY)
    async with dashboard(config=config) as (client, library):
        signed = await client.get("/sign-in", params={"token": make_token(KEY, library.app.ports.clock)})
        cookie = signed.headers["set-cookie"]
        client.cookies = {COOKIE: cookie.partition("=")[2].partition(";")[0]}
        home = await client.get("/")
        api = await client.get("/v1/agents/")

    assert home.status_code == 200
    assert api.status_code == 401
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie


async def test_the_key_signs_in_too() -> None:
    async with dashboard(config=ServerConfig(api_key=KEY)) as (client, _):
        wrong = await client.post("/sign-in", data={"key": "not this one, surely"})
        right = await client.post("/sign-in", data={"key": KEY})
        home = await client.get("/", headers={"cookie": right.headers["set-cookie"].partition(";")[0]})

    assert (wrong.status_code, right.status_code, home.status_code) == (401, 204, 200)


@pytest.mark.parametrize("headers", [{"hx-request": ""}, {"origin": "http://evil.example"}])
async def test_a_foreign_page_can_send_no_form(headers: dict[str, str]) -> None:
    """A plain form can't set htmx's header, and what comes from another origin is refused in any case."""
    async with dashboard() as (client, library):
        if headers.get("hx-request") == "":
            client.headers.pop("hx-request")
            headers = {}
        answer = await client.post("/agents", data={"name": "ann"}, headers=headers)

        assert answer.status_code == 403
        assert await library.last_agent() is None


async def test_another_host_name_is_refused() -> None:
    async with dashboard() as (client, _):
        answer = await client.get("/", headers={"host": "rebound.example"})

    assert answer.status_code == 403
