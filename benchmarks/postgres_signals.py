"""How long a reader in another process waits for an event: `python -m benchmarks.postgres_signals [runs]`.

Two engines with connections of their own over one PostgreSQL server of the benchmark: one answers, the other follows.
The wait is from when the first one's reader has the end of a run until the second one's has it; with the signals of
PostgreSQL, and by polling alone every 0.1 s, in turn.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from perdure import AsyncPerdure, Settings
from perdure.core.events import RunEnded
from perdure.core.ids import RunId
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.testing import ScriptedModel
from tests.support.own_postgres import own_postgres

MODEL = "test/slow"
ANSWER_S = 0.25


class SlowModel(ScriptedModel):
    """Answers after a moment, so that both readers wait."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await asyncio.sleep(ANSWER_S)
        async for one in super().respond(request):
            yield one


async def _end_of(agent: AsyncAgent, run_id: RunId) -> float:
    """The time at which a reader has the end of a run."""
    async for one in agent.follow(run_id):
        if isinstance(getattr(one, "event", None), RunEnded):
            return time.perf_counter()
    raise AssertionError("a run ends")


async def _open(address: str) -> AsyncPerdure:
    settings = Settings(embedding="none", facts="off", model=MODEL)
    return await AsyncPerdure.open(address, models={MODEL: SlowModel()}, settings=settings)


async def measure(address: str, runs: int) -> None:
    """Print both waits."""
    async with await _open(address) as answers, await _open(address) as reads:
        agent = await answers.create_agent("ada", model=MODEL)
        reader = await reads.agent("ada")
        await asyncio.sleep(1)  # until both listen
        waits: dict[str, list[float]] = {"signals": [], "polling": []}
        signals: Any = reads.app.ports.signals
        for _ in range(runs):
            for name, times in waits.items():
                signals._are_heard = name == "signals"
                call, signals._calls = signals._calls, signals._calls if name == "signals" else {}
                run = (await agent.submit("hello")).run
                first, second = await asyncio.gather(_end_of(agent, run.id), _end_of(reader, run.id))
                times.append(second - first)
                signals._calls = call
    for name, times in waits.items():
        found = sorted(seconds * 1_000 for seconds in times)
        print(f"{name}: {statistics.median(found):.1f} ms, at most {found[-1]:.1f} ms, of {runs} runs")


def main() -> None:
    """Measure over a server of its own."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with own_postgres() as server:
        asyncio.run(measure(server.address, runs))


if __name__ == "__main__":
    main()
