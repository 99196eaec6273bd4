"""Who may open the dashboard: a link that works once, the key, and a cookie that the API does not take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.server.config import ServerConfig
from perdure.server.session import COOKIE, LINK_S, SESSION_S, Sessions, make_token
from perdure.testing import FakeClock
from tests.ui.browser import FORM, dashboard

KEY = "a-key-that-is-long-enough"


def test_a_link_works_once_and_for_ten_minutes() -> None:
    clock = FakeClock()
    sessions = Sessions(KEY, clock)
    token, late = make_token(KEY, clock), make_token(KEY, clock)

    assert sessions.redeem(token) is not None
    assert sessions.redeem(token) is None
    clock.advance(LINK_S)
    assert sessions.redeem(late) is None


def test_a_session_ends_and_belongs_to_its_key() -> None:
    clock = FakeClock()
    sessions = Sessions(KEY, clock)
    cookie = f"{COOKIE}={sessions.sign_in(KEY)}".encode()

    assert sessions.accepts(cookie)
    assert not Sessions("another key, also long", clock).accepts(cookie)
    clock.advance(SESSION_S)
    assert not sessions.accepts(cookie)


@given(st.text(max_size=80))
def test_no_other_text_signs_in(text: str) -> None:
    sessions = Sessions(KEY, FakeClock())

    assert sessions.redeem(text) is None
    assert sessions.sign_in(text) is None
    assert not sessions.accepts(f"{COOKIE}={text}".encode("utf-8", "surrogateescape"))


def test_a_link_is_no_cookie() -> None:
    clock = FakeClock()

    assert not Sessions(KEY, clock).accepts(f"{COOKIE}={make_token(KEY, clock)}".encode())


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
