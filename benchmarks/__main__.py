"""`python -m benchmarks`: every measurement beside its floor and its bar; exit code 1 if a bar is missed.

`python -m benchmarks long` goes on with those that take minutes: `vector_search`, `embedding_outage`, `search_cost`,
`facts_latency`, `summary_latency`, `assembly_scale`, `fan_out`, `companions`, `one_slot`.

The numbers are of this machine at this moment: what else runs on it is in them, and in the floor of the same run. Bars
judge what was measured; beside a message and a start stands what a yardstick makes of it, for a machine of known speed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cache_cost import cache_cost
from benchmarks.floor import DESIGN_ROW_US, commits_ms
from benchmarks.long_conversation import long_conversation
from benchmarks.message_cost import message_cost
from benchmarks.server_cost import Figure, server_figures
from benchmarks.startup import PROGRAMS, best_wall_s

MESSAGE_BAR_MS = 2.0
HISTORIES = (2, 500)
LONG = (
    *("vector_search", "embedding_outage", "search_cost", "facts_latency", "summary_latency", "assembly_scale"),
    *("fan_out", "companions", "one_slot"),
)
STARTUP_BARS_MS = {"import perdure": 300.0, "from perdure import Perdure": None, "perdure --help": 400.0}


@dataclass(frozen=True)
class Result:
    """A time in milliseconds; `floor_ms` is the same without Perdure, `bar_ms` what is allowed; None: only told."""

    name: str
    ms: float
    floor_ms: float
    bar_ms: float | None

    @property
    def missed(self) -> bool:
        return self.bar_ms is not None and self.ms > self.bar_ms

    def __str__(self) -> str:
        measured = f"{self.name:<44}{self.ms:>9.2f}{self.floor_ms:>9.2f}{self.ms / self.floor_ms:>8.1f}"
        return (
            measured if self.bar_ms is None else f"{measured}{self.bar_ms:>9.2f}  {'MISSED' if self.missed else 'ok'}"
        )


def measure(folder: Path) -> Iterator[Result]:
    """Every result, as it is measured."""
    wall_ms = {name: best_wall_s(arguments, folder) * 1000 for name, arguments in PROGRAMS.items()}
    for name, bar_ms in STARTUP_BARS_MS.items():
        yield Result(f"{name} (wall, best of 5)", wall_ms[name], wall_ms["python -c pass"], bar_ms)
    floor_ms = commits_ms(folder, messages=200)
    short, long = (message_cost(folder, history=history) for history in HISTORIES)
    for history, cost, bar_ms in zip(HISTORIES, (short, long), (MESSAGE_BAR_MS, 2 * MESSAGE_BAR_MS), strict=True):
        yield Result(f"message after {history} (CPU)", cost.measured_ms, floor_ms, bar_ms)
        row = f"a row takes {cost.row_us:.0f} us, not {DESIGN_ROW_US:.0f}"
        yield Result(f"  scaled ({row})", cost.scaled_ms, floor_ms, None)
    times = long.scaled_ms / short.scaled_ms
    print(f"\na message after {HISTORIES[1]} costs {times:.2f} times one after {HISTORIES[0]}")


def main() -> int:
    """Print the table; 1 if a bar was missed."""
    print(f"{'':<44}{'ms':>9}{'floor':>9}{'ratio':>8}{'bar':>9}")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for result in measure(Path(folder)):
            print(result, flush=True)
            missed |= result.missed
    print(f"\n{'perdure serve':<44}{'':>9}{'floor':>9}{'ratio':>8}{'bar':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for figure in server_figures(Path(folder)):
            print(_row(figure), flush=True)
            missed |= figure.missed
    print(f"\n{'context':<44}{'':>9}{'floor':>9}{'ratio':>8}{'bar':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for figure in context_figures(Path(folder)):
            print(_row(figure), flush=True)
            missed |= figure.missed
    print("\nembedding")
    for row in embedding_rows():
        print(row, flush=True)
    if "long" in sys.argv[1:]:
        for program in LONG:
            print(f"\n{program}", flush=True)
            missed |= subprocess.run([sys.executable, "-m", f"benchmarks.{program}"], check=False).returncode != 0
    return int(missed)


def embedding_rows() -> Iterator[str]:
    """The local embedder's figures; where its weights are not, that."""
    from benchmarks.embedding_cost import embedding_figures
    from tests.providers.embeddings.models import minilm_folder

    if (folder := minilm_folder()) is None:
        yield "not measured: the weights of MiniLM are not here (`make setup` gets them)"
        return
    yield from map(_row, embedding_figures(folder))


def context_figures(folder: Path) -> Iterator[Figure]:
    """What a small window costs in a long conversation, and what a provider's cache serves of the requests sent."""
    from tests.support.real_tokens import real_tokens

    long = long_conversation(folder, messages=5_000)
    yield Figure("message after 100, window of 8,000 (CPU)", long.early_ms, "ms")
    yield Figure("message after 5,000, window of 8,000 (CPU)", long.late_ms, "ms")
    yield Figure("  as a multiple of one after 100", long.late_ms / long.early_ms, "x", bar=1.3)
    yield Figure("facts found by handles", 100 * long.found / long.facts, "%", bar=100, least=True)
    cache = asyncio.run(cache_cost(real_tokens))
    yield Figure("read from the cache, of all input", 100 * cache.hit_rate, "%", bar=96.5, least=True)
    yield Figure("input cost, of that without a cache", cache.cost, "x", bar=0.14)
    yield Figure("  with what the summaries took", cache.cost_with_summaries, "x")
    yield Figure("requests that begin anew without a reason", cache.unexplained, "", bar=0)


def _row(figure: Figure) -> str:
    value = f"{figure.value:.2f} {figure.unit}"
    floor = "" if figure.floor is None else f"{figure.floor:.2f}"
    ratio = "" if not figure.floor else f"{figure.value / figure.floor:.1f}"
    row = f"{figure.name:<42}{value:>11}{floor:>9}{ratio:>8}"
    if figure.bar is None:
        return row
    bar = f"{'>=' if figure.least else ''}{figure.bar:g}{' floors' if figure.of_floor else ''}"
    return f"{row}{bar:>10}  {'MISSED' if figure.missed else 'ok'}"


if __name__ == "__main__":
    sys.exit(main())
