"""Forgetting, files, tools and approvals by the keyboard alone: what an action did has the focus, or is beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from perdure.testing import calls, says
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.demo import send_money
from tests.ui.test_browser import open_dashboard, press_until

pytestmark = needs_chromium


@pytest.mark.uses("origins")
async def test_actions_of_many_pages_need_no_mouse(chromium: Browser, tmp_path: Path) -> None:
    """Find where a fact stands, upload to a new folder, try a tool twice, deny a call, replay its run."""
    script = [calls("send_money", to="Bruni", amount=120), says("I did not pay."), says("Paid.")]
    async with open_dashboard(tmp_path, *script, tools=[send_money]) as (address, library):
        agent = await library.create_agent("Ada")
        await agent.facts.add("Ada lives in Turin.", subject="Ada", relation="LIVES_IN", object="Turin")
        await agent.require_approval("send_money")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}/forget")
            await press_until(page, "#text")
            await page.keyboard.type("Turin")
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#found:focus :text('Facts')")

            await page.goto(f"{address}/data")
            await press_until(page, "#name")
            await page.keyboard.type("notes")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:has-text('was created')")
            await page.set_input_files("#file", {"name": "plan.md", "mimeType": "text/plain", "buffer": b"# Plan"})
            await press_until(page, "[hx-encoding] button.primary")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#files td:has-text('completed')")

            await page.goto(f"{address}/agents/{agent.id}/tools")
            await press_until(page, "details:has([hx-post$='/send_money/try']) > summary")
            await page.keyboard.press("Enter")
            await press_until(page, "details:has(> [hx-post$='/send_money/try']) > summary")
            await page.keyboard.press("Enter")
            await press_until(page, "[hx-post$='/send_money/try'] [name=argument-to]")
            await page.keyboard.type("Bruni")
            await press_until(page, "[hx-post$='/send_money/try'] [name=argument-amount]")
            for typed, told in (("1", "1.0 euros"), ("2", "12.0 euros")):
                await page.keyboard.type(typed)
                await page.keyboard.press("Enter")
                await page.wait_for_selector(f"#notice:has-text('{told}')")

            await agent.send("Pay Bruni.")
            await page.goto(f"{address}/approvals")
            await press_until(page, "input[name=reason]")
            await page.keyboard.type("not now")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("button[value=approve]:focus")
            await press_until(page, "button[value=deny]")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#notice:focus:has-text('was denied')")

            step = (await agent.steps(limit=1))[0]
            await page.goto(f"{address}/runs/{step.run_id}")
            await press_until(page, "#replay > summary")
            await page.keyboard.press("Enter")
            await press_until(page, "#replay-model")
    assert seen.problems == []
