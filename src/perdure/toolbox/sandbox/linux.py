"""The `linux` sandbox: a fork server that is started when it is first needed, and a process of its own for each job."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxLimits, SandboxResult
from perdure.toolbox.sandbox.answers import answer_bytes_max, ended_result, output_bytes_max, printed, result_of
from perdure.toolbox.sandbox.calls import Call, TooMuchOutput
from perdure.toolbox.sandbox.cgroups import Delegated, delegated
from perdure.toolbox.sandbox.fork_server import ForkServer, ServerSettings, StartFailed
from perdure.toolbox.sandbox.inside import frames, seccomp
from perdure.toolbox.sandbox.installer import Installer
from perdure.toolbox.sandbox.measures import isolation_of, no_isolation
from perdure.toolbox.sandbox.places import Places
from perdure.toolbox.sandbox.proxy import ForwardProxy, listed_hosts
from perdure.toolbox.sandbox.requirements import Requirements, RequirementsFailed

CONCURRENCY = 8
SPARES = 1
SPARE_DELAY_S = 0.02
MEMORY_MB = 512
PROCESSES = 32
PACKAGES_MB = 4_096
TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 10.0
END_TIMEOUT_S = 2.0
FLOOD_BYTES = 16 << 20
MEBIBYTE = 1 << 20
SERVER_BYTES, SERVER_PROCESSES = 128 << 20, 16
"""What the fork server itself gets beside its calls."""

LARGE_BYTES = 32 << 10

CONFINED = "in this sandbox code can start no process and write no file: it has no pools, semaphores or shared memory"

NO_NAMESPACE = (
    "this tool wants a network, and this machine gives the sandbox no network namespace in which it could be held to"
    " the hosts that it lists; `perdure doctor` tells more"
)

log = logging.getLogger("perdure.sandbox")


class LinuxSandbox:
    """Runs code behind namespaces, Landlock and a filter of system calls, in whichever of them this machine has.

    It is used from one event loop at a time. Nothing is started before the first job, or `isolation`.

    Args:
        cache: the folder where requirements are installed; None: jobs with requirements are refused.
        concurrency: jobs that run at a time; others wait for a place.
        spares: processes that wait in their cage for a job, so that it need not wait for them. They fit jobs with as
            large a work folder as the last one, without network and requirements.
        network: whether jobs that list hosts may reach them.
        private_hosts: those on this machine or in a private network that a job may list, and that an index may keep
            its files on, as `name` or `name:port`.
        memory_mb, processes, timeout_s: the most that a job gets, whatever its own limits are.
        packages_mb: the room that all installed requirements may take on disk; one set may take a quarter.
        unsafe: run code although this machine can't hold it back; each start logs a warning.
        python: the interpreter; by default this one.
        user: whom to run the fork server as, for a server that is root.
        namespaces, landlock: False leaves them out, as if this machine had none.
        groups: finds the control group in which one for all calls together may be made.
    """

    def __init__(
        self,
        *,
        cache: Path | None = None,
        concurrency: int = CONCURRENCY,
        spares: int = SPARES,
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
        groups: Callable[[], Delegated] = delegated,
    ) -> None:
        self._requirements = None
        if cache is not None:
            installer = Installer(private_hosts=private_hosts)
            self._requirements = Requirements(cache, installer=installer, bytes_max=packages_mb * MEBIBYTE)
        self._concurrency, self._spare_count = concurrency, spares
        self._network, self._unsafe = network, unsafe
        self._private_hosts = tuple(private_hosts)
        self._memory_mb, self._processes, self._timeout_s = memory_mb, processes, timeout_s
        self._settings = ServerSettings(
            python=python or sys.executable or "",
            user=user,
            namespaces=namespaces,
            landlock=landlock,
            site=_site(),
            store=cache,
            slots=2 * concurrency + spares,
            memory_bytes=(concurrency + spares) * (memory_mb + SandboxLimits().disk_mb) * MEBIBYTE + SERVER_BYTES,
            processes=(2 * concurrency + spares) * processes + SERVER_PROCESSES,
        )
        self._groups, self._no_group = groups, ""
        self._server: ForkServer | None = None
        self._isolation: Isolation | None = None
        self._starting = asyncio.Lock()
        self._places = Places(concurrency, self._settings.slots)
        self._spares: list[Call] = []
        self._spare_kind: Mapping[str, Any] | None = None
        self._background: set[asyncio.Task[None]] = set()

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
        if job.network and not self._network:
            why = "this tool wants a network, and the administrator does not allow tools to have one"
            return SandboxResult(status="refused", error=why)
        server = await self._ready()
        if job.network and not server.namespaces:
            return SandboxResult(status="refused", error=NO_NAMESPACE)
        async with contextlib.AsyncExitStack() as used:
            packages = None
            if job.requirements:
                if self._requirements is None:
                    why = "tools with requirements can't be run here: no cache folder"
                    return SandboxResult(status="refused", error=why)
                held = self._requirements.used(job.requirements, owner=job.owner, progress=progress)
                try:
                    packages = await used.enter_async_context(held)
                except RequirementsFailed as error:
                    return SandboxResult(status="refused", error=str(error))
            job = dataclasses.replace(job, limits=self._capped(job.limits))
            async with self._places.taken(job.owner):
                return await self._run(server if server.alive else await self._ready(), job, packages, lines)

    async def isolation(self) -> Isolation:
        async with self._starting:
            if self._isolation is None or not self._alive():
                await self._start()
        assert self._isolation is not None
        return self._isolation

    async def close(self) -> None:
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for spare in self._spares:
            spare.close()
        self._spares.clear()
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()

    def _capped(self, limits: SandboxLimits) -> SandboxLimits:
        return dataclasses.replace(
            limits,
            wall_s=min(limits.wall_s, self._timeout_s),
            memory_mb=min(limits.memory_mb, self._memory_mb),
            processes=min(limits.processes, self._processes),
        )

    def _how(self, limits: SandboxLimits, *, network: bool, packages: str | None) -> dict[str, Any]:
        """What the fork server must know of a call; what can be lowered later comes with the job."""
        return {
            "limits": {
                "memory_mb": self._memory_mb,
                "processes": self._processes,
                "disk_mb": limits.disk_mb,
                "files": limits.files,
            },
            "network": network,
            "packages": packages,
        }

    def _alive(self) -> bool:
        server = self._server
        return server is not None and server.alive and server.loop is asyncio.get_running_loop()

    async def _ready(self) -> ForkServer:
        """The running fork server, started if need be. Raises: SandboxUnavailable."""
        async with self._starting:
            if not self._alive():
                await self._start()
            server, isolation = self._server, self._isolation
        assert isolation is not None
        if server is None or not (isolation.enough or isolation.unsafe):
            missing = [measure.name for measure in isolation.measures if not measure.held]
            raise SandboxUnavailable(isolation.summary, missing=missing)
        return server

    async def _start(self) -> None:
        await self._forget()
        if sys.platform != "linux" or not seccomp.supported():
            self._isolation = no_isolation(f"it works on Linux on x86-64 and ARM64, this is {platform.platform()}")
            return
        if not self._settings.python:
            self._isolation = no_isolation("the path of the Python interpreter is not known (sys.executable is empty)")
            return
        groups = await asyncio.to_thread(self._groups)
        self._no_group = groups.why
        self._settings = dataclasses.replace(self._settings, groups=groups.folder)
        ways = [self._settings] if self._settings.namespaces else []
        ways.append(dataclasses.replace(self._settings, namespaces=False))
        problems = []
        found: tuple[ForkServer, Isolation] | None = None
        for settings in ways:
            try:
                server, isolation = await self._start_and_check(settings)
            except StartFailed as error:
                problems.append(str(error))
                continue
            if isolation.enough:
                self._server, self._isolation = server, isolation
                return
            problems.append(isolation.summary)
            await server.close()
            found = (server, isolation)
        self._isolation = found[1] if found else no_isolation("; ".join(problems))
        if self._unsafe:
            await self._start_unsafe()

    async def _start_unsafe(self) -> None:
        settings = dataclasses.replace(self._settings, namespaces=False, tolerant=True)
        try:
            self._server, isolation = await self._start_and_check(settings)
        except StartFailed as error:
            self._isolation = no_isolation(str(error))
            return
        self._isolation = dataclasses.replace(isolation, unsafe=True)
        log.warning("tools are run without enough isolation, because that was asked for: %s", isolation.summary)

    async def _start_and_check(self, settings: ServerSettings) -> tuple[ForkServer, Isolation]:
        """Start a fork server, and run a call in it that checks which measures hold. Raises: StartFailed."""
        if settings.store is not None:
            await asyncio.to_thread(settings.store.mkdir, mode=0o755, parents=True, exist_ok=True)
        server = await ForkServer.start(settings)
        held: Mapping[str, bool] = {}
        try:
            with tempfile.NamedTemporaryFile(prefix="perdure-sandbox-") as marker:
                os.fchmod(marker.fileno(), 0o644)  # what keeps it from being read must be the cage
                job = {"marker": marker.name, "processes": settings.namespaces}
                held, problem = await self._checked(server, {**_data(SandboxJob(source="")), **job})
        except BaseException:
            await server.close()
            raise
        isolation = isolation_of(
            held,
            namespaces=settings.namespaces,
            landlock=server.facts["landlock"],
            root=server.facts["root"],
            problem=problem,
            unsafe=self._unsafe,
            no_group=server.no_group or self._no_group,
        )
        return server, isolation

    async def _checked(self, server: ForkServer, job: Mapping[str, Any]) -> tuple[Mapping[str, bool], str]:
        how = {**self._how(SandboxLimits(), network=False, packages=None), "check": True}
        call = await self._forked(server, how, SandboxJob(source=""))
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                why = await _caged(call)
                if why:
                    return {}, why
                await call.send(frames.pack(job))
                body = await call.frame(output_max=FLOOD_BYTES)
            if body is None:
                call.stderr.drain()
                return {}, printed(bytes(call.stderr.data), SandboxLimits()) or "the check did not end"
            answer = frames.unpack(body)
            return answer["held"], answer["error"]
        except TimeoutError:
            return {}, "the check took too long"
        finally:
            self._finish(call)

    async def _run(
        self, server: ForkServer, job: SandboxJob, packages: str | None, lines: Callable[[str], None] | None
    ) -> SandboxResult:
        how = self._how(job.limits, network=bool(job.network), packages=packages)
        call = self._taken_spare(how, job) or await self._forked(server, how, job)
        try:
            if why := await _caged(call):
                if not server.alive:
                    return ended_result(await call.ended, job.limits, answered=False)
                # It is no machine without isolation: whoever waits must not do the work outside instead.
                error = f"its process could not be isolated just now ({why}): try once more"
                return SandboxResult(status="crash", error=error)
            started = time.monotonic()
            async with self._way_out(call, job.network):
                result = await self._answered(call, job, lines)
            for stream in (call.stdout, call.stderr):
                stream.drain()
            return dataclasses.replace(
                result,
                error=self._explained(result.error),
                stdout=printed(bytes(call.stdout.data), job.limits),
                stderr=printed(bytes(call.stderr.data), job.limits),
                seconds=time.monotonic() - started,
            )
        finally:
            self._finish(call)
            self._make_spares(server, how, job)

    @asynccontextmanager
    async def _way_out(self, call: Call, hosts: Sequence[str]) -> AsyncIterator[None]:
        """The proxy of a call that may reach these hosts."""
        if not hosts:
            yield
            return
        proxy = ForwardProxy(listed_hosts(hosts, self._private_hosts))
        await proxy.start(call.listener())
        try:
            yield
        finally:
            await proxy.close()

    def _explained(self, error: str) -> str:
        """The error; where a job may do less than code expects, with what it may not."""
        assert self._isolation is not None
        missing = {measure.name for measure in self._isolation.measures if not measure.held}
        if error.startswith("PermissionError") and {"processes", "work folder"} <= missing:
            return f"{error}: {CONFINED}"
        return error

    async def _answered(self, call: Call, job: SandboxJob, lines: Callable[[str], None] | None) -> SandboxResult:
        limits = job.limits
        try:
            async with asyncio.timeout(limits.wall_s):
                call.limit_memory(limits.memory_mb)
                await call.send(frames.pack(_data(job)), job.input)
                body = await call.frame(output_max=FLOOD_BYTES, lines=lines)
                if body is not None:
                    if len(body) > LARGE_BYTES:
                        return await asyncio.to_thread(result_of, body, job)
                    return result_of(body, job)
                answered = not call.answer.ended
                if answered:
                    call.kill()
                try:
                    async with asyncio.timeout(END_TIMEOUT_S):
                        ended = await asyncio.shield(call.ended)
                except TimeoutError:  # it has closed its pipe and goes on
                    call.kill()
                    ended = await call.ended
                return ended_result(ended, limits, answered=answered)
        except TimeoutError:
            return SandboxResult(status="timeout", error=f"it did not end within {limits.wall_s:g} s, and was stopped")
        except TooMuchOutput:
            return SandboxResult(status="crash", error=f"it printed more than {FLOOD_BYTES:,} bytes, and was stopped")

    async def _forked(self, server: ForkServer, how: Mapping[str, Any], job: SandboxJob) -> Call:
        slot = await self._places.slot()
        sizes = (answer_bytes_max(job), output_bytes_max(job.limits))
        try:
            call = Call(server, slot, *sizes, network=bool(how["network"]))
            try:
                await call.fork(how)
            except BaseException:
                call.close()
                raise
        except BaseException:
            self._places.free(slot)
            raise
        call.ended.add_done_callback(lambda _: self._places.free(slot))
        return call

    def _taken_spare(self, how: Mapping[str, Any], job: SandboxJob) -> Call | None:
        while self._spares and self._spare_kind == how:
            call = self._spares.pop()
            if call.server.alive and not call.ended.done():
                call.answer.keep = answer_bytes_max(job)
                call.stdout.keep = call.stderr.keep = output_bytes_max(job.limits)
                return call
            call.close()
        return None

    def _make_spares(self, server: ForkServer, how: Mapping[str, Any], job: SandboxJob) -> None:
        """Have as many as wanted of the kind that was just used, once the last job that wants a place has one."""
        if not server.alive or how["network"] or how["packages"] or self._places.waiting:
            return
        if self._spare_kind != how:
            for spare in self._spares:
                self._finish(spare)
            self._spares.clear()
            self._spare_kind = how
        if len(self._spares) < self._spare_count and not self._background:
            task = asyncio.create_task(self._make_spare(server, job))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _make_spare(self, server: ForkServer, job: SandboxJob) -> None:
        await asyncio.sleep(SPARE_DELAY_S)  # whoever waited for the result goes first
        while len(self._spares) < self._spare_count and server.alive and self._spare_kind and not self._places.waiting:
            self._spares.append(await self._forked(server, self._spare_kind, job))

    def _finish(self, call: Call) -> None:
        """Let go of a call; its process is ended if it has not ended by itself."""
        call.close()
        if not call.ended.done():
            call.kill()

    async def _forget(self) -> None:
        """Let go of a fork server that has ended, or that belongs to an event loop that has."""
        server, self._server = self._server, None
        if server is None:
            return
        for spare in self._spares:
            spare.close()
        self._spares.clear()
        self._spare_kind = None
        if server.loop is asyncio.get_running_loop():
            await server.close()
        else:
            await asyncio.to_thread(server.abandon)
        self._places = Places(self._concurrency, self._settings.slots)


async def _caged(call: Call) -> str:
    """Wait until no foreign code can do harm. Returns why that can't be; empty if all is well."""
    body = await call.frame(output_max=FLOOD_BYTES)
    if body is None:
        ended = await call.ended
        call.stderr.drain()
        return ended.failed or printed(bytes(call.stderr.data), SandboxLimits()) or f"its process ended ({ended.exit})"
    said = frames.unpack(body)
    return "" if said["status"] == "ready" else str(said["error"])


def _data(job: SandboxJob) -> dict[str, Any]:
    """What the call's own process is told."""
    return {
        "source": job.source,
        "function": job.function,
        "arguments": dict(job.arguments),
        "environment": dict(job.environment),
        "agent": dict(job.agent) if job.agent is not None else None,
        "input": job.input is not None,
        "result_bytes": job.limits.result_bytes,
        "output_chars": job.limits.output_chars,
        "limits": {
            "memory_mb": job.limits.memory_mb,
            "processes": job.limits.processes,
            "cpu_s": job.limits.wall_s if job.limits.cpu_s is None else job.limits.cpu_s,
        },
    }


def _site() -> tuple[Path, ...]:
    """Where Perdure and the packages that are installed beside it are."""
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    paths = {*installed, Path(__file__).resolve().parents[3]}
    return tuple(sorted(path for path in paths if path.is_dir()))
