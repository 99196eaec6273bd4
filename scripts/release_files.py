"""The files of a release: built into `dist/` from the commit that is checked out, and compared with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
WHEEL, SDIST = DIST / f"perdure-{VERSION}-py3-none-any.whl", DIST / f"perdure-{VERSION}.tar.gz"


class Failure(Exception):
    """A step found that the release is not as it has to be."""


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a program with the release's tools first on PATH, and without keys or settings of ours; return its stdout.

    Raises:
        Failure: it ended with an error.
    """
    own = {name: value for name, value in os.environ.items() if not re.match(r"PERDURE_|PYTHON|.*_KEY$|VIRTUAL", name)}
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**own, "PATH": path, "PERDURE_PROBE_LOCAL": "0", "NO_COLOR": "1", **(env or {})}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-25:]
        raise Failure("\n      ".join([f"{' '.join(map(str, command))} ended with {done.returncode}", *said]))
    return done.stdout


def tracked(*under: str) -> set[str]:
    """The files of the commit, by their paths in the clone."""
    return set(run("git", "ls-tree", "-r", "-z", "--name-only", "HEAD", *under).split("\0")) - {""}


def wheel_files(wheel: Path) -> set[str]:
    """The files of a wheel by their paths in the clone, without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {f"src/{name}" for name in names if not name.startswith(f"perdure-{VERSION}.dist-info/")}


def build(work: Path, full: bool) -> str:
    """Build the commit twice: the wheel once through the sdist and once without it. The bytes are the same."""
    epoch = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct").strip()}
    first, second = work / "first", work / "second"
    for folder in (first, second):
        run("git", "archive", "--format=tar", f"--output={folder}.tar", "HEAD")
        with tarfile.open(f"{folder}.tar") as archive:
            archive.extractall(folder, filter="data")
    python = (sys.executable, "-m", "build", "--no-isolation")
    run(*python, first, cwd=work, env=epoch)
    run(*python, "--sdist", "--wheel", second, cwd=work, env=epoch)
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.copytree(first / "dist", DIST)
    for file in (WHEEL, SDIST):
        if not file.exists() or file.read_bytes() != (second / "dist" / file.name).read_bytes():
            raise Failure(f"two builds differ: {file.name}")
    left_out = ", without changes that are not committed" if run("git", "status", "--porcelain").strip() else ""
    return f"{WHEEL.name} and {SDIST.name}, twice the same bytes, the wheel also from the sdist{left_out}"


def contents(work: Path, full: bool) -> str:
    """Compare the files of the wheel and of the sdist with those of the commit."""
    with tarfile.open(SDIST) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for name, files, expected in (
        ("wheel", wheel_files(WHEEL), tracked("src")),
        ("sdist", packed - {"PKG-INFO"}, tracked()),
    ):
        if files != expected:
            raise Failure(f"the {name} lacks {sorted(expected - files)} and has besides {sorted(files - expected)}")
    return f"{len(wheel_files(WHEEL))} files in the wheel, {len(packed)} in the sdist: those of the commit"


def metadata(work: Path, full: bool) -> str:
    """Check the metadata as the package index does, and that the changelog knows the version."""
    run("twine", "check", "--strict", WHEEL, SDIST)
    if f"\n## [{VERSION}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise Failure(f"CHANGELOG.md has no part for {VERSION}")
    return f"{VERSION}: twine finds nothing, the changelog has it"


def pins(work: Path, full: bool) -> str:
    """Check that each pin of `requirements/` has a hash."""
    found = 0
    for file in sorted((ROOT / "requirements").glob("*.txt")):
        lines = re.sub(r"\\\n", " ", file.read_text(encoding="utf-8")).splitlines()
        for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
            if not re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line):
                raise Failure(f"{file.name}: no hash, or no exact version: {line[:80]}")
            found += 1
    return f"{found} pins, each with a version and hashes"


def sbom(work: Path, full: bool) -> str:
    """Write the list of what is installed with the pins, as CycloneDX."""
    file = DIST / f"perdure-{VERSION}.cdx.json"
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON", "--output-file", file)
    run("cyclonedx-py", "requirements", "requirements/run.txt", *options)
    components = len(json.loads(file.read_text(encoding="utf-8"))["components"])
    if components != len(
        re.findall(r"^[^#\s]+==", (ROOT / "requirements" / "run.txt").read_text("utf-8"), re.MULTILINE)
    ):
        raise Failure(f"{file.name} has {components} components, which are not those of requirements/run.txt")
    return f"{file.name}, {components} components"
