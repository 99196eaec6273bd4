"""The dashboard's style sheet has one scale of type, and what is pressed is large enough for a finger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser

import perdure.ui.render
from perdure.testing import says
from tests.ui.chromium import needs_chromium, open_page
from tests.ui.test_browser import EDIT, fill, open_dashboard

SHEETS = sorted((Path(perdure.ui.render.__file__).parent / "static").glob("*.css"))
OWN = [path for path in SHEETS if not path.name.endswith(".min.css")]
SIZES, WEIGHTS = ("xs", "s", "m", "l", "xl"), ("normal", "medium", "strong")


@pytest.mark.parametrize("sheet", OWN, ids=lambda path: path.name)
def test_every_text_has_one_of_five_sizes_and_three_weights(sheet: Path) -> None:
    text = sheet.read_text(encoding="utf-8")
    sizes = set(re.findall(r"font-size: ([^;}]+)", text))
    weights = set(re.findall(r"font-weight: ([^;}]+)", text))
    fonts = set(re.findall(r"font: ([^;}]+)", text))

    assert sizes <= {f"var(--{name})" for name in SIZES}
    assert weights <= {f"var(--{name})" for name in WEIGHTS}
    assert [one for one in fonts if one != "inherit" and not one.startswith("var(--normal) ")] == []
    assert [one for one in fonts if one != "inherit" and not re.search(r" (100%|var\(--(xs|s|m|l|xl)\))/", one)] == []


SMALL = """[...document.querySelectorAll("#main :is(a, button, input, select, textarea, summary):not(.sr)")]
    .filter(one => one.checkVisibility() && getComputedStyle(one).display !== "inline")
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.width && (box.height < 23.9 || box.width < 23.9))
    .map(([one, box]) => `${one.outerHTML.slice(0, 90)} ${Math.round(box.width)} x ${Math.round(box.height)}`)"""
"""What is smaller than 24 px; links within a sentence, which are inline, are as high as its lines."""


WIDE = """[...document.querySelectorAll("body *:not(.sr, .sr *, .skip, svg *, pre *, .plot *)")]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => `${one.outerHTML.slice(0, 90)} ${Math.round(one.getBoundingClientRect().right)}`)"""
"""What ends beyond the right edge, also if what it is in can be scrolled."""


@needs_chromium
@pytest.mark.uses("origins")
async def test_nothing_is_wider_than_a_phone(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path, EDIT, says("Noted.")) as (address, library):
        paths, found = await fill(library), {}
        async with open_page(chromium, address, width=390) as (page, _):
            for path in paths:
                await page.goto(address + path)
                if wide := await page.evaluate(WIDE):
                    found[path] = wide[:3]
    assert found == {}


@needs_chromium
@pytest.mark.uses("origins")
async def test_what_is_pressed_is_at_least_24_pixels_large(chromium: Browser, tmp_path: Path) -> None:
    async with open_dashboard(tmp_path, EDIT, says("You like coffee in the garden.")) as (address, library):
        paths, found = await fill(library), {}
        step = (await (await library.agent("Ada")).steps(limit=1))[0]
        paths.append(f"/why?of={step.id}")
        async with open_page(chromium, address) as (page, _):
            for path in paths:
                await page.goto(address + path)
                if small := await page.evaluate(SMALL):
                    found[path] = small
    assert found == {}
