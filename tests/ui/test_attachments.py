"""Files and pictures in the chat: a file goes to a folder of the agent, a picture to a model that takes pictures."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from perdure.core.messages import Image, Text
from perdure.providers.build import takes_images
from perdure.testing import ScriptedModel, calls, says
from tests.ui.browser import dashboard, text_of
from tests.ui.chromium import needs_chromium
from tests.ui.test_browser import chromium, press_until
from tests.ui.test_chat import open_chat

__all__ = ["chromium"]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = {"picture": ("pear.png", PNG, "image/png")}


async def test_a_picture_goes_with_the_message_and_is_shown() -> None:
    """Only under the agent's own address."""
    async with dashboard(says("A pear.")) as (client, library):
        agent = await library.create_agent("Ada")
        other = await library.create_agent("Lin")
        path = f"/agents/{agent.id}"
        await client.post(f"{path}/messages", data={"text": "What is this?", "key": "one"}, files=PICTURE)
        async for _ in agent.follow((await agent.runs(limit=1))[0].id):
            pass
        (said,) = [message for message in await agent.messages() if message.role == "user"]
        page = await client.get(path)
        picture = await client.get(f"{path}/pictures/{said.id}/1")

        assert isinstance(said.parts[1], Image)
        assert f'src="{path}/pictures/{said.id}/1"' in page.text
        assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
        for place in ("0", "2", "x", "-1"):
            assert (await client.get(f"{path}/pictures/{said.id}/{place}")).status_code == 404
        assert (await client.get(f"/agents/{other.id}/pictures/{said.id}/1")).status_code == 404


async def test_a_model_without_pictures_refuses_them_plainly() -> None:
    """Nothing is sent; what is no picture is refused, too."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada", model="perdure/extractive")
        path = f"/agents/{agent.id}/messages"
        refused = await client.post(path, data={"text": "What is this?"}, files=PICTURE)
        assert refused.status_code == 422 and "perdure/extractive takes no pictures" in text_of(refused.text)
        lin = await library.create_agent("Lin")
        wrong = await client.post(
            f"/agents/{lin.id}/messages", data={"text": "This?"}, files={"picture": ("a.png", b"no", "image/png")}
        )
        assert wrong.status_code == 422 and "give a PNG" in text_of(wrong.text)
        assert await agent.messages() == [] and await lin.messages() == []


async def test_a_picture_stays_when_its_text_is_edited() -> None:
    """The field holds the text alone; a text that is refused leaves no conversation."""
    async with dashboard(says("A pear."), says("Green.")) as (client, library):
        agent = await library.create_agent("Ada")
        await agent.send("What is this?", images=[PNG])
        (said,) = [message for message in await agent.messages() if message.role == "user"]
        path = f"/agents/{agent.id}"
        edit = (await client.get(path, params={"edit": said.id, "format": "json"})).json()["edit"]
        assert (edit["text"], edit["pictures"]) == ("What is this?", 1)

        form = {"message_id": said.id, "text": "x" * 600_000}
        assert (await client.post(f"{path}/fork", data=form)).status_code == 422
        assert len(await agent.conversations()) == 1
        await client.post(f"{path}/fork", data={"message_id": said.id, "text": "What colour?"})
        made = (await agent.conversations())[-1]
        async for _ in agent.follow((await agent.runs(limit=1))[0].id):
            pass
        asked = [one for one in await agent.messages(conversation=made.id) if one.role == "user"]
        assert [one.parts for one in asked] == [(Text("What colour?"), said.parts[1])]


async def test_a_queued_picture_is_named_and_not_taken_back() -> None:
    """Its text would come back alone."""
    began, go = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        """Wait."""
        began.set()
        await go.wait()
        return "done"

    async with dashboard(calls("hold"), says("One."), says("A pear."), tools=[hold]) as (client, library):
        agent = await library.create_agent("Ada", tools=["hold"])
        path = f"/agents/{agent.id}"
        await agent.submit("wait")
        await began.wait()
        await client.post(f"{path}/messages", data={"text": "What is this?", "key": "one"}, files=PICTURE)
        (queued,) = (await client.get(f"{path}?format=json")).json()["queued"]
        page = await client.get(path)
        assert (queued["text"], queued["pictures"]) == ("What is this?", 1)
        assert "1 picture" in text_of(page.text) and 'data-post="take-back"' not in page.text
        refused = await client.post(f"{path}/take-back", data={"run_id": queued["run_id"]})
        assert refused.status_code == 409 and "pictures can't be taken back" in text_of(refused.text)
        go.set()


@pytest.mark.uses("files")
async def test_a_file_makes_a_folder_of_the_agent_once() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        for name in ("plan.md", "list.txt"):
            page = await client.post(f"/agents/{agent.id}/files/drop", files={"file": (name, b"Pears", "text/plain")})
            assert f"{name} arrived." in text_of(page.text) and "the folder Ada's files" in text_of(page.text)
        (folder,) = await agent.files.folders()
        assert sorted(one.file.name for one in await agent.files.list()) == ["list.txt", "plan.md"]
        assert folder.info.name == "Ada's files"


def test_a_model_around_another_takes_what_that_one_takes() -> None:
    class Around:
        def __init__(self, model: object) -> None:
            self.model = model

    class Blind:
        takes_images = False

    assert takes_images(ScriptedModel())
    assert not takes_images(Around(Around(Blind())))  # type: ignore[arg-type]


@needs_chromium
@pytest.mark.uses("files")
async def test_a_refused_picture_keeps_the_text_and_a_file_is_dropped(chromium: Browser, tmp_path: Path) -> None:
    """By the visible button and by dropping; then the picture is taken away, and the text is sent."""
    model = ScriptedModel()
    model.takes_images = False  # type: ignore[attr-defined]
    async with open_chat(chromium, tmp_path, model) as (page, seen, agent):
        await page.set_input_files("#attach", {"name": "pear.png", "mimeType": "image/png", "buffer": PNG})
        await page.wait_for_selector("#attached li:has-text('pear.png')")
        await page.fill("#text", "What is this?")
        await page.press("#text", "Enter")
        await page.wait_for_selector("#main > .notice.error:has-text('takes no pictures')")
        await expect(page.locator("#text")).to_have_value("What is this?")
        await page.click("#attached button")
        await page.press("#text", "Enter")
        await page.wait_for_selector("#messages .assistant")

        await page.evaluate(
            """() => {
                const files = new DataTransfer();
                files.items.add(new File(["Pears"], "plan.md", {type: "text/markdown"}));
                document.querySelector("#text").dispatchEvent(
                    new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: files}));
            }"""
        )
        await page.wait_for_selector("#main > .notice:has-text('plan.md arrived.')")
        await press_until(page, "#attach")
        assert [one.file.name for one in await agent.files.list()] == ["plan.md"]
    expected = "the server responded with a status of 422"
    assert [problem for problem in seen.problems if expected not in problem] == []


@needs_chromium
async def test_a_picture_is_sent_with_its_text(chromium: Browser, tmp_path: Path) -> None:
    async with open_chat(chromium, tmp_path, ScriptedModel(says("A pear."))) as (page, seen, _):
        await page.set_input_files("#attach", {"name": "pear.png", "mimeType": "image/png", "buffer": PNG})
        await page.fill("#text", "What is this?")
        await page.press("#text", "Enter")
        await page.wait_for_selector("#messages .user img")
        await page.wait_for_selector("#messages .assistant:has-text('A pear.')")
        await expect(page.locator("#attached")).to_be_hidden()
        await expect(page.locator("#text")).to_have_value("")
    assert seen.problems == []


@needs_chromium
async def test_what_is_typed_while_a_picture_is_sent_stays(chromium: Browser, tmp_path: Path) -> None:
    """A second press of Enter sends nothing twice."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("A pear."))) as (page, _, agent):
        arrived, go = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            arrived.set()
            await go.wait()
            await route.continue_()

        await page.route("**/messages?*", hold)
        await page.set_input_files("#attach", {"name": "pear.png", "mimeType": "image/png", "buffer": PNG})
        await page.fill("#text", "What is this?")
        await page.press("#text", "Enter")
        await arrived.wait()
        await page.set_input_files("#attach", {"name": "fig.png", "mimeType": "image/png", "buffer": PNG})
        await page.press("#text", "Enter")
        await page.type("#text", " And this?")
        go.set()
        await page.wait_for_selector("#messages .assistant:has-text('A pear.')")
        await expect(page.locator("#text")).to_have_value("And this?")
        await expect(page.locator("#attached li")).to_have_text(["fig.png ×"])
        assert len([one for one in await agent.messages() if one.role == "user"]) == 1
