"""What companions cost the foreground: messages to agents with and without one, alternately in one run.

`python -m benchmarks.companions` prints medians of CPU time and latency of a message, over both kinds of agents, with
passes going on between; the bar is 10 %. The model costs nothing and answers at once.

CPU time is the process's from the call to the answer; work of companions in other threads meanwhile is in it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure, ModelDelta, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says

BAR = 0.10
PAIRS = 4  # of agents, one with a companion and one without
ROUNDS = 150  # of one message to each agent
FREQUENCY = 5
PAUSE_EVERY, PAUSE_S = 10, 0.6
"""After so many rounds nobody says anything for a moment, as people do: then passes begin, and some go on beside the
messages that follow."""
MODEL = "test/bench"


class BenchModel:
    """Answers agents with a word, and lets companions make an edit and end."""

    def __init__(self) -> None:
        self._agents, self.passes = ScriptedModel(otherwise=says("Fine.")), 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if "You are a background agent" not in request.system:
            async for answer in self._agents.respond(request):
                yield answer
            self._agents.requests.clear()
            return
        if any(message.role == "tool" for message in request.messages):
            self.passes += 1
            yield calls("memory_finish_edits", call_id="call_2", reason="Noted.")
        else:
            text = f"seen {self.passes}"
            yield calls("memory_rethink", call_id="call_1", label="human", new_memory=text)


@dataclass
class Costs:
    """Seconds of each message: CPU time of the process, and from the call to the answer."""

    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    @property
    def medians_ms(self) -> tuple[float, float]:
        return statistics.median(self.cpu_s) * 1000, statistics.median(self.wall_s) * 1000


async def measure(folder: Path) -> tuple[Costs, Costs, int]:
    """The costs of messages to agents without and with a companion, and how many passes were made meanwhile."""
    model, plain, accompanied = BenchModel(), Costs(), Costs()
    settings = Settings(embedding="none", facts="off", model=MODEL)
    async with await AsyncPerdure.open(folder / "bench.db", models={MODEL: model}, settings=settings) as perdure:
        pairs: list[tuple[AsyncAgent, AsyncAgent]] = []
        for number in range(PAIRS):
            with_one = await perdure.create_agent(f"with {number}", sleeptime=True)
            await with_one.companion.update(frequency=FREQUENCY)
            pairs.append((await perdure.create_agent(f"without {number}"), with_one))
        for pair in pairs:  # the first message of an agent compiles its prompt
            for agent in pair:
                await agent.send("hello")
        for number in range(ROUNDS):
            for without, with_one in pairs:
                # Which of the two comes first changes with each round: a garbage collection must not hit one kind.
                order = ((without, plain), (with_one, accompanied))
                for agent, costs in order if number % 2 else order[::-1]:
                    await _send(agent, costs, f"message {number}")
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                await asyncio.sleep(PAUSE_S)
    return plain, accompanied, model.passes


async def _send(agent: AsyncAgent, costs: Costs, text: str) -> None:
    """Send a message, and add what it cost."""
    began_cpu, began = time.process_time(), time.perf_counter()
    await agent.send(text)
    costs.cpu_s.append(time.process_time() - began_cpu)
    costs.wall_s.append(time.perf_counter() - began)


def main() -> int:
    """Print the medians, and return whether one misses its bar."""
    with tempfile.TemporaryDirectory() as folder:
        plain, accompanied, passes = asyncio.run(measure(Path(folder)))
    print(f"{len(plain.cpu_s)} messages to each kind, {passes} passes of companions between and beside them")
    missed = False
    for name, without, with_one in zip(("CPU", "latency"), plain.medians_ms, accompanied.medians_ms, strict=True):
        more = with_one / without - 1
        missed = missed or more > BAR
        print(
            f"{name:<8} median without {without:7.3f} ms, with {with_one:7.3f} ms: {more:+.1%}"
            f" (bar {BAR:+.0%}) {'MISSED' if more > BAR else 'ok'}"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
