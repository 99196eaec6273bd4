"""What work in the background costs a person whose server answers one request at a time.

`python -m benchmarks.one_slot`: two agents are told the same on a server with one slot and a cache of one prompt, one
after the other: with facts by model, prepared summaries and a companion, and with nothing of it. Time runs `SCALE`
times as fast, also for the limits of the background; a talk takes half an hour of it. Printed is the mean wait for an
answer in both, and the median of the ratios of `ROUNDS` rounds; exit code 1 above `BAR`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure
from perdure.engine.workers.background import APART_S, IDLE_S, QUIET_S
from perdure.settings import Settings
from perdure.testing import Later, LocalServer, calls, says

BAR = 1.1
ROUNDS, MESSAGES = 3, 60
SCALE = 50
PAUSES_S = (4, 25, 12, 60, 8, 40)
"""A person's own time before the next message."""
READ_TOKENS_S, ANSWER_S = 300.0, 4.0
"""Of a small model on a laptop."""
WINDOW_TOKENS = 8_000
SAID = (
    "Today is day {}: my friend Number{} moved to Town{}, and we talked about it for a while. " + "It was fine. " * 30
)
FACTS = '{"entities": [], "facts": [], "certain": true}'
SUMMARY = "They talked about friends who moved to other towns, and about how the days were."


@dataclass
class Talk:
    """The mean wait for an answer, in seconds of the person's time, and what the server did besides."""

    wait_s: float
    background_calls: int
    given_up: int


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


async def talk(folder: Path, *, on: bool) -> Talk:
    """Hold the talk with everything in the background on, or off."""
    async with LocalServer(
        otherwise=answer, window_tokens=2 * WINDOW_TOKENS, read_tokens_s=READ_TOKENS_S * SCALE
    ) as server:
        os.environ |= {"OPENAI_BASE_URL": server.url, "PERDURE_PROBE_LOCAL": "0"}
        os.environ.pop("OPENAI_API_KEY", None)
        settings = Settings(embedding="none", facts="model" if on else "off", model="openai/local")
        async with await AsyncPerdure.open(folder / "talk.db", settings=settings) as perdure:
            background = perdure.app.ports.background
            background.quiet_s, background.apart_s, background.idle_s = (
                seconds / SCALE for seconds in (QUIET_S, APART_S, IDLE_S)
            )
            agent = await perdure.create_agent(
                "a",
                sleeptime=on,
                settings={
                    "context_window_tokens": WINDOW_TOKENS,
                    "facts": {"batch_turns": 4},
                    "summaries": {"background": on},
                },
            )
            waits: list[float] = []
            for number in range(MESSAGES):
                begun = time.perf_counter()
                await agent.send(SAID.format(number, number, number))
                waits.append(time.perf_counter() - begun)
                await asyncio.sleep(PAUSES_S[number % len(PAUSES_S)] / SCALE)
            given_up = sum(not row.is_done for row in server.served)
            return Talk(SCALE * statistics.mean(waits), len(server.served) - MESSAGES, given_up)


def main() -> int:
    """Print the waits; 1 if the bar was missed."""
    ratios: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            without, with_all = (asyncio.run(talk(Path(folder) / str(on), on=on)) for on in (False, True))
        ratios.append(with_all.wait_s / without.wait_s)
        print(
            f"wait for an answer: {without.wait_s:.1f} s with nothing in the background, {with_all.wait_s:.1f} s with"
            f" all of it ({with_all.background_calls} calls, {with_all.given_up} of them given up): {ratios[-1]:.2f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"median {ratio:.2f}, bar {BAR}: {'MISSED' if ratio > BAR else 'ok'}")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
