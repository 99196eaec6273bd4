"""Screenshots of every page at three widths in both themes: `PERDURE_FAULTS=full pytest tests/ui/test_screenshots.py`.

They are written to the folder that `PERDURE_SCREENSHOTS` names, by default one of the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel
from tests.support.servers import listening, open_library
from tests.ui.chromium import Theme, launch, needs_chromium, open_page
from tests.ui.demo import SCRIPT, fill_demo, send_money

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="screenshots are of the long form"),
]

WIDTHS = {390: 844, 820: 1180, 1280: 800}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the pictures go."""
    found = Path(os.environ.get("PERDURE_SCREENSHOTS") or tmp_path / "pictures")
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_fits_its_width(folder: Path, tmp_path: Path, theme: Theme) -> None:
    """Each page is pictured at each width, and never scrolls sideways."""
    async with (
        open_library(tmp_path, ScriptedModel(*SCRIPT), [send_money]) as library,
        listening(library, ServerConfig(port=0)) as address,
    ):
        paths = await fill_demo(library)
        async with launch() as chromium, open_page(chromium, address, theme=theme) as (page, _):
            for name, path in paths.items():
                await page.goto(address + path)
                for width, height in WIDTHS.items():
                    await page.set_viewport_size({"width": width, "height": height})
                    await page.evaluate("document.querySelector('.chat') && toEnd()")
                    await page.wait_for_timeout(100)
                    wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                    assert wide <= 0, (path, width, wide)
                    await page.screenshot(path=folder / f"{name}-{width}-{theme}.png")
