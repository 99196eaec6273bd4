"""Build a release into `dist/` and check that people can install it: `make release-check`.

Each step prints one line. `ARGS="contents pins"` runs these steps only, with what `dist/` holds; `ARGS=--full` runs the
whole suite on each Python.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scripts.release_files import ROOT, VERSION, WHEEL, Failure, build, contents, metadata, pins, run, sbom

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("aarch64-manylinux_2_28", "aarch64-apple-darwin")
QUICK_TESTS = ("tests/cli", "tests/storage/test_older_store.py", "tests/storage/test_migrations.py")
PINNED = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirements", "requirements/run.txt")


class Skip(Exception):
    """This machine lacks what a step needs."""


def wheels(work: Path, full: bool) -> str:
    """Download the wheel of each pin for other processors and systems, and compare it with its hash."""
    for platform in PLATFORMS:
        for version in PYTHONS[:3]:
            target = ("--target", work / "wheels", "--python-platform", platform, "--python-version", version)
            run("uv", "pip", "install", "--quiet", *target, *PINNED)
            shutil.rmtree(work / "wheels")
    return f"{', '.join(PLATFORMS)} with Python {', '.join(PYTHONS[:3])}: a wheel for each pin"


def install(work: Path, full: bool) -> str:
    """Tell the program a fact and ask for it in a second run, installed in three ways."""
    run("uv", "venv", "--quiet", work / "env", "--python", sys.executable)
    python = ("--quiet", "--python", work / "env" / "bin" / "python")
    run("uv", "pip", "install", *python, *PINNED)
    run("uv", "pip", "install", *python, "--no-deps", WHEEL)
    run("uv", "pip", "check", *python)
    ways: dict[str, tuple[str | Path, ...]] = {
        "pip": (work / "env" / "bin" / "perdure",),
        "uvx": ("uvx", "--isolated", "--python", sys.executable, "--from", WHEEL, "perdure"),
        "pipx": ("pipx", "run", "--no-cache", "--python", sys.executable, "--spec", WHEEL, "perdure"),
    }
    for name, command in ways.items():
        home = {"PERDURE_HOME": str(work / f"home-{name}")}
        run(*command, "-p", "I live in Turin.", cwd=work, env=home)
        if "Turin" not in (said := run(*command, "-p", "Where do I live?", cwd=work, env=home)):
            raise Failure(f"installed by {name}, it forgot what it was told: {said}")
    return f"in new environments by {', '.join(ways)}: the second run remembers the first"


def upgrade(work: Path, full: bool) -> str:
    """Open a store of 0.1 with the built program: its history is whole, and its next message is answered."""
    fixtures, perdure = ROOT / "tests" / "storage" / "fixtures", work / "env" / "bin" / "perdure"
    if not perdure.exists():
        raise Skip("the step `install` has to run first")
    store = {"PERDURE_HOME": str(work / "old"), "PERDURE_STORE": str(work / "older.db")}
    (work / "older.db").write_bytes(gzip.decompress((fixtures / "store.db.gz").read_bytes()))
    expected = json.loads((fixtures / "store.json").read_text(encoding="utf-8"))["agents"]["ada"]["messages"]
    run(perdure, "agent", "update", "ada", "--model", "perdure/extractive", env=store)
    if not run(perdure, "chat", "ada", "-p", "Where is the boat?", env=store).strip():
        raise Failure("the first message after the upgrade was not answered")
    history = json.loads(run(perdure, "history", "ada", "--limit", "1000", "--json", env=store))["messages"]
    texts = {one["id"]: one["text"] for one in history}
    if lost := [one for one in expected if texts.get(one[0]) != one[4]]:
        raise Failure(f"messages are missing or changed after the upgrade: {lost}")
    return f"a store of 0.1 opens: {len(expected)} messages as they were, {len(history) - len(expected)} more"


def container(work: Path, full: bool) -> str:
    """Check the container's file by its linter, and build it where a program can."""
    run("hadolint", "deploy/Dockerfile")
    builder = shutil.which("podman") or shutil.which("buildah")
    if builder is None:
        raise Skip("hadolint finds nothing; not built: neither podman nor buildah is here")
    run(builder, "build", "--file", "deploy/Dockerfile", "--tag", f"perdure:{VERSION}", ".")
    return f"hadolint finds nothing; {Path(builder).name} builds it"


def find_python(version: str) -> Path | None:
    """The interpreter of a version on PATH, of pyenv or of uv, or None."""
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep)]
    folders += Path.home().glob(f".pyenv/versions/{version}.*/bin")
    folders += Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin")
    for path in (folder / f"python{version}" for folder in folders):
        if path.exists() and subprocess.run([path, "-c", "import ssl, sqlite3"], capture_output=True).returncode == 0:
            return path
    return None


def pythons(work: Path, full: bool) -> str:
    """Run the tests on each Python that is found, beside the wheel: those of the commands, or all of them."""
    results, failures = [], []
    for version in PYTHONS:
        if (found := find_python(version)) is None:
            results.append(f"{version} not found here")
            continue
        python = work / f"python{version}" / "bin" / "python"
        pinned = ("--no-deps", "--require-hashes", "--requirements", "requirements/dev.txt")
        tests = ("-n", "3", "--dist", "worksteal") if full else ("-n", "2", *QUICK_TESTS)
        try:
            run("uv", "venv", "--quiet", python.parents[1], "--python", found)
            run("uv", "pip", "install", "--quiet", "--python", python, *pinned)
            run("uv", "pip", "install", "--quiet", "--python", python, "--no-deps", WHEEL)
            said = run(python, "-m", "pytest", "-p", "no:cacheprovider", *tests)
            results.append(f"{version} {said.strip().splitlines()[-1].strip('= ')}")
        except Failure as failure:
            failures.append(f"{version}: {failure}")
    if failures:
        raise Failure("\n      ".join([*failures, *results]))
    return "; ".join(results)


STEPS: tuple[Callable[[Path, bool], str], ...] = (
    *(build, contents, metadata, pins, sbom, wheels, install, upgrade, container, pythons),
)


def main(arguments: list[str]) -> int:
    """Run the steps that are named, or all; return 1 if one of them failed."""
    names, failed = [word for word in arguments if word != "--full"], 0
    if unknown := set(names) - {step.__name__ for step in STEPS}:
        print(f"There are no steps {sorted(unknown)}: {', '.join(step.__name__ for step in STEPS)}.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="perdure-release-") as folder:
        for step in (step for step in STEPS if not names or step.__name__ in names):
            began = time.monotonic()
            try:
                mark, said = "ok  ", step(Path(folder), "--full" in arguments)
            except Skip as reason:
                mark, said = "skip", str(reason)
            except (Failure, OSError) as error:
                mark, said, failed = "FAIL", str(error), 1
            print(f"{mark}  {step.__name__:9} {time.monotonic() - began:6.1f} s  {said}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
