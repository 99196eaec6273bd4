"""The memory page: blocks made, shared, set up and compared; texts tagged, deleted and brought back; the time line."""

from __future__ import annotations

import pytest

from perdure.features.schedules.units import describe_timing
from perdure.testing import calls, says
from tests.ui.browser import dashboard, tags_of, text_of, undo


async def test_two_versions_of_a_block_are_compared() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="One.")
        for value in ("Two.", "Three."):
            await client.post(f"/agents/{agent.id}/memory/blocks/human", data={"value": value})
        query = {"block": "human", "from": "0", "to": "2"}
        page = await client.get(f"/agents/{agent.id}/memory", params=query)
        wrong = await client.get(f"/agents/{agent.id}/memory", params={**query, "to": "x"})

    assert "-One." in page.text and "+Three." in page.text
    assert wrong.status_code == 422 and "whole number" in text_of(wrong.text)


async def test_an_undo_loses_nothing_that_was_written_since() -> None:
    """Nor is there one of a save that changed nothing."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="One.")
        where = f"/agents/{agent.id}/memory/blocks/human"
        page = await client.post(where, data={"value": "Two.", "version": "0"})
        again = await client.post(where, data={"value": "Two.", "version": "1"})
        await undo(client, page)
        back = (await agent.blocks.get("human")).value
        page = await client.post(where, data={"value": "Three.", "version": "2"})
        await agent.blocks.update("human", "Four.")
        with pytest.raises(AssertionError, match="saved version 4"):
            await undo(client, page)
        assert (await agent.blocks.get("human")).value == "Four."

    assert back == "One." and 'id="undo"' not in again.text


async def test_a_block_with_a_slash_in_its_label_is_changed_like_others() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory/blocks"
        await client.post(where, data={"label": "house/doors", "value": "Two.", "limit": "900"})
        page = await client.post(f"{where}/house/doors", data={"value": "Three.", "version": "0"})
        told = await client.post(
            f"{where[:-6]}block-settings/house/doors", data={"description": "Doors.", "limit": "800"}
        )
        chat = await client.post(f"/agents/{agent.id}/conversations/blocks/house/doors", data={"value": "Four."})
        block = await agent.blocks.get("house/doors")
        await undo(client, chat)
        assert (await agent.blocks.get("house/doors")).value == "Three."
        detached = await client.post(f"{where[:-6]}block-detach/house/doors")

    assert [one.status_code for one in (page, told, chat, detached)] == [200] * 4
    assert (block.value, block.description, block.limit_chars) == ("Four.", "Doors.", 800)


@pytest.mark.parametrize("label", ["house/restore", "house/settings", "house/detach"])
async def test_a_label_that_ends_as_an_action_is_a_label(label: str) -> None:
    """In the memory and beside the chat; the block before the slash stays as it is."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        await agent.blocks.create("house", "Old.")
        await agent.blocks.create(label, "One.")
        for where in ("memory", "conversations"):
            page = await client.post(f"/agents/{agent.id}/{where}/blocks/{label}", data={"value": "Two."})
            assert (page.status_code, (await agent.blocks.get(label)).value) == (200, "Two.")
            await undo(client, page)
            assert (await agent.blocks.get(label)).value == "One."
        house = await agent.blocks.get("house")

    assert (house.value, house.version) == ("Old.", 0)


async def test_a_block_is_created_shared_detached_and_attached_again() -> None:
    async with dashboard() as (client, library):
        ada, bob = await library.create_agent("Ada"), await library.create_agent("Bob")
        form = {"label": "house", "value": "Has two doors.", "limit": "900", "read_only": "yes"}
        await client.post(f"/agents/{ada.id}/memory/blocks", data=form)
        block = await ada.blocks.get("house")
        assert (block.limit_chars, block.read_only) == (900, True)
        await client.post(f"/agents/{bob.id}/memory/blocks", data={"block_id": block.id})
        shown = (await client.get(f"/agents/{bob.id}/memory?format=json")).json()["blocks"]
        assert [one["name"] for one in shown[-1]["shared"]] == ["Ada"]

        page = await client.post(f"/agents/{bob.id}/memory/block-detach/house")
        assert "house" not in [one.label for one in await bob.blocks.list()]
        await undo(client, page)
        assert "house" in [one.label for one in await bob.blocks.list()]


async def test_the_settings_of_a_block_change_and_change_back() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory/block-settings/human"
        before = await agent.blocks.get("human")
        page = await client.post(where, data={"description": "The gardener.", "limit": "700", "read_only": "yes"})
        block = await agent.blocks.get("human")
        assert (block.description, block.limit_chars, block.read_only) == ("The gardener.", 700, True)
        await undo(client, page)
        block = await agent.blocks.get("human")

    assert (block.description, block.limit_chars, block.read_only) == (before.description, before.limit_chars, False)


@pytest.mark.uses("origins")
async def test_selected_texts_are_tagged_deleted_and_brought_back() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory"
        for text in ("A pear tree.", "A gate.", "A wall."):
            await agent.archive(text, tags=["garden"])
        found = (await client.get(f"{where}?format=json")).json()["passages"]
        ids = [one["id"] for one in found if one["text"] != "A gate."]
        await client.post(f"{where}/passages/selected", data={"passage": ids, "choice": "tag", "tag": "old"})
        tagged = (await client.get(f"{where}?tag=old&format=json")).json()["passages"]
        page = await client.post(f"{where}/passages/selected", data={"passage": ids, "choice": "delete"})
        left = (await client.get(f"{where}?format=json")).json()["passages"]
        await undo(client, page)
        again = (await client.get(f"{where}?tag=old&format=json")).json()["passages"]
        none = await client.post(f"{where}/passages/selected", data={"choice": "delete"})

    assert {one["text"] for one in tagged} == {one["text"] for one in again} == {"A pear tree.", "A wall."}
    assert again[0]["tags"] == ["garden", "old"]
    assert [one["text"] for one in left] == ["A gate."]
    assert none.status_code == 422 and "no passage is selected" in text_of(none.text)


@pytest.mark.uses("origins")
async def test_the_time_line_has_every_write_with_its_run() -> None:
    script = [calls("memory_insert", label="human", new_string="Likes tea."), says("Noted.")]
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("Ada")
        run_id = (await agent.send("I like tea")).run_id
        await agent.archive("A pear tree.")
        where = f"/agents/{agent.id}/memory"
        twin = (await client.get(f"{where}?timeline=1&format=json")).json()["writes"]
        page = await client.get(f"{where}?timeline=1")

    assert [(one["kind"], one["author"], one["run_id"]) for one in twin[:2]] == [
        ("archive", "user", None),
        ("block", "agent", run_id),
    ]
    assert "+Likes tea." in twin[1]["diff"]
    assert f'href="/runs/{run_id}"' in page.text


@pytest.mark.uses("origins")
async def test_the_time_line_says_what_each_write_followed() -> None:
    """The tool and the message behind an agent's edit; how each block grew is a plot."""
    texts = ("I like tea.", "I moved to Turin.", "I play chess.")
    steps = [
        step for text in texts for step in (calls("memory_insert", label="human", new_string=text), says("Noted."))
    ]
    steps += [calls("archival_memory_insert", content="The key is under the mat."), says("Noted.")]
    async with dashboard(*steps) as (client, library):
        agent = await library.create_agent("Ada", human="Name: Ada")
        for text in (*texts, "where the key is"):
            await agent.send(f"Know this: {text}")
        page = await client.get(f"/agents/{agent.id}/memory?timeline=1")
        data = (await client.get(f"/agents/{agent.id}/memory?timeline=1&format=json")).json()

    shown = text_of(page.text)
    assert all(f"after “Know this: {text}”" in shown for text in (*texts, "where the key is"))
    tools = [one["tool"] for one in data["writes"] if one["reason"]]
    assert tools == ["archival_memory_insert"] + ["memory_insert"] * 3
    plotted = {one["label"]: one["values"] for one in data["growth"]["series"]}
    sizes = [len(write["value"]) for write in data["writes"] if write["name"] == "human"]
    assert list(dict.fromkeys(size for size in plotted["human"] if size is not None)) == sizes[::-1]


async def test_an_editor_is_as_high_as_its_text() -> None:
    """A long block is not read through six rows, and an empty one takes no room."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", human="\n".join(f"Fact {number}" for number in range(15)), persona="")
        page = await client.get(f"/agents/{agent.id}/memory")

    editors = [values for tag, values in tags_of(page.text) if tag == "textarea" and "id" in values]
    rows = [int(str(one["rows"])) for one in editors if str(one["id"]).startswith("value-")]
    assert min(rows) == 2 and 15 <= max(rows) <= 24


@pytest.mark.uses("origins")
async def test_the_page_names_the_companion_that_wrote_and_why() -> None:
    """In the versions of a block and in the time line; the agent itself stays the agent."""
    edit = calls("memory_insert", label="human", new_string="Likes pears.")
    async with dashboard(says("OK."), edit, calls("memory_finish_edits", reason="She said so.")) as (client, library):
        agent = await library.create_agent("Ada", sleeptime=True)
        await agent.send("I like pears")
        await agent.companion.wake()
        versions = await client.get(f"/agents/{agent.id}/memory?block=human")
        line = await client.get(f"/agents/{agent.id}/memory?timeline=1")

    for page in (versions, line):
        assert "by Ada-sleeptime" in text_of(page.text)
        assert "She said so." in text_of(page.text)


async def test_schedules_are_listed_and_cancelled() -> None:
    """With what comes next and what became of the last time."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory"
        assert "A schedule tells Ada something" in text_of((await client.get(where)).text)
        made = await agent.schedules.create("Water <the> plants.", cron="0 9 * * *", name="plants")
        page = text_of((await client.get(where)).text)
        assert "plants" in page and "cron 0 9 * * * (UTC)" in page and "not yet" in page
        shown = (await client.get(f"{where}?format=json")).json()["schedules"]
        assert [(one["id"], one["message"], one["by_agent"]) for one in shown] == [
            (made.id, "Water <the> plants.", False)
        ]

        cancelled = await client.post(f"{where}/schedules/{made.id}/cancel")
        assert "no longer fires" in text_of(cancelled.text)
        assert (await agent.schedules.get(made.id)).status == "cancelled"
        await undo(client, cancelled)
        assert (await agent.schedules.get(made.id)).status == "active"
        await client.post(f"{where}/schedules/{made.id}/pause")
        await undo(client, await client.post(f"{where}/schedules/{made.id}/cancel"))
        assert (await agent.schedules.get(made.id)).status == "paused"


async def test_schedules_stand_on_pages_of_twenty() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        for number in range(21):
            await agent.schedules.create("x", every="2h", name=f"number {number}")
        where = f"/agents/{agent.id}/memory"
        first = await client.get(where)
        link = next(str(one["href"]) for _, one in tags_of(first.text) if "schedule=" in str(one.get("href")))
        second = text_of((await client.get(where + link.partition("#")[0])).text)

    assert "number 19" in first.text and "number 20" not in first.text
    assert "number 20" in second and "number 19" not in second and "The first schedules" in second


async def test_schedules_are_added_paused_and_resumed() -> None:
    """By a time, an interval, a time of each day, or a cron expression; adding can be undone."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory/schedules"
        added = {
            kind: await client.post(where, data={"message": "Water.", "kind": kind, "when": when})
            for kind, when in [("at", "in 20m"), ("every", "2h"), ("day", "9:00"), ("weekdays", "18:30")]
        }
        wrong = [
            await client.post(where, data={"message": "x", "kind": kind, "when": when})
            for kind, when in [("day", "noon"), ("every", "1s"), ("never", "9:00"), ("cron", "x")]
        ]
        when = [describe_timing(one.timing) for one in await agent.schedules.list()]
        await undo(client, added["at"])
        every = (await agent.schedules.list())[0]
        paused = await client.post(f"{where}/{every.id}/pause")
        page = text_of((await client.get(f"/agents/{agent.id}/memory")).text)
        await undo(client, paused)

        assert [one.status_code for one in added.values()] == [200] * 4
        assert [one.status_code for one in wrong] == [422] * 4
        assert when[1:] == ["every 2 h (UTC)", "cron 0 9 * * * (UTC)", "cron 30 18 * * MON-FRI (UTC)"]
        assert "every 2 h (UTC) paused" in page and "Resume" in page
        assert (await agent.schedules.get(every.id)).status == "active"
