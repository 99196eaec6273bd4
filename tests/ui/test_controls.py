"""Every control of every page by the keyboard alone, with a ring in sight; and what opens on a page, as axe sees it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from perdure import AsyncPerdure, RunFailed
from perdure.core.errors import ModelRequestRefused
from perdure.testing import calls, says
from tests.ui.chromium import needs_chromium, open_page, serious_findings
from tests.ui.demo import send_money
from tests.ui.test_browser import EDIT, fill, open_dashboard

pytestmark = needs_chromium
FULL = os.environ.get("PERDURE_FAULTS") == "full"

OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
MARK = """[...document.querySelectorAll(`a[href], button, input:not([type=hidden]), select, textarea, summary,
    [tabindex="0"]`)].filter(one => !one.disabled && one.checkVisibility({visibilityProperty: true}))
    .filter(one => one.type !== "radio" || one.checked || !document.querySelector(`[name="${one.name}"]:checked`))
    .map((one, place) => { one.dataset.place = place; return one.outerHTML.slice(0, 120); })"""
FOCUSED = """(() => {
    const one = document.activeElement, shown = one.matches(".sr") ? one.closest("label") : one;
    const style = getComputedStyle(shown), drawn = one.querySelector(".point, line"); // of the graph
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return [one.dataset.place ?? "", ring || (drawn && parseFloat(getComputedStyle(drawn).strokeWidth) >= 3)];
})()"""


async def unreached(page: Page) -> list[str]:
    """The visible controls of a page that Tab does not reach, and those that show no ring when they have the focus."""
    controls = await page.evaluate(MARK)
    await page.evaluate("document.activeElement?.blur()")
    left, found = dict(enumerate(controls)), list[str]()
    for _ in range(len(controls) + 5 + 4 * sum('type="date"' in one for one in controls)):
        if not left:
            break
        await page.keyboard.press("Tab")
        place, has_ring = await page.evaluate(FOCUSED)
        if place and not has_ring:
            found.append(f"no ring: {controls[int(place)]}")
        left.pop(int(place or -1), None)
    return [*found, *(f"not reached: {one}" for one in left.values())]


async def add_chats(library: AsyncPerdure) -> list[str]:
    """Chats with what they show only at times, and their paths: a call that waits, questions, an answer that failed, a
    message that is edited, an answer that is asked for again, a block that was changed meanwhile."""
    agent = await library.create_agent("Lin", human="Likes tea.", tools=["send_money", "ask_user"])
    await agent.require_approval("send_money")
    path = f"/agents/{agent.id}"
    await agent.send("Pay Bruni.")
    lines = [await agent.new_conversation(summary=name) for name in ("asked", "failed", "answered", "gone")]
    for line in lines[:3]:
        with contextlib.suppress(RunFailed):
            await agent.send("Which?", conversation=line.id)
    await library.agent_of(agent.id).update_conversation(lines[3].id, archived=True)
    said = next(one for one in await agent.messages(conversation=lines[2].id) if one.role == "user")
    queries = [*(f"conversation={line.id}" for line in lines), f"edit={said.id}", f"again={said.run_id}"]
    return [path, *(f"{path}?{query}" for query in queries)]


SCRIPT = (
    *(EDIT, says("Noted."), calls("send_money", to="Bruni", amount=120)),
    *(calls("ask_user", question="Which tree?", options=["Pear", "Fig"]), ModelRequestRefused("it is down")),
    says("# Pears\n\n| tree | hours |\n|-|-|\n| pear | 3 |\n\n```python\nprune()\n```\n\n[care](https://example.org)"),
)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.uses("origins")
async def test_every_control_is_reached_and_what_opens_is_sound(chromium: Browser, tmp_path: Path, width: int) -> None:
    """With all that is folded open: Tab comes to each control, which shows a ring; axe calls nothing serious."""
    async with open_dashboard(tmp_path, *SCRIPT, tools=[send_money]) as (address, library):
        paths = [*await fill(library), *await add_chats(library)]
        found = {}
        async with open_page(chromium, address, width=width, height=900) as (page, _):
            for path in paths if FULL else paths[-7 :: 1 if width == 390 else 3]:
                await page.goto(address + path)
                await page.evaluate(OPEN)
                await page.evaluate("new Promise(done => setTimeout(done, 50))")  # what follows from the opening
                problems = [*await serious_findings(page), *await unreached(page)]
                if problems:
                    found[path] = problems
    assert "\n".join(f"{path}: {one}" for path, some in found.items() for one in some) == ""


@pytest.mark.parametrize("where", ["", "/memory"])
async def test_a_conflict_is_sound(chromium: Browser, tmp_path: Path, where: str) -> None:
    """In the chat and on the page of the memory, on a phone."""
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address, width=390) as (page, _):
        agent = await library.create_agent("Ada", human="Likes tea.")
        await page.goto(f"{address}/agents/{agent.id}{where}?pane=memory")
        form = page.locator("form:has(textarea:text('Likes tea.'))")
        await form.locator("textarea").fill("Likes milk.")
        await agent.blocks.update("human", "Likes coffee.")
        await form.locator("button:has-text('Save')").click()
        await page.wait_for_selector("#conflict:focus")
        assert await serious_findings(page) == []
        assert await unreached(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
