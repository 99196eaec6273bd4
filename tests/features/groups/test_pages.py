"""The page of groups, and of what was said in one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from playwright.async_api import Browser

from perdure.library.parts.checks import Page
from perdure.testing import fails, says
from tests.ui.browser import dashboard, text_of, undo
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.test_browser import open_dashboard

HOSTILE = "<script>alert(1)</script>\"'"


async def test_groups_are_listed_with_their_agents() -> None:
    """Newest first, without hidden ones; none says how to make one."""
    async with dashboard() as (client, library):
        none = text_of((await client.get("/groups")).text)
        ann, ben, mia = [await library.create_agent(name) for name in ("Ann", "Ben", "Mia")]
        await library.groups.create("round_robin", agents=[ann, ben], description=HOSTILE)
        await library.groups.create("dynamic", agents=[ann], manager=mia)
        await library.groups.create("round_robin", agents=[ben], hidden=True)
        page = await client.get("/groups")
        rows = (await client.get("/groups?format=json")).json()["groups"]

        assert "There are none yet. Create agents first." in none
        assert [row["name"] for row in rows] == ["Dynamic: Ann", HOSTILE]
        assert "led by Mia" in text_of(page.text)
        assert HOSTILE not in page.text and HOSTILE in text_of(page.text)


async def test_a_transcript_says_who_said_what() -> None:
    """Also who failed and what a manager chose; the newest at the end, older ones behind a link."""
    script = [says(HOSTILE), fails("no power"), says("Ann"), says("DONE!")]
    async with dashboard(*script) as (client, library):
        ann, ben, mia = [await library.create_agent(name) for name in ("Ann", "Ben", "Mia")]
        pair = await library.groups.create("round_robin", agents=[ann, ben], description="pair")
        await pair.send("Where?")
        led = await library.groups.create("dynamic", agents=[ann], manager=mia)
        await led.send("And now?")
        path = f"/groups?group={pair.id}"
        page = await client.get(path)
        entries = (await client.get(f"{path}&format=json")).json()["entries"]
        before = (await client.get(f"{path}&before={entries[1]['id']}&format=json")).json()["entries"]
        chosen = text_of((await client.get(f"/groups?group={led.id}")).text)

        assert [(one["kind"], one["name"]) for one in entries] == [("user", ""), ("speech", "Ann"), ("failure", "Ben")]
        assert HOSTILE not in page.text
        assert "Ben could not speak: no power" in text_of(page.text)
        assert [one["text"] for one in before] == ["Where?"]
        assert "Mia chooses: Ann" in chosen
        assert (await client.get("/groups?group=group-123e4567-e89b-42d3-a456-426614174000")).status_code == 404

        await library.delete_agent(ann.id)
        deleted = text_of((await client.get(path)).text)
        assert "Ann said something that was deleted." in deleted


async def test_a_group_is_made_talked_to_and_deleted() -> None:
    """The page follows those who speak until all have spoken."""
    async with dashboard(says("From Ann."), says("From Ben.")) as (client, library):
        ann, ben = [await library.create_agent(name) for name in ("Ann", "Ben")]
        form = {"kind": "round_robin", "description": "pair", "agent": [ben.id, ann.id], "max_turns": "2"}
        made = await client.post("/groups", data=form)
        (group,) = await library.groups.list()
        where = f"/groups/{group.id}"
        sent = await client.post(f"{where}/messages", data={"text": "Where?", "key": "one"})
        again = await client.post(f"{where}/messages", data={"text": "Where?", "key": "one"})
        for _ in range(500):
            page = await client.get(f"/groups?group={group.id}")
            if "They are speaking" not in page.text:
                break
            await asyncio.sleep(0.01)
        stopped = await client.post(f"{where}/stop")
        deleted = await client.post(f"{where}/delete")

        assert made.headers["hx-redirect"] == f"/groups?group={group.id}"
        assert (group.info.agent_ids, group.info.max_turns) == ((ben.id, ann.id), 2)
        assert sent.status_code == again.status_code == stopped.status_code == 200
        said = text_of(page.text)
        assert said.count("Where?") == 1 and said.index("From Ann.") < said.index("From Ben.")
        assert "The group was deleted" in text_of(deleted.text) and await library.groups.list() == []


async def test_a_group_that_can_not_be_is_refused() -> None:
    """Nobody, a kind that there is not, a number that is none, and a leader who takes part."""
    async with dashboard() as (client, library):
        ann = await library.create_agent("Ann")
        forms = [
            {"kind": "round_robin"},
            {"kind": "sleeptime", "agent": ann.id},
            {"kind": "round_robin", "agent": ann.id, "max_turns": "many"},
            {"kind": "dynamic", "agent": ann.id, "manager": ann.id},
        ]
        answers = [(await client.post("/groups", data=form)).status_code for form in forms]

        assert answers == [422] * 4
        assert await library.groups.list() == []


async def test_members_come_and_go_with_undo() -> None:
    """Who is taken out comes back in the same place; the last one stays."""
    async with dashboard() as (client, library):
        ann, ben, mia = [await library.create_agent(name) for name in ("Ann", "Ben", "Mia")]
        group = await library.groups.create("round_robin", agents=[ann, ben])
        where = f"/groups/{group.id}/members"

        async def members() -> list[str]:
            return [*(await library.groups.get(group.id)).info.agent_ids]

        page = await client.get(f"/groups?group={group.id}")
        assert f'<option value="{mia.id}">Mia</option>' in page.text and f'value="{ann.id}"' not in page.text
        added = await client.post(where, data={"agent": mia.id})
        assert await members() == [ann.id, ben.id, mia.id]
        await undo(client, added)
        removed = await client.post(f"{where}/remove", data={"agent": ann.id})
        assert await members() == [ben.id] and "Ann no longer takes part" in text_of(removed.text)
        last = await client.post(f"{where}/remove", data={"agent": ben.id})
        assert last.status_code == 422
        await undo(client, removed)
        assert await members() == [ann.id, ben.id]
        twice = [await client.post(f"{where}/remove", data={"agent": ann.id}) for _ in range(2)]
        assert [one.status_code for one in twice] == [200, 404]


async def test_what_agents_say_is_markdown() -> None:
    """And what people say is not."""
    async with dashboard(says("**Yes**, at `nine`.")) as (client, library):
        group = await library.groups.create("round_robin", agents=[await library.create_agent("Ann")])
        await group.send("**Now?**")
        page = await client.get(f"/groups?group={group.id}")

    assert "<strong>Yes</strong>" in page.text and "<code>nine</code>" in page.text
    assert "**Now?**" in page.text


@needs_chromium
async def test_enter_sends_to_a_group_and_shift_enter_begins_a_line(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path) as (address, library), open_page(chromium, address) as (page, seen):
        group = await library.groups.create("round_robin", agents=[await library.create_agent("Ann")])
        await page.goto(f"{address}/groups?group={group.id}")
        await page.wait_for_selector("#text:focus")
        for key in ("A", "Shift+Enter", "B", "Enter"):
            await page.keyboard.press(key)
        await page.wait_for_selector(".item.user")
        first = (await group.entries(Page(10, ascending=True)))[0][0]
        assert first.text == "A\nB"
        await page.wait_for_selector(".item.assistant")
    assert seen.problems == []
