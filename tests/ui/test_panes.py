"""Beside the chat: conversations that are begun, named and deleted, and blocks that are edited and light up."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from perdure.testing import ScriptedModel, calls, says
from perdure.ui.pages.panes import first_sentence
from tests.ui.browser import dashboard, tags_of, text_of, undo
from tests.ui.chromium import needs_chromium
from tests.ui.test_browser import press_until
from tests.ui.test_chat import open_chat, send


async def test_a_conversation_is_named_after_its_first_sentence() -> None:
    """Until it has a name; without one again, it is as before."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        home = f"/agents/{agent.id}"
        await agent.send("Plant the pear tree. It is late.")
        began = await client.post(f"{home}/conversations")
        made = (await agent.conversations())[-1]

        async def names() -> list[str]:
            page = await client.get(home, params={"conversation": made.id, "format": "json"})
            return [line["name"] for line in page.json()["conversations"]]

        assert began.headers["hx-redirect"] == f"{home}?conversation={made.id}"
        assert sorted(await names()) == ["New conversation", "Plant the pear tree."]
        renamed = await client.post(f"{home}/conversations/rename?conversation={made.id}", data={"name": "Roses"})
        assert sorted(await names()) == ["Plant the pear tree.", "Roses"]
        await undo(client, renamed)
        assert sorted(await names()) == ["New conversation", "Plant the pear tree."]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Hello", "Hello"),
        ("  Is 1.5 bar too much? It was 2.", "Is 1.5 bar too much?"),
        ("今天下雨。明天呢", "今天下雨"),
        ("word " * 30, f"{('word ' * 12).strip()[:59]}…"),
    ],
)
def test_a_first_sentence_is_short(text: str, name: str) -> None:
    assert first_sentence(text) == name


async def test_a_deleted_conversation_is_brought_back_or_goes_for_good() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        home = f"/agents/{agent.id}"
        made = await agent.new_conversation(summary="Roses")
        await agent.send("Cut them back", conversation=made.id)
        form = {"conversation_id": made.id}

        gone = await client.post(f"{home}/conversations/delete", data=form)
        listed = (await client.get(f"{home}?format=json")).json()
        assert [one["name"] for one in listed["conversations"]] == ["First conversation"]
        assert [one["name"] for one in listed["deleted"]] == ["Roses"]
        await undo(client, gone)
        assert (await client.get(f"{home}?format=json")).json()["deleted"] == []

        await client.post(f"{home}/conversations/delete", data=form)
        assert (await client.post(f"{home}/conversations/erase", data=form)).status_code == 200
        assert (await client.get(f"{home}?conversation={made.id}")).status_code == 404
        first = (await agent.find_conversation()).id
        refused = await client.post(f"{home}/conversations/delete", data={"conversation_id": first})
        assert refused.status_code == 422 and "can't be deleted" in text_of(refused.text)


async def test_a_block_is_written_beside_the_chat() -> None:
    """With undo; of two who write at once, the second sees both texts."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        home = f"/agents/{agent.id}"
        path = f"{home}/conversations/blocks/human"
        saved = await client.post(path, data={"version": "0", "value": "Likes coffee."})
        assert (await agent.blocks.get("human")).value == "Likes coffee."
        assert 'class="panes"' in saved.text
        await undo(client, saved)
        assert (await agent.blocks.get("human")).value == "Likes tea."

        second = await client.post(path, data={"version": "0", "value": "Likes water."})
        assert second.status_code == 409
        assert "data-conflict" in second.text and "Likes water." in second.text


async def test_a_conversation_shows_and_writes_its_own_block() -> None:
    """Not the agent's, in whose place it is."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="Likes tea.")
        line = await agent.new_conversation(isolated_blocks=["human"])
        (own,) = await agent.isolated_blocks(line.id)
        home, query = f"/agents/{agent.id}", {"conversation": line.id}

        saved = await client.post(
            f"{home}/conversations/blocks/human", params=query, data={"version": "0", "value": "Likes coffee."}
        )
        page = (await client.get(home, params=query | {"format": "json"})).json()
        shown = {block["label"]: block for block in page["blocks"]}["human"]
        assert (shown["id"], shown["value"]) == (own.id, "Likes coffee.")
        assert (await agent.blocks.get("human")).value == "Likes tea."
        late = await client.post(
            f"{home}/conversations/blocks/human", params=query, data={"version": "0", "value": "Likes water."}
        )
        assert late.status_code == 409 and "data-conflict" in late.text and "+Likes coffee." in late.text
        assert f'hx-post="{home}/conversations/blocks/human?conversation={line.id}' in late.text
        await undo(client, saved)
        assert [block.value for block in await agent.isolated_blocks(line.id)] == ["Likes tea."]


async def test_older_conversations_are_reached() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        home = f"/agents/{agent.id}"
        for number in range(52):
            await agent.new_conversation(summary=f"Number {number}")
        first = await client.get(home)
        assert "Older conversations" in first.text and "Number 0<" not in first.text
        link = next(str(values["href"]) for _, values in tags_of(first.text) if "pages=2" in str(values.get("href")))
        second = await client.get(home + link)
        assert "Number 0<" in second.text and "Older conversations" not in second.text


async def test_pages_of_messages_lead_both_ways() -> None:
    async with dashboard(*(says(f"{number}.") for number in range(60))) as (client, library):
        agent = await library.create_agent("Ada")
        home = f"/agents/{agent.id}?format=json"
        for number in range(60):
            await agent.send(f"{number}?")
        newest = (await client.get(home)).json()
        middle = (await client.get(f"{home}&before={newest['older']}")).json()
        oldest = (await client.get(f"{home}&before={middle['older']}")).json()
        assert (newest["newer"], middle["newer"], oldest["older"]) == (None, "", None)
        assert (await client.get(f"{home}{oldest['newer']}")).json()["items"] == middle["items"]
        assert "Newer messages" in (await client.get(f"/agents/{agent.id}?before={middle['older']}")).text


async def test_what_was_recalled_for_the_newest_message_is_shown() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await agent.archive("The boiler is a Vaillant of 2019.")
        await agent.send("Which boiler is it?")
        page = await client.get(f"/agents/{agent.id}")
        recalled = (await client.get(f"/agents/{agent.id}?format=json")).json()["recalled"]

    assert [one["text"].endswith("The boiler is a Vaillant of 2019.") for one in recalled] == [True]
    assert f"/why?of={recalled[0]['id']}" in page.text


async def test_a_narrow_screen_shows_the_pane_that_the_address_names() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        shown = (await client.get(f"/agents/{agent.id}?pane=memory")).text
        other = (await client.get(f"/agents/{agent.id}?pane=nonsense")).text

    assert '<div class="panes" data-pane="memory">' in shown
    assert '<div class="panes" data-pane="chat">' in other


@needs_chromium
async def test_memory_changes_in_sight_and_a_draft_of_it_stays(chromium: Browser, tmp_path: Path) -> None:
    """The block lights up while the agent works; text that is typed into another one outlives a message."""
    model = ScriptedModel(
        calls("memory_replace", label="human", old_string="tea", new_string="coffee"), says("Noted."), says("Yes.")
    )
    async with open_chat(chromium, tmp_path, model) as (page, seen, _):
        await page.set_viewport_size({"width": 1440, "height": 900})
        await send(page, "I like coffee now")
        block = page.locator(".held-block:has(h3:text-is('human'))")
        await expect(block).to_have_class("held-block lit")
        await expect(block.locator("textarea")).to_have_value("Likes coffee.")
        draft = page.locator(".held-block:has(h3:text-is('persona')) textarea")
        await draft.fill("Speaks plainly")
        await send(page, "and?")
        await page.wait_for_selector("#messages .assistant:has-text('Yes.')")
        await expect(draft).to_have_value("Speaks plainly")
    assert seen.problems == []


@needs_chromium
async def test_a_new_conversation_by_the_keyboard(chromium: Browser, tmp_path: Path) -> None:
    """Begun, talked in, and left for another one; on a phone each pane is one key away."""
    async with open_chat(chromium, tmp_path, ScriptedModel()) as (page, seen, agent):
        await press_until(page, "#new-conversation")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**conversation=conv-*")
        await press_until(page, "#text")
        await page.keyboard.type("Roses want sun. Really.")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".conversations [aria-current]:text-is('Roses want sun.')")
        assert len(await agent.conversations()) == 2
        await page.set_viewport_size({"width": 390, "height": 800})
        for name, there in (("memory", ".held"), ("conversations", ".conversations"), ("chat", "#composer")):
            await press_until(page, f".pane-tabs a[data-pane={name}]")
            await page.keyboard.press("Enter")
            await expect(page.locator(there)).to_be_visible()
    assert seen.problems == []


@needs_chromium
async def test_a_long_name_of_a_conversation_is_cut_in_its_line(chromium: Browser, tmp_path: Path) -> None:
    """It pushes no button out of its pane."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("Yes."))) as (page, _, agent):
        await agent.send("Which of the hotels near the station did we note for the journey to Vienna in spring?")
        await page.reload()
        panes = "[...document.querySelectorAll('.pane')]"
        wide = await page.evaluate(f"{panes}.map(one => one.scrollWidth > one.clientWidth)")

    assert wide == [False, False]
