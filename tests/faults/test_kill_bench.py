"""`kill -9` in a benchmark: the same command goes on, and no question is asked twice."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.killing import moments_until_killed

FULL = os.environ.get("PERDURE_FAULTS") == "full"
NAMES = ["niah", "dmr", "longmemeval", "locomo"] if FULL else ["locomo"]
MOMENTS = 10 if FULL else 2

pytestmark = [pytest.mark.faults, pytest.mark.uses("benchmarks")]


def run(folder: Path, name: str, moment: int) -> int:
    """Run in a process that is killed at this moment; return the number of moments, -1: it was killed."""
    return moments_until_killed("bench_program", folder, folder / "out", folder / "asked", name, moment)


def asked(folder: Path) -> Counter[str]:
    """How often a model has answered each request."""
    file = folder / "asked"
    return Counter(file.read_text("utf-8").splitlines() if file.exists() else ())


def figures(folder: Path) -> Any:
    """The result without its times."""
    result = json.loads((folder / "out" / "result.json").read_text("utf-8"))
    return [{**one, "latency_s": None} for one in result["systems"]], result["judging"]


@pytest.fixture(scope="module", params=NAMES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, int]:
    """(benchmark, folder of a run that nobody has killed, how many moments it had)."""
    folder = tmp_path_factory.mktemp(request.param)
    count = run(folder, request.param, -1)
    assert count > 20 and asked(folder)
    return request.param, folder, count


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_benchmark_that_was_killed_goes_on_and_asks_nothing_twice(
    tmp_path: Path, whole: tuple[str, Path, int], number: int
) -> None:
    """Only the answer that was on its way when the process died, which no store can have, may come a second time."""
    name, other, count = whole
    assert run(tmp_path, name, (2 * number + 1) * count // (2 * MOMENTS)) == -1

    assert run(tmp_path, name, -1) > 0

    again = asked(tmp_path) - asked(other)
    assert again.total() <= 1, again
    assert not asked(other) - asked(tmp_path) and figures(tmp_path) == figures(other)


def test_a_benchmark_that_is_killed_again_and_again_comes_to_its_end(
    tmp_path: Path, whole: tuple[str, Path, int]
) -> None:
    """With the figures of one that nobody has killed."""
    name, other, count = whole
    kills = sum(run(tmp_path, name, count // (MOMENTS + 1) - number) == -1 for number in range(MOMENTS))

    assert run(tmp_path, name, -1) > 0

    assert kills and (asked(tmp_path) - asked(other)).total() <= kills
    assert figures(tmp_path) == figures(other)
