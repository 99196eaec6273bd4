"""What a summary in the background costs the messages beside it: `python -m benchmarks.summary_latency`.

Two conversations of one program, in a store of its own each, answer the same messages by turns. Three quarters of
their windows are full; in one of them a summariser that takes 3 seconds prepares summaries, one after the other. Judged
is the wait for an answer while it does, as a multiple of that in the other: the median over all turns. Exit code 1
above `BAR`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import says

__all__ = ["main"]

BAR = 1.1
LATENCY_S = 3.0
ROUNDS, TURNS = 3, 150
MODEL = "test/slow"
WINDOW = 128_000
FULL = 0.72
"""The share of the window that is full at the beginning; the messages beside the summaries fill more."""
SAID = "Turn {}: how far is it from Turin to Genoa, and which train do you take on a Sunday morning?"
ANSWER = "It is about 170 kilometres. The regional train takes two hours and is cheap; the fast one goes at nine."
SUMMARY = "They asked how far it is from Turin to Genoa, and which train to take: the regional one is cheap."


@dataclass
class SlowSummariser:
    """A model that answers at once, and takes its time for a summary."""

    summaries: int = 0
    writing: int = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose != "summary":
            yield says(ANSWER)
            return
        self.writing += 1
        try:
            await asyncio.sleep(LATENCY_S)
        finally:
            self.writing -= 1
        self.summaries += 1
        yield says(SUMMARY)


@dataclass
class Talk:
    """A conversation."""

    agent: AsyncAgent

    async def take_turn(self, number: int) -> float:
        """How many seconds a message waits."""
        began = time.perf_counter()
        await self.agent.send(SAID.format(number))
        return time.perf_counter() - began


async def open_filled(path: Path, model: SlowSummariser, stack: AsyncExitStack, *, background: bool) -> Talk:
    """A conversation whose window is nearly so full that summaries are prepared."""
    settings = replace(Settings(), model=MODEL, embedding="none")
    perdure = await stack.enter_async_context(await AsyncPerdure.open(path, models={MODEL: model}, settings=settings))
    agent = await perdure.create_agent(
        "traveller", settings={"context_window_tokens": WINDOW, "summaries": {"background": background}}
    )
    start, row = datetime(2020, 1, 1, tzinfo=UTC), 0
    while (overview := await agent.context()).free_tokens > WINDOW * (1 - FULL) - overview.reserve_tokens:
        rows = range(row, row := row + 100)
        said = [(ANSWER if at % 2 else SAID.format(at), start + timedelta(seconds=at)) for at in rows]
        await agent.import_messages(
            (("user", "assistant")[place % 2], None, text, at) for place, (text, at) in enumerate(said)
        )
    return Talk(agent)


async def measure(folder: Path, round_number: int) -> tuple[list[float], list[float], int]:
    """The waits without and with summaries in the background, of turns during which one was being written."""
    model = SlowSummariser()
    waits: tuple[list[float], list[float]] = ([], [])
    async with AsyncExitStack() as stack:
        talks = [
            await open_filled(folder / f"{round_number}-{background}.db", model, stack, background=background)
            for background in (False, True)
        ]
        number = 0
        while not model.writing:  # until enough of the window is full
            for talk in talks:
                await talk.take_turn(number)
            await asyncio.sleep(0.05)
            number += 1
        for turn in range(TURNS):
            pairs = list(zip(talks, waits, strict=True))
            for talk, own in pairs if turn % 2 else reversed(pairs):
                own.append(await talk.take_turn(number + turn))
            await asyncio.sleep(0.02)  # so that the turns spread over several summaries
    return *waits, model.summaries


async def run() -> int:
    medians: list[float] = []
    print(f"{'':<10}{'without':>10}{'with':>10}{'median':>10}{'mean':>10}{'summaries':>12}   (ms of waiting)")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            without, beside, summaries = await measure(Path(folder), number)
            medians.append(statistics.median(beside) / statistics.median(without))
            mean = statistics.mean(beside) / statistics.mean(without)
            times = [1000 * statistics.median(waits) for waits in (without, beside)]
            ratios = f"{medians[-1]:>9.2f}x{mean:>9.2f}x"
            print(f"round {number + 1:<4}{times[0]:>10.2f}{times[1]:>10.2f}{ratios}{summaries:>12}")
    missed = statistics.median(medians) > BAR
    print(f"the median is {statistics.median(medians):.2f} times as long (bar {BAR}): {'MISSED' if missed else 'ok'}")
    return int(missed)


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
