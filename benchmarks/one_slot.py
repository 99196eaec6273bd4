"""What work in the background costs a person whose server answers one request at a time.

`python -m benchmarks.one_slot`: two agents are told the same by turns, each on a server of its own with one slot and a
cache of one prompt: one with facts by model, prepared summaries and a companion, and one with nothing of it. Time runs
`SCALE` times as fast, also for the limits of the background. Printed is the mean wait for an answer in both, and the
median of the ratios of `ROUNDS` rounds; exit code 1 above `BAR`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure
from perdure.engine.workers.background import APART_S, IDLE_S, QUIET_S
from perdure.settings import Settings
from perdure.testing import Later, LocalServer, calls, says

BAR = 1.1
ROUNDS, MESSAGES = 3, 30
SCALE = 15
PAUSES_S = (4, 12, 6, 25, 3, 15)
"""A person's own time before the next message."""
READ_TOKENS_S, ANSWER_S = 300.0, 4.0
"""Of a small model on a laptop."""
WINDOW_TOKENS = 8_000
SAID = (
    "Today is day {}: my friend Number{} moved to Town{}, and we talked about it for a while. " + "It was fine. " * 30
)
FACTS = '{"entities": [], "facts": [], "certain": true}'
SUMMARY = "They talked about friends who moved to other towns, and about how the days were."


def answer(request: Mapping[str, Any]) -> Any:
    """The server's answer, by what it is asked for."""
    text = str(request["messages"])
    if "response_format" in request:
        line = says(FACTS)
    elif "Write the record of the source" in text:
        line = says(SUMMARY)
    elif "You are a background agent" in text:
        line = calls("memory_finish_edits", reason="Nothing.")
    else:
        line = says("Fine.")
    return Later(ANSWER_S / SCALE, line)


class Talk:
    """A talk with an agent, with everything in the background on, or off.

    Attributes:
        waits_s: for each answer.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self.server = LocalServer(
            otherwise=answer, window_tokens=2 * WINDOW_TOKENS, read_tokens_s=READ_TOKENS_S * SCALE
        )
        self.waits_s: list[float] = []

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Talk]:
        """Hold the talk within the block."""
        async with self.server:
            os.environ |= {"OPENAI_BASE_URL": self.server.url, "PERDURE_PROBE_LOCAL": "0"}
            os.environ.pop("OPENAI_API_KEY", None)
            settings = Settings(embedding="none", facts="model" if self.on else "off", model="openai/local")
            async with await AsyncPerdure.open(folder / f"{self.on}.db", settings=settings) as perdure:
                background = perdure.app.ports.background
                background.quiet_s, background.apart_s = QUIET_S / SCALE, APART_S / SCALE
                background.idle_s = IDLE_S / SCALE
                summaries = {"background": self.on}
                made = {"context_window_tokens": WINDOW_TOKENS, "facts": {"batch_turns": 4}, "summaries": summaries}
                self._agent = await perdure.create_agent("a", sleeptime=self.on, settings=made)
                yield self

    async def say(self, text: str) -> None:
        """Send a message, and note how long its answer takes."""
        begun = time.perf_counter()
        await self._agent.send(text)
        self.waits_s.append(time.perf_counter() - begun)

    @property
    def wait_s(self) -> float:
        """The mean wait, in seconds of the person's time."""
        return SCALE * statistics.mean(self.waits_s)

    @property
    def calls(self) -> str:
        """How many calls were made besides answers, and how many of them were given up, in words."""
        given_up = sum(not row.is_done for row in self.server.served)
        return f"{len(self.server.served) - MESSAGES} calls, {given_up} of them given up"


async def measure(folder: Path) -> tuple[Talk, Talk]:
    """The talks without and with everything in the background."""
    async with Talk(on=False).opened(folder) as without, Talk(on=True).opened(folder) as with_all:
        for number in range(MESSAGES):
            for talk in (without, with_all):
                await talk.say(SAID.format(number, number, number))
            await asyncio.sleep(PAUSES_S[number % len(PAUSES_S)] / SCALE)
        return without, with_all


def main() -> int:
    """Print the waits; 1 if the bar was missed."""
    ratios: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            without, with_all = asyncio.run(measure(Path(folder)))
        ratios.append(with_all.wait_s / without.wait_s)
        print(
            f"wait for an answer: {without.wait_s:.1f} s with nothing in the background, {with_all.wait_s:.1f} s with"
            f" all of it ({with_all.calls}): {ratios[-1]:.2f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"median {ratio:.2f}, bar {BAR}: {'MISSED' if ratio > BAR else 'ok'}")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
