"""How a message and its request grow with the history: `python -m benchmarks.assembly_scale [messages ...]`.

By default 1,000 and 1,000,000 stored messages of one conversation, in a store of its own each, with the same window.
What is out of view stands behind a tree of summaries, as after an import. Times are CPU of all threads; the stores take
turns, and each is measured over more than one filling of its window. Exit code 1: a request over the longest history
costs more than `BAR` times as much as over the shortest.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure import Agent, Perdure
from perdure.core.ids import MessageId, Uuids
from perdure.core.messages import Draft, Text
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, says

__all__ = ["main"]

BAR = 1.5
TURNS = 200
MODEL = "test/scripted"
WINDOW = 16_000
CHUNK = 10_000
"""Rows that are stored at once; the last `IMPORTED` of them are imported, which makes summaries of all before."""
IMPORTED = 500
SAID = (
    "Turn {}: how far is it from Turin to Genoa, and which train do you take on a Sunday morning?",
    "In turn {} it is 170 kilometres. The regional train takes two hours and is cheap; the fast one goes at nine.",
)
SUMMARY = "They asked how far it is from Turin to Genoa, and which train to take: the regional one is cheap."


@dataclass
class Measured:
    """A conversation, and CPU seconds of its messages and of requests that were built again from the store."""

    messages: int
    agent: Agent
    sends: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def take_turn(self, number: int) -> None:
        began = time.process_time()
        self.agent.send(SAID[0].format(number))
        self.sends.append(time.process_time() - began)
        step = self.agent.steps(limit=1)[0]
        began = time.process_time()
        self.agent.request(step.id)
        self.requests.append(time.process_time() - began)


def open_filled(path: Path, messages: int, stack: ExitStack) -> Measured:
    """A store with a conversation of so many messages."""
    model = ScriptedModel(summarises=says(SUMMARY))
    settings = replace(Settings(), model=MODEL, embedding="none")
    perdure = stack.enter_context(Perdure(path, models={MODEL: model}, settings=settings))
    agent = perdure.create_agent("traveller", settings={"context_window_tokens": WINDOW})
    began = time.perf_counter()
    done = 0
    while done < messages:
        count = min(CHUNK, messages - done)
        _append(perdure, agent, done, max(0, count - IMPORTED))
        _import(agent, done + max(0, count - IMPORTED), min(count, IMPORTED))
        done += count
        if done % (20 * CHUNK) == 0:
            print(f"{done:,} messages stored in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return Measured(messages, agent)


def _append(perdure: Perdure, agent: Agent, first: int, count: int) -> None:
    """Store messages as runs do, without their runs."""
    ids, now = Uuids(), datetime.now(UTC)

    def append(tx: Tx) -> None:
        drafts = [
            Draft(
                id=MessageId(ids.new("message")),
                role="assistant" if row % 2 else "user",
                parts=(Text(SAID[row % 2].format(row)),),
            )
            for row in range(first, first + count)
        ]
        tx.messages.append((agent.id, 0), drafts, [40] * count, at=now)

    perdure._portal.run(perdure._inner.app.store.write(append))


def _import(agent: Agent, first: int, count: int) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    agent.import_messages(
        ("assistant" if row % 2 else "user", None, SAID[row % 2].format(row), start + timedelta(seconds=row))
        for row in range(first, first + count)
    )


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    sizes = [int(one) for one in sys.argv[1:]] or [1_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        measured = [open_filled(Path(folder) / f"{size}.db", size, stack) for size in sizes]
        for turn in range(TURNS):
            for one in measured:
                one.take_turn(turn)
        print(f"{'stored messages':>16}{'message':>12}{'median':>10}{'request':>12}{'median':>10}   (CPU ms)")
        for one in measured:
            times = [
                1000 * of(values) for values in (one.sends, one.requests) for of in (statistics.mean, statistics.median)
            ]
            print(f"{one.messages:>16,}{times[0]:>12.2f}{times[1]:>10.2f}{times[2]:>12.2f}{times[3]:>10.2f}")
    first, last = measured[0], measured[-1]
    ratios = [statistics.mean(last.sends) / statistics.mean(first.sends)]
    ratios.append(statistics.mean(last.requests) / statistics.mean(first.requests))
    missed = max(ratios) > BAR
    print(f"a message costs {ratios[0]:.2f} times as much, its request {ratios[1]:.2f} times (bar {BAR}):"
          f" {'MISSED' if missed else 'ok'}")  # fmt: skip
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
