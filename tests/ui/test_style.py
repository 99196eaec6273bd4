"""The dashboard's style sheet has one scale of type, and what is pressed is large enough for a finger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perdure.ui.render

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
