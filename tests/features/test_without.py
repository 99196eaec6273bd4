"""Each feature is one folder: without it the program starts, answers, and shows its pages."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import perdure
from perdure.core.features import find_features
from tests.support.warm import warm

ROOT = Path(__file__).parents[2]
OF_THE_KERNEL = ("core", "context", "domain", "search", "storage", "engine", "library", "server", "cli", "toolbox")
"""Folders of tests. Each file that names a missing feature is left out, and so are tests that say they use it."""
FEATURES = Path(perdure.__file__).parent / "features"
NAMES = sorted(folder.name for folder in FEATURES.iterdir() if (folder / "feature.py").is_file())
PROGRAM = Path(__file__).with_name("without_program.py")


FULL = os.environ.get("PERDURE_FAULTS") == "full"


def _with_users(names: Iterable[str]) -> frozenset[str]:
    """These features and those that use them, directly or through others: they go together."""
    gone = set(names)
    for feature in find_features():  # those that use it come behind it
        if not gone.isdisjoint(feature.uses):
            gone.add(feature.name)
    return frozenset(gone)


def _separating_sets(count: int = 8) -> list[frozenset[str]]:
    """A few sets of features to leave out: of each two, of which the second does not use the first, one set has the
    first and not the second. So a use that is not declared shows, as it would with one feature gone at a time."""
    generator = random.Random(0)
    alone = {name: _with_users([name]) for name in NAMES}
    pairs = [(gone, there) for gone in NAMES for there in NAMES if there not in alone[gone]]
    chosen = [set(generator.sample(NAMES, len(NAMES) // 4)) for _ in range(count)]
    sets, fewest = [_with_users(names) for names in chosen], len(pairs)
    for _ in range(5_000):  # steps: one feature more or less in one set, unless that joins more pairs than it parts
        place, name = generator.randrange(count), generator.choice(NAMES)
        tried = [*sets]
        tried[place] = frozenset().union(*(alone[other] for other in chosen[place] ^ {name}))
        where = {other: {n for n, gone in enumerate(tried) if other in gone} for other in NAMES}
        together = sum(where[gone] <= where[there] for gone, there in pairs)
        if together <= fewest:
            sets, fewest = tried, together
            chosen[place] ^= {name}
        if not together:
            return sets
    return _separating_sets(count + 1)


def test_every_feature_is_found() -> None:
    """A folder without an `__init__.py` would be left out without a word."""
    assert sorted(feature.name for feature in find_features()) == NAMES, "add an `__init__.py` to the folder"


@pytest.mark.parametrize("gone", [_with_users([name]) for name in NAMES] if FULL else _separating_sets())
def test_the_program_works_without_features(tmp_path: Path, gone: frozenset[str]) -> None:
    """Every module is imported, an agent remembers, every page is shown, the API is described, commands are listed."""
    package = tmp_path / "perdure"
    shutil.copytree(FEATURES.parent, package, copy_function=os.symlink)  # with the compiled modules, which are taken
    for folder in gone:
        shutil.rmtree(package / "features" / folder)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PERDURE_PROBE_LOCAL": "0"}
    done = subprocess.run(
        [warm(str(PROGRAM), environment), tmp_path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr and done.returncode == 0, done.stderr
    assert "Usage" in done.stdout and "store" in done.stdout


@pytest.mark.skipif(not FULL, reason="minutes for each set")
@pytest.mark.parametrize("gone", _separating_sets())
def test_the_kernels_tests_pass_without_features(tmp_path: Path, gone: frozenset[str]) -> None:
    """All but the slow ones, in a copy of all files that lacks their folders."""
    for folder in ("src", "tests", "scripts", "benchmarks", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            shutil.copy(file, tmp_path)
    for folder in gone:
        shutil.rmtree(tmp_path / "src/perdure/features" / folder)

    tests = [f"tests/{folder}" for folder in OF_THE_KERNEL]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    environment = {**os.environ, "PYTHONPATH": "src", "PERDURE_FAULTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-5_000:]
