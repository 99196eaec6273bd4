"""The contract of context engines: the same conversations, and the same promises, with each of them."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from tests.engine.context_engines import stories
from tests.engine.context_engines.stories import STORIES, Told, tell

ENGINES: dict[str, Any] = {
    "paged": None,
    "sliding_window": "sliding_window",
    "recursive_summary": "recursive_summary",
    "message_buffer": "message_buffer",
    "composition": {"name": "composition", "options": {"assembler": "recursive_summary", "compressor": "stubs"}},
}


@functools.cache
def told(engine: str, story: str) -> Told:
    """Each story is told once."""
    return asyncio.run(tell(STORIES[story], ENGINES[engine]))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("story", STORIES)
def test_every_engine_keeps_the_promises_in_every_conversation(engine: str, story: str) -> None:
    """Each run ends, each request is legal, fits and can be rebuilt, and nothing is out of reach."""
    one = told(engine, story)

    stories.every_run_has_ended(one)
    stories.every_request_is_legal_and_fits(one)
    stories.every_request_can_be_rebuilt(one)
    if story != "autoclear":
        stories.every_message_is_reachable(one)
    stories.each_eviction_makes_the_view_smaller(one)
    stories.nobody_is_quarantined(one)
    assert one.by, "the story needs no engine"
