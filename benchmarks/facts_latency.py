"""What extracting facts costs the messages beside it: `python -m benchmarks.facts_latency`; exit code 1 above a bar.

Two stores in one program, of which one extracts facts, answer the same messages one after the other, as fast as they
can, with a model that takes no time. A message states nothing to remember, or three facts. Judged is the mean wait for
an answer, as a multiple of that without extraction: the median of three rounds. Extraction waits for a pause, and so
takes place after the messages: the last column is the CPU that it takes then, for each message. In the rows "never a
pause" it may begin at once, as in a process that has answered for ten seconds without a pause; there the stores take
turns of many messages, so that the one without extraction has none beside it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.models import ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says

__all__ = ["main"]

MODEL = "test/scripted"
ROUNDS, MESSAGES, TURN = 3, 200, 400
SETTLE_S = 0.4
BAR = 1.1
PLACES = ("Turin", "Genoa", "Lisbon", "Krakow", "Oslo", "Fukuoka", "Leeds", "Ghent", "Basel", "Cork", "Izmir", "Quito")
TASTES = ("tea", "chess", "rowing", "jazz", "opera", "climbing", "baking", "running", "painting", "gardening", "coffee")
NAMES = ("Ada", "Bob", "Carol", "Dora", "Emil", "Finn", "Hana", "Ivan", "Jana", "Mara", "Nils", "Olga")
_TURN = re.compile(r"^(\d+)\. .*I live in (\w+) and I like (\w+)\. My sister is called (\w+)", re.MULTILINE)


def nothing(draw: random.Random) -> str:
    """A question that states nothing about anybody."""
    one, other = draw.sample(PLACES, 2)
    return f"How far is it from {one} to {other}, and which train do you take on a Sunday?"


def three_facts(draw: random.Random) -> str:
    """A message with three facts."""
    return (
        f"I live in {draw.choice(PLACES)} and I like {draw.choice(TASTES)}. My sister is called {draw.choice(NAMES)}."
    )


def extracts(request: ModelRequest) -> ModelReply:
    """The answer of a model to a batch: what each of its messages says, as new."""
    entities, facts = {"User": "Person"}, []
    for turn, *names in _TURN.findall(request.messages[-1].text):
        for name, kind, relation in zip(
            names, ("Location", "Concept", "Person"), ("LIVES_IN", "LIKES", "HAS_SISTER"), strict=True
        ):
            entities[name] = kind
            fact = {"subject": "User", "relation": relation, "object": name, "decision": "ADD", "turns": [int(turn)]}
            facts.append({**fact, "text": f"User {relation.lower().replace('_', ' ')} {name}."})
    named = [{"name": name, "type": kind} for name, kind in entities.items()]
    return says(json.dumps({"entities": named, "facts": facts, "certain": True}))


@dataclass(frozen=True)
class Case:
    """What is measured: what messages say, by what facts are extracted, and whether that waits for a pause."""

    name: str
    text: Callable[[random.Random], str]
    facts: str = "patterns"
    waits: bool = True


CASES = (
    Case("nothing to remember, patterns", nothing),
    Case("nothing to remember, a model", nothing, facts="model"),
    Case("three facts each, patterns", three_facts),
    Case("three facts each, a model", three_facts, facts="model"),
    Case("nothing to remember, never a pause", nothing, waits=False),
    Case("three facts each, never a pause", three_facts, waits=False),
)


@dataclass(frozen=True)
class Round:
    """Milliseconds of each message without and with extraction; what extraction takes afterwards for a message."""

    off: Sequence[float]
    off_cpu: Sequence[float]
    on: Sequence[float]
    on_cpu: Sequence[float]
    after_cpu: float


async def measure(folder: Path, case: Case) -> Sequence[Round]:
    """Measure the rounds of a case."""
    async with AsyncExitStack() as stack:

        async def opened(facts: str) -> AsyncPerdure:
            settings = replace(Settings(), model=MODEL, embedding="none", facts=facts)
            model = ScriptedModel(extracts=extracts)
            opening = await AsyncPerdure.open(folder / f"{facts}.db", models={MODEL: model}, settings=settings)
            return await stack.enter_async_context(opening)

        off, on = await opened("off"), await opened(case.facts)
        if not case.waits:
            on.app.runner.pauses.wait_s = 0.0
        return [await _round(off, on, case, random.Random(number)) for number in range(-1, ROUNDS)][1:]


async def _round(off: AsyncPerdure, on: AsyncPerdure, case: Case, draw: random.Random) -> Round:
    """Send the same messages to a new agent of each."""
    without, beside = await off.create_agent(), await on.create_agent()
    waits: dict[AsyncAgent, list[tuple[float, float]]] = {without: [], beside: []}
    texts = [case.text(draw) for _ in range(MESSAGES if case.waits else TURN)]
    gc.collect()
    for some in [[text] for text in texts] if case.waits else [texts]:
        for agent in (without, beside):
            for text in some:
                began, cpu = time.perf_counter(), time.process_time()
                await agent.send(text)
                waits[agent].append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu)))
    began = time.process_time()
    await beside.facts.extract()
    await asyncio.sleep(SETTLE_S)  # what else has begun in the background
    after = 1000 * (time.process_time() - began) / len(texts)
    (off_ms, off_cpu), (on_ms, on_cpu) = (zip(*of, strict=True) for of in (waits[without], waits[beside]))
    return Round(off_ms, off_cpu, on_ms, on_cpu, after)


COLUMNS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "p99": lambda waits: statistics.quantiles(waits, n=100)[98],
}


def report(case: Case, rounds: Sequence[Round]) -> bool:
    """Print a case; return whether its bar is met."""
    ratio = statistics.median(statistics.fmean(one.on) / statistics.fmean(one.off) for one in rounds)
    row = f"{case.name:<36}{ratio:6.2f}{BAR:6.2f} {'ok' if ratio <= BAR else 'MISSED':<6}"
    figures = [(name, of) for of in COLUMNS.values() for name in ("off", "on")]
    for name, of in (*figures, ("off_cpu", statistics.fmean), ("on_cpu", statistics.fmean)):
        row += f"{statistics.median(of(getattr(one, name)) for one in rounds):8.2f}"
    print(f"{row}{statistics.median(one.after_cpu for one in rounds):8.2f}", flush=True)
    return ratio <= BAR


def main() -> int:
    """Measure; 1 if a bar was missed."""
    heads = "".join(f"{head:>16}" for head in (*COLUMNS, "CPU"))
    print(f"{'ms a message, without and with facts':<36}{'ratio':>6}{'bar':>6} {'':6}{heads}{'after':>8}")
    met = True
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            met &= report(case, asyncio.run(measure(Path(folder), case)))
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
