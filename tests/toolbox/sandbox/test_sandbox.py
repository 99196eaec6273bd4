"""What jobs share of the sandbox: places, limits, processes and memory; and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import SandboxJob, SandboxLimits
from perdure.toolbox.sandbox.linux import LinuxSandbox
from tests.toolbox.sandbox.cages import LIMITS, Cage

IDLE_KB = 25 << 10
"""The most that the fork server may hold while nothing runs."""


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


def test_the_limits_of_one_job_do_not_hold_for_the_next(cage: Cage) -> None:
    """Each has its own limits of output and result."""
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
        lowered = cage.run(source, limits=SandboxLimits(memory_mb=64, processes=2))
    finally:
        cage.close()

    assert capped.value[0] == 100 << 20
    assert lowered.value[0] == 64 << 20
    assert (capped.value[1], lowered.value[1]) in {
        (5, 2),
        (capped.value[1],) * 2,
    }  # not counted for a user without namespaces


def test_the_idle_fork_server_holds_little(cage: Cage) -> None:
    """Together with the process before it: most of their memory is the same pages."""
    cage.run("1")
    assert cage.sandbox.pid is not None

    assert sum(map(memory_kb, processes_below(cage.sandbox.pid))) < IDLE_KB


def memory_kb(pid: int) -> int:
    """The memory of a process, with its share of what others hold too; 0: it has ended."""
    with contextlib.suppress(OSError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return 0


def processes_below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in processes_below(int(child)))]


def test_asyncio_speaks_tls_in_a_call(cage: Cage) -> None:
    """A handshake is begun over a pair of sockets."""
    source = """
import asyncio, socket

async def hello():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    opening = asyncio.create_task(asyncio.open_connection(sock=ours, ssl=True, server_hostname="example.org"))
    first = await loop.sock_recv(theirs, 3)
    opening.cancel()
    return first.hex()
"""

    result = cage.run(source, "hello")

    assert result.value == "160301", result  # a handshake's record of TLS


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
    if not next(measure for measure in cage.isolation.measures if measure.name == "processes").works:
        pytest.skip("a job may start no process here")
    result = cage.run(POOLED, "pooled")
    remaining = cage.run("import os\nos.listdir('/dev/shm')")

    assert (result.value, result.error) == ([[0, 1, 4, 9, 16, 0, 1, 4], 3, 7], "")
    assert remaining.value == []
    assert not Path("/dev/shm/perdure-own-file").exists()


@pytest.mark.slow
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
    if not next(measure for measure in cage.isolation.measures if measure.name == "work folder").works:
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
    if not next(measure for measure in cage.isolation.measures if measure.name == "work folder").works:
        pytest.skip("a job has no work folder here")
    result = cage.run(source, limits=SandboxLimits(wall_s=10, disk_mb=64))

    assert result.status == "crash", result
    assert "its work folder was full: files and shared memory together may take 64 MiB" in result.error


def test_a_network_must_be_allowed(cage: Cage) -> None:
    """A job that declares one is refused unless the sandbox was made for it."""
    result = cage.run("1", network=True)

    assert result.status == "refused"
    assert "the administrator does not allow" in result.error


class TestWithoutIsolation:
    @pytest.fixture
    def bare(self) -> Iterator[dict[str, object]]:
        """Options that leave nothing but the filter of system calls."""
        yield {"namespaces": False, "landlock": False}

    async def test_code_is_refused(self, bare: dict[str, bool]) -> None:
        """Nothing is run, and what is missing is named."""
        sandbox = LinuxSandbox(**bare)  # type: ignore[arg-type]
        try:
            isolation = await sandbox.isolation()
            with pytest.raises(SandboxUnavailable) as refused:
                await sandbox.run(SandboxJob(source="1"))
        finally:
            await sandbox.close()

        assert not isolation.enough
        assert "files" in refused.value.missing or isolation.backend == "none"

    @pytest.mark.slow
    async def test_code_is_run_if_that_is_asked_for_and_logged(
        self, bare: dict[str, bool], caplog: pytest.LogCaptureFixture
    ) -> None:
        sandbox = LinuxSandbox(unsafe=True, **bare)  # type: ignore[arg-type]
        try:
            isolation = await sandbox.isolation()
            result = await sandbox.run(SandboxJob(source="1 + 1", limits=LIMITS))
        finally:
            await sandbox.close()

        assert (isolation.enough, isolation.unsafe, result.value) == (False, True, 2)
        assert "without enough isolation" in caplog.text
