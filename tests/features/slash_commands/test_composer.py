"""The composer of the dashboard in a browser: what is typed after a slash, and the commands that fit it."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser

from perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says
from tests.features.plugins.files import define
from tests.support.servers import listening
from tests.ui.chromium import needs_chromium, open_page

pytestmark = needs_chromium


async def test_a_slash_lists_the_commands_that_fit(chromium: Browser, tmp_path: Path) -> None:
    """One that is chosen takes the place of what was typed; other texts list nothing."""
    for name in ("push", "pull", "git/commit"):
        define(tmp_path, "commands", name, "Push $ARGUMENTS.")
    models = {"test/scripted": ScriptedModel(says("Pushed."))}
    settings = Settings(home=str(tmp_path), model="test/scripted")
    async with await AsyncPerdure.open(models=models, settings=settings) as library:
        agent = await library.create_agent("ann")
        async with listening(library, ServerConfig(port=0)) as address, open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            shown = page.locator("#commands li:visible")
            for text, count in (("hello", 0), ("/", 3), ("/pu", 2), ("/pus", 1), ("/none", 0), ("/push it", 0)):
                await page.fill("#text", text)
                assert await shown.count() == count, text
            await page.fill("#text", "/pus")
            await page.click("[data-command='/push']")
            await page.keyboard.type("it now")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".chat :text('Push it now.')")

    assert seen.problems == []
