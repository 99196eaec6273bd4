"""Install a set of packages with pip, in two runs: resolve which wheels it needs, then install exactly those.

Both run in a cage: see `inside/installer.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import sys
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from perdure.core.errors import AddressRefused, DataTooLarge
from perdure.core.incoming.addresses import find_address
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.toolbox.processes import end_group, start_group
from perdure.toolbox.sandbox.inside.installer import PROXY_VARIABLE, SETTING_NAMES, SETTINGS_PREFIX
from perdure.toolbox.sandbox.package_cache import tree_bytes, walk_entries
from perdure.toolbox.sandbox.proxy import ForwardProxy, Upstream
from perdure.toolbox.web_guard import WebGuard, host_and_port, resolve, strip_url

TIMEOUT_S = 300.0
CPU_S = 600
MEMORY_BYTES = 2 << 30
SIZE_CHECK_S = 0.5
PACKAGES_MAX = 500
OUTPUT_CHARS = 1_000
LINES_MAX = 100
REFUSALS_MAX = 3
LINE_CHARS = 200
REPORT_LIMITS = JsonLimits(size_bytes=64 << 20)

PUBLIC_ADDRESS = "8.8.8.8"
"""Stands for a name that a company's proxy resolves, and that may have no address here."""

NEEDS_PROGRAM = "something in it comes as source or from a repository, and no program is started at an installation"

LOCK_NAME = "perdure-lock.txt"
"""The file beside the installed packages that lists them with versions and hashes."""

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.installer import main; main()"
_OPTIONS = ("--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--no-warn-conflicts")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9.!+_-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PASSED = ("HOME", "PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")


class InstallFailed(Exception):
    """A tool's set of packages could not be installed; the text says why."""


class Installer:
    """Installs sets of requirements into folders, by `command`, an interpreter with pip and its options.
    `private_hosts`: hosts that are not public on which an index may keep its files, as `name` or `name:port`."""

    def __init__(
        self, *, command: Sequence[str] | None = None, timeout_s: float = TIMEOUT_S, private_hosts: Sequence[str] = ()
    ) -> None:
        # -E: without Python's variables. -P: without modules of the current folder.
        self._command = tuple(command) if command is not None else (sys.executable, "-E", "-P")
        self._timeout_s, self._private_hosts = timeout_s, tuple(private_hosts)

    async def install(
        self, requirements: Sequence[str], scratch: Path, *, bytes_max: int, progress: Callable[[str], None]
    ) -> Path:
        """Install a set of requirements, and return the folder, within `scratch`, that it is in.

        Args:
            scratch: an empty folder.
            bytes_max: the size that the set may have; pip may take as much again while it works.
            progress: takes each line that pip prints.
        Raises: InstallFailed: it is not to be had as wheels of the index, takes too long, or is too large.
        """
        work = scratch / "work"
        work.mkdir()
        target, report, lock = work / "target", work / "report.json", work / LOCK_NAME
        options = ("install", *_OPTIONS, f"--cache-dir={work}/cache", f"--log={work}/log")
        resolving = ("--dry-run", "--ignore-installed", f"--report={report}", "--", *requirements)
        locked = ("--no-deps", "--require-hashes", f"--requirement={lock}", f"--target={target}")
        try:
            async with asyncio.timeout(self._timeout_s), _IndexProxy(self._private_hosts) as proxy:
                pip = _Pip(self._command, work, bytes_max, proxy, progress)
                await pip.run(*options, *resolving)
                text = await asyncio.to_thread(_read_report, report)
                lock.write_text(text, encoding="utf-8")
                await pip.run(*options, *locked)
        except TimeoutError:
            raise InstallFailed(f"it took more than {self._timeout_s:g} s") from None
        size = await asyncio.to_thread(tree_bytes, target)
        if size > bytes_max:
            raise InstallFailed(_describe_size(size, bytes_max))
        await asyncio.to_thread(give_to_root, target)
        (target / LOCK_NAME).write_text(text, encoding="utf-8")
        return target


@dataclass(frozen=True, slots=True)
class _Pip:
    """Runs pip in its cage by `command`, an interpreter and its options, each time with the same work folder.
    `bytes_max`: the size that the installed set may have; `progress` takes each line that pip prints."""

    command: Sequence[str]
    work: Path
    bytes_max: int
    proxy: _IndexProxy
    progress: Callable[[str], None]

    async def run(self, *arguments: str) -> None:
        """Run pip once with these arguments. Raises: InstallFailed: it failed, or took too much room."""
        cage = {
            "scratch": str(self.work),
            "port": self.proxy.port,
            "bytes_max": self.bytes_max,
            "memory_bytes": MEMORY_BYTES,
            "cpu_s": CPU_S,
        }
        # The variables by which pip finds its settings, and no others of this process.
        settings = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("PIP_")}
        process = await start_group(
            *self.command,
            *("-c", _START, str(Path(__file__).parent), json.dumps(cage), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**settings, "TMPDIR": str(self.work), PROXY_VARIABLE: self.proxy.address},
            cwd=self.work,
        )
        assert process.stdout is not None
        lines: deque[str] = deque(maxlen=LINES_MAX)
        watch = asyncio.create_task(self._limit_size(process))
        try:
            while line := await _read_line(process.stdout):
                if line.startswith(SETTINGS_PREFIX):
                    self.proxy.admit_indexes(line.removeprefix(SETTINGS_PREFIX))
                    continue
                lines.append(line)
                self.progress(line[:LINE_CHARS])
            code = await process.wait()
        finally:
            if process.returncode is None:
                await end_group(process)
            watch.cancel()
            await asyncio.wait([watch])
        if not watch.cancelled():
            raise InstallFailed(_describe_size(watch.result(), 2 * self.bytes_max))
        if code:
            raise InstallFailed(" ".join([_describe_failure(lines), *self.proxy.refused]))

    async def _limit_size(self, process: asyncio.subprocess.Process) -> int:
        """Kill pip as soon as the work folder is too large. Returns its size."""
        while True:
            await asyncio.sleep(SIZE_CHECK_S)
            size = await asyncio.to_thread(tree_bytes, self.work)
            if size > 2 * self.bytes_max:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return size


class _IndexProxy:
    """A proxy to the index, and to public hosts where its files may lie; used as a context manager.

    Connections wait until pip has reported its indexes.
    """

    def __init__(self, private_hosts: Sequence[str]) -> None:
        self._private_hosts = private_hosts
        self._guard: asyncio.Future[WebGuard] = asyncio.get_running_loop().create_future()
        self._upstream: Upstream | None = None
        self._indexes: list[tuple[str, int]] = []
        self.refused: deque[str] = deque(maxlen=REFUSALS_MAX)
        password = secrets.token_urlsafe(16)
        self._proxy = ForwardProxy(self._admit, password=password, upstream=self._upstream_for)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"http://perdure:{password}@127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self._proxy.start(self._listener)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._proxy.close()

    def admit_indexes(self, text: str) -> None:
        """Admit the hosts in pip's settings, which are JSON. Raises: InstallFailed: they can't be read."""
        if self._guard.done():
            return
        try:
            values = json.loads(text)
            settings = {name: values[name] for name in SETTING_NAMES}
            # The proxy that pip would use, from its settings or the environment.
            proxies = urllib.request.getproxies_environment()
            proxy = settings["proxy"] or proxies.get("https") or proxies.get("http") or proxies.get("all")
            self._upstream = Upstream.parse(proxy) if proxy else None
            self._indexes = _index_hosts(settings)
        except (KeyError, TypeError, ValueError, httpx.InvalidURL) as error:
            raise InstallFailed(f"where pip looks can't be read: {error}") from None
        hosts = [host_and_port(host, port) for host, port in self._indexes]
        self._guard.set_result(WebGuard([*hosts, *self._private_hosts], resolver=self._resolve))

    async def _admit(self, host: str, port: int) -> Sequence[str]:
        """The addresses at which pip may reach a host, the best first. Raises: AddressRefused (noted), OSError."""
        guard = await asyncio.shield(self._guard)
        try:
            return await guard.resolve_host(host, port)
        except AddressRefused as error:
            index_port = port in {port for _, port in self._indexes}
            if index_port and not find_address(host) and not self._upstream_for(host):
                # A mirror inside may stand for the index and for where its files lie, by the names of both.
                addresses = await self._resolve(host, port)
                index = {address for place in self._indexes for address in await self._resolve(*place)}
                if addresses and set(addresses) <= index:
                    return addresses
            if str(error) not in self.refused:  # pip tries again
                self.refused.append(str(error))
            raise

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; a public placeholder if a company's proxy resolves it."""
        return [PUBLIC_ADDRESS] if self._upstream_for(host) else await resolve(host, port)

    def _upstream_for(self, host: str) -> Upstream | None:
        """The company's proxy by which a host is reached; None: it is reached directly."""
        return None if urllib.request.proxy_bypass(host) else self._upstream


def _index_hosts(settings: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(host, port) of each index and page of links in pip's settings that is reached over HTTP."""
    indexes = [] if settings["no_index"] else [settings["index_url"], *settings["extra_index_urls"]]
    hosts = []
    for text in (*indexes, *settings["find_links"]):
        if text.startswith(("http://", "https://")):
            url = httpx.URL(text)
            port = url.port or (443 if url.scheme == "https" else 80)
            hosts.append((url.raw_host.decode("ascii").strip("[]").rstrip(".").lower(), port))
    return hosts


def _read_report(report: Path) -> str:
    """The text of a requirement file, with version and hash of each package that pip would install by its report.

    Raises: InstallFailed: something is no wheel of the index, or its hash is not known.
    """
    try:
        with report.open("rb") as file:
            packages = parse_json(file.read(REPORT_LIMITS.size_bytes + 1), REPORT_LIMITS)["install"]
        if len(packages) > PACKAGES_MAX:
            raise InstallFailed(f"{len(packages)} packages are needed, at most {PACKAGES_MAX} are taken")
        return "".join(sorted(map(_requirement_line, packages)))
    except DataTooLarge as error:
        raise InstallFailed(f"the list of what is needed is {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, httpx.InvalidURL) as error:
        raise InstallFailed(f"what pip would install can't be read: {error!r:.200}") from None


def _requirement_line(package: Mapping[str, Any]) -> str:
    """The line of a requirement file for a package of pip's report, with version and hash. Raises: InstallFailed: it is
    no wheel of the index; KeyError, TypeError: the report has another form."""
    name, version = str(package["metadata"]["name"]), str(package["metadata"]["version"])
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise InstallFailed(f"a package calls itself {name[:80]!r} {version[:80]!r}")
    source = package["download_info"]
    if package["is_direct"] or "vcs_info" in source or "dir_info" in source:
        url = strip_url(httpx.URL(source["url"]))
        raise InstallFailed(f"{name} comes from an address of its own and not from the index: {url}")
    path = httpx.URL(source["url"]).path
    if not path.endswith(".whl"):
        raise InstallFailed(f"{name} {version} is not a wheel: {path.rpartition('/')[2][:LINE_CHARS]}")
    archive = source.get("archive_info", {})
    sha256 = str(archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2])
    if not _SHA256.fullmatch(sha256):
        raise InstallFailed(f"the index gives no SHA-256 of {name} {version}")
    return f"{name}=={version} --hash=sha256:{sha256}\n"


def give_to_root(folder: Path) -> None:
    """Make root the owner of a folder and all in it, where pip ran as another user; calls, which have other users, then
    only read it. Without root's rights nothing is done."""
    if os.geteuid() != 0:
        return
    os.lchown(folder, 0, 0)
    for entry in walk_entries(folder):
        os.lchown(entry.path, 0, 0)


async def _read_line(output: asyncio.StreamReader) -> str:
    """The next line of an output that is not blank, without its end; empty: the output has ended."""
    while True:
        try:
            line = await output.readline()
        except ValueError:  # longer than the reader's buffer
            continue
        if not line:
            return ""
        if text := line.decode(errors="replace").strip():
            return text


def _describe_failure(lines: Sequence[str]) -> str:
    """The error lines of pip's output, or its last lines."""
    errors = [line for line in lines if "ERROR" in line] or list(lines)[-3:]
    text = "\n".join(line[:LINE_CHARS] for line in errors)[-OUTPUT_CHARS:]
    needs_program = any("Operation not permitted while executing" in line for line in errors)
    return f"{NEEDS_PROGRAM}: {text}" if needs_program else text


def _describe_size(size: int, bytes_max: int) -> str:
    """Why a set of this size, in bytes, is refused."""
    return f"it takes {size:,} bytes, at most {bytes_max:,} are allowed: PERDURE_SANDBOX_PACKAGES_MB sets how much"
