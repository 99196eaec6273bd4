"""The drop zone in a real browser: looked at, then imported by the same form; an error leaves the form as it is."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser

from tests.features.imports import golden
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.test_browser import open_dashboard

pytestmark = needs_chromium


async def test_a_dropped_file_is_looked_at_and_then_imported(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library):
        async with open_page(chromium, address) as (page, _):
            await page.goto(f"{address}/data")
            await page.set_input_files("#imports [name=file]", golden.write_chatgpt(tmp_path))
            await page.select_option("#imports [name=source]", "claude")
            await page.click("#import-look")
            await page.wait_for_selector("#notice:has-text('perdure import chatgpt')")
            await page.select_option("#imports [name=source]", "chatgpt")
            await page.click("#import-look")
            await page.wait_for_selector("#import-result :text('8 messages: 8 new')")
            before = [one.name for one in await library.agents()]
            await page.click("#import-run")
            await page.wait_for_selector("#import-result :text('8 messages: 8 imported')")
            await page.click("#import-look")
            await page.wait_for_selector("#import-result :text('Everything is here already.')")
        after = [one.name for one in await library.agents()]

    assert "chatgpt" not in before and after.count("chatgpt") == 1


async def test_the_whole_box_takes_drops(chromium: Browser, tmp_path: Path) -> None:
    """Whatever lies under the pointer is the field that takes files."""
    async with open_dashboard(tmp_path) as (address, _), open_page(chromium, address) as (page, _):
        await page.goto(f"{address}/data")
        found = await page.evaluate(
            """() => {
                const box = document.querySelector("#imports .drop");
                box.scrollIntoView({block: "center"});
                const {left, right, top, bottom} = box.getBoundingClientRect();
                const points = [left + 9, (left + right) / 2, right - 9].flatMap(
                    x => [top + 9, (top + bottom) / 2, bottom - 9].map(y => [x, y]));
                return points.map(([x, y]) => document.elementFromPoint(x, y).type);
            }"""
        )

    assert found == ["file"] * 9
