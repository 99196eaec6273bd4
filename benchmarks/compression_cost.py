"""What compressing the output of tools costs and saves: `python -m benchmarks.compression_cost`.

The cost is CPU time as a multiple of reading and writing the same JSON with the standard library, in turn, in one run.
Exit code 1: a JSON text costs more than its bar.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from perdure.context import Level, compress
from tests.support.real_tokens import real_tokens
from tests.support.tool_outputs import OUTPUTS, issues, pods, records

BARS: dict[Level, float] = {"lossless": 3.0, "full": 15.0}
ROUNDS = 5
LARGE: dict[str, Callable[[], str]] = {
    "records": lambda: records(3_000),
    "pods": lambda: pods(600),
    "issues": lambda: issues(600),
}


def cpu_ms(*works: Callable[[], object]) -> list[float]:
    """Return the least CPU time of each work, all of them run in turn."""
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for place, work in enumerate(works):
            begin = time.process_time()
            work()
            best[place] = min(best[place], (time.process_time() - begin) * 1000)
    return best


def main() -> int:
    """Print both tables; 1 if a bar is missed."""
    missed = False
    print(f"{'CPU per MB':<16}{'MB':>6}{'json':>9}{'lossless':>10}{'full':>8}   of loads + dumps")
    for name, make in LARGE.items():
        text = make()
        floor, lossless, full = cpu_ms(
            lambda text=text: json.dumps(json.loads(text)),  # type: ignore[misc]
            lambda text=text: compress(text, level="lossless"),  # type: ignore[misc]
            lambda text=text: compress(text, budget=len(text) // 40),  # type: ignore[misc]
        )
        size = len(text) / 1e6
        times = {"lossless": lossless / floor, "full": full / floor}
        late = [level for level, bar in BARS.items() if times[level] > bar]
        missed |= bool(late)
        print(
            f"{name:<16}{size:>6.2f}{floor / size:>6.0f} ms{times['lossless']:>9.1f}x{times['full']:>7.1f}x"
            f"   {'MISSED' if late else 'ok'}"
        )
    print(f"\n{'saved':<16}{'tokens':>8}{'lossless':>10}{'full':>8}")
    for name, make in OUTPUTS.items():
        text = make()
        tokens = real_tokens(text)
        saved = [1 - real_tokens(compress(text, level=level).text) / tokens for level in BARS]
        print(f"{name:<16}{tokens:>8,}{saved[0]:>10.0%}{saved[1]:>8.0%}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
