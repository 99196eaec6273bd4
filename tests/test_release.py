"""A release: what its wheel holds, its version, its pins, and the forms that newcomers meet."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts import release_files
from scripts.release_files import ROOT, VERSION, Failure

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.slow
def test_the_wheel_has_each_file_of_the_package(tmp_path: Path) -> None:
    """Templates, styles, tables, migrations and skills too: what git knows under `src`, and nothing else."""
    pytest.importorskip("hatchling")
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("without git nothing says which files belong to it")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if name.startswith("src/") or name in ("pyproject.toml", "README.md", "LICENSE"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)

    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path, check=True)

    packed = release_files.wheel_files(tmp_path / "dist" / release_files.WHEEL.name)
    assert packed == {name for name in files.split("\0") if name.startswith("src/")}
    assert {"src/perdure/storage/migrations/schema.sql", "src/perdure/py.typed"} <= packed


def test_the_version_stands_in_one_place() -> None:
    """Code asks the installed package for it."""
    named = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    places = [path for path in (ROOT / "src").rglob("*.py") if named.search(path.read_text(encoding="utf-8"))]

    assert places == []
    assert not named.search((ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"))


def test_the_changelog_has_the_version_first() -> None:
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert versions[0] == VERSION
    assert len(versions) == len(set(versions))


@pytest.mark.parametrize("group", ["docs", "release"])
def test_each_group_of_tools_has_pins_of_its_own(group: str) -> None:
    """`make pins` renews them from `pyproject.toml`, with what they need."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"][group]
    pins = (ROOT / "requirements" / f"{group}.txt").read_text(encoding="utf-8")

    assert {re.split("[<>=]", one)[0] for one in named} <= {*re.findall(r"^([\w-]+)==", pins, re.MULTILINE)}
    assert f"--group {group} --output-file requirements/{group}.tmp" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_security_policy_covers_the_version() -> None:
    minor = VERSION.rpartition(".")[0]

    assert f"\n| {minor} | yes |\n" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_each_pin_has_a_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One without is named."""
    assert "each with a version and hashes" in release_files.pins(tmp_path, False)

    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "run.txt").write_text("numpy==2.3.5\n")
    monkeypatch.setattr(release_files, "ROOT", tmp_path)
    with pytest.raises(Failure, match=r"run\.txt: no hash, or no exact version: numpy==2\.3\.5"):
        release_files.pins(tmp_path, False)


def test_a_release_without_a_file_of_the_commit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A template that is left out shows only when a page is opened."""
    sdist = tmp_path / "perdure.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(ROOT / "LICENSE", "perdure/LICENSE")
    monkeypatch.setattr(release_files, "SDIST", sdist)
    monkeypatch.setattr(release_files, "wheel_files", lambda _: {"src/perdure/a.py"})
    monkeypatch.setattr(release_files, "tracked", lambda *_: {"src/perdure/a.py", "src/perdure/page.html"})

    with pytest.raises(Failure, match=r"the wheel lacks \['src/perdure/page.html'\]"):
        release_files.contents(tmp_path, False)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_forms_of_issues_are_as_they_are_read(form: Path) -> None:
    """A form with a wrong key is not shown."""
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    fields = [part for part in content["body"] if part["type"] != "markdown"]

    assert set(content) == {"name", "description", "labels", "body"}
    assert all(part["type"] in ("markdown", "textarea", "input") for part in content["body"])
    assert all({"type", "id", "attributes"} <= set(part) and part["attributes"]["label"] for part in fields)
    assert len({part["id"] for part in fields}) == len(fields)
