"""`perdure why` and `/why`: where a memory or an answer comes from."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.programs import perdure, run_inside


def test_an_answer_and_a_memory_are_traced(tmp_path: Path) -> None:
    """By a short id, as lists print them, or by words; in the chat without any it is the last answer."""
    chat = perdure(tmp_path, "chat", "helper", "--new", stdin="My name is Ada.\n/why\n/why Ada\n")
    step = next(line for line in run_inside(tmp_path, "context").stdout.splitlines() if line.startswith("step-"))
    answer = json.loads(run_inside(tmp_path, "why", step.split()[0], "--json").stdout)["why"]
    memory = run_inside(tmp_path, "why", "Ada")
    missing = run_inside(tmp_path, "why", "run-ffffffff")

    assert "In its request:" in chat.stdout and "written by agent helper" in chat.stdout
    assert answer["type"] == "answer" and "My name is Ada." in [one["text"] for one in answer["messages"]]
    assert "written by agent helper" in memory.stdout and "My name is Ada." in memory.stdout
    assert (missing.returncode, "run 'run-ffffffff' not found" in missing.stderr) == (1, True)
