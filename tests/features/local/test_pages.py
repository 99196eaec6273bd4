"""Local models on the page of connections: for administrators of the machine only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.features.local.pages import served_by
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.ui.pages.routes import build_routes
from tests.features.access.test_page import access_of
from tests.features.local.conftest import list_one_model
from tests.support.model_files import file_server, gguf
from tests.ui.browser import BASE, FORM, text_of

pytestmark = pytest.mark.usefixtures("llama")


@asynccontextmanager
async def dashboard(home: Path, **more: Any) -> AsyncIterator[tuple[httpx.AsyncClient, AsyncPerdure]]:
    """A browser on the dashboard of a new data folder."""
    async with await AsyncPerdure.open(settings=Settings(home=str(home), embedding="none", **more)) as library:
        transport = httpx.ASGITransport(app=create_app(library, ServerConfig(), pages=build_routes()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=FORM) as client:
            yield client, library


async def models_of(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """Name -> what the page shows of a model."""
    page = (await client.get("/connections?format=json")).json()
    return {row["name"]: row for row in page["local_models"]["models"]}


async def test_a_model_that_is_here_is_used_and_removed(tmp_path: Path) -> None:
    """Agents that follow the default answer with it at once."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.gguf").write_bytes(gguf())
    async with dashboard(tmp_path) as (client, library):
        page = text_of((await client.get("/connections")).text)
        used = await client.post("/connections/local/use", data={"name": "small"})
        answer = await (await library.create_agent("Ada")).send("Hello")
        is_default = (await models_of(client))["small"]["is_default"]
        removed = await client.post("/connections/local/remove", data={"name": "small"})
        left = await models_of(client)

    assert "Models on this machine" in page
    assert "Agents without a model of their own answer with local/small." in text_of(used.text)
    assert (answer.text, is_default) == ("I remember.", True)
    assert "small was removed." in text_of(removed.text)
    assert not left["small"]["is_here"]


async def test_a_model_is_fetched_in_the_background(tmp_path: Path) -> None:
    """The page says why it failed."""
    with file_server({}) as server:
        async with dashboard(tmp_path, model_mirror=server.url) as (client, _):
            begun = await client.post("/connections/local/get", data={"name": "tiny"})
            while (await models_of(client))["tiny"]["is_running"]:
                pass
            problem = (await models_of(client))["tiny"]["problem"]
            unknown = await client.post("/connections/local/get", data={"name": f"{server.url}/a.gguf"})

    assert "tiny is being fetched. You can leave this page." in text_of(begun.text)
    assert "answered 404" in problem
    assert unknown.status_code == 404


async def test_the_page_says_how_far_a_model_has_come(tmp_path: Path) -> None:
    """And looks again, as long as it is fetched."""

    async def fetch() -> None:
        await asyncio.Event().wait()

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.part").write_bytes(bytes(50_000_000))
    async with dashboard(tmp_path) as (client, library):
        stopped = (await client.get("/connections")).text
        served_by(library).transfers["tiny"] = asyncio.create_task(fetch())
        running = (await client.get("/connections")).text

    assert 'hx-trigger="every 1s"' in running and "10 %" in text_of(running)
    assert 'hx-trigger="every 1s"' not in stopped and "Go on" in text_of(stopped)


async def test_what_was_fetched_in_the_background_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = gguf()
    with file_server({"/mine.gguf": data}) as server:
        list_one_model(monkeypatch, data, f"{server.url}/mine.gguf")
        async with dashboard(tmp_path) as (client, library):
            await client.post("/connections/local/get", data={"name": "mine"})
            await served_by(library).transfers["mine"]
            answer = await client.post("/connections/local/use", data={"name": "mine"})

    assert "answer with local/mine" in text_of(answer.text)


async def test_others_than_the_machines_administrators_see_and_change_nothing(tmp_path: Path) -> None:
    """A key of a user, and an administrator of another organisation."""
    async with dashboard(tmp_path) as (client, library):
        access = access_of(library)
        _, builder = await access.create_key("b", "builder")
        acme = await access.create_organisation("Acme")
        _, admin = await access.within(acme.id).create_key("a", "admin")
        for key in (builder, admin):
            headers = {"authorization": f"Bearer {key}"}
            page = await client.get("/connections?format=json", headers=headers)
            assert page.json()["local_models"] is None
            refused = await client.post("/connections/local/get", data={"name": "tiny"}, headers=headers)
            assert refused.status_code == 403

        assert served_by(library).transfers == {}
