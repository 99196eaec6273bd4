"""The data page: where the store is, and a backup as a download."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.features.copies import pages
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import ScriptedModel
from perdure.ui.pages.routes import build_routes
from tests.ui.browser import BASE, FORM, MODEL, dashboard, tags_of, text_of


async def test_a_backup_is_downloaded_once_and_opens_as_a_store(tmp_path: Path) -> None:
    """It holds the agents, lies nowhere under a name, and is gone after the download."""
    path = tmp_path / "mine.db"
    settings = replace(Settings(), model=MODEL)
    async with await AsyncPerdure.open(path, models={MODEL: ScriptedModel()}, settings=settings) as library:
        await library.create_agent("Ada")
        transport = httpx.ASGITransport(app=create_app(library, ServerConfig(), pages=build_routes()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=FORM) as client:
            shown = {page: text_of((await client.get(page)).text) for page in ("/data", "/settings")}
            early = await client.get("/data/backup")
            made = await client.post("/data/backup")
            names = _names(tmp_path)
            download = await client.get("/data/backup")
            late = await client.get("/data/backup")
    _write(tmp_path / "copy.db", download.content)
    async with await AsyncPerdure.open(tmp_path / "copy.db") as copy:
        agents = [agent.name for agent in await copy.agents()]

    assert all(str(path) in text for text in shown.values())
    assert early.status_code == late.status_code == 404
    assert ("a", "/data/backup") in [(tag, values.get("href")) for tag, values in tags_of(made.text)]
    assert download.headers["content-disposition"].startswith("attachment")
    assert int(download.headers["content-length"]) == len(download.content)
    assert not [name for name in names if not name.startswith("mine.db")]
    assert agents == ["Ada"]


async def test_a_long_backup_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page asks again while it runs; a second press begins no second one; what fails is said."""
    monkeypatch.setattr(pages, "SMALL_S", 0.0)
    async with dashboard() as (client, library):
        store, go = library.app.ports.store, asyncio.Event()
        begun = 0

        async def slow(path: Path, progress: Callable[[int, int], None]) -> None:
            nonlocal begun
            begun += 1
            progress(30, 120)
            await go.wait()
            raise OSError("the disk is full")

        monkeypatch.setattr(store, "backup", slow)
        await client.post("/data/backup")
        page = await client.post("/data/backup")
        go.set()
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            while (await client.get("/data?format=json")).json()["backup"]["running"]:
                pass
        after = await client.get("/data")

    bar = next(values for tag, values in tags_of(page.text) if tag == "progress" and values["aria-label"] == "Backup")
    assert (bar["value"], bar["max"]) == ("30", "120") and "25 %" in text_of(page.text)
    assert any(values.get("hx-trigger") == "every 1s" for _, values in tags_of(page.text))
    assert begun == 1
    assert "the disk is full" in text_of(after.text) and "Make a backup" in text_of(after.text)


async def test_with_several_workers_a_backup_is_made_from_a_terminal() -> None:
    """The page says so and offers none: another worker would not have the file."""
    async with dashboard(config=ServerConfig(workers=2)) as (client, _):
        page = await client.get("/data")
        refused = await client.post("/data/backup")
        download = await client.get("/data/backup")

    assert "Make it from a terminal" in text_of(page.text) and "Make a backup" not in text_of(page.text)
    assert "perdure backup copy.db" in text_of(refused.text) and download.status_code == 404


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
