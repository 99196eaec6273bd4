"""The table of local models: measured on a server as it is, and written to the page without losing other rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.local_models import BEGIN, END, PAGE, Measured, measure, with_rows
from perdure.testing import LocalServer, says

TALK = {"tell": ["I'm Jonas.", "I live in Aarhus."], "ask": [["Where do I live?", "aarhus"], ["Who am I?", "jonas"]]}


def answer(request: Mapping[str, Any]) -> Any:
    said = str(request["messages"])
    return says("In Aarhus." if said.rfind("Where do I") > said.rfind("Who am I") else "I can't say.")


async def test_a_model_is_measured_with_nothing_set_on_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "PERDURE_PROBE_LOCAL", "PERDURE_HOME"):  # what it sets goes away with the test
        monkeypatch.setenv(name, "")
    async with LocalServer(otherwise=answer, window_tokens=16_000) as server:
        measured = await measure(server.url, TALK)  # type: ignore[arg-type]

    assert (measured.right, measured.asked, measured.errors, measured.read_calls) == (1, 2, 0, 0)
    assert measured.prompt_tokens > 0
    assert measured.first_word_s > 0


def test_a_row_takes_the_place_of_the_one_of_its_model() -> None:
    """The rest of the page, and the rows of other models, stay as they are."""
    page = PAGE.read_text(encoding="utf-8")
    page = with_rows(page, [Measured(prompt_tokens=1, right=3).row("one"), Measured(prompt_tokens=2).row("two")])
    again = with_rows(page, [Measured(prompt_tokens=3, right=19, errors=1).row("one")])
    outside = re.compile(f"(?s){BEGIN}.*{END}")

    assert "| one | 3 | 0.0 s | 19 (1 without an answer) | 0 |\n| two | 2 |" in again
    assert outside.sub("", again) == outside.sub("", PAGE.read_text(encoding="utf-8"))
