"""Tables are sorted by the heads of their columns, and keep their filters."""

from __future__ import annotations

import re

import httpx
import pytest

from perdure.testing import says
from tests.ui.browser import BASE, dashboard, tags_of


async def _sorted(client: httpx.AsyncClient, path: str, rows: str, field: str) -> list[object]:
    """What the field has in the rows of a page, down its list."""
    page = (await client.get(f"{path}{'&' if '?' in path else '?'}format=json")).json()
    return [row[field] for row in page[rows]]


async def _links(client: httpx.AsyncClient, path: str) -> set[str]:
    """The addresses that sort the page."""
    tags = tags_of((await client.get(path)).text)
    return {str(values["href"]) for tag, values in tags if tag == "a" and values.get("class") == "sort"}


async def test_agents_and_runs_are_sorted_by_their_columns() -> None:
    async with dashboard(*(says("Hi.") for _ in range(3))) as (client, library):
        ada, bob = await library.create_agent("Ada"), await library.create_agent("bob")
        await bob.send("One")
        await ada.send("Two")
        await bob.send("Three")

        assert await _sorted(client, "/?sort=-messages", "agents", "name") == ["bob", "Ada"]
        assert await _sorted(client, "/?sort=messages", "agents", "name") == ["Ada", "bob"]
        assert await _sorted(client, "/runs?sort=agent", "runs", "agent") == ["Ada", "bob", "bob"]
        assert await _sorted(client, "/runs?sort=-agent", "runs", "agent") == ["bob", "bob", "Ada"]
        assert await _sorted(client, "/runs?sort=started", "runs", "agent") == ["bob", "Ada", "bob"]
        for column in ("status", "model", "took", "steps", "in", "out", "cost", "nonsense"):
            assert len(await _sorted(client, f"/runs?sort={column}", "runs", "agent")) == 3
        links = await _links(client, "/runs?status=completed&sort=agent")
        page = await client.get("/runs?status=completed&sort=agent")

    assert {"?sort=-agent&status=completed", "?sort=-cost&status=completed"} <= links
    assert 'aria-sort="ascending"' in page.text and "?sort=agent&amp;status=failed" in page.text


async def test_tools_are_sorted() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        path = f"/agents/{agent.id}/tools"
        names = await _sorted(client, f"{path}?sort=name", "tools", "name")
        await agent.require_approval(str(names[-1]))

        assert names == sorted(map(str, names)) and len(names) > 2
        assert (await _sorted(client, f"{path}?sort=-approval", "tools", "name"))[0] == names[-1]
        assert "?sort=-approval" in await _links(client, path)


@pytest.mark.uses("files")
async def test_files_are_sorted_on_both_pages() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        folder = await library.folders.create("Garden")
        await agent.files.attach(folder.id)
        for name, text in (("b.txt", "x"), ("a.txt", "xxx"), ("C.txt", "xx")):
            await folder.upload(text.encode(), name=name)
        data = f"/data?folder={folder.id}"
        shown = (await client.get(f"/agents/{agent.id}/files?sort=-size&format=json")).json()["folders"][0]["files"]

        assert await _sorted(client, f"{data}&sort=file", "files", "name") == ["a.txt", "b.txt", "C.txt"]
        assert await _sorted(client, f"{data}&sort=-added", "files", "name") == ["C.txt", "a.txt", "b.txt"]
        assert [one["name"] for one in shown] == ["a.txt", "C.txt", "b.txt"]
        assert f"?sort=-size&folder={folder.id}" in await _links(client, data)


@pytest.mark.uses("files")
async def test_an_action_keeps_the_order_of_its_page() -> None:
    """The order that the address in the browser names, on the pages of tools, of all files and of an agent's."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        folder = await library.folders.create("Garden")
        for name in ("b.txt", "a.txt", "d.txt", "c.txt"):
            file = await folder.upload(b"x", name=name)
        home, data = f"/agents/{agent.id}", f"/data?folder={folder.id}"
        for path, action, column, rows in (
            (f"{home}/tools?", f"{home}/tools/conversation_search/approval", "name", r"<code>(\w+)</code> *<"),
            (f"{home}/files?", f"{home}/files/folders", "file", r'class="wrap">(\w).txt'),
            (f"{data}&", f"/data/folders/{folder.id}/files/{file.id}/delete?folder={folder.id}", "file", r">(\w).txt"),
        ):
            shown = {"hx-current-url": f"{BASE}{path}sort=-{column}"}
            page = await client.post(action, data={"required": "yes", "folder_id": folder.id}, headers=shown)
            names = [*dict.fromkeys(re.findall(rows, page.text))]

            assert page.status_code == 200 and f"?sort={column}" in page.text
            assert len(names) > 2 and names == sorted(names, reverse=True)
