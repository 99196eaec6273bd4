"""A process that is killed while a hook is asked: the next one asks again, and what the hook says is kept once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.warm import warm

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("hooked_program.py")


@pytest.mark.faults
@pytest.mark.parametrize("point", ["before_model", "after_model", "before_tool", "after_tool", "run_end"])
def test_a_hook_is_asked_again_and_what_it_says_is_kept_once(tmp_path: Path, point: str) -> None:
    """Each call has its one result, each word of the hook its one row."""
    first, second = (run(tmp_path, point, text) for text in ("double", "again"))
    told = (tmp_path / "told").read_text().split()
    rows = json.loads(second.stdout)
    runs = list(dict.fromkeys(run_id for run_id, *_ in rows))

    assert first.returncode == -9 and second.returncode == 0, second.stderr
    results = [text for _, role, _, text in rows if role == "tool"]
    assert results == ["4"]
    assert told.count(runs[0]) == {"before_model": 3, "after_model": 3}.get(point, 2)
    kept = [text for run_id, _, kind, text in rows if kind == "hook" and run_id == runs[0]]
    assert len(kept) == told.count(runs[0]) - 1
    assert (tmp_path / "done").read_text().split() == ["double"] * (2 if point == "after_tool" else 1)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [warm(str(PROGRAM), environment), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
