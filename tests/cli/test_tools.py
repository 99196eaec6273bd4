"""`perdure tool`, as a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.library import open_sync
from tests.support.programs import run_inside

ROLL = '''
def helper(sides): return min(sides, 1)

def roll(sides: int, label: str = "x") -> str:
    """Roll a die."""
    print("rolling")
    return f"{label}: {helper(sides)} of {sides}"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "roll.py"
    path.write_text(ROLL)
    return path


@pytest.mark.slow
def test_a_tool_is_added_tried_given_and_removed(tmp_path: Path, file: Path) -> None:
    """Each command says what comes next; nothing is made of the data folder until there is something to keep."""
    home = tmp_path / "home"
    assert "There are no tools of your own yet" in run_inside(home, "tool", "list").stderr
    assert run_inside(home, "tool", "show", "roll").returncode == 1
    assert not home.exists()

    added = run_inside(home, "tool", "add", str(file), "--timeout", "5", "--env", "A=b")
    assert (added.returncode, added.stdout) == (0, "roll(sides, label?)\n")
    assert """`perdure tool test roll '{"sides": 1}'`""" in added.stderr
    tried = run_inside(home, "tool", "test", "roll", '{"sides": "6"}')
    assert (tried.returncode, tried.stdout) == (0, "x: 1 of 6\n")
    assert "rolling" in tried.stderr
    wrong = run_inside(home, "tool", "test", "roll", '{"sides": "six"}')
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "'sides' must be of type integer" in wrong.stderr
    raised = run_inside(home, "tool", "test", "run_code", '{"code": "1/0"}')
    assert raised.stderr.startswith("error: line 1, in <module>: 1/0\n")
    assert "there is no agent yet" in run_inside(home, "tool", "attach", "roll").stderr
    with open_sync(home / "perdure.db") as store:
        store.create_agent("ann")
    assert "ann has roll" in run_inside(home, "tool", "attach", "roll").stderr
    (row,) = json.loads(run_inside(home, "tool", "list", "--json").stdout)
    assert (row["name"], row["agents"], row["timeout_s"]) == ("roll", ["ann"], 5.0)
    assert run_inside(home, "tool", "list").stdout.splitlines()[0].split()[:3] == ["tool", "kind", "agents"]
    output = json.loads(run_inside(home, "tool", "show", "roll", "--json").stdout)
    assert (output["source"], output["environment"]) == (ROLL, {"A": ""})
    message = run_inside(home, "tool", "show", "roll").stdout
    assert "def roll" in message
    assert "\ncustom; up to 5 s; no network; sees A\n" in message
    assert "no longer" in run_inside(home, "tool", "detach", "roll", "ann").stderr
    assert run_inside(home, "tool", "delete", "roll", "--yes").returncode == 0
    assert json.loads(run_inside(home, "tool", "list", "--json").stdout) == []
    rows = run_inside(home, "tool", "list", "--all").stdout
    assert max(map(len, rows.splitlines())) < 250
    assert "letta_" not in rows
    every = json.loads(run_inside(home, "tool", "list", "--all", "--json").stdout)
    assert {"memory_insert", "run_code"} <= {row["name"] for row in every}


def test_who_attaches_a_tool_is_told_what_models_are_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "pair.py"
    file.write_text('def pair(both: tuple[int, str]) -> str:\n    """Join."""\n    return str(both)\n')
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
    assert run_inside(tmp_path, "tool", "add", str(file)).returncode == 0

    said = run_inside(tmp_path, "tool", "attach", "pair").stderr

    assert "Models are told another schema of this tool: 'both'" in said


def test_a_file_is_tried_before_it_is_added(tmp_path: Path, file: Path) -> None:
    """As JSON, with what it printed; an error is exit code 1."""
    tried = run_inside(tmp_path, "tool", "test", str(file), '{"sides": 2, "label": "y"}', "--json")

    assert json.loads(tried.stdout) == {"status": "success", "result": "y: 1 of 2", "stdout": "rolling\n", "stderr": ""}


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (b"def f(:", (), "line 1: invalid syntax"),
        (b"def f(a): 'F.'", (), "parameter 'a' of f has no annotation"),
        (b"\xff", (), "not text in UTF-8"),
        (ROLL.encode(), ("--env", "A"), "write NAME=VALUE"),
        (ROLL.encode(), ("--requirement", "-r x"), "requirement '-r x' can't be used"),
        (ROLL.encode(), ("--timeout", "0"), "--timeout is 0.0"),
        (ROLL.encode(), ("--name", "rolls"), "no function 'rolls'"),
        (None, (), "can't be read"),
    ],
)
def test_what_can_not_be_added_is_told(
    tmp_path: Path, text: bytes | None, arguments: tuple[str, ...], message: str
) -> None:
    """On stderr, with exit code 1 and no traceback."""
    path = tmp_path / "tool.py"
    if text is not None:
        path.write_bytes(text)
    failure = run_inside(tmp_path, "tool", "add", str(path), *arguments)

    assert (failure.returncode, failure.stdout) == (1, "")
    assert message in failure.stderr and "Traceback" not in failure.stderr


def test_a_tool_is_tried_for_an_agent(tmp_path: Path, file: Path) -> None:
    """One that has it; arguments that are given twice are refused, as from a model."""
    home = tmp_path / "home"
    run_inside(home, "tool", "add", str(file))
    twice = run_inside(home, "tool", "test", "roll", '{"sides": 1, "sides": 2}')
    assert twice.returncode == 1 and "'sides' is given twice in one object" in twice.stderr
    with open_sync(home / "perdure.db") as store:
        store.create_agent("ann")
    without = run_inside(home, "tool", "test", "roll", '{"sides": 6}', "--agent", "ann")
    assert without.returncode == 1 and "tool 'roll' of this agent not found" in without.stderr
    run_inside(home, "tool", "attach", "roll")
    tried = run_inside(home, "tool", "test", "roll", '{"sides": 6}', "--agent", "ann")
    assert (tried.returncode, tried.stdout) == (0, "x: 1 of 6\n")
