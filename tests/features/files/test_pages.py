"""The pages of files: an agent's Files tab, and which agents read the folders on the page of data."""

from __future__ import annotations

import asyncio

import httpx

from perdure import AsyncPerdure
from tests.ui.browser import dashboard, text_of, undo

PLAN = b"# Boiler\n\nThe pressure should be 1.5 bar.\n"


async def completed(client: httpx.AsyncClient, address: str) -> str:
    """The text of the page once each of its files is done."""
    for _ in range(500):
        page = (await client.get(f"{address}?format=json")).json()
        if page["folders"] and all(file["ended"] for folder in page["folders"] for file in folder["files"]):
            return text_of((await client.get(address)).text)
        await asyncio.sleep(0.01)
    raise AssertionError("the files are not processed")


async def test_a_file_is_uploaded_to_an_agent_and_found_there() -> None:
    """Without a folder it gets one; the page says what the file became, and search names the line."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        here = f"/agents/{agent.id}/files"
        empty = text_of((await client.get(here)).text)
        sent = await client.post(f"{here}/upload", files={"file": ("boiler.md", PLAN)}, data={"folder_id": ""})
        page = await completed(client, here)
        found = text_of((await client.get(here, params={"q": "pressure"})).text)
        (folder,) = await agent.files.folders()
        again = await client.post(
            f"{here}/upload", files={"file": ("x.bin", b"\x00\xff")}, data={"folder_id": folder.id}
        )

        assert "Ada reads no files yet" in empty
        assert "boiler.md arrived. Ada can read what is completed below." in text_of(sent.text)
        assert folder.name == "Ada's files"
        assert "1 passage read as markdown" in page and "completed" in page
        assert "Ada's files/boiler.md" in found and "1.5 bar" in found
        assert again.status_code >= 400 and "x.bin" in text_of(again.text)


async def test_a_folder_is_attached_and_detached() -> None:
    """And both can be undone."""
    async with dashboard() as (client, library):
        agent, folder = await library.create_agent("Ada"), await library.folders.create("Manuals")
        here = f"/agents/{agent.id}/files"
        attached = await client.post(f"{here}/folders", data={"folder_id": folder.id})
        names = [one.name for one in await agent.files.folders()]
        detached = await client.post(f"{here}/folders/{folder.id}/detach")
        none = await agent.files.folders()
        await undo(client, detached)
        back = [one.name for one in await agent.files.folders()]
        await undo(client, attached)

        assert names == back == ["Manuals"] and none == []
        assert await agent.files.folders() == []


async def test_the_page_of_data_says_who_reads_an_upload() -> None:
    """Without an agent that has the folder it leads to where one is chosen."""
    async with dashboard() as (client, library):
        folder = await library.folders.create("Manuals")
        where = f"/data/folders/{folder.id}"
        alone = await client.post(f"{where}/files", files={"file": ("a.md", PLAN)})
        agent = await library.create_agent("Ada")
        given = await client.post(f"{where}/agents?folder={folder.id}", data={"agent_id": agent.id})
        read = await client.post(f"{where}/files", files={"file": ("b.md", PLAN)})
        page = text_of((await client.get(f"/data?folder={folder.id}")).text)

        assert "a.md arrived. No agent has the folder Manuals yet: choose who reads it" in text_of(alone.text)
        assert 'href="#readers"' in alone.text
        assert "Ada reads the folder Manuals now." in text_of(given.text)
        assert "b.md arrived. Ada can read what is completed below." in text_of(read.text)
        assert "Read by Ada" in page


async def test_what_another_organisation_has_can_not_be_attached() -> None:
    """An unknown folder is not found, and nothing is made."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        here, unknown = f"/agents/{agent.id}/files", "source-123e4567-e89b-42d3-a456-426614174000"
        answers = [
            await client.post(f"{here}/folders", data={"folder_id": unknown}),
            await client.post(f"{here}/upload", files={"file": ("a.md", PLAN)}, data={"folder_id": unknown}),
        ]

        assert [answer.status_code for answer in answers] == [404, 404]
        assert await count(library) == 0


async def test_a_file_that_is_refused_leaves_no_folder() -> None:
    """By either way to upload it to an agent without one."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        for way in ("drop", "upload"):
            sent = await client.post(f"/agents/{agent.id}/files/{way}", files={"file": ("x.bin", b"\x00\xff")})
            assert sent.status_code >= 400
        assert await count(library) == 0


async def count(library: AsyncPerdure) -> int:
    """How many folders there are."""
    return await library.folders.count()
