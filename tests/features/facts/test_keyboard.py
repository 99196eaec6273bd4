"""Entities and the graph of facts by the keyboard alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.ui.chromium import needs_chromium, open_page, serious_findings
from tests.ui.test_browser import open_dashboard, press_until

pytestmark = needs_chromium


async def test_entities_are_merged_without_a_mouse(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address) as (page, seen):
        agent = await library.create_agent("Ada")
        for text, subject, object_ in (
            ("Ada lives in Turin.", "Ada", "Turin"),
            ("Ada likes tea.", "Ada", "tea"),
            ("Ada Lovelace has a cat.", "Ada Lovelace", "a cat"),
        ):
            await agent.facts.add(text, subject=subject, relation="KNOWS", object=object_)
        ids = {entity.name: entity.id for entity in await agent.facts.entities()}
        await page.goto(f"{address}/agents/{agent.id}/facts")
        await press_until(page, ".subtabs a[href$='/entities']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#same")
        for name in ("Ada", "Ada Lovelace"):
            await press_until(page, f"input[value='{ids[name]}']")
            await page.keyboard.press("Space")
        await press_until(page, "#same button", "Shift+Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:focus:has-text('was merged into “Ada”')")
        assert len(await agent.facts.list(entity="Ada Lovelace")) == 3

        await press_until(page, "#undo")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:has-text('is separate again')")
        assert len(await agent.facts.list(entity="Ada Lovelace")) == 1

        row = f"tr[id='{ids['Ada Lovelace']}']"
        await press_until(page, f"{row} summary")
        await page.keyboard.press("Enter")
        await press_until(page, f"{row} input[name=into]")
        await page.keyboard.type("Ada")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:has-text('was merged into “Ada”')")

        row = f"tr[id='{ids['Turin']}']"
        await press_until(page, f"{row} summary")
        await page.keyboard.press("Enter")
        await press_until(page, f"{row} input[name=name]")
        await page.keyboard.press("Control+A")
        await page.keyboard.type("Torino")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:has-text('“Torino” was changed.')")
        assert (await agent.facts.get_entity(ids["Turin"])).aliases == ("Turin",)
    assert seen.problems == []


@pytest.mark.uses("origins")
async def test_the_graph_follows_its_slider_and_leads_to_sentences(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address) as (page, seen):
        agent = await library.create_agent("Ada")
        for text, object_, since, until in (
            ("Ada lived in Genoa.", "Genoa", datetime(2014, 3, 1, tzinfo=UTC), datetime(2021, 9, 1, tzinfo=UTC)),
            ("Ada lives in Turin.", "Turin", datetime(2021, 9, 1, tzinfo=UTC), None),
        ):
            await agent.facts.add(
                text, subject="Ada", relation="LIVES_IN", object=object_, valid_at=since, invalid_at=until
            )
        await page.goto(f"{address}/agents/{agent.id}/facts/graph")
        await press_until(page, "#day")
        assert await page.is_visible("td:has-text('Ada lives in Turin.')")
        await page.keyboard.press("Home")
        await page.wait_for_selector("td:has-text('Ada lived in Genoa.')")
        assert not await page.is_visible("td:has-text('Ada lives in Turin.')")
        assert await page.text_content("#day-name") == "1 Mar 2014"
        assert await page.locator(".edge:not(.away)").count() == 1
        assert await serious_findings(page) == []

        await press_until(page, ".network .edge")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("main:has-text('Ada lived in Genoa.')")
        assert "/why?of=fact-" in page.url
    assert seen.problems == []
