"""The chat in a browser, while everything happens at once: what it shows in the end is what is stored."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Error, FilePayload, Page, Route

from perdure.core.messages import text_without_images
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel, says
from tests.support.servers import listening, open_library
from tests.ui.chromium import needs_chromium

pytestmark = needs_chromium
FULL = os.environ.get("PERDURE_FAULTS") == "full"
ORDERS, ACTIONS = (200, 20) if FULL else (2, 16)
PAUSE_S = 0.06
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FAP5FDvcfRYWgAAAAAElFTkSuQmCC"
PICTURE: FilePayload = {"name": "dot.png", "mimeType": "image/png", "buffer": base64.b64decode(PNG)}

SHOWN = """[...document.querySelectorAll("#messages > .item, #live > .item, #queued > .item, #outbox > .item")]
    .map(one => `${one.parentElement.id} ${one.id} ${(one.querySelector(".text") ?? one).textContent.trim()}`)"""
OFFERED = """[...new Set([...document.querySelectorAll("[data-post]")].filter(one => one.checkVisibility())
    .map(one => one.dataset.post))]"""
IDLE = """!away && outbox.length === 0 && !delivering && source === null
    && document.querySelector(".chat").dataset.run === "" """


class SlowModel(ScriptedModel):
    """A scripted model that pauses between the words of its answers."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        async for piece in super().respond(request):
            await asyncio.sleep(PAUSE_S)
            yield piece


@dataclass
class Order:
    """One random order of actions, in one or two tabs of a browser.

    Args:
        sent: the texts that were sent.
        doubtful: those for which the button that takes back was pressed: it may have come too late.
        online_in: how many actions the network is still away.
    """

    context: BrowserContext
    address: str
    random: random.Random
    tabs: list[Page] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    online_in: int = 0

    async def open_tab(self) -> None:
        page = await self.context.new_page()
        page.on("pageerror", lambda error: self.failures.append(str(error)))
        await page.goto(self.address)
        self.tabs.append(page)

    async def act(self) -> None:
        """Do one thing in one of the tabs, as a person would who does not wait for what comes of it."""
        page = self.random.choice(self.tabs)
        offered = await page.evaluate(OFFERED)
        others = ["wait"] if self.online_in else ["wait", "away", "reload", *(["tab"] if len(self.tabs) < 2 else [])]
        match self.random.choice(["send"] * 3 + [*offered] * 2 + others):
            case "send":
                text = f"message {len(self.sent)}."
                self.sent.append(text)
                if self.random.random() < 0.2 and not self.online_in:
                    await page.route("**/messages?*", lose_answer, times=1)
                if self.random.random() < 0.2:
                    await page.set_input_files("#attach", PICTURE)
                await page.fill("#text", text)
                await page.press("#text", "Enter")
            case "stop" | "again" | "take-back" as post:
                with contextlib.suppress(Error):  # the button has gone meanwhile
                    # An element, not a place in the list: another message may stand last by the time of the click.
                    button = await page.locator(f"[data-post={post}]:visible").last.element_handle(timeout=100)
                    if post == "take-back":
                        text = await button.evaluate("one => one.closest('.item').querySelector('.text').textContent")
                        self.doubtful.update(texts_in(text))
                    await button.click(timeout=300)
            case "away":
                self.online_in = self.random.randint(1, 5)
                await self.context.set_offline(True)
            case "tab":
                await self.open_tab()
            case "reload":
                await page.reload()
        await asyncio.sleep(self.random.choice([0, 0, 0.05, 0.2, 0.6]))
        if self.online_in:
            self.online_in -= 1
            if not self.online_in:
                await asyncio.sleep(5 if FULL and self.random.random() < 0.2 else 0)
                await self.context.set_offline(False)


async def lose_answer(route: Route) -> None:
    """Let a request reach the server, and its answer not the browser."""
    with contextlib.suppress(Error):  # the page was reloaded meanwhile
        await route.fetch()
        await route.abort()


async def until_equal(page: Page, fresh: Page, address: str) -> tuple[Any, Any]:
    """(what a tab shows, what a new one does), once they are the same and nothing goes on, or after a while."""
    shown, stored = None, None
    for _ in range(1_200):  # up to two minutes: many answers may wait, on a busy machine
        await asyncio.sleep(0.1)
        if await page.evaluate(IDLE):
            await fresh.goto(address)
            shown, stored = await page.evaluate(SHOWN), await fresh.evaluate(SHOWN)
            if shown == stored and await fresh.evaluate(IDLE):
                break
    return shown, stored


def texts_in(text: str) -> list[str]:
    """The texts of `Order.act` that a message holds, in order."""
    return re.findall(r"message \d+\.", text)


async def texts_of(agent: AsyncAgent) -> list[str]:
    """What was said; a text that was taken back stands before the one that was being typed meanwhile, also where it
    comes back between two keys."""
    return [
        text
        for one in await agent.messages()
        if one.role == "user"
        for text in texts_in(text_without_images(one.parts))
    ]


@pytest.mark.parametrize("seed", range(ORDERS))
async def test_what_is_shown_in_the_end_is_what_is_stored(chromium: Browser, tmp_path: Path, seed: int) -> None:
    """Sending, also pictures, queueing, stopping, taking back, trying again, a network that is away, a second tab and
    reloads in a random order: nothing twice, nothing missing."""
    model: SlowModel = SlowModel(
        otherwise=lambda request: says(f"**Answer** to `{len(model.requests)}`:\n\n" + "word " * 20)
    )
    async with (
        open_library(tmp_path, model, ()) as library,
        listening(library, ServerConfig(port=0)) as address,
        await chromium.new_context() as context,
    ):
        agent = await library.create_agent("Ada")
        order = Order(context, f"{address}/agents/{agent.id}", random.Random(seed))
        await order.open_tab()
        for _ in range(ACTIONS):
            await order.act()
        await context.set_offline(False)

        fresh = await context.new_page()
        for page in order.tabs:
            shown, stored = await until_equal(page, fresh, order.address)
            assert shown == stored and shown is not None
        said = await texts_of(agent)
        assert len(said) == len(set(said))
        assert {*order.sent} - order.doubtful <= {*said} <= {*order.sent}
        assert order.failures == []
