"""What a job returns: values, errors, prints, and blocks of the agent; arguments as its function expects them."""

from __future__ import annotations

import pytest

from perdure.core.tools.sandbox import SandboxLimits, ToolFrame
from tests.toolbox.sandbox.cages import LIMITS, Cage

TYPES = """
import dataclasses, datetime, enum, pathlib

class Colour(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
    colour: Colour | None = None

def f(point: Point, points: list[Point], day: datetime.date, names: set[str], maybe: Point | None = None):
    assert isinstance(point, Point) and isinstance(day, datetime.date) and isinstance(names, set), (point, day, names)
    return {"x": [p.x for p in [point, *points]], "colour": point.colour.name, "day": day, "names": names, "p": point}
"""


def test_a_function_is_called_with_its_arguments(cage: Cage) -> None:
    """Values go in and come out as they are."""
    source = "def f(a: int, b: list, c: str = 'x'):\n    return {'a': a, 'b': b, 'c': c}"

    result = cage.run(source, "f", arguments={"a": 1, "b": [1.5, None, {"é": "\U0001f40d"}]})

    assert (result.status, result.error) == ("success", "")
    assert result.value == {"a": 1, "b": [1.5, None, {"é": "\U0001f40d"}], "c": "x"}
    assert 0 < result.seconds < LIMITS.wall_s


def test_arguments_are_never_source(cage: Cage) -> None:
    """A text with quotes and code in it stays a text."""
    text = "'''); import os; os._exit(7) #\n\"\"\" \\ \x00 {} %s \ud800"

    result = cage.run("def f(text):\n    return len(text)", "f", arguments={"text": text})

    assert result.value == len(text)


def test_what_is_printed_comes_back_apart(cage: Cage) -> None:
    """stdout and stderr, whichever way they are written to."""
    source = "import os, sys\nprint('one')\nsys.stderr.write('two')\nsys.stdout.flush()\nos.write(1, b'three \\xff')"

    result = cage.run(source)

    assert (result.stdout, result.stderr) == ("one\nthree \ufffd", "two")


def test_a_script_returns_its_last_expression(cage: Cage) -> None:
    """As an interactive interpreter does; what JSON can't hold is shown as text."""
    assert cage.run("x = 20\nx * 2 + 2").value == 42
    assert cage.run("x = 1").value is None
    assert cage.run("class A:\n    def __repr__(self): return 'an A'\nA()").value == "an A"


def test_a_coroutine_function_is_awaited(cage: Cage) -> None:
    source = (
        "import asyncio\nasync def f():\n    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.001))\n    return 1"
    )

    assert cage.run(source, "f").value == 1


def test_arguments_become_what_the_annotations_say(cage: Cage) -> None:
    """Dataclasses, enums, dates and sets are made of JSON, and become JSON again."""
    arguments = {
        "point": {"x": 1, "colour": "red"},
        "points": [{"x": 2}],
        "day": "2026-01-02",
        "names": ["b", "a"],
        "maybe": None,
    }

    result = cage.run(TYPES, "f", arguments=arguments)

    assert result.error == ""
    assert result.value == {
        "x": [1, 2],
        "colour": "RED",
        "day": "2026-01-02",
        "names": ["a", "b"],
        "p": {"x": 1, "y": 0.5, "colour": "red"},
    }


@pytest.mark.parametrize("cage", ["root"], indirect=True)
def test_pydantic_models_are_made_and_returned(cage: Cage) -> None:
    """What is installed beside the server can be imported; models are validated."""
    source = (
        "from pydantic import BaseModel\n"
        "class Point(BaseModel):\n    x: int\n"
        "def f(point: Point | None, points: list[Point]):\n    return [point, *points, type(point).__name__]"
    )
    if (cage.sandbox._settings.python or "") == "/usr/bin/python3":
        pytest.skip("another interpreter than the tests' own")

    result = cage.run(source, "f", arguments={"point": {"x": "1"}, "points": [{"x": 2}]})
    wrong = cage.run(source, "f", arguments={"point": {"x": "no"}, "points": []})

    assert (result.value, result.error) == ([{"x": 1}, {"x": 2}, "Point"], "")
    assert wrong.status == "refused"
    assert "argument 'point' can't be made" in wrong.error


def test_an_error_names_the_lines_of_the_tool_only(cage: Cage) -> None:
    """The model gets what was raised and where, without the machinery around it."""
    source = "import json\ndef inner(text):\n    return json.loads(text)\n\ndef f():\n    return inner('{')"

    result = cage.run(source, "f")

    assert result.status == "error"
    assert result.error.startswith("JSONDecodeError: Expecting property name")
    assert result.traceback == (
        ToolFrame(6, "f", "return inner('{')"),
        ToolFrame(3, "inner", "return json.loads(text)"),
    )


@pytest.mark.parametrize(
    ("source", "function", "arguments", "error"),
    [
        ("def f(:\n  pass", "f", {}, "the source does not parse: line 1: invalid syntax: `def f(:`"),
        ("x = '\0'", None, {}, "the source does not parse: source code string cannot contain null bytes"),
        ("(" * 5_000 + ")" * 5_000, None, {}, "the source does not parse: "),
        ("def g(): pass\nclass C: pass", "f", {}, "the source has no function 'f': it has g"),
        ("f = 3", "f", {}, "the source has no function 'f': it has none at its top level"),
        ("def f(a): pass", "f", {}, "the arguments don't fit f(a): missing a required argument: 'a'"),
        ("def f(a): pass", "f", {"a": 1, "b": 2}, "got an unexpected keyword argument 'b'"),
        (TYPES, "f", {"point": {"z": 1}, "points": [], "day": "x", "names": []}, "can't be made"),
    ],
)
def test_what_does_not_fit_is_not_run(
    cage: Cage, source: str, function: str | None, arguments: dict[str, object], error: str
) -> None:
    """A source or arguments that can't be used are told apart from code that failed."""
    result = cage.run(source, function, arguments=arguments)

    assert result.status == "refused"
    assert error in result.error


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("float('nan')", "the result is nan, which JSON has no word for: return None or a text instead"),
        ("{'a': [1, float('-inf')]}", "the result['a'][1] is -inf"),
        ("b'x'", "the result is bytes: return text, as with .decode() or base64"),
        ("(i for i in 'ab')", "the result is a generator: return list(...) of it"),
        ("(lambda x: x.append(x) or x)([])", "the result[0] contains itself: return a copy without the cycle"),
        ("object()", "the result is an object of type object, which JSON has no form for: return text, numbers, "),
        ("{(1, 2): 3}", "the result has a key that is an object of type tuple: use text as keys"),
        ("10 ** 5000", "the result is an integer of more than 4,000 digits: return it as text"),
        (
            "eval('[' * 90 + ']' * 90 + '', {}) and (lambda f: f(f, 200))(lambda f, n: [f(f, n - 1)] if n else 0)",
            "deep",
        ),
        ("'x' * 300_000", "the result is larger than 200,000 bytes as JSON: return less, or a part of it"),
        ("[0] * 300_000", "the result is larger than 200,000 bytes"),
        ("(lambda a: [a := [a] * 50 for _ in range(30)][-1])(0)", "the result is larger than 200,000 bytes"),
        ("type('T', (dict,), {'items': lambda self: 1 / 0})({})", "reading it raised ZeroDivisionError"),
    ],
)
def test_a_result_that_json_cannot_hold_is_a_clean_error(cage: Cage, expression: str, error: str) -> None:
    """One sentence: what, where, and what to return instead."""
    result = cage.run(f"def f():\n    return {expression}", "f", limits=SandboxLimits(wall_s=10, result_bytes=200_000))

    assert result.status == "error"
    assert error in result.error


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("ValueError()", "ValueError"),
        ("ValueError('a\\x00b\\ud800')", "ValueError: a\ufffdb\ufffd"),
        ("ValueError('x' * 100_000)", "more characters)"),
        (
            "type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
            "its message can't be shown: ZeroDivisionError",
        ),
        ("type('Odd', (Exception,), {'__str__': lambda self: 3})()", "its message can't be shown: TypeError"),
        ("KeyboardInterrupt('stop')", "KeyboardInterrupt: stop"),
        ("SystemExit(0)", "the code ended itself with sys.exit"),
        ("BaseExceptionGroup('many', [ValueError(1)])", "ExceptionGroup: many (1 sub-exception): [ValueError: 1]"),
        ("ExceptionGroup('x' * 9_000, [ValueError('y' * 9_000)] * 9)", "; and 4 more]"),
    ],
)
def test_odd_exceptions_are_told_in_clean_text(cage: Cage, raised: str, error: str) -> None:
    """No message, or one that raises, is not text, is endless, or has characters that break readers."""
    result = cage.run(f"def f():\n    raise {raised}", "f")

    assert result.status == "error"
    assert error in result.error
    assert len(result.error) <= 5_000


def test_the_environment_is_what_was_given(cage: Cage) -> None:
    result = cage.run("import os\ndict(os.environ)", environment={"KEY": "value", "TZ": "Europe/Rome"})

    assert result.value["KEY"] == "value"
    assert result.value["TZ"] == "Europe/Rome"
    usual = {"HOME", "TMPDIR", "PATH", "LANG", "TZ", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(result.value) <= {*usual, "KEY"}


def test_the_agents_blocks_can_be_read_and_changed(cage: Cage) -> None:
    """Changed blocks come back by label; those that are as they were don't."""
    source = """
def f(agent_state, name: str):
    memory = agent_state.memory
    memory.update_block_value(label="human", value=memory.get_block("human").value + name)
    memory.get_block("notes").value = "n"
    return [agent_state.id, sorted(block.label for block in agent_state.blocks), memory.list_block_labels()]
"""
    agent = {"id": "agent-1", "name": "a", "blocks": {"human": "I am ", "persona": "p", "notes": "n"}}

    result = cage.run(source, "f", arguments={"name": "Ada"}, agent=agent)

    assert result.value == ["agent-1", ["human", "notes", "persona"], ["human", "persona", "notes"]]
    assert result.agent == {"human": "I am Ada"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("agent_state.memory.update_block_value('human', 3)", "must be text, not int"),
        ("agent_state.memory.get_block('no')", "the agent has no block 'no': it has human"),
    ],
)
def test_a_wrong_change_of_blocks_is_an_error_and_changes_nothing(cage: Cage, body: str, error: str) -> None:
    source = f"def f(agent_state):\n    agent_state.memory.update_block_value('human', 'new')\n    {body}"

    result = cage.run(source, "f", agent={"blocks": {"human": "old"}})

    assert (result.status, result.agent) == ("error", None)
    assert error in result.error


def test_a_tool_of_a_job_without_agent_gets_none(cage: Cage) -> None:
    assert cage.run("def f(agent_state):\n    return agent_state is None", "f").value is True
