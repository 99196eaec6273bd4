"""What answers while the store does not: the probe of readiness, and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from perdure.core.errors import StoreUnavailable
from perdure.core.incoming.principals import LOCAL, Scope
from perdure.features.access import gate, keys
from perdure.features.access.service import Access
from perdure.server.config import ServerConfig
from perdure.server.timed_reads import TimedRead
from perdure.testing import InlineStore
from tests.server.routed import BASE, Routed, routed

SCOPES_OF_KEYS: tuple[Scope, ...] = ("admin", "user", "admin")
KEY = "a key that nobody guesses"


class Away:
    """The reads of a store wait from `leave` on."""

    def __init__(self) -> None:
        self._here = asyncio.Event()
        self._here.set()

    async def __call__(self, point: str) -> None:
        if point == "read":
            await self._here.wait()

    def leave(self) -> None:
        self._here.clear()

    def come_back(self) -> None:
        self._here.set()


@asynccontextmanager
async def server_and_store(monkeypatch: pytest.MonkeyPatch, api_key: str | None) -> AsyncIterator[tuple[Routed, Away]]:
    """A server, and its store, which may go away; nobody waits long for it, and nothing is known of a key for long."""
    monkeypatch.setattr("perdure.server.serving.app.READY_S", 0.05)
    monkeypatch.setattr("perdure.server.serving.meter.QUEUES_S", 0.05)
    monkeypatch.setattr(gate, "KEY_S", 0.05)
    monkeypatch.setattr(keys, "KEY_KEPT_S", 0.0)
    away = Away()
    async with (
        asyncio.timeout(20),
        routed(store=InlineStore(fault=away), config=ServerConfig(api_key=api_key)) as server,
    ):
        try:
            yield server, away
        finally:
            away.come_back()


async def metrics_with(server: Routed, key: str) -> httpx.Response:
    """The answer of `/metrics` to this key."""
    transport, headers = httpx.ASGITransport(app=server.app), {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        return await client.get("/metrics")


async def new_key(server: Routed, scope: Scope) -> str:
    app = server.library.app
    _, text = await Access(app.shared.store, app.ports.clock, app.ports.ids, LOCAL).create_key(scope, scope)
    return text


async def test_a_server_whose_store_is_away_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so soon, however often it is asked, and is ready again when the store is back."""
    async with server_and_store(monkeypatch, KEY) as (server, store):
        store.leave()
        for _ in range(3):
            answer = await server.http.get("/v1/ready/")
            assert (answer.status_code, answer.json()["detail"]) == (503, "store_unavailable")
        store.come_back()
        assert (await server.http.get("/v1/ready/")).status_code == 200


async def test_who_asks_again_waits_for_the_same_read() -> None:
    """Probes that come every second take up one thread, not all of them."""
    reads, here = 0, asyncio.Event()

    async def read() -> int:
        nonlocal reads
        reads += 1
        await here.wait()
        return reads

    prompt = TimedRead(0.01, read)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="has not answered"):
            await prompt()
    here.set()

    assert [await prompt(), await prompt()] == [1, 2]


async def test_metrics_do_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lack the lengths of queues."""
    async with server_and_store(monkeypatch, KEY) as (server, store):
        assert "perdure_queue_length{" in (await metrics_with(server, KEY)).text
        store.leave()
        answer = await metrics_with(server, KEY)
        assert answer.status_code == 200
        assert "perdure_http_requests_total{" in answer.text and "perdure_queue_length{" not in answer.text
        store.come_back()
        assert "perdure_queue_length{" in (await metrics_with(server, KEY)).text


async def test_a_key_that_was_known_reads_the_metrics_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of too small a scope is still refused, and one that nobody has looked up is not let in."""
    async with server_and_store(monkeypatch, KEY) as (server, store):
        admin, user, unknown = [await new_key(server, one) for one in SCOPES_OF_KEYS]
        before = [(await metrics_with(server, key)).status_code for key in (admin, user)]
        store.leave()
        meanwhile = [(await metrics_with(server, key)).status_code for key in (admin, user, unknown)]

    assert before == [200, 403]
    assert meanwhile == [200, 403, 503]


@pytest.mark.parametrize("looked", [True, False])
async def test_who_needed_no_key_needs_none_meanwhile(monkeypatch: pytest.MonkeyPatch, looked: bool) -> None:
    """But only if it is known that the store holds no keys."""
    async with server_and_store(monkeypatch, None) as (server, store):
        if looked:
            await server.http.get("/metrics")
        store.leave()
        answer = await server.http.get("/metrics")

    assert answer.status_code == (200 if looked else 503)
