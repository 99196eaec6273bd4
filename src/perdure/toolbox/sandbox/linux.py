"""The `linux` sandbox: a fork server that is started when it is first needed, and a process of its own for each job."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import platform
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perdure.core.errors import SandboxUnavailable
from perdure.core.tasks import undone_by
from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxLimits, SandboxResult
from perdure.scratch import scratch_folder
from perdure.toolbox.sandbox.calls import (
    JobCall,
    TooMuchOutput,
    answer_bytes_max,
    decode_output,
    output_bytes_max,
    parse_result,
    result_of_exit,
)
from perdure.toolbox.sandbox.cgroups import DelegatedGroup, find_delegated_group
from perdure.toolbox.sandbox.fork_server import ForkServer, ServerSettings, StartFailed
from perdure.toolbox.sandbox.inside import frames, seccomp
from perdure.toolbox.sandbox.installer import Installer
from perdure.toolbox.sandbox.measures import describe_isolation, no_isolation
from perdure.toolbox.sandbox.places import Places
from perdure.toolbox.sandbox.proxy import ForwardProxy, admit_listed
from perdure.toolbox.sandbox.requirements import Requirements, RequirementsFailed

CONCURRENCY = 8
MEMORY_MB = 512
PROCESSES = 32
PACKAGES_MB = 4_096
TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 10.0
END_TIMEOUT_S = 2.0
OUTPUT_BYTES_MAX = 16 << 20
"""The most output of a call. `print` keeps a lower limit; a call that writes more than this is ended."""

MEBIBYTE = 1 << 20
SERVER_BYTES, SERVER_PROCESSES = 128 << 20, 16
"""The memory and processes of the fork server itself, beside its calls."""

LARGE_ANSWER_BYTES = 32 << 10
"""Longer answers are parsed in a thread, beside the event loop."""

CONFINED = "in this sandbox code can start no process and write no file: it has no pools, semaphores or shared memory"
NO_CACHE = "tools with requirements can't be run here: no cache folder"
NETWORK_OFF = "this tool wants a network, and the administrator does not allow tools to have one"
NO_NAMESPACE = (
    "this tool wants a network, and this machine gives the sandbox no network namespace in which it could be held to"
    " the hosts that it lists; `perdure doctor` tells more"
)

log = logging.getLogger("perdure.sandbox")


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    """Return the folders of Perdure and of the packages that are installed beside it."""
    folders = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    folders.add(Path(__file__).resolve().parents[3])
    return tuple(sorted(folder for folder in folders if folder.is_dir()))


class LinuxSandbox:
    """`Sandbox` that isolates by namespaces, Landlock and a filter of system calls, as far as this machine has them.

    It is used from one event loop at a time. It starts nothing before the first job or `isolation`.

    Args:
        cache: the folder where requirements are installed; None: jobs with requirements are refused.
        concurrency: jobs that run at a time; others wait for a place.
        network: whether jobs that list hosts may reach them.
        private_hosts: those on this machine or in a private network that a job may list, and that an index may keep
            its files on, as `name` or `name:port`.
        memory_mb, processes, timeout_s: the most that a job gets, whatever its own limits are.
        packages_mb: the room that all installed requirements may take on disk; one set may take a quarter.
        unsafe: run code although this machine can't hold it back; each start logs a warning.
        python: the interpreter; by default this one.
        user: the user that runs the fork server, for a server that is root.
        namespaces, landlock: False leaves them out, as if this machine had none.
        find_group: finds the control group in which one for all calls together may be made.
    """

    def __init__(
        self,
        *,
        cache: Path | None = None,
        concurrency: int = CONCURRENCY,
        network: bool = False,
        private_hosts: Sequence[str] = (),
        unsafe: bool = False,
        memory_mb: int = MEMORY_MB,
        processes: int = PROCESSES,
        timeout_s: float = TIMEOUT_S,
        packages_mb: int = PACKAGES_MB,
        python: str | None = None,
        user: int | None = None,
        namespaces: bool = True,
        landlock: bool = True,
        find_group: Callable[[], DelegatedGroup] = find_delegated_group,
    ) -> None:
        self._requirements = None
        if cache is not None:
            installer = Installer(private_hosts=private_hosts)
            self._requirements = Requirements(cache, installer=installer, bytes_max=packages_mb * MEBIBYTE)
        self._concurrency, self._network, self._unsafe = concurrency, network, unsafe
        self._private_hosts = tuple(private_hosts)
        self._memory_mb, self._processes, self._timeout_s = memory_mb, processes, timeout_s
        self._settings = ServerSettings(
            python=python or sys.executable or "",
            user=user,
            namespaces=namespaces,
            landlock=landlock,
            site=_package_folders(),
            store=cache,
            slots=2 * concurrency,
            memory_bytes=concurrency * (memory_mb + SandboxLimits().disk_mb) * MEBIBYTE + SERVER_BYTES,
            processes=2 * concurrency * processes + SERVER_PROCESSES,
        )
        self._find_group = find_group
        self._server: ForkServer | None = None
        self._isolation: Isolation | None = None
        self._start_lock = asyncio.Lock()
        self._places = Places(concurrency, self._settings.slots)

    @property
    def pid(self) -> int | None:
        """The fork server's process; None: it does not run."""
        return None if self._server is None else self._server.pid

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        """Run a job when it has its turn, and return its result.

        Args:
            progress: takes a line for each step before that, such as an installation.
            lines: takes each line that the code prints, while it runs.
        Raises: SandboxUnavailable.
        """
        if job.network and not self._network:
            return SandboxResult(status="refused", error=NETWORK_OFF)
        server = await self._running_server()
        if job.network and not server.facts.namespaces:
            return SandboxResult(status="refused", error=NO_NAMESPACE)
        if job.requirements and self._requirements is None:
            return SandboxResult(status="refused", error=NO_CACHE)
        job = replace(job, limits=self._cap_limits(job.limits))
        async with contextlib.AsyncExitStack() as stack:
            packages = None
            if job.requirements and self._requirements is not None:
                installed = self._requirements.hold(job.requirements, owner=job.owner, progress=progress)
                try:
                    packages = await stack.enter_async_context(installed)
                except RequirementsFailed as error:
                    return SandboxResult(status="refused", error=str(error))
            await stack.enter_async_context(self._places.claim(job.owner))
            return await self._run(server if server.alive else await self._running_server(), job, packages, lines)

    async def isolation(self) -> Isolation:
        """How this machine isolates code; the fork server is started to find out."""
        async with self._start_lock:
            if self._isolation is None or not self._is_running():
                await self._start()
        assert self._isolation is not None
        return self._isolation

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _cap_limits(self, limits: SandboxLimits) -> SandboxLimits:
        """The limits of a job, none above what the sandbox gives."""
        return replace(
            limits,
            wall_s=min(limits.wall_s, self._timeout_s),
            memory_mb=min(limits.memory_mb, self._memory_mb),
            processes=min(limits.processes, self._processes),
        )

    def _is_running(self) -> bool:
        """Whether there is a fork server that this event loop can use."""
        server = self._server
        return server is not None and server.alive and server.loop is asyncio.get_running_loop()

    async def _running_server(self) -> ForkServer:
        """The running fork server, started if need be. Raises: SandboxUnavailable."""
        async with self._start_lock:
            if not self._is_running():
                await self._start()
            server, isolation = self._server, self._isolation
        assert isolation is not None
        if server is None or not (isolation.enough or isolation.unsafe):
            missing = [measure.name for measure in isolation.measures if not measure.works]
            raise SandboxUnavailable(isolation.summary, missing=missing)
        return server

    async def _start(self) -> None:
        """Start a fork server with the best isolation that this machine has, and note what that is."""
        await self._drop_server()
        if sys.platform != "linux" or not seccomp.supported():
            self._isolation = no_isolation(f"it works on Linux on x86-64 and ARM64, this is {platform.platform()}")
            return
        if not self._settings.python:
            self._isolation = no_isolation("the path of the Python interpreter is not known (sys.executable is empty)")
            return
        group = await asyncio.to_thread(self._find_group)
        settings = replace(self._settings, group_parent=group.folder)
        weak: Isolation | None = None
        problems: list[str] = []
        for namespaces in (True, False) if settings.namespaces else (False,):
            try:
                server, isolation = await self._start_and_check(replace(settings, namespaces=namespaces), group.why)
            except StartFailed as error:
                problems.append(str(error))
                continue
            if isolation.enough:
                self._server, self._isolation = server, isolation
                return
            weak = isolation
            await server.close()
        self._isolation = weak or no_isolation("; ".join(problems))
        if self._unsafe:
            settings = replace(settings, namespaces=False, tolerant=True)
            try:
                self._server, isolation = await self._start_and_check(settings, group.why)
            except StartFailed as error:
                self._isolation = no_isolation(str(error))
                return
            self._isolation = replace(isolation, unsafe=True)
            log.warning("tools are run without enough isolation, because that was asked for: %s", isolation.summary)

    async def _start_and_check(self, settings: ServerSettings, no_group: str) -> tuple[ForkServer, Isolation]:
        """Start a fork server, and run a call in it that checks which measures hold; return (server, isolation).
        `no_group`: why there is no control group for it; empty: there is one. Raises: StartFailed."""
        if settings.store is not None:
            await asyncio.to_thread(settings.store.mkdir, mode=0o755, parents=True, exist_ok=True)
        server = await ForkServer.start(settings)
        async with undone_by(server.close):
            with scratch_folder("sandbox") as folder:
                marker = folder / "marker"
                marker.touch()
                for path, mode in ((folder, 0o755), (marker, 0o644)):
                    path.chmod(mode)  # what keeps it from being read must be the cage
                facts = {"marker": str(marker), "processes": settings.namespaces}
                held, problem = await self._check(server, {**_job_data(SandboxJob(source="")), **facts})
        no_group = server.no_group or no_group
        return server, describe_isolation(held, server.facts, problem=problem, unsafe=self._unsafe, no_group=no_group)

    async def _check(self, server: ForkServer, job: Mapping[str, Any]) -> tuple[Mapping[str, bool], str]:
        """Return (measure -> whether it works in a call with the data `job`; the error of the check, empty: none)."""
        empty = SandboxJob(source="", limits=self._cap_limits(SandboxLimits()))
        call = await self._fork(server, empty, None, check=True)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                if problem := await _cage_problem(call):
                    return {}, problem
                await call.send_job(frames.pack(job))
                body = await call.read_frame(output_max=OUTPUT_BYTES_MAX)
            if body is None:
                return {}, _read_stderr(call) or "the check did not end"
            answer = json.loads(body)
            return answer["held"], answer["error"]
        except TimeoutError:
            return {}, "the check took too long"
        finally:
            call.close()

    async def _run(
        self, server: ForkServer, job: SandboxJob, packages: str | None, lines: Callable[[str], None] | None
    ) -> SandboxResult:
        """Run a job in a process of its own and return its result. `packages`: folder of its installed requirements;
        `lines`: called with each line that it prints."""
        call = await self._fork(server, job, packages)
        try:
            if problem := await _cage_problem(call):
                if not server.alive:
                    return result_of_exit(await call.exit, job.limits, answered=False)
                # This machine can isolate code: the caller must not take it for one that can't, and run it unsafely.
                error = f"its process could not be isolated just now ({problem}): try once more"
                return SandboxResult(status="crash", error=error)
            started = time.monotonic()
            async with self._proxy(call, job.network):
                result = await self._exchange(call, job, lines)
            for pipe in (call.stdout, call.stderr):
                pipe.read_available()
            return replace(
                result,
                error=self._explain(result.error),
                stdout=decode_output(call.stdout.data, job.limits),
                stderr=decode_output(call.stderr.data, job.limits),
                seconds=time.monotonic() - started,
            )
        finally:
            call.close()

    @asynccontextmanager
    async def _proxy(self, call: JobCall, hosts: Sequence[str]) -> AsyncIterator[None]:
        """Inside the context, serve the proxy to these hosts for a call; without hosts there is none."""
        if not hosts:
            yield
            return
        proxy = ForwardProxy(admit_listed(hosts, self._private_hosts))
        await proxy.start(call.receive_listener())
        try:
            yield
        finally:
            await proxy.close()

    def _explain(self, error: str) -> str:
        """The error of a job, and what jobs may not do here if that may be its cause."""
        assert self._isolation is not None
        missing = {measure.name for measure in self._isolation.measures if not measure.works}
        if error.startswith("PermissionError") and {"processes", "work folder"} <= missing:
            return f"{error}: {CONFINED}"
        return error

    async def _exchange(self, call: JobCall, job: SandboxJob, lines: Callable[[str], None] | None) -> SandboxResult:
        """Send a job to its process, and wait for the answer or the end; return the result without its output. `lines`
        takes each line that the code prints."""
        limits = job.limits
        try:
            async with asyncio.timeout(limits.wall_s):
                await call.send_job(frames.pack(_job_data(job)), job.input)
                body = await call.read_frame(output_max=OUTPUT_BYTES_MAX, lines=lines)
                if body is not None:
                    if len(body) > LARGE_ANSWER_BYTES:
                        return await asyncio.to_thread(parse_result, body, job)
                    return parse_result(body, job)
                answered = not call.answer.ended
                if answered:
                    call.kill()
                try:
                    async with asyncio.timeout(END_TIMEOUT_S):
                        end = await asyncio.shield(call.exit)
                except TimeoutError:  # it has closed its pipe and goes on
                    call.kill()
                    end = await call.exit
                return result_of_exit(end, limits, answered=answered)
        except TimeoutError:
            return SandboxResult(status="timeout", error=f"it did not end within {limits.wall_s:g} s, and was stopped")
        except TooMuchOutput:
            error = f"it printed more than {OUTPUT_BYTES_MAX:,} bytes, and was stopped"
            return SandboxResult(status="crash", error=error)

    async def _fork(self, server: ForkServer, job: SandboxJob, packages: str | None, *, check: bool = False) -> JobCall:
        """Start the process of a job, or of the sandbox's `check`, in a slot that it holds until it ends; `packages`:
        the name of its installed requirements. Raises: OSError: no pipes are left."""
        limits, network = job.limits, bool(job.network)
        request = {
            # The job can still lower these, once its process runs.
            "limits": {**asdict(limits), "memory_mb": self._memory_mb, "processes": self._processes},
            "memory_bytes": limits.memory_mb * MEBIBYTE,
            "network": network,
            "packages": packages,
            "check": check,
        }
        slot = await self._places.free_slots.get()
        try:
            call = JobCall(server, slot, answer_bytes_max(job), output_bytes_max(limits), network=network)
            try:
                await call.fork(request)
            except BaseException:
                call.close()
                raise
        except BaseException:
            self._places.free_slots.put_nowait(slot)
            raise
        call.exit.add_done_callback(lambda _: self._places.free_slots.put_nowait(slot))
        return call

    async def _drop_server(self) -> None:
        """End a fork server that has died, or whose event loop is closed."""
        server, self._server = self._server, None
        if server is None:
            return
        if server.loop is asyncio.get_running_loop():
            await server.close()
        else:
            await asyncio.to_thread(server.abandon)
        self._places = Places(self._concurrency, self._settings.slots)


async def _cage_problem(call: JobCall) -> str:
    """Wait until the call's process is in its cage. Returns why it can't be put there; empty: it is."""
    body = await call.read_frame(output_max=OUTPUT_BYTES_MAX)
    if body is None:
        end = await call.exit
        return end.failure or _read_stderr(call) or f"its process ended ({end.code})"
    message = json.loads(body)
    return "" if message["status"] == "ready" else str(message["error"])


def _read_stderr(call: JobCall) -> str:
    """What a call's process has written to stderr so far."""
    call.stderr.read_available()
    return decode_output(call.stderr.data, SandboxLimits())


def _job_data(job: SandboxJob) -> dict[str, Any]:
    """The part of a job that is sent to its process, as JSON."""
    limits = job.limits
    return {
        "source": job.source,
        "function": job.function,
        "arguments": dict(job.arguments),
        "environment": dict(job.environment),
        "agent": dict(job.agent) if job.agent is not None else None,
        "input": job.input is not None,
        "result_bytes": limits.result_bytes,
        "output_chars": limits.output_chars,
        "limits": {**asdict(limits), "cpu_s": limits.wall_s if limits.cpu_s is None else limits.cpu_s},
    }
