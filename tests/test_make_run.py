"""`make run` in a clone: what it prints while it sets up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

NOISY_PIP = """#!/bin/sh
case "$*" in *--quiet*) exit 0;; esac
for line in 1 2 3 4 5 6 7 8; do echo "Collecting package-$line"; done
exit {code}
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment that has a program in place of Python, and one in place of `perdure`."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "run.txt").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / ".made").touch()
    _write_program(tmp_path / ".venv" / "bin" / "perdure", "#!/bin/sh\necho chat\n")
    return tmp_path


def test_what_pip_prints_stays_in_its_log(clone: Path) -> None:
    """Only the chat is seen."""
    _write_program(clone / ".venv" / "bin" / "python", NOISY_PIP.replace("{code}", "0"))

    done = _make_run(clone)

    assert (done.returncode, done.stdout) == (0, "chat\n")
    assert "Collecting" not in done.stderr
    assert (clone / ".venv" / "pip.log").read_text().count("Collecting") == 8


def test_a_failure_of_pip_names_the_log(clone: Path) -> None:
    """With the last lines of it."""
    _write_program(clone / ".venv" / "bin" / "python", NOISY_PIP.replace("{code}", "1"))

    done = _make_run(clone)

    assert done.returncode != 0
    assert done.stderr.count("Collecting") == 3
    assert "pip failed; .venv/pip.log has all that it printed." in done.stderr


@pytest.mark.parametrize("package", ["mcp", "agent-client-protocol", "pypdf", "mammoth"])
def test_it_installs_what_programs_and_files_need(package: str) -> None:
    """With all that it needs itself: an MCP server works without another command."""
    pinned = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE))

    assert _needs(package) - pinned == set()


def _needs(package: str) -> set[str]:
    """The names of a package and of all that it needs on this machine."""
    found, waiting = set[str](), [package]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            lines = map(Requirement, distribution(name).requires or ())
            waiting += [one.name for one in lines if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def _make_run(clone: Path) -> subprocess.CompletedProcess[str]:
    # As in a shell of its own: `make test` hands its flags down.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", "run"], cwd=clone, env=env, capture_output=True, text=True, check=False)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
