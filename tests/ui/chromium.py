"""A headless Chromium that opens the dashboard, and what it says about each page."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import axe_playwright_python  # type: ignore[import-untyped]
import pytest
from playwright.async_api import Browser, Page, async_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here: `apt install chromium` on Debian gets it"
)

FEATURES_OFF = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "PaintHolding"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "OptimizationHints", "PreconnectToSearch"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "NetworkTimeServiceQuerying", "ThirdPartyStoragePartitioning"),
)
"""The address bar's popup is a page that nobody sees, and takes a quarter of the CPU of each page that is opened. The
others are off by Playwright's own list, which this one replaces."""

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
Theme = Literal["light", "dark"]
SERIOUS = ("serious", "critical")
FIND = "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"


@dataclass
class Seen:
    """What a page did beside showing itself."""

    address: str
    problems: list[str] = field(default_factory=list)
    received_bytes: int = 0

    def listen(self, page: Page) -> None:
        """Note messages of the console, errors of scripts, dialogs, and requests that leave the server."""
        page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not url.startswith((self.address, "data:")):
            self.problems.append(f"request: {url}")


@contextlib.asynccontextmanager
async def launch() -> AsyncIterator[Browser]:
    """A running Chromium."""
    async with async_playwright() as playwright:
        # Chromium's own sandbox can't be made inside a container; only this server's pages are opened.
        args = ["--no-sandbox", f"--disable-features={','.join(FEATURES_OFF)}"]
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        try:
            yield chromium
        finally:
            await chromium.close()


@contextlib.asynccontextmanager
async def open_page(
    chromium: Browser, address: str, *, width: int = 1280, height: int = 800, theme: Theme = "light"
) -> AsyncIterator[tuple[Page, Seen]]:
    """A page that shares no cookies or storage with other pages, and what it sees.

    A page costs less in a context that is there already: the one before it leaves nothing behind in it.
    """
    context = next((one for one in chromium.contexts if not one.pages), None) or await chromium.new_context()
    page, seen = await context.new_page(), Seen(address)
    page.set_default_timeout(15_000)
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme=theme)
    seen.listen(page)
    try:
        yield page, seen
    finally:
        await context.set_offline(False)
        await context.unroute_all()
        await context.clear_permissions()
        await context.clear_cookies()
        session = await context.new_cdp_session(page)
        await session.send("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
        for one in context.pages:
            await one.close()


async def serious_findings(page: Page) -> list[str]:
    """What axe calls serious or worse on the page that is shown."""
    # Through the debugger: the page's own policy lets no foreign script run.
    session = await page.context.new_cdp_session(page)
    await session.send("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
    answer = await session.send("Runtime.evaluate", {"expression": FIND, "awaitPromise": True, "returnByValue": True})
    return [
        f"{found['id']}: {node['html']} {node['failureSummary']}"
        for found in answer["result"]["value"]
        if found["impact"] in SERIOUS
        for node in found["nodes"]
    ]
