"""pip in its cage: wheels of the index, by name, version and hash; no code of an author runs, and nothing is asked of
anybody but the index."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from perdure.core.incoming.json_limits import JsonLimits
from perdure.toolbox.sandbox import installer
from perdure.toolbox.sandbox.installer import LOCK_NAME, Installer, InstallFailed
from perdure.toolbox.sandbox.proxy import ForwardProxy
from perdure.toolbox.sandbox.requirements import Requirements, RequirementsFailed
from tests.toolbox.sandbox.package_index import PackageIndex, make_source, make_wheel, source_files

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ADDRESSES = ["{source}", "git+{index}/evil.git", "{source_folder}", "file:///etc"]

pytest.importorskip("pip")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox works on Linux only")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """A package index, the only one in pip's settings."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with PackageIndex() as package_index:
        monkeypatch.setenv("PIP_INDEX_URL", package_index.url)
        yield package_index


async def installed(folder: Path, *wanted: str, bytes_max: int = 1 << 30, timeout_s: float = 60) -> Path:
    """The folder, below this one, in which a set was installed."""
    scratch = folder / "scratch"
    scratch.mkdir()
    pip = Installer(timeout_s=timeout_s)
    return await pip.install(wanted, scratch, bytes_max=bytes_max, progress=lambda line: None)


@pytest.mark.slow
async def test_wheels_are_installed_from_a_lock(index: PackageIndex, tmp_path: Path) -> None:
    """What is needed beside comes along; the lock names each version and hash; the files are the server's."""
    index.add(make_wheel("good", needs=("helper>=1",)))
    index.add(make_wheel("helper", "1.5"))
    index.add(make_wheel("helper", "0.5"))

    target = await installed(tmp_path, "good==1.0")

    lock = (target / LOCK_NAME).read_text(encoding="utf-8").splitlines()
    assert [line.partition(" --hash=sha256:")[0] for line in lock] == ["good==1.0", "helper==1.5"]
    assert all(len(line.partition("sha256:")[2]) == 64 for line in lock)
    assert (target / "helper.py").read_text(encoding="utf-8") == "WORD = 'helper'"
    facts = [path.stat() for path in (target, *target.rglob("*"))]
    assert all(one.st_uid == os.geteuid() and one.st_mode & stat.S_IROTH for one in facts)


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES if FULL else ADDRESSES[:2])
async def test_no_code_runs_at_an_installation(index: PackageIndex, tmp_path: Path, address: str) -> None:
    """A wheel may name an address where what it needs comes as source: no program builds that, or fetches it."""
    os.chmod(tmp_path, 0o777)  # nothing but the cage keeps the marker from being written  # noqa: PTH101
    marker = tmp_path / "marker"
    source = index.add(make_source("evil", marker))
    folder = tmp_path / "evil"
    folder.mkdir()
    for name, text in source_files("evil", marker).items():
        (folder / name).write_text(text, encoding="utf-8")
    url = address.format(source=source, source_folder=folder.as_uri(), index=index.address)
    index.add(make_wheel("hostile", needs=(f"evil @ {url}",)))

    with pytest.raises(RequirementsFailed, match="hostile can't be installed"):
        async with Requirements(tmp_path / "cache").hold(["hostile"]):
            pass

    assert not marker.exists()


async def test_a_wheel_of_another_address_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    """Also where that address is the index's own: it was not found by its name."""
    address = index.add(make_wheel("direct"))
    index.add(make_wheel("hostile", needs=(f"direct @ {address}",)))

    with pytest.raises(InstallFailed, match="direct comes from an address of its own and not from the index"):
        await installed(tmp_path, "hostile")


async def test_source_distributions_of_the_index_are_not_taken(index: PackageIndex, tmp_path: Path) -> None:
    index.add(make_source("evil", tmp_path / "marker"))

    with pytest.raises(InstallFailed, match="No matching distribution found for evil"):
        await installed(tmp_path, "evil")

    assert not any(name.startswith("/files/") for name in index.requests)


async def test_nobody_but_the_index_is_asked(index: PackageIndex, tmp_path: Path) -> None:
    """The address that a wheel names may be a service of this machine."""
    with PackageIndex() as service:
        address = service.add(make_wheel("direct"))
        index.add(make_wheel("hostile", needs=(f"direct @ {address}",)))

        with pytest.raises(InstallFailed, match="403"):
            await installed(tmp_path, "hostile")

        assert service.requests == []


@pytest.mark.slow
@pytest.mark.parametrize(("address", "reached"), [("127.0.0.1", True), ("127.0.0.2", False)])
async def test_files_may_lie_on_another_name_of_the_index(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, reached: bool
) -> None:
    """As where a mirror inside stands for both. Another machine inside is not asked, and the error says why."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [address if host == "files.test" else "127.0.0.1"]

    monkeypatch.setattr(installer, "resolve", resolve)
    port = index.address.rpartition(":")[2]
    index.place = f"http://files.test:{port}"
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("127.0.0.1", "index.test"))
    monkeypatch.setenv("PIP_TRUSTED_HOST", "index.test files.test")
    index.add(make_wheel("good"))

    if reached:
        assert (await installed(tmp_path, "good") / "good.py").exists()
    else:
        with pytest.raises(InstallFailed, match=f"'files.test:{port}' was not asked for: port"):
            await installed(tmp_path, "good")


@pytest.mark.slow
async def test_a_wheel_that_changed_meanwhile_is_not_taken(index: PackageIndex, tmp_path: Path) -> None:
    """What is installed has the hash of what was resolved."""
    name, data = make_wheel("good")
    index.add((name, data))
    _, other = make_wheel("good", needs=("helper",))
    index.swap_after(name, other, times=1)

    with pytest.raises(InstallFailed, match=r"(?i)hash"):
        await installed(tmp_path, "good")


@pytest.mark.slow
async def test_an_index_with_a_password_is_asked_with_it(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in no lock, and the proxy's own stays here."""
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//ada:canary-word@"))
    index.add(make_wheel("good"))

    target = await installed(tmp_path, "good")

    assert all(headers.get("authorization") == "Basic YWRhOmNhbmFyeS13b3Jk" for headers in index.headers[1:])
    assert not any("proxy-authorization" in headers for headers in index.headers)
    assert not any(b"canary-word" in path.read_bytes() for path in target.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["environment", "direct", *(["pip"] if FULL else [])])
async def test_a_company_s_proxy_is_used(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It resolves the name of the index, which means nothing here; hosts in NO_PROXY are asked without it."""
    index.add(make_wheel("good"))
    resolved: list[str] = []

    async def admit(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        return ["127.0.0.1"]

    proxy = ForwardProxy(admit, password="company's")
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://perdure:company%27s@127.0.0.1:{listener.getsockname()[1]}"
    await proxy.start(listener)
    if way == "direct":
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    else:
        monkeypatch.setenv("HTTPS_PROXY" if way == "environment" else "PIP_PROXY", address)
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("127.0.0.1", "index.invalid"))
        monkeypatch.setenv("PIP_TRUSTED_HOST", "index.invalid")
    try:
        target = await installed(tmp_path, "good")
    finally:
        await proxy.close()

    assert (target / "good.py").exists()
    assert set(resolved) == ({"index.invalid"} if way != "direct" else set())


async def test_the_installer_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the server's environment it sees what pip needs to find its settings. What stands in its arguments, which
    every user of this machine may see, opens no proxy."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\necho $@ > {tmp_path}/arguments\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PERDURE_KEY", "canary-word")
    monkeypatch.setenv("PIP_CERT", "/certificates")
    (tmp_path / "scratch").mkdir()

    with pytest.raises(InstallFailed, match="what pip would install can't be read"):
        pip = Installer(command=(str(program),))
        await pip.install(["x"], tmp_path / "scratch", bytes_max=1 << 20, progress=lambda line: None)

    environment = (tmp_path / "environment").read_text(encoding="utf-8")
    assert "PIP_CERT=/certificates" in environment
    assert "canary-word" not in environment
    (proxy,) = (line.partition("=")[2] for line in environment.splitlines() if line.startswith("PERDURE_PIP_PROXY="))
    assert proxy.partition("//")[2].partition("@")[0] not in (tmp_path / "arguments").read_text(encoding="utf-8")


@pytest.mark.slow
async def test_what_takes_too_long_or_is_given_up_is_ended(index: PackageIndex, tmp_path: Path) -> None:
    """No process is left in the group of the installer."""
    index.add(make_wheel("good"))
    index.gate.clear()
    with pytest.raises(InstallFailed, match=r"took more than 2 s"):
        await installed(tmp_path, "good", timeout_s=2)
    (tmp_path / "other").mkdir()
    index.reached.clear()
    task = asyncio.create_task(installed(tmp_path / "other", "good"))
    assert await asyncio.to_thread(index.reached.wait, 20)

    assert working_in(tmp_path) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert working_in(tmp_path) == 0


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (b'{"install":[' + b"[]," * 300_000 + b"0]}", "more than 200,000 arrays and objects"),
        (b"[" * 200 + b"]" * 200, "nested deeper than 100 levels"),
        (b'{"install":"' + b"x" * 20_000 + b'"}', "larger than 10,000 bytes"),
    ],
)
def test_the_list_of_what_is_needed_is_bounded(
    report: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages write most of it, and parsing stops everything else."""
    if "bytes" in why:
        monkeypatch.setattr(installer, "REPORT_LIMITS", JsonLimits(size_bytes=10_000))
    (tmp_path / "report.json").write_bytes(report)

    with pytest.raises(InstallFailed, match=f"what is needed is {why}"):
        installer._read_report(tmp_path / "report.json")


@pytest.mark.slow
async def test_what_is_too_large_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    """A wheel of some kilobytes that becomes 3 MiB, and one whose file is larger than the whole set may be."""
    index.add(make_wheel("large", size=3 << 20))
    index.add(make_wheel("many", needs=("small-a", "small-b")))
    for name in ("small-a", "small-b"):
        index.add(make_wheel(name, size=700 << 10))

    with pytest.raises(InstallFailed, match="File too large"):
        await installed(tmp_path, "large", bytes_max=1 << 20)
    (tmp_path / "other").mkdir()
    with pytest.raises(InstallFailed, match="at most 1,048,576 are allowed"):
        await installed(tmp_path / "other", "many", bytes_max=1 << 20)


def working_in(folder: Path) -> int:
    """The number of processes whose current folder is below this one."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            count += path.readlink().is_relative_to(folder)
        except OSError:
            continue
    return count
