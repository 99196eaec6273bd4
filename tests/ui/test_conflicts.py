"""Two tabs that change one block: the second save shows three versions and loses none of them."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.async_api import Browser, expect

from perdure import AsyncPerdure
from tests.ui.browser import dashboard, tags_of, text_of
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.test_browser import open_dashboard, press_until

BASE = "Likes tea.\nLives in Turin.\nHas a cat."


async def _agent(library: AsyncPerdure) -> str:
    agent = await library.create_agent("Ada", human=BASE)
    return f"/agents/{agent.id}/memory"


async def test_a_late_save_shows_both_texts_and_their_merge() -> None:
    async with dashboard() as (client, library):
        where = await _agent(library)
        first, late = BASE.replace("tea", "coffee"), BASE.replace("a cat", "two cats")
        await client.post(f"{where}/blocks/human", data={"value": first, "version": "0"})
        page = await client.post(f"{where}/blocks/human", data={"value": late, "version": "0"})
        twin = page.text

        assert page.status_code == 409
        assert "Likes coffee.\nLives in Turin.\nHas two cats.</textarea>" in twin
        assert "human was changed while you were writing" in text_of(twin)
        assert "-Has a cat." in twin and "+Has two cats." in twin and "+Likes coffee." in twin

        merged = {"value": "Likes coffee.\nLives in Turin.\nHas two cats.", "version": "1"}
        saved = await client.post(f"{where}/blocks/human", data=merged)
        agent = await library.agent("Ada")
        assert saved.status_code == 200 and 'id="conflict"' not in saved.text
        assert (await agent.blocks.get("human")).value == merged["value"]


async def test_lines_that_both_changed_have_marks_and_the_next_conflict_begins_with_what_was_seen() -> None:
    async with dashboard() as (client, library):
        where = f"{await _agent(library)}/blocks/human"
        await client.post(where, data={"value": BASE.replace("tea", "coffee"), "version": "0"})
        page = await client.post(where, data={"value": BASE.replace("tea", "milk"), "version": "0"})
        await client.post(where, data={"value": "Likes water.", "version": "1"})
        again = await client.post(where, data={"value": BASE.replace("tea", "milk"), "version": "1"})

    assert "&lt;&lt;&lt;&lt;&lt;&lt;&lt; yours\nLikes milk.\n=======\nLikes coffee.\n" in page.text
    assert "delete the marks" in text_of(page.text)
    assert 'name="version" value="2"' in again.text and "-Likes coffee." in again.text


async def test_a_version_that_never_was_is_refused_without_a_choice() -> None:
    async with dashboard() as (client, library):
        where = f"{await _agent(library)}/blocks/human"
        page = await client.post(where, data={"value": "x", "version": "7"})

    assert page.status_code == 409 and 'id="conflict"' not in page.text


def _choice(html: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Of the page of a conflict: where its form goes, the hidden fields, and the values of the button for mine."""
    tags = tags_of(html)
    start = next(place for place, (_, values) in enumerate(tags) if values.get("id") == "conflict")
    end = next(place for place, (_, values) in enumerate(tags) if values.get("id") == "keep-mine")
    inside = tags[start : end + 1]
    action = next(str(values["hx-post"]) for tag, values in inside if tag == "form")
    hidden = {str(one["name"]): str(one["value"]) for tag, one in inside if one.get("type") == "hidden"}
    return action, hidden, json.loads(str(tags[end][1]["hx-vals"]))


async def test_late_changes_of_an_agent_are_chosen_field_by_field() -> None:
    """Its name and description: what both changed has three forms; what only one changed stays as that one says."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        here = f"/agents/{agent.id}/settings"
        was = (await client.get(f"{here}?format=json")).json()["was"]
        form = {**{name: was[name] for name in ("name", "description", "timezone", "tags")}, "was": json.dumps(was)}
        await client.post(f"{here}/about", data={**form, "name": "Eva", "description": "Gardens."})
        mine = {"name": "Uma", "description": "Cooks.", "tags": "house"}
        late = await client.post(f"{here}/about", data={**form, **mine})
        action, hidden, own = _choice(late.text)

        assert late.status_code == 409
        assert "Name and description were changed while you were writing" in text_of(late.text)
        assert "Yours: Uma" in late.text and "Saved in the meantime: Eva" in late.text
        assert own == {"name": "Uma", "description": "Cooks."} and hidden["tags"] == "house"
        theirs = next(str(one["hx-vals"]) for _, one in tags_of(late.text) if one.get("id") == "keep-theirs")
        saved = await client.post(action, data={**hidden, **json.loads(theirs)})
        info = (await library.agent(agent.id)).info
        assert saved.status_code == 200 and 'id="conflict"' not in saved.text
        assert (info.name, info.description, info.tags) == ("Eva", "Gardens.", ("house",))


async def test_a_late_prompt_and_a_late_setting_are_merged_or_chosen() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", system="One.\nTwo.\nThree.")
        here = f"/agents/{agent.id}/settings"
        page = (await client.get(f"{here}?format=json")).json()
        was = json.dumps({"system": page["was"]["system"]})
        await client.post(f"{here}/system", data={"system": "1.\nTwo.\nThree.", "was": was})
        late = await client.post(f"{here}/system", data={"system": "One.\nTwo.\n3.", "was": was})
        action, hidden, _ = _choice(late.text)
        assert late.status_code == 409 and ">1.\nTwo.\n3.</textarea>" in late.text
        await client.post(action, data={**hidden, "system": "1.\nTwo.\n3."})
        assert (await library.agent("Ada")).info.system == "1.\nTwo.\n3."

        group = next(one for one in page["groups"] if one["name"] == "model")
        form = {**group["was"], "was": json.dumps(group["was"])}
        await client.post(f"{here}/values", data={**form, "number:temperature": "0.5"})
        late = await client.post(f"{here}/values", data={**form, "number:temperature": "0.7"})
        action, hidden, own = _choice(late.text)
        await client.post(action, data={**hidden, **own})
        assert (await library.agent("Ada")).info.settings == {"temperature": 0.7}


@needs_chromium
async def test_a_conflict_is_resolved_without_a_mouse(chromium: Browser, tmp_path: Path) -> None:
    """The choice has the focus; the merged text is saved, and in a second conflict what was typed is kept."""
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address) as (page, seen):
        where = await _agent(library)
        agent = await library.agent("Ada")
        await page.goto(address + where)
        await press_until(page, "#block-human textarea")
        await page.keyboard.press("Control+End")
        await page.keyboard.type(" And a dog.")
        await agent.blocks.update("human", BASE.replace("tea", "coffee"))
        await press_until(page, "#block-human button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#conflict:focus")
        await press_until(page, "#conflict button.primary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:has-text('with its next message')")
        assert (await agent.blocks.get("human")).value == "Likes coffee.\nLives in Turin.\nHas a cat. And a dog."
        await expect(page.locator("#conflict")).to_have_count(0)

        await press_until(page, "#block-human textarea")
        await page.keyboard.press("Control+A")
        await page.keyboard.type("Mine.")
        await agent.blocks.update("human", "Theirs.")
        await press_until(page, "#block-human button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#conflict:focus")
        await press_until(page, "#keep-mine")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#notice:has-text('with its next message')")
        assert (await agent.blocks.get("human")).value == "Mine."
    assert [one for one in seen.problems if "status of 409" not in one] == []
