"""pip, from outside: it says which wheels a set needs, then takes exactly those; both times in a cage of its own."""

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
from pathlib import Path
from typing import Any, Self

import httpx

from perdure.core.errors import AddressRefused, DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.toolbox.processes import end_group, start_group
from perdure.toolbox.sandbox.inside.installer import PROXY, SETTING_NAMES, SETTINGS
from perdure.toolbox.sandbox.package_cache import entries_of, tree_bytes
from perdure.toolbox.sandbox.proxy import ForwardProxy, Upstream
from perdure.toolbox.web_guard import WebGuard, is_address, resolve

TIMEOUT_S = 300.0
CPU_S = 600
MEMORY_BYTES = 2 << 30
WATCH_S = 0.5
PACKAGES_MAX = 500
OUTPUT_CHARS = 1_000
LINES_KEPT = 100
REFUSALS_KEPT = 3
LINE_CHARS = 200
REPORT = JsonLimits(size_bytes=64 << 20)

ELSEWHERE = "8.8.8.8"
"""Any public address: the stand-in for a name that a company's proxy resolves, and that may mean nothing here."""

NO_PROGRAM = "something in it comes as source or from a repository, and no program is started at an installation"

LOCK_NAME = "perdure-lock.txt"
"""Beside the installed packages: what they were installed from."""

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.installer import main; main()"
_OPTIONS = ("--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--no-warn-conflicts")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9.!+_-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PASSED_ON = ("HOME", "PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")


class InstallFailed(Exception):
    """A tool's set of packages could not be installed; the text says why."""


class Installer:
    """Installs sets of requirements into folders.

    Args:
        command: an interpreter with pip, and its options.
        private_hosts: hosts that are not public on which an index may keep its files, as `name` or `name:port`.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] | None = None,
        timeout_s: float = TIMEOUT_S,
        private_hosts: Sequence[str] = (),
    ) -> None:
        # Without variables of Python, and without the current folder as a place of modules.
        self._command = tuple(command) if command is not None else (sys.executable, "-E", "-P")
        self._timeout_s, self._private_hosts = timeout_s, tuple(private_hosts)

    async def install(
        self, wanted: Sequence[str], scratch: Path, *, bytes_max: int, progress: Callable[[str], None]
    ) -> Path:
        """The folder, within `scratch`, in which the set is installed.

        Args:
            scratch: an empty folder of ours.
            bytes_max: what the set may take; pip may take as much again while it works.
        Raises: InstallFailed: it is not to be had as wheels of the index, takes too long, or is too large.
        """
        work = scratch / "work"
        work.mkdir()
        target, report, lock = work / "target", work / "report.json", work / LOCK_NAME
        options = ("install", *_OPTIONS, f"--cache-dir={work}/cache", f"--log={work}/log")
        resolving = ("--dry-run", "--ignore-installed", f"--report={report}", "--", *wanted)
        locked = ("--no-deps", "--require-hashes", f"--requirement={lock}", f"--target={target}")
        try:
            async with asyncio.timeout(self._timeout_s), _WayOut(self._private_hosts) as way_out:
                pip = _Pip(self._command, work, bytes_max, way_out, progress)
                await pip.run(*options, *resolving)
                text = await asyncio.to_thread(_lock_of, report)
                lock.write_text(text, encoding="utf-8")
                await pip.run(*options, *locked)
        except TimeoutError:
            raise InstallFailed(f"it took more than {self._timeout_s:g} s") from None
        size = await asyncio.to_thread(tree_bytes, target)
        if size > bytes_max:
            raise InstallFailed(_too_large(size, bytes_max))
        await asyncio.to_thread(take_over, target)
        (target / LOCK_NAME).write_text(text, encoding="utf-8")
        return target


class _Pip:
    """Runs pip in its cage, again and again with the same work folder."""

    def __init__(
        self,
        command: Sequence[str],
        work: Path,
        bytes_max: int,
        way_out: _WayOut,
        progress: Callable[[str], None],
    ) -> None:
        self._command, self._work, self._bytes_max = command, work, bytes_max
        self._way_out, self._progress = way_out, progress

    async def run(self, *arguments: str) -> None:
        """Raises: InstallFailed: it failed, or took too much room."""
        cage = {
            "scratch": str(self._work),
            "port": self._way_out.port,
            "bytes_max": self._bytes_max,
            "memory_bytes": MEMORY_BYTES,
            "cpu_s": CPU_S,
        }
        process = await start_group(
            *self._command,
            *("-c", _START, str(Path(__file__).parent), json.dumps(cage), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**_environment(), "TMPDIR": str(self._work), PROXY: self._way_out.address},
            cwd=self._work,
        )
        assert process.stdout is not None
        lines: deque[str] = deque(maxlen=LINES_KEPT)
        watch = asyncio.create_task(self._watched(process))
        try:
            while line := await _line(process.stdout):
                if line.startswith(SETTINGS):
                    self._way_out.open(line.removeprefix(SETTINGS))
                    continue
                lines.append(line)
                self._progress(line[:LINE_CHARS])
            code = await process.wait()
        finally:
            if process.returncode is None:
                await end_group(process)
            watch.cancel()
            await asyncio.wait([watch])
        if not watch.cancelled():
            raise InstallFailed(_too_large(watch.result(), 2 * self._bytes_max))
        if code:
            raise InstallFailed(" ".join([_why(lines), *self._way_out.refused]))

    async def _watched(self, process: asyncio.subprocess.Process) -> int:
        """How much lies in the work folder when that is more than may; pip is ended then."""
        while True:
            await asyncio.sleep(WATCH_S)
            size = await asyncio.to_thread(tree_bytes, self._work)
            if size > 2 * self._bytes_max:
                _kill(process)
                return size


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _WayOut:
    """A proxy that leads to the index, and to public hosts that its files may lie on; used as a context manager.

    It opens when pip has said where its index is; connections that come before wait for that.
    """

    def __init__(self, private_hosts: Sequence[str]) -> None:
        self._private_hosts = private_hosts
        self._guard: asyncio.Future[WebGuard] = asyncio.get_running_loop().create_future()
        self._upstream: Upstream | None = None
        self._indexes: list[tuple[str, int]] = []
        self.refused: deque[str] = deque(maxlen=REFUSALS_KEPT)
        password = secrets.token_urlsafe(16)
        self._proxy = ForwardProxy(self._admit, password=password, upstream=self._upstream_of)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"http://perdure:{password}@127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self._proxy.start(self._listener)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._proxy.close()

    def open(self, text: str) -> None:
        """Let those hosts be reached that pip's settings name. Raises: InstallFailed: they can't be read."""
        if self._guard.done():
            return
        try:
            found = json.loads(text)
            settings = {name: found[name] for name in SETTING_NAMES}
            self._upstream = _upstream(settings)
            self._indexes = _index_hosts(settings)
        except (KeyError, TypeError, ValueError, httpx.InvalidURL) as error:
            raise InstallFailed(f"where pip looks can't be read: {error}") from None
        hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self._indexes]
        self._guard.set_result(WebGuard([*hosts, *self._private_hosts], resolver=self._addresses))

    async def _admit(self, host: str, port: int) -> Sequence[str]:
        guard = await asyncio.shield(self._guard)
        try:
            return await guard.addresses_of(host, port)
        except AddressRefused as error:
            at_index = port in {port for _, port in self._indexes}
            if at_index and not is_address(host) and not self._upstream_of(host):
                # A mirror inside may stand for the index and for where its files lie, by the names of both.
                found = await self._addresses(host, port)
                if found and set(found) <= await self._index_addresses():
                    return found
            if str(error) not in self.refused:  # pip tries again
                self.refused.append(str(error))
            raise

    async def _index_addresses(self) -> set[str]:
        found = [await self._addresses(host, port) for host, port in self._indexes]
        return {address for addresses in found for address in addresses}

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        return [ELSEWHERE] if self._upstream_of(host) else await resolve(host, port)

    def _upstream_of(self, host: str) -> Upstream | None:
        return None if urllib.request.proxy_bypass(host) else self._upstream


def _index_hosts(settings: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(host, port) of every place that pip is set up to look at over HTTP."""
    indexes = [] if settings["no_index"] else [settings["index_url"], *settings["extra_index_urls"]]
    found = []
    for text in (*indexes, *settings["find_links"]):
        if text.startswith(("http://", "https://")):
            url = httpx.URL(text)
            port = url.port or (443 if url.scheme == "https" else 80)
            found.append((url.raw_host.decode("ascii").strip("[]").rstrip(".").lower(), port))
    return found


def _upstream(settings: Mapping[str, Any]) -> Upstream | None:
    """The proxy that pip would use, from its settings or the environment. Raises: ValueError: not an address."""
    named = urllib.request.getproxies_environment()
    text = settings["proxy"] or named.get("https") or named.get("http") or named.get("all")
    return Upstream.of(text) if text else None


def _lock_of(report: Path) -> str:
    """The requirement file, with a hash for each, of what pip would install.

    Raises: InstallFailed: something is no wheel of the index, or its hash is not known.
    """
    try:
        with report.open("rb") as opened:
            found = parse_json(opened.read(REPORT.size_bytes + 1), REPORT)["install"]
        if len(found) > PACKAGES_MAX:
            raise InstallFailed(f"{len(found)} packages are needed, at most {PACKAGES_MAX} are taken")
        return "".join(sorted(_locked(item) for item in found))
    except DataTooLarge as error:
        raise InstallFailed(f"the list of what is needed is {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, httpx.InvalidURL) as error:
        raise InstallFailed(f"what pip would install can't be read: {error!r:.200}") from None


def _locked(item: Mapping[str, Any]) -> str:
    name, version = str(item["metadata"]["name"]), str(item["metadata"]["version"])
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise InstallFailed(f"a package calls itself {name[:80]!r} {version[:80]!r}")
    source = item["download_info"]
    if item["is_direct"] or "vcs_info" in source or "dir_info" in source:
        raise InstallFailed(f"{name} comes from an address of its own and not from the index: {_bare(source['url'])}")
    path = httpx.URL(source["url"]).path
    if not path.endswith(".whl"):
        raise InstallFailed(f"{name} {version} is no wheel: {path.rpartition('/')[2][:LINE_CHARS]}")
    archive = source.get("archive_info", {})
    sha256 = str(archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2])
    if not _SHA256.fullmatch(sha256):
        raise InstallFailed(f"the index gives no SHA-256 of {name} {version}")
    return f"{name}=={version} --hash=sha256:{sha256}\n"


def take_over(folder: Path) -> None:
    """Make what pip left ours, where it had another user, and readable for the calls', which are others again."""
    if os.geteuid() != 0:
        return
    os.lchown(folder, 0, 0)
    for entry in entries_of(folder):
        os.lchown(entry.path, 0, 0)


async def _line(output: asyncio.StreamReader) -> str:
    """The next line that says something; empty at the end."""
    while True:
        try:
            line = await output.readline()
        except ValueError:  # longer than the reader's buffer
            continue
        if not line:
            return ""
        if text := line.decode(errors="replace").strip():
            return text


def _environment() -> dict[str, str]:
    """What pip needs to find its settings, and no more of what this process knows."""
    return {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("PIP_")}


def _why(lines: Sequence[str]) -> str:
    """What pip said when it failed."""
    said = [line for line in lines if "ERROR" in line] or list(lines)[-3:]
    text = "\n".join(line[:LINE_CHARS] for line in said)[-OUTPUT_CHARS:]
    return f"{NO_PROGRAM}: {text}" if any("Operation not permitted while executing" in line for line in said) else text


def _bare(url: str) -> str:
    return str(httpx.URL(url).copy_with(userinfo=b"", query=None, fragment=None))[:LINE_CHARS]


def _too_large(size: int, bytes_max: int) -> str:
    return f"it takes {size:,} bytes, at most {bytes_max:,} are allowed: PERDURE_SANDBOX_PACKAGES_MB sets how much"
