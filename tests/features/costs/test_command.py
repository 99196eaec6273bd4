"""`perdure context`: the window, the newest steps, one request explained, printed, or compared with another."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.cli.views.context import cost
from perdure.core.tools.rules import ExitLoop
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.support.programs import perdure, run_inside
from tests.support.tool_outputs import records


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder with an agent that was told two things."""
    perdure(tmp_path, "chat", "helper", "--new", stdin="My name is Ada.\nI live in Turin.\n")
    return tmp_path


def test_the_window_and_the_newest_steps_are_shown(home: Path) -> None:
    """What is measured is said to be; the last line says what to do next."""
    result = run_inside(home, "context")

    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0].startswith("perdure/extractive: ")
    assert any(line.startswith("measured: the last request took ") for line in lines)
    steps = [line for line in lines if line.startswith("step-")]
    assert len(steps) == 4
    assert steps[-1].endswith("first")
    assert "perdure context helper --step last" in result.stderr


def test_what_compressing_saves_is_summed_up(tmp_path: Path) -> None:
    """Over the results in view, for people and for programs."""

    def fetch() -> str:
        """Fetch."""
        return records()

    model = ScriptedModel(calls("fetch"), says("done"))
    settings = Settings(embedding="none")
    with Perdure(tmp_path / "perdure.db", tools=[fetch], models={"test/m": model}, settings=settings) as store:
        store.create_agent("helper", model="test/m", tools=["fetch"]).send("Go.")
    shown = run_inside(tmp_path, "context", "helper").stdout
    results = json.loads(run_inside(tmp_path, "context", "helper", "--json").stdout)["context"]["results"]

    assert results["whole_tokens"] > 2 * results["shown_tokens"] > 0
    assert f"tool results: {results['whole_tokens']:,} tokens returned, {results['shown_tokens']:,} shown: " in shown


def test_rules_for_tools_that_are_not_there_are_told(home: Path) -> None:
    with Perdure(home / "perdure.db", settings=Settings(embedding="none")) as store:
        store.agent("helper").rules.set([ExitLoop("fly")])

    assert (
        "tool rules name tools that it has not got, and are asleep until it has: fly"
        in run_inside(home, "context").stderr
    )


def test_a_step_is_explained_part_by_part(home: Path) -> None:
    """By `last`, by its whole id or its beginning; the parts sum to what was measured."""
    by_name = run_inside(home, "context", "helper", "--step", "last")
    step_id = by_name.stdout.split()[0]

    assert by_name.returncode == 0
    for name in (step_id, step_id[:16]):
        assert run_inside(home, "context", "--step", name).stdout == by_name.stdout
    assert "prefix 0: the conversation's first request" in by_name.stdout
    assert "built again from the log, as it was sent" in by_name.stdout
    step = json.loads(run_inside(home, "context", "--step", step_id, "--json").stdout)["step"]
    assert sum(part["tokens"] for part in step["parts"]) == step["usage"]["input_tokens"] == step["input_tokens"]
    assert (step["id"], step["price"], step["hit_rate"]) == (step_id, 0.0, 0.0)


def test_the_raw_request_is_what_its_digest_was_made_of(home: Path) -> None:
    """Nothing else is on stdout; each line is JSON: tools, system, messages, status."""
    result = perdure(home, "context", "--step", "last-1", "--raw")
    step = json.loads(run_inside(home, "context", "--step", "last-1", "--json").stdout)["step"]

    assert hashlib.sha256(result.stdout.encode()).hexdigest() == step["digest"]
    kinds = [next(iter(json.loads(line))) for line in result.stdout.splitlines()]
    assert list(dict.fromkeys(kinds)) == ["tool", "system", "opening", "role", "tail"]
    assert perdure(home, "context", "--raw").stdout != result.stdout


def test_two_steps_are_compared(home: Path) -> None:
    """What was appended is all there is; a step is the same as itself."""
    result = run_inside(home, "context", "--diff", "last-1", "last")
    same = run_inside(home, "context", "--diff", "last", "last")
    step = json.loads(run_inside(home, "context", "--diff", "last-1", "last", "--json").stdout)["diff"]

    assert "(assistant)" in result.stdout.splitlines()[0]
    assert [line[:1] for line in result.stdout.splitlines() if line[:1] in "+-"] == ["+", "+", "-", "+"]
    assert "are the same request" in same.stdout
    assert step["shared_bytes"] > 0.8 * step["total_bytes"][1]
    assert len(step["steps"]) == 2


def test_the_overview_is_an_object_for_programs(home: Path) -> None:
    """With the steps in it."""
    shape = json.loads(run_inside(home, "context", "--json").stdout)

    assert sum(part["tokens"] for part in shape["context"]["parts"]) == shape["context"]["used_tokens"]
    assert shape["context"]["measured_tokens"] == shape["steps"][0]["usage"]["input_tokens"]
    assert [step["rewritten"] for step in shape["steps"]] == [None, None, None, "first"]


def test_what_is_not_there_is_an_error_that_helps(home: Path, tmp_path: Path) -> None:
    """No such agent, no such step, another agent's step, no agent at all: exit code 1, and nothing is made."""
    other = json.loads(run_inside(home, "context", "--json").stdout)["steps"][0]["id"]
    perdure(home, "chat", "other", "--new", stdin="Hello.\n")
    for arguments, message in (
        (("nobody",), "agent 'nobody' not found"),
        (("--step", "last-7"), "step 'last-7' not found"),
        (("--step", "latest"), "`perdure context other` lists the newest"),
        (("--step", "step-"), "last, last-1, ... name them"),
        (("other", "--step", other), f"step {other!r} not found"),
        (("other", "--step", other[:13]), "not found"),
        (("other", "--diff", "last", other, "--json"), ""),
    ):
        result = run_inside(home, "context", *arguments)
        assert (result.returncode, message in result.stderr) == (1, True), (arguments, result.stderr, result.stdout)

    empty = tmp_path / "empty"
    result = run_inside(empty, "context")
    assert (result.returncode, "there is no agent yet" in result.stderr, empty.exists()) == (1, True, False)


@pytest.mark.parametrize("arguments", [("--diff", "last", "last", "--raw"), ("--raw", "--json"), ("--diff", "last")])
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """With the exit code of a command that was not used as its help says."""
    assert run_inside(tmp_path, "context", *arguments).returncode == 2


def test_an_agent_that_was_told_nothing_has_no_steps(tmp_path: Path) -> None:
    """Its window is what its first request will begin with."""
    perdure(tmp_path, "chat", "new one", "--new")
    result = run_inside(tmp_path, "context", "new one")

    assert result.returncode == 0
    assert "(nothing was sent like this yet" in result.stdout
    assert "perdure chat 'new one'" in result.stderr


@pytest.mark.parametrize(
    ("dollars", "text"), [(None, "?"), (0.0, "$0"), (0.00001, "<$0.0001"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")]
)
def test_a_cost_is_written_as_people_do(dollars: float | None, text: str) -> None:
    """Also where it is little, and where nobody knows."""
    assert cost(dollars) == text


def test_a_conversation_shows_what_it_costs(home: Path) -> None:
    """A plot, a line for each request, each part, and the sums; --svg writes the plot, --json has all of it."""
    plot = home / "costs.svg"
    result = run_inside(home, "context", "--cost", "--svg", str(plot))

    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0].startswith("tokens of each request")
    assert sum(line.startswith("step-") for line in lines) == 4
    assert any(line.startswith("4 requests: ") for line in lines)
    assert any(line.startswith("memory blocks") for line in lines)
    assert plot.read_text().startswith("<svg ")
    costs = json.loads(run_inside(home, "context", "--cost", "--json").stdout)["costs"]
    assert sum(request["input_tokens"] for request in costs["requests"]) == costs["totals"]["input_tokens"]
    assert costs["requests"][0]["rewrites"][0]["reason"] == "first"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--svg", "x.svg"], "add --cost"),
        (["--cost", "--step", "last"], "leave --step, --diff and --raw out"),
        (["--cost", "--svg", "no/such/folder/x.svg"], "the plot can't be written to 'no/such/folder/x.svg'"),
    ],
)
def test_costs_say_what_is_wrong(home: Path, arguments: list[str], problem: str) -> None:
    result = run_inside(home, "context", *arguments)

    assert result.returncode != 0
    assert problem in " ".join(result.stderr.split())
