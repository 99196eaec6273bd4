"""`kill -9` in a benchmark: the same command goes on, and no question is asked twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import environment

FULL = os.environ.get("PERDURE_FAULTS") == "full"
NAMES = ["niah", "dmr", "longmemeval", "locomo"] if FULL else ["locomo"]
MOMENTS = 10 if FULL else 2

pytestmark = [pytest.mark.faults, pytest.mark.uses("benchmarks")]


def run(folder: Path, name: str, moment: int) -> int:
    """Run in a process that is killed at this moment; return the number of moments, -1: it was killed."""
    program = [sys.executable, "-m", "tests.faults.bench_program"]
    command = [*program, str(folder / "out"), str(folder / "asked"), name, str(moment)]
    done = subprocess.run(command, env=environment(folder), capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, -9), done.stderr.decode()
    return int(done.stdout) if done.returncode == 0 else -1


def asked(folder: Path) -> Counter[str]:
    """How often a model has answered each request."""
    file = folder / "asked"
    return Counter(file.read_text("utf-8").splitlines() if file.exists() else ())


def figures(folder: Path) -> Any:
    """The result without its times."""
    result = json.loads((folder / "out" / "result.json").read_text("utf-8"))
    return [{**one, "latency_s": None} for one in result["systems"]], result["judging"]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_that_was_killed_goes_on_and_asks_nothing_twice(tmp_path: Path, name: str) -> None:
    """Killed once at a time, and in one folder again and again. Only the answer that was on its way when the process
    died, which no store can have, may come a second time."""
    (whole := tmp_path / "whole").mkdir()
    count = run(whole, name, -1)
    expected = asked(whole)
    assert count > 50 and expected

    (often := tmp_path / "often").mkdir()
    kills = 0
    for number in range(MOMENTS):
        moment = (2 * number + 1) * count // (2 * MOMENTS)
        (once := tmp_path / f"once{number}").mkdir()
        assert run(once, name, moment) == -1
        assert run(once, name, -1) > 0
        again = asked(once) - expected

        assert again.total() <= 1, (moment, again)
        assert not expected - asked(once) and figures(once) == figures(whole)
        kills += run(often, name, count // MOMENTS - number) == -1
    assert run(often, name, -1) > 0
    assert (asked(often) - expected).total() <= kills and figures(often) == figures(whole)
