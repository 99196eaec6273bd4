"""What a tool's author and the engine see of the sandbox: code goes in, results come out, whatever the code does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, ToolFrame
from perdure.toolbox.sandbox.linux import LinuxSandbox
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
    """No message, or one that raises, is no text, is endless, or has characters that break readers."""
    result = cage.run(f"def f():\n    raise {raised}", "f")

    assert result.status == "error"
    assert error in result.error
    assert len(result.error) <= 5_000


def test_too_long_is_a_timeout(cage: Cage) -> None:
    """What was printed before is kept."""
    result = cage.run("import time\nprint('begun')\ntime.sleep(60)", limits=SandboxLimits(wall_s=0.5))

    assert (result.status, result.stdout) == ("timeout", "begun\n")
    assert result.error == "it did not end within 0.5 s, and was stopped"


def test_a_process_that_ends_is_a_crash(cage: Cage) -> None:
    """Whichever way: by itself, or by a signal."""
    ended = cage.run("import os\nos._exit(3)")
    faulted = cage.run("import ctypes\nctypes.string_at(0)")
    closed = cage.run("import os, time\nos.close(4)\ntime.sleep(60)")

    assert (ended.status, ended.error) == (
        "crash",
        "its process ended before it returned a result (exit code 3)",
    )
    assert (faulted.status, faulted.error) == ("crash", "its process crashed with SIGSEGV")
    assert closed.status in {"crash", "memory"}  # killed, because nothing can come any more


def test_the_environment_is_what_was_given(cage: Cage) -> None:
    result = cage.run("import os\ndict(os.environ)", environment={"KEY": "value", "TZ": "Europe/Rome"})

    assert result.value["KEY"] == "value"
    assert result.value["TZ"] == "Europe/Rome"
    known = {"HOME", "TMPDIR", "PATH", "LANG", "TZ", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(result.value) <= {*known, "KEY"}


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


def test_many_jobs_at_a_time_get_their_own_results(cage: Cage) -> None:
    """More than there are places."""

    async def many() -> list[object]:
        source = "def f(n):\n    print(n)\n    return n"
        jobs = [SandboxJob(source=source, function="f", arguments={"n": n}, limits=LIMITS) for n in range(40)]
        return [(done.value, done.stdout) for done in await asyncio.gather(*map(cage.sandbox.run, jobs))]

    assert cage.wait(many()) == [(n, f"{n}\n") for n in range(40)]


def test_large_arguments_and_results_pass(cage: Cage) -> None:
    """More than a pipe holds, both ways."""
    text = "é" * 1_000_000

    result = cage.run("def f(text):\n    return text[::-1] + '!'", "f", arguments={"text": text})

    assert result.value == f"{text}!"


def test_results_as_large_as_arguments_do_not_block_the_others(cage: Cage) -> None:
    """Two that are large, and one that is not, at the same time."""

    async def three() -> list[object]:
        large = SandboxJob(source="def f():\n    return list(range(200_000))", function="f", limits=LIMITS)
        results = await asyncio.gather(*map(cage.sandbox.run, [large, SandboxJob(source="1"), large]))
        return [result.value if isinstance(result.value, int) else len(result.value) for result in results]

    assert cage.wait(three()) == [200_000, 1, 200_000]


def test_what_a_spare_process_was_made_for_does_not_limit_the_next_job(cage: Cage) -> None:
    """It takes its limits of output and result from the job that it gets."""
    cage.run("1", limits=SandboxLimits(output_chars=10, result_bytes=10))
    cage.run("1", limits=SandboxLimits(output_chars=10, result_bytes=10))

    result = cage.run("print('x' * 100_000)\n'y' * 2_000_000", limits=SandboxLimits(output_chars=200_000))

    assert (len(result.stdout), len(result.value)) == (100_001, 2_000_000)


def test_a_job_gets_no_more_than_the_server_gives() -> None:
    """Its own limits can only be lower."""
    cage = Cage(memory_mb=100, processes=5)
    if not cage.isolation.enough:
        cage.close()
        pytest.skip(cage.isolation.summary)
    source = "import resource\n[resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC)]"
    try:
        capped = cage.run(source, limits=SandboxLimits(memory_mb=10_000, processes=100))
        own = cage.run(source, limits=SandboxLimits(memory_mb=64, processes=2))
    finally:
        cage.close()

    assert capped.value[0] == 100 << 20
    assert own.value[0] == 64 << 20
    assert (capped.value[1], own.value[1]) in {
        (5, 2),
        (capped.value[1],) * 2,
    }  # not counted for a user without namespaces


POOLED = """
import multiprocessing, pathlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory


def square(number):
    return number * number


def add(total, shared):
    with total.get_lock():
        total.value += 1
    shared.buf[0] = 7


def pooled() -> list:
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(square, range(5))
    with ProcessPoolExecutor(2) as executor:
        squares += executor.map(square, range(3))
    total, shared = multiprocessing.Value("i", 0), SharedMemory(create=True, size=16, name="perdure-own-memory")
    pathlib.Path("/dev/shm/perdure-own-file").write_text("mine")
    processes = [multiprocessing.Process(target=add, args=(total, shared)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = [squares, total.value, shared.buf[0]]
    shared.close()
    shared.unlink()
    return found
"""


def test_processes_of_a_job_work_together(cage: Cage) -> None:
    """Pools, locks and shared memory; what they share is in the job's own folder, and no other job's."""
    if not next(measure for measure in cage.isolation.measures if measure.name == "processes").held:
        pytest.skip("a job may start no process here")
    result = cage.run(POOLED, "pooled")
    left = cage.run("import os\nos.listdir('/dev/shm')")

    assert (result.value, result.error) == ([[0, 1, 4, 9, 16, 0, 1, 4], 3, 7], "")
    assert left.value == []
    assert not Path("/dev/shm/perdure-own-file").exists()


@pytest.mark.parametrize("cage", ["root without namespaces", "user without namespaces"], indirect=True)
@pytest.mark.parametrize("line", ["multiprocessing.Pool(1)", "multiprocessing.Lock()", "os.fork()", "open('x', 'w')"])
def test_what_is_missing_without_namespaces_is_told(cage: Cage, line: str) -> None:
    """Not only that it is not permitted."""
    result = cage.run(f"import multiprocessing, os\n{line}")

    assert result.status == "error"
    assert "PermissionError" in result.error
    assert "can start no process and write no file" in result.error


def test_shared_memory_is_a_part_of_the_work_folder(cage: Cage) -> None:
    """It can't be larger, and what stands there already counts."""
    source = """
import os
with open("half", "wb") as file:
    file.write(bytes(3 << 20))
with open("/dev/shm/more", "wb") as file:
    file.write(bytes(3 << 20))
"""
    if not next(measure for measure in cage.isolation.measures if measure.name == "work folder").held:
        pytest.skip("a job has no work folder here")
    result = cage.run(source, limits=SandboxLimits(wall_s=10, disk_mb=5))

    assert (result.status, "No space left" in result.error) == ("error", True), result


def test_shared_memory_that_does_not_fit_says_that_the_work_folder_was_full(cage: Cage) -> None:
    """The blocks are made without their pages, so it is writing to them that ends the process."""
    source = """
from multiprocessing.shared_memory import SharedMemory
kept = [SharedMemory(create=True, size=40 << 20) for _ in range(5)]
for block in kept:
    block.buf[:] = bytes(40 << 20)
"""
    if not next(measure for measure in cage.isolation.measures if measure.name == "work folder").held:
        pytest.skip("a job has no work folder here")
    result = cage.run(source, limits=SandboxLimits(wall_s=10, disk_mb=64))

    assert result.status == "crash", result
    assert "its work folder was full: files and shared memory together may take 64 MiB" in result.error


def test_cancelling_ends_the_code_and_frees_its_place(cage: Cage) -> None:
    """Twice as often as there are places."""

    async def cancelled() -> None:
        job = SandboxJob(source="import time\ntime.sleep(60)", limits=LIMITS)
        tasks = [asyncio.create_task(cage.sandbox.run(job)) for _ in range(16)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    cage.wait(cancelled())

    assert cage.run("1").value == 1


def test_a_fork_server_that_died_is_started_again(cage: Cage) -> None:
    """What ran in it is told as interrupted; the next job finds a new one."""

    async def killed() -> object:
        job = SandboxJob(source="import time\ntime.sleep(60)", limits=LIMITS)
        task = asyncio.create_task(cage.sandbox.run(job))
        await asyncio.sleep(0.3)
        assert cage.sandbox._server is not None
        os.kill(cage.sandbox._server.pid, 9)
        return await task

    interrupted = cage.wait(killed())

    assert (interrupted.status, interrupted.error) == (  # type: ignore[attr-defined]
        "crash",
        "the code was interrupted: the sandbox was restarted; try once more",
    )
    assert cage.run("1 + 1").value == 2


def test_a_network_must_be_allowed(cage: Cage) -> None:
    """A job that declares one is refused unless the sandbox was made for it."""
    result = cage.run("1", network=True)

    assert result.status == "refused"
    assert "the administrator does not allow" in result.error


def test_a_server_that_is_killed_leaves_nothing_behind(cage: Cage) -> None:
    """The fork server and what runs in it end with the server, however that ends."""
    name = f"left{os.getpid()}"
    source = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{name}'); time.sleep(60)"
    program = (
        "import asyncio, os, signal\n"
        "from perdure.core.tools.sandbox import SandboxJob\n"
        "from perdure.toolbox.sandbox.linux import LinuxSandbox\n"
        "async def main():\n"
        "    sandbox = LinuxSandbox()\n"
        "    await sandbox.isolation()\n"
        f"    asyncio.create_task(sandbox.run(SandboxJob(source={source!r})))\n"
        f"    while {name!r} not in names():\n"
        "        await asyncio.sleep(0.05)\n"
        "    print(sandbox.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def names():\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        try:\n            yield open(f'/proc/{pid}/comm').read().strip()\n"
        "        except OSError:\n            pass\n"
        "asyncio.run(main())\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == -signal.SIGKILL, done.stderr
    until = time.monotonic() + 5
    while running(name, done.stdout.strip()) and time.monotonic() < until:
        time.sleep(0.05)
    assert running(name, done.stdout.strip()) == []


def running(name: str, pid: str) -> list[str]:
    """What is left of a process of this name, and of this number."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8").strip() == name or path.parent.name == pid:
                found.append(path.parent.name)
        except OSError:
            continue
    return found


class TestWithoutIsolation:
    @pytest.fixture
    def bare(self) -> Iterator[dict[str, object]]:
        """Options that leave nothing but the filter of system calls."""
        yield {"namespaces": False, "landlock": False}

    async def test_code_is_refused(self, bare: dict[str, bool]) -> None:
        """Nothing is run, and what is missing is named."""
        sandbox = LinuxSandbox(**bare)  # type: ignore[arg-type]
        try:
            found = await sandbox.isolation()
            with pytest.raises(SandboxUnavailable) as refused:
                await sandbox.run(SandboxJob(source="1"))
        finally:
            await sandbox.close()

        assert not found.enough
        assert "files" in refused.value.missing or found.backend == "none"

    async def test_code_is_run_if_that_is_asked_for_and_logged(
        self, bare: dict[str, bool], caplog: pytest.LogCaptureFixture
    ) -> None:
        sandbox = LinuxSandbox(unsafe=True, **bare)  # type: ignore[arg-type]
        try:
            found = await sandbox.isolation()
            result = await sandbox.run(SandboxJob(source="1 + 1", limits=LIMITS))
        finally:
            await sandbox.close()

        assert (found.enough, found.unsafe, result.value) == (False, True, 2)
        assert "without enough isolation" in caplog.text
