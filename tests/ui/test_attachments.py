"""Files and pictures in the chat: a file goes to a folder of the agent, a picture to a model that takes pictures."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser, Dialog, FilePayload, Page, Route, expect

from perdure.core.messages import Image, Text
from perdure.providers.build import takes_images
from perdure.testing import ScriptedModel, calls, says
from tests.ui.browser import dashboard, text_of
from tests.ui.chromium import needs_chromium
from tests.ui.test_browser import press_until
from tests.ui.test_chat import HaltingModel, open_chat, send

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = {"picture": ("pear.png", PNG, "image/png")}


async def attach(page: Page, *names: str, content: bytes = PNG) -> None:
    """Choose pictures for the message."""
    files: list[FilePayload] = [{"name": name, "mimeType": "image/png", "buffer": content} for name in names]
    await page.set_input_files("#attach", files)


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


async def test_a_picture_that_waits_is_shown_and_taken_back() -> None:
    """Only to its own agent, and only in its conversation."""
    began, go = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        """Wait."""
        began.set()
        await go.wait()
        return "done"

    async with dashboard(calls("hold"), says("One."), says("A pear."), tools=[hold]) as (client, library):
        agent = await library.create_agent("Ada", tools=["hold"])
        other = await library.create_agent("Lin")
        path = f"/agents/{agent.id}"
        await agent.submit("wait")
        await began.wait()
        await client.post(f"{path}/messages", data={"text": "What is this?", "key": "one"}, files=PICTURE)
        page = (await client.get(f"{path}?format=json")).json()
        (queued,), line = page["queued"], page["conversation"]["id"]
        assert (queued["text"], queued["pictures"]) == ("What is this?", [1])
        picture = f"/pictures/{queued['message_id']}/1?conversation={line}"
        assert f'src="{path}{picture}"' in (await client.get(path)).text
        assert (await client.get(path + picture)).content == PNG
        assert (await client.get(f"/agents/{other.id}{picture}")).status_code == 404
        assert (await client.post(f"{path}/take-back", data={"run_id": queued["run_id"]})).status_code == 200
        assert (await client.get(path + picture)).status_code == 404
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
    """It is of the next message, as is a picture that is attached meanwhile."""
    async with open_chat(chromium, tmp_path, ScriptedModel(says("A pear."))) as (page, _, agent):
        arrived, go = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            arrived.set()
            await go.wait()
            await route.continue_()

        await page.route("**/messages?*", hold)
        await attach(page, "pear.png")
        await send(page, "What is this?")
        await arrived.wait()
        await expect(page.locator("#outbox .item")).to_contain_text("1 picture · Sending…")
        await attach(page, "fig.png")
        await page.press("#text", "Enter")
        await page.type("#text", "And this?")
        go.set()
        await page.wait_for_selector("#messages .assistant:has-text('A pear.')")
        await expect(page.locator("#text")).to_have_value("And this?")
        await expect(page.locator("#attached li")).to_have_text(["fig.png ×"])
        assert len([one for one in await agent.messages() if one.role == "user"]) == 1


@needs_chromium
async def test_pictures_wait_for_the_connection_also_over_a_reload(chromium: Browser, tmp_path: Path) -> None:
    """Behind the text that was sent before, in its order, and once."""
    async with open_chat(chromium, tmp_path, ScriptedModel()) as (page, _, agent):
        await page.route("**/messages?*", lambda route: route.abort())
        await send(page, "Look.")
        await attach(page, "pear.png", "fig.png")
        await send(page, "What is this?")
        await expect(page.locator("#outbox .meta")).to_have_text(
            ["Not sent yet: no connection", "2 pictures · Not sent yet: no connection"]
        )
        await page.reload()
        await expect(page.locator("#outbox .item")).to_have_count(2)
        await page.unroute("**/messages?*")
        await expect(page.locator("#messages .user img")).to_have_count(2)
        await expect(page.locator("#messages .assistant")).to_have_count(2)
        said = [one for one in await agent.messages() if one.role == "user"]
        assert [(one.parts[0], len(one.parts)) for one in said] == [(Text("Look."), 1), (Text("What is this?"), 3)]


@needs_chromium
async def test_a_message_too_long_for_a_reload_says_so_and_is_sent(chromium: Browser, tmp_path: Path) -> None:
    """The browser asks before such a page is left."""
    asked: list[str] = []

    async def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        await dialog.dismiss()

    async with open_chat(chromium, tmp_path, ScriptedModel()) as (page, _, agent):
        page.on("dialog", stay)
        await page.route("**/messages?*", lambda route: route.abort())
        await attach(page, "pear.png", content=PNG + b" " * 4_500_000)
        await send(page, "What is this?")
        await expect(page.locator("#outbox .meta")).to_contain_text("keep this page open")
        await page.evaluate("setTimeout(() => location.reload())")
        await expect(page.locator("#outbox .meta")).to_contain_text("keep this page open")
        await page.unroute("**/messages?*")
        await page.wait_for_selector("#messages .assistant")
        assert asked == ["beforeunload"]
        assert len([one for one in await agent.messages() if one.role == "user"]) == 1


@needs_chromium
async def test_a_picture_that_waits_is_taken_back_into_the_composer(chromium: Browser, tmp_path: Path) -> None:
    """With its text, also after a reload; it can be sent again."""
    model = HaltingModel("one more ", "time")
    async with open_chat(chromium, tmp_path, model) as (page, seen, agent):
        await send(page, "count")
        await page.wait_for_selector("#live .assistant")
        await attach(page, "pear.png")
        await send(page, "What is this?")
        await page.wait_for_selector("#queued .item img")
        await page.reload()
        await page.click("#queued .item:has(img) button")
        await expect(page.locator("#text")).to_have_value("What is this?")
        await expect(page.locator("#attached li")).to_have_count(1)
        await expect(page.locator("#queued .item")).to_have_count(0)
        await page.press("#text", "Enter")
        model.go.set()
        await expect(page.locator("#messages .assistant")).to_have_count(2)
        said = [one for one in await agent.messages() if one.role == "user"]
        assert isinstance(said[1].parts[1], Image) and len(said) == 2
    assert seen.problems == []
