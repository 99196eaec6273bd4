"""The dashboard in a browser: nothing from elsewhere, no error, no serious finding of axe, no text that runs, and
first-time tasks by the keyboard alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route

from benchmarks.dashboard import fill as fill_rows
from benchmarks.dashboard import paths_of
from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import ModelError, ModelRequestRefused
from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel, calls, says
from tests.support.servers import Tools, listening, open_library, served
from tests.ui.chromium import Theme, needs_chromium, open_page, serious_findings
from tests.ui.hostile import WHOLE, fill_hostile, pay

pytestmark = needs_chromium
FULL = os.environ.get("PERDURE_FAULTS") == "full"
long_form = pytest.mark.skipif(not FULL, reason="the dark theme is of the long form")

FIRST_VIEW_BYTES = 300_000
LONG = "abcdefghij" * 20
AS_WITHOUT = ("=pear+tree", "=garden", "=human", "raw=1", "=past", "=proposed", "=likes", "=name", "=2026-02-01")
"""How paths end of pages that are laid out as those without a query."""

WIDE = """[...document.querySelectorAll("body *:not(.sr, .sr *, .skip, svg *, pre *, .plot *)")]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => `${one.outerHTML.slice(0, 90)} ${Math.round(one.getBoundingClientRect().right)}`)"""
"""What ends beyond the right edge, also if what it is in can be scrolled."""

SMALL = """[...document.querySelectorAll("#main :is(a, button, input, select, textarea, summary):not(.sr)")]
    .filter(one => one.checkVisibility() && getComputedStyle(one).display !== "inline")
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.width && (box.height < 23.9 || box.width < 23.9))
    .map(([one, box]) => `${one.outerHTML.slice(0, 90)} ${Math.round(box.width)} x ${Math.round(box.height)}`)"""
"""What is smaller than 24 px; links within a sentence, which are inline, are as high as its lines."""


@contextlib.asynccontextmanager
async def open_dashboard(path: Path, *script: object, tools: Tools = ()) -> AsyncIterator[tuple[str, AsyncPerdure]]:
    """The address of a server with the dashboard, and its store."""
    async with (
        open_library(path, ScriptedModel(*script), tools) as library,  # type: ignore[arg-type]
        listening(library, ServerConfig(port=0)) as address,
    ):
        yield address, library


async def fill(library: AsyncPerdure) -> list[str]:
    """Put something on each page, and return the pages' paths."""
    agent = await library.create_agent("Ada", human="Likes tea.", description="helps with the garden")
    await agent.send("I like coffee now")
    await agent.archive("The garden has two pear trees.", tags=["garden"])
    await library.folders.create("notes")
    await agent.notes.add("plan", "The pears", {"goal": "Pick the pears.", "steps": "[x] a ladder"}, tags=["garden"])
    fact = (await agent.facts.add("Ada lives in Turin.", subject="Ada", relation="LIVES_IN", object="Turin")).fact
    await agent.facts.add_fact("Ada likes tea.", subject="Ada", state="proposed")
    await agent.facts.add_fact("Ada has a red bicycle.", subject="Ada", state="archived", trust="web")
    await agent.facts.add_rule("salary")
    profile = f"/agents/{agent.id}/facts/profile?user=Ada"
    return [*await paths_of(agent), f"/why?of={fact.id}", profile, "/sign-in", "/agents/unknown"]


EDIT = calls("memory_replace", label="human", old_string="tea", new_string="coffee")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=long_form)])
@pytest.mark.uses("origins")
async def test_every_page_is_sound(chromium: Browser, tmp_path: Path, theme: Theme) -> None:
    """On a phone in the light, on a desk in the dark: no error, nothing from elsewhere, nothing that axe calls
    serious, no sideways scrolling, and a small first view. On the phone nothing is wider than it, and on the desk
    whatever is pressed is at least 24 pixels large."""
    width = 390 if theme == "light" else 1280
    async with open_dashboard(tmp_path, EDIT, says("You like coffee in the garden.")) as (address, library):
        paths = await fill(library)
        step = (await (await library.agent("Ada")).steps(limit=1))[0]
        paths.append(f"/why?of={step.id}")
        async with open_page(chromium, address, width=width, theme=theme) as (page, seen):
            sizes = []
            page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
            for path in paths:
                sizes.clear()
                await page.goto(address + path, wait_until="load")
                assert sum(sizes) <= FIRST_VIEW_BYTES, (path, sum(sizes))
                if FULL or not path.endswith(AS_WITHOUT):
                    assert await serious_findings(page) == [], path
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, wide)
                if theme == "light":
                    assert await page.evaluate(WIDE) == [], path
                    await page.set_viewport_size({"width": 1280, "height": 800})
                    assert await page.evaluate(SMALL) == [], path
                    await page.set_viewport_size({"width": width, "height": 800})
    expected = "the server responded with a status of 4"  # the page of an agent that is not there
    assert [problem for problem in seen.problems if expected not in problem] == []


OVERFLOWING = """[document.documentElement, ...document.querySelectorAll("body *:not(.sr, .skip)")]
    .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
    .filter(one => one.localName === "html" || getComputedStyle(one).overflowX === "visible")
    .map(one => `${one.localName}.${one.className}: ${one.scrollWidth - one.clientWidth} px`)"""


async def test_a_word_without_end_stays_in_its_place(chromium: Browser, tmp_path: Path) -> None:
    """On a phone and on a desk, in each field that people name or write: it widens no page, and covers nothing."""
    script = [calls("memory_insert", label=LONG[:80], new_string=LONG), calls("pay", text=LONG)]
    async with open_dashboard(tmp_path, *script, tools=[pay]) as (address, library):
        agent = await library.create_agent(LONG[:100], description=f"https://{LONG}", tags=[LONG[:50]])
        await agent.blocks.create(LONG[:80], LONG, description=LONG)
        await agent.archive(LONG, tags=[LONG[:50]])
        await agent.notes.add("doc", LONG[:200], {"text": LONG}, tags=[LONG[:50]])
        await agent.facts.add(LONG, subject=LONG[:80], relation=LONG[:50].upper(), object=LONG[1:80])
        await agent.require_approval("pay")
        await agent.send(LONG)
        await library.create_agent("Ada", description="helps with the garden")
        async with open_page(chromium, address) as (page, _):
            found = {}
            for path in await paths_of(agent):
                if path.endswith(AS_WITHOUT):
                    continue
                await page.goto(address + path)
                for width in (400, 1400):
                    await page.set_viewport_size({"width": width, "height": 800})
                    await page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")  # plots
                    if wide := await page.evaluate(OVERFLOWING):
                        found[width, path] = wide
    assert found == {}


async def test_the_navigation_is_in_sight_at_any_width(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, _), open_page(chromium, address) as (page, _):
        await page.goto(address)
        hidden = []
        for width in range(360, 1400, 40):
            await page.set_viewport_size({"width": width, "height": 800})
            nav = "document.querySelector('.top nav')"
            if await page.evaluate(f"{nav}.scrollWidth > {nav}.clientWidth"):
                hidden.append(width)
    assert hidden == []


@long_form
@pytest.mark.parametrize("rows", [0, 100_000])
@pytest.mark.uses("origins")
async def test_every_page_is_sound_at_any_size(chromium: Browser, tmp_path: Path, rows: int) -> None:
    """On a store with one run, and on one with 100,000 messages and as many passages."""
    async with open_dashboard(tmp_path, says("Noted.")) as (address, library):
        agent = await fill_rows(library, rows=rows)
        async with open_page(chromium, address, width=390) as (page, seen):
            sizes: list[int] = []
            page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
            for path in await paths_of(agent):
                sizes.clear()
                await page.goto(address + path, timeout=60_000)
                assert sum(sizes) <= FIRST_VIEW_BYTES or "raw" in path, (path, sum(sizes))
                assert await serious_findings(page) == [], path
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, wide)
    assert seen.problems == []


async def test_no_text_of_others_runs(chromium: Browser, tmp_path: Path) -> None:
    """Forty payloads, in every field that a user, a model, a tool, a file or an MCP server can fill, on every page."""
    script = [
        calls("memory_insert", label="human", new_string=WHOLE),
        calls("nothing", text=WHOLE),
        says(WHOLE),
        calls("pay", text=WHOLE),
        ModelError(WHOLE),
    ]
    async with open_dashboard(tmp_path, *script, tools=[pay]) as (address, library):
        paths = await fill_hostile(library)
        async with open_page(chromium, address) as (page, seen):
            for path in paths:
                await page.goto(address + path)
                await page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
                assert await page.evaluate("window.ran === undefined"), path
    assert [one for one in seen.problems if "status of 4" not in one] == []


async def press_until(page: Page, selector: str, key: str = "Tab") -> None:
    """Press a key until an element has the focus."""
    for _ in range(300):  # a page that is renewed while a run goes on takes the focus back
        if await page.evaluate("selector => document.activeElement?.matches(selector)", selector):
            return
        await page.keyboard.press(key)
    raise AssertionError(f"the keyboard does not reach {selector}")


async def until(page: Page, condition: str) -> None:
    """Wait until an expression is true in the page. `wait_for_function` looks a second time by `eval`, which our policy
    for content refuses."""
    for _ in range(200):
        if await page.evaluate(condition):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never in this page: {condition}")


async def until_stale(page: Page) -> None:
    """Wait until the page has heard of a change that it does not show yet."""
    await until(page, "stale")


async def agent_of(library: AsyncPerdure) -> AsyncAgent:
    agent = await library.last_agent()
    assert agent is not None
    return agent


@pytest.mark.uses("origins")
async def test_first_tasks_need_no_mouse(chromium: Browser, tmp_path: Path) -> None:
    """Create an agent, find a wrong memory, correct it, see why an answer was given, undo."""
    async with (
        open_dashboard(tmp_path, EDIT, says("Noted.")) as (address, library),
        open_page(chromium, address) as (page, seen),
    ):
        await page.goto(address)
        await press_until(page, "input[name=name]")
        await page.keyboard.type("Ada")
        await press_until(page, "textarea[name=human]")
        await page.keyboard.type("Likes tea.")
        await press_until(page, "button.primary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#composer")

        await press_until(page, "#text")
        await page.keyboard.type("I like coffee now")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".item.assistant:has-text('Noted.')")
        await page.wait_for_selector(".item.edit .add:has-text('coffee')")

        await press_until(page, ".tabs a[href$='/memory']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("textarea:has-text('Likes coffee.')")
        await press_until(page, "#block-human textarea")
        await page.keyboard.press("Control+A")
        await page.keyboard.type("Likes milk.")
        await press_until(page, "#block-human button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice button")
        agent = await agent_of(library)
        assert (await agent.blocks.get("human")).value == "Likes milk."

        await press_until(page, ".notice button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice:has-text('as it was')")
        assert (await agent.blocks.get("human")).value == "Likes coffee."

        await press_until(page, ".tabs a")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".item.assistant")
        await press_until(page, ".item.assistant a")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:has-text('Why this answer?')")
    assert seen.problems == []


async def test_facts_need_no_mouse(chromium: Browser, tmp_path: Path) -> None:
    """Search a fact, correct it, forget it with others, undo, accept a proposal, and say what not to remember."""
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address) as (page, seen):
        agent = await library.create_agent("Ada")
        await agent.facts.add_fact("Ada lives in Genoa.", subject="Ada", relation="LIVES_IN", object_="Genoa")
        await agent.facts.add_fact("Ada likes tea.", subject="Ada", relation="LIKES", object_="tea", state="proposed")
        await page.goto(f"{address}/agents/{agent.id}")
        await press_until(page, ".tabs a[href$='/facts']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".facts")
        await press_until(page, "#q")
        await page.keyboard.type("Ada")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("summary:has-text('Why this result')")
        await press_until(page, ".facts summary.text")
        await page.keyboard.press("Enter")
        await press_until(page, ".facts textarea")
        await page.keyboard.press("Control+A")
        await page.keyboard.type("Ada lives in Turin.")
        await press_until(page, ".facts form button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice:has-text('was corrected')")
        assert [hit.fact.text for hit in await agent.facts.list()] == ["Ada lives in Turin."]

        await press_until(page, ".facts input[type=checkbox]")
        await page.keyboard.press("Space")
        await press_until(page, "#selected button.danger", "Shift+Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice:has-text('Forgotten: 1 fact.')")
        assert await agent.facts.list() == []
        await press_until(page, ".notice button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice:has-text('again')")

        await press_until(page, ".section-head > a[href$='/facts']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#main:not(:has-text('Show all'))")
        await press_until(page, "a[href*='state=proposed']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("a[aria-current][href*='state=proposed']")
        await press_until(page, ".facts button.primary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".notice:has-text('now knows 1 fact')")
        assert len(await agent.facts.list()) == 2

        await press_until(page, "#rule-text")
        await page.keyboard.type("salary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#capture .rows:has-text('salary')")
        assert [rule.text for rule in await agent.facts.rules()] == ["salary"]
    assert seen.problems == []


async def test_the_keyboard_is_led_to_what_an_action_did(chromium: Browser, tmp_path: Path) -> None:
    """What a button did is in sight and has the focus, also far down a page; a form that is refused keeps what was
    typed; and the arrows open a list that acts on its choice, in place of choosing."""
    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada", human="Likes tea. " * 200)
        async with open_page(chromium, address) as (page, seen):
            await page.set_viewport_size({"width": 820, "height": 400})
            await page.goto(f"{address}/agents/{agent.id}/memory")
            await press_until(page, "#block-human button")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".notice:focus")
            top, header = await page.evaluate(
                "['#main > .notice', 'header'].map(one => document.querySelector(one).getBoundingClientRect())"
                ".map((box, index) => index ? box.bottom : box.top)"
            )
            assert header <= top < 400 and await page.evaluate("scrollY > 200")

            await page.goto(address)
            await page.click("summary:has-text('New agent')")
            await page.fill("input[name=name]", "Ada")
            await page.fill("textarea[name=persona]", "A long thought.")
            await page.keyboard.press("Tab")
            await page.press("button.primary", "Enter")
            await page.wait_for_selector(".notice.error:has-text('choose another name')")
            assert await page.input_value("textarea[name=persona]") == "A long thought."

            await page.goto(f"{address}/agents/{agent.id}")
            await page.press("#model", "ArrowDown")
            assert await page.input_value("#model") == ""
    assert [problem for problem in seen.problems if "status of 4" not in problem] == []


async def test_a_message_streams_into_the_page_and_typing_stays(chromium: Browser, tmp_path: Path) -> None:
    """What is typed while the agent answers is still there when the answer has come."""
    async with open_dashboard(tmp_path, says("A long answer. " * 50)) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            await page.fill("#text", "hello")
            await page.press("#text", "Enter")
            await until(page, "document.getElementById('text').value === ''")
            await page.type("#text", "one more thing")
            await page.wait_for_selector(".item.assistant:has-text('A long answer.')")
            await page.wait_for_selector("#working", state="hidden")

            assert await page.input_value("#text") == "one more thing"
            assert await page.locator(".item.user").count() == 1
            assert await page.locator(".item.assistant").count() == 1
    assert seen.problems == []


async def test_a_run_that_fails_says_why_in_the_chat(chromium: Browser, tmp_path: Path) -> None:
    """From the stream alone, and once after a reload."""
    async with open_dashboard(tmp_path, ModelRequestRefused("the provider is down")) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            await page.evaluate("htmx.ajax = () => {}")
            await page.fill("#text", "hello")
            await page.press("#text", "Enter")
            await page.wait_for_selector(".item.failure:has-text('the provider is down') a:has-text('See the run')")

            await page.reload()
            assert await page.locator(".item").evaluate_all("all => all.map(one => one.className)") == [
                "item user",
                "item failure",
            ]
    assert seen.problems == []


async def test_an_answer_that_is_overtaken_leaves_the_composer(chromium: Browser, tmp_path: Path) -> None:
    """A page that was asked for before an action, and comes after the action's answer, has composer and focus."""

    async def wait_for_action(route: Route) -> None:
        await page.wait_for_selector("#notice")
        await route.continue_()

    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}")
            await page.route("**/agents/*", wait_for_action)
            async with page.expect_response(f"**/agents/{agent.id}"):
                await page.evaluate("void refresh()")
                await page.select_option("#model", "")
            while await page.evaluate("requests"):  # noqa: ASYNC110 its policy lets nothing poll inside
                await asyncio.sleep(0.01)
            await page.wait_for_selector("#composer #text:focus")
    assert seen.problems == []


async def test_pages_follow_what_happens_elsewhere(chromium: Browser, tmp_path: Path) -> None:
    """Home shows a new run, and another tab's chat a message sent by a program, and what is typed there
    stays; the pages of memory and of facts show what is written without a run."""
    async with open_dashboard(tmp_path, says("Good morning."), says("Good night.")) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(address)
            await until(page, "feed !== null && feed.source.readyState === 1")
            await agent.send("hello")
            await page.wait_for_selector("#main .status.completed")
            await page.focus(".rows .card-title")

            await page.goto(f"{address}/agents/{agent.id}")
            await until(page, "feed !== null && feed.source.readyState === 1")
            await page.fill("#text", "half a sentence")
            await agent.send("and a good night")
            await page.wait_for_selector(".item.assistant:has-text('Good night.')")
            assert await page.input_value("#text") == "half a sentence"
            assert await page.evaluate("document.activeElement.id") == "text"

            await page.goto(f"{address}/agents/{agent.id}/memory")
            await until(page, "feed !== null && feed.source.readyState === 1")
            await agent.blocks.append("human", "Likes tea.")
            await page.wait_for_selector("textarea:has-text('Likes tea.')")
            await agent.archive("The garden has a pear tree.")
            await page.wait_for_selector("td:has-text('pear tree')")

            await page.goto(f"{address}/agents/{agent.id}/facts")
            await until(page, "feed !== null && feed.source.readyState === 1")
            await agent.facts.add("Ada lives in Turin.")
            await page.wait_for_selector(".facts :text('Ada lives in Turin.')")
    assert seen.problems == []


async def test_a_page_that_is_being_filled_in_waits(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path, says("Good morning.")) as (address, library):
        agent = await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(address)
            await page.click("summary:has-text('New agent')")
            await page.fill("input[name=name]", "Bob")
            await agent.send("hello")
            await until_stale(page)
            assert await page.input_value("input[name=name]") == "Bob"
            assert await page.locator(".status").count() == 0
            await page.fill("input[name=name]", "")
            await page.focus("#theme")
            await page.wait_for_selector("#main .status.completed")
    assert seen.problems == []


async def test_a_button_that_undoes_keeps_the_focus_while_others_write(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada")
        hit = await agent.facts.add("Ada likes tea.")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}/facts")
            await until(page, "feed !== null && feed.source.readyState === 1")
            await page.check(f".facts input[value='{hit.fact.id}']")
            await page.click("#selected button.danger")
            await page.wait_for_selector(".notice:has-text('Forgotten: 1 fact.')")
            await page.focus(".notice button")
            await agent.facts.add("Ada lives in Turin.")
            await until_stale(page)
            assert await page.evaluate("document.activeElement.matches('.notice button')")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".notice:has-text('again')")
            await page.wait_for_selector(".facts :text('Ada lives in Turin.')")
    assert seen.problems == []


async def test_a_foreign_page_can_neither_frame_nor_call_the_dashboard(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library):
        await library.create_agent("Ada")
        async with open_page(chromium, address) as (page, _):
            await page.route(
                "http://evil.test/",
                lambda route: route.fulfill(
                    content_type="text/html",
                    body=f"<iframe src='{address}/'></iframe><form method=post action='{address}/agents'></form>",
                ),
            )
            await page.goto("http://evil.test/")
            framed = page.frames[1]
            assert await framed.locator("#main").count() == 0
            await page.evaluate("document.forms[0].submit()")
            await page.wait_for_load_state()
            assert "not allowed" in await page.inner_text("body")
        assert len(await library.agents()) == 1


async def test_who_is_signed_out_keeps_what_was_entered(chromium: Browser, tmp_path: Path) -> None:
    """In the form of a page and in the chat; after signing in elsewhere the same buttons work."""
    config = ServerConfig(port=0, api_key="a-key-that-is-long-enough")
    async with (
        served(tmp_path, says("Good."), config=config) as (address, library),
        open_page(chromium, address) as (page, _),
    ):
        agent = await library.create_agent("Ada", human="Likes tea.")
        other = await page.context.new_page()

        async def sign_in() -> None:
            await other.goto(f"{address}/sign-in")
            await other.fill("input[name=key]", config.api_key or "")
            await other.press("input[name=key]", "Enter")
            await other.wait_for_selector("#find")

        for path, field, button in (
            ("/memory", "#block-human textarea", "#block-human button"),
            ("", "#text", "#composer button"),
        ):
            await sign_in()
            await page.goto(f"{address}/agents/{agent.id}{path}")
            await page.fill(field, "Likes milk.")
            await page.context.clear_cookies()
            await page.click(button)
            await page.wait_for_selector("#main > .notice:has-text('Sign in')")
            kept = await page.input_value(field)
            await sign_in()
            await page.click(button)
            await page.wait_for_selector(".notice:has-text('was changed')" if path else ".item.assistant")

            assert kept == "Likes milk."
        assert (await agent.blocks.get("human")).value == "Likes milk."
