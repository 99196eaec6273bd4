"""No text of a tool, a model or a person holds the event loop: neither a result, an answer nor a message."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.testing import calls, says
from tests.support.hostile import SHAPES
from tests.support.library import open_async
from tests.support.watchdog import Watchdog

EACH = 1 if os.environ.get("PERDURE_FAULTS") == "full" else 6
"""Of so many shapes one is tried; all of them in `make faults`, and each reader of them in `tests/properties`."""

LIMIT_S = 0.5
CHARS = 48_000


def reader(make: Callable[[int], str]) -> Callable[[], str]:
    """A tool that returns such a text."""

    def read_page() -> str:
        """Read a page."""
        return make(CHARS)

    return read_page


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_no_text_holds_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """A result, an answer and a message of each shape, just below the size from which much is done in threads."""
    dog, slow = Watchdog(), []
    with dog.watch(monkeypatch):
        for number, (name, make) in enumerate(list(SHAPES.items())[part :: 4 * EACH], start=1):
            script = [calls("read_page"), says(f"Look: {make(CHARS)}"), says("done")]
            async with await open_async(tmp_path / f"{number}.db", *script, tools=[reader(make)]) as perdure:
                agent = await perdure.create_agent(tools=["read_page"])
                await dog.time(2 * number, agent.send("Read."))
                if dog.longest_s > LIMIT_S:
                    slow.append(f"result and answer, {name}: {dog.longest_s:.2f} s")
                await dog.time(2 * number + 1, agent.send(f"Look: {make(CHARS)}"))
                if dog.longest_s > LIMIT_S:
                    slow.append(f"message, {name}: {dog.longest_s:.2f} s")

    assert not slow, "\n".join(slow)
