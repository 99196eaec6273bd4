"""Forgetting on the dashboard: where a text stands comes first, then forgetting with a way back, then erasing."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser

from perdure.testing import says
from tests.ui.browser import dashboard, tags_of, text_of
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.test_browser import open_dashboard, press_until

TEXT = "The key is under the pot."


async def test_a_text_is_found_forgotten_brought_back_and_erased() -> None:
    async with dashboard(says("Noted.")) as (client, library):
        agent = await library.create_agent("Ada", human=f"tea\n{TEXT}")
        passage = await agent.archive(TEXT)
        await agent.send(TEXT)
        where = f"/agents/{agent.id}/forget"

        links = [attributes.get("href") for _, attributes in tags_of((await client.get(f"/agents/{agent.id}")).text)]
        assert f"{where}?of={(await agent.messages(limit=1))[0].id}#found" in links
        found = (await client.get(f"{where}?of={passage.id}&format=json")).json()["preview"]
        assert {one["place"] for one in found["counts"] if one["in_view"]} == {"memory blocks", "archives", "history"}
        short = await client.post(f"{where}/find", data={"text": "ab"})
        assert "give 3 to 20,000" in text_of(short.text)

        page = await client.post(where, data={"text": TEXT})
        assert "Forgotten in 3 places." in text_of(page.text) and (await agent.find_mentions(TEXT)).in_view == 0
        await client.post(f"/agents/{agent.id}/memory/undo", data={"number": "1"})
        assert (await agent.find_mentions(TEXT)).in_view == 3

        unsure = await client.post(where, data={"text": TEXT, "erase": "yes"})
        assert unsure.status_code == 422 and (await agent.find_mentions(TEXT)).in_view == 3
        page = await client.post(where, data={"text": TEXT, "erase": "yes", "sure": "yes"})
        assert "It appears nowhere" in text_of(page.text)
        assert (await agent.find_mentions(TEXT)).total == 0


async def test_a_stored_and_a_changed_passage_are_undone() -> None:
    """Unless it was changed since."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory"
        await client.post(f"{where}/passages", data={"text": "A pear tree.", "tags": "garden"})
        (passage,) = await agent.passages()
        page = await client.post(f"{where}/passages/{passage.id}", data={"text": "An apple tree."})
        assert "undo" in page.text

        await client.post(f"{where}/undo", data={"number": "2"})
        assert [one.text for one in await agent.passages()] == ["A pear tree."]
        await agent.update_passage(passage.id, text="A plum tree.")
        kept = await client.post(f"{where}/undo", data={"number": "1"})
        assert "was changed since" in text_of(kept.text) and len(await agent.passages()) == 1
        await client.post(f"{where}/passages", data={"text": "A gate."})
        await client.post(f"{where}/undo", data={"number": "4"})
        assert [one.text for one in await agent.passages()] == ["A plum tree."]


@needs_chromium
async def test_a_line_is_forgotten_without_a_mouse(chromium: Browser, tmp_path: Path) -> None:
    """From the memory page: the line, where it stands, forget, undo."""
    async with open_dashboard(tmp_path) as (address, library):
        agent = await library.create_agent("Ada", human=f"tea\n{TEXT}")
        async with open_page(chromium, address) as (page, seen):
            await page.goto(f"{address}/agents/{agent.id}/memory")
            await press_until(page, "#block-human .lines summary")
            await page.keyboard.press("Enter")
            await press_until(page, "#block-human .lines li:nth-child(2) button")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#found h2:has-text('It appears in')")
            assert page.url == f"{address}/agents/{agent.id}/forget"
            assert TEXT in (await agent.blocks.get("human")).value
            await press_until(page, "#forget button")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".notice:has-text('Forgotten in 1 place.')")
            assert (await agent.blocks.get("human")).value == "tea"
            await press_until(page, ".notice button")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".notice:has-text('as it was')")
            assert TEXT in (await agent.blocks.get("human")).value

            await page.goto(f"{address}/agents/{agent.id}/forget")
            await press_until(page, "#text")
            await page.keyboard.type(TEXT)
            await press_until(page, "form:has(#text) button")
            await page.keyboard.press("Enter")
            for selector in ("#erase summary", "#erase input[name=sure]", "#erase button"):
                await page.wait_for_selector(selector, state="attached")
                await press_until(page, selector)
                await page.keyboard.press("Space")
            await page.wait_for_selector("#found h2:has-text('It appears nowhere')")
            assert (await agent.blocks.get("human")).value == "tea"
    assert seen.problems == []
