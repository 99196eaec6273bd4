"""Settings and files of an agent by the keyboard alone, and the count of waiting calls that follows what happens."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser

from perdure.testing import calls, says
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.demo import send_money
from tests.ui.test_browser import open_dashboard, press_until, until

pytestmark = needs_chromium


async def test_the_model_is_changed_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    """From home to the agent's settings, the model and an option, and back again by the notice's undo."""
    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(address)
            await press_until(page, f"a[href='/agents/{agent.id}']")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#text")
            await press_until(page, ".tabs a[href$='/settings']", "Shift+Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#model-choice")
            await press_until(page, "#model-choice")
            await page.keyboard.type("perdure")
            await press_until(page, "[name='whole:max_output_tokens']")
            await page.keyboard.type("many")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice.error:has-text('write a whole number')")
            assert await page.input_value("#model-choice") == "perdure/extractive"
            await press_until(page, "[name='whole:max_output_tokens']")
            await page.keyboard.press("Control+a")
            await page.keyboard.type("1,000")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:focus:has-text('perdure/extractive from now on')")
            changed = (await library.agent("Ada")).info
            await press_until(page, "#undo")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:not(:has(#undo)), #notice:has-text('from now on')")
            await until(page, "document.querySelector('#model-choice').value === ''")
        back = (await library.agent("Ada")).info

    assert (changed.model, changed.settings) == ("perdure/extractive", {"max_output_tokens": 1_000})
    assert back.follows_default and back.settings == {}
    assert [problem for problem in seen.problems if "status of 4" not in problem] == []


async def test_a_file_is_attached_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    """On the agent's tab: uploaded, followed until it is read, found by a search, and detached."""
    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            await page.wait_for_selector("#text:focus")
            await press_until(page, ".tabs a[href$='/files']", "Shift+Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#file")
            await page.set_input_files(
                "#file", {"name": "boiler.md", "mimeType": "text/plain", "buffer": b"The pressure is 1.5 bar."}
            )
            await press_until(page, "[hx-encoding] button.primary")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:focus:has-text('boiler.md arrived')")
            await page.wait_for_selector("#folders .status.completed")
            await press_until(page, "#q")
            await page.keyboard.type("pressure")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".rows .text:has-text('1.5 bar')")
            await press_until(page, "button[aria-label^='Detach']")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:focus:has-text('was detached')")
        assert await agent.files.folders() == []
    assert seen.problems == []


async def test_the_count_of_waiting_calls_follows_what_happens(chromium: Browser, tmp_path: Path) -> None:
    """On a page that is live, without a reload."""
    script = [calls("send_money", to="Bruni", amount=120), says("Paid.")]
    async with open_dashboard(tmp_path, *script, tools=[send_money]) as (address, library):
        agent = await library.create_agent("Ada")
        await agent.require_approval("send_money")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(address)
            await until(page, "feed !== null && feed.source.readyState === 1")
            assert not await page.is_visible("#inbox")
            await agent.send("Pay Bruni.")
            await page.wait_for_selector("#inbox:has-text('1 waiting')")
            await agent.approve()
            await page.wait_for_selector("#inbox", state="hidden")
    assert seen.problems == []
