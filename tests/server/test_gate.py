"""The gate of a server whose program lacks the feature for keys: it knows its own key only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.cli.session.work import OPEN_ORGANISATION, open_store
from perdure.core.errors import FeatureMissing
from perdure.server.access.gate import GATE, Gate
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from perdure.ui.pages.routes import build_routes
from tests.support.servers import BASE, MODEL

KEY = "a-key-that-is-long-enough"


@pytest.fixture(autouse=True)
def _without_the_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    for point in (GATE, OPEN_ORGANISATION):
        monkeypatch.setitem(vars(point), "functions", ())


@asynccontextmanager
async def served(config: ServerConfig) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server."""
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=settings
    ) as library:
        app = create_app(library, config, pages=build_routes())
        assert type(app.state.gate) is Gate
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
            yield client


async def test_a_server_of_this_machine_is_open() -> None:
    async with served(ServerConfig()) as client:
        answered = await client.get("/v1/agents/")

    assert (answered.status_code, answered.json()) == (200, [])


async def test_its_own_key_lets_programs_and_browsers_in() -> None:
    """Nobody else, and no other key."""
    async with served(ServerConfig(api_key=KEY)) as client:
        statuses = [
            (await client.get("/v1/agents/", headers={"authorization": f"Bearer {key}"})).status_code
            for key in (KEY, "perdure_" + "x" * 43)
        ]
        page = await client.get("/")
        signed = await client.post("/sign-in", data={"key": KEY}, headers={"hx-request": "true"})
        cookie = signed.headers["set-cookie"].partition(";")[0]
        home = await client.get("/", headers={"cookie": cookie})

    assert statuses == [200, 401]
    assert (page.status_code, page.headers["location"]) == (303, "/sign-in")
    assert (signed.status_code, home.status_code) == (204, 200)


async def test_a_command_for_an_organisation_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """It would be about the default one."""
    monkeypatch.setenv("PERDURE_STORE", f"{tmp_path}/a.db")
    with pytest.raises(FeatureMissing, match="'Acme' can't be opened: this program lacks its feature `access`"):
        async with open_store(org="Acme"):
            pass
