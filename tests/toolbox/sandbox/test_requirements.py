"""Requirements: installed once for each set, by whoever comes first, and nothing but wheels by name."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from perdure.toolbox.sandbox.requirements import Requirements, RequirementsFailed, remove_tree
from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of

PIP = """
import json, os, pathlib, sys, time
target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
wanted = sys.argv[sys.argv.index("--") + 1:]
with open(os.environ["PIP_LOG"], "a") as log:
    log.write(json.dumps([wanted, sorted(os.environ)]) + "\\n")
print("Collecting", *wanted, flush=True)
if "hangs" in wanted:
    time.sleep(60)
if "missing" in wanted:
    (target / "half").mkdir()
    (target / "half" / "file.py").write_text("x")
    print("ERROR: No matching distribution found for missing")
    sys.exit(1)
time.sleep(0.2)
(target / "greeting.py").write_text("WORD = 'hello'")
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PERDURE_KEY", "secret")
    return tmp_path / "log"


@pytest.fixture
def requirements(tmp_path: Path, log: Path) -> Requirements:
    """An installer that takes some time, and writes down what it was asked for."""
    (tmp_path / "pip.py").write_text(PIP, encoding="utf-8")
    return Requirements(tmp_path / "cache", command=(sys.executable, str(tmp_path / "pip.py")), timeout_s=20)


async def test_a_set_is_installed_once(requirements: Requirements, tmp_path: Path, log: Path) -> None:
    """Whoever asks at the same time waits for it; order does not matter; another set is another folder."""
    lines: list[str] = []
    asked = [["greeting", "other==1"], ["other==1", "greeting"], [" greeting ", "other==1"]]

    names = await asyncio.gather(*(requirements.installed(one, progress=lines.append) for one in asked))
    again = await requirements.installed(["other==1", "greeting"], progress=lines.append)
    other = await requirements.installed(["greeting"])

    assert {*names, again} == {names[0]}
    assert other != names[0]
    assert text_of(tmp_path / "cache" / names[0] / "greeting.py") == "WORD = 'hello'"
    assert len(text_of(log).splitlines()) == 2
    assert "installing greeting, other==1" in lines
    assert "Collecting greeting other==1" in lines


async def test_the_installer_gets_no_secret(requirements: Requirements, log: Path) -> None:
    """Of the server's environment it sees what pip needs."""
    await requirements.installed(["greeting"])

    assert "PIP_LOG" in text_of(log)
    assert "PERDURE_KEY" not in text_of(log)


async def test_what_fails_leaves_nothing_and_is_tried_again(requirements: Requirements, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RequirementsFailed, match="No matching distribution found for missing"):
            await requirements.installed(["missing"])

    assert [name for name in names_in(tmp_path / "cache") if not name.endswith(".lock")] == []


async def test_what_takes_too_long_is_ended(requirements: Requirements) -> None:
    requirements._timeout_s = 0.5

    with pytest.raises(RequirementsFailed, match=r"took more than 0\.5 s"):
        await requirements.installed(["hangs"])


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "-e .",
        "--index-url=http://example.com",
        "./package",
        "/package",
        "git+https://example.com/x",
        "x @ https://example.com/x.whl",
        "x; os_name == 'posix'",
        "x==1\n--pre",
        "x y",
        "-r",
        "a" * 300,
    ],
)
async def test_what_is_no_name_is_refused(requirements: Requirements, log: Path, requirement: str) -> None:
    """Options, paths, addresses would have the installer do more than install."""
    with pytest.raises(RequirementsFailed, match="can't be used"):
        await requirements.installed([requirement])

    assert text_of(log) == ""


@pytest.mark.parametrize(
    "requirement", ["requests", "a.b-c_d", "x[extra,other]==1.2", "x >= 1, < 2", "x~=1.0", "x==1.*"]
)
async def test_names_with_versions_are_taken(requirements: Requirements, requirement: str) -> None:
    assert await requirements.installed([requirement])


async def test_pip_installs_wheels_that_lie_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real installer, without a network: a wheel is taken, a source distribution is refused."""
    pytest.importorskip("pip")
    _make_wheel(tmp_path, "perdure_wheel_test")
    (tmp_path / "perdure_source_test-1.0.tar.gz").write_bytes(b"")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    requirements = Requirements(tmp_path / "cache")

    name = await requirements.installed(["perdure-wheel-test==1.0"])
    with pytest.raises(RequirementsFailed, match="wheels only"):
        await requirements.installed(["perdure-source-test"])

    assert text_of(tmp_path / "cache" / name / "perdure_wheel_test.py") == "WORD = 'wheel'"


def test_removing_goes_past_no_link(tmp_path: Path) -> None:
    """A link is removed, not what it leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x", encoding="utf-8")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "folder").symlink_to(outside)
    (inside / "deep" / "file").symlink_to(outside / "file")

    remove_tree(inside)

    assert not inside.exists()
    assert (outside / "file").read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize("who", ["root", "user", "user without namespaces"])
def test_a_call_sees_its_own_set_and_no_other(who: str) -> None:
    """Read-only, by import; what was installed for others is out of reach."""
    options = options_of(who)
    folder = Path(tempfile.mkdtemp(prefix="perdure-requirements-"))
    folder.chmod(0o755)
    (folder / "pip.py").write_text(PIP.replace('open(os.environ["PIP_LOG"], "a")', 'open(os.devnull, "w")'))
    cage = Cage(cache=folder / "cache", **options)
    assert cage.sandbox._requirements is not None
    cage.sandbox._requirements._command = (sys.executable, str(folder / "pip.py"))
    source = (
        "import os\ntry:\n    import greeting\nexcept ImportError:\n    found = None\n"
        "else:\n    found = greeting.WORD\n    try:\n        open(greeting.__file__, 'a')\n"
        "    except OSError:\n        found += ', read-only'\n"
        f"try:\n    others = os.listdir('/run/perdure/store')\nexcept OSError:\n    others = []\n"
        f"try:\n    others += os.listdir({str(folder / 'cache')!r})\nexcept OSError:\n    pass\n[found, others]"
    )
    try:
        cage.run("1", requirements=("other",))
        with_it = cage.run(source, requirements=("greeting",))
        without = cage.run(source)
    finally:
        cage.close()
        remove_tree(folder)

    assert (with_it.value, without.value) == (["hello, read-only", []], [None, []]), with_it


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def text_of(path: Path) -> str:
    """What a file holds; nothing if it is not there."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _make_wheel(folder: Path, name: str) -> None:
    facts = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "WORD = 'wheel'")
        wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
