"""Folders for temporary files: what a killed process leaves is removed, and nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.scratch import remove_leftovers, scratch_folder
from scripts.house import imports_and_calls, modules

SRC = Path(__file__).resolve().parents[1] / "src"
NAMED = {"TemporaryDirectory", "mkdtemp", "NamedTemporaryFile", "mkstemp"}
"""What makes temporary files that outlive a killed process."""

HOLD = """
import sys
from perdure.scratch import scratch_folder
with scratch_folder("file") as folder:
    (folder / "upload").write_text("the text of a user")
    print(folder, flush=True)
    sys.stdin.read()
"""
START = "from perdure import Perdure; Perdure(sys.argv[1]).close()"
SWEEP = "from perdure.scratch import remove_leftovers; remove_leftovers()"


def program(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process whose folder for temporary files is this one."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{code}", *arguments],
        env={**os.environ, "TMPDIR": str(folder), "PERDURE_HOME": str(folder / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, code: str, *arguments: str) -> None:
    """Run a program to its end."""
    with program(folder, code, *arguments) as process:
        process.communicate()
    assert process.returncode == 0


@contextmanager
def holder(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a scratch folder, and that folder. It ends by itself when its input does."""
    with program(folder, HOLD) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_the_folder_of_a_killed_process_is_removed_at_the_next_start(tmp_path: Path) -> None:
    """A text of a user that a killed process was reading does not stay on the disk."""
    with holder(tmp_path) as (process, left):
        process.kill()
    assert (left / "upload").read_text() == "the text of a user"

    run(tmp_path, START, str(tmp_path / "agents.db"))

    assert not left.exists()


@pytest.mark.slow
def test_what_lies_beside_the_store_is_removed_too(tmp_path: Path) -> None:
    """A backup for the dashboard is made there."""
    (tmp_path / "stores").mkdir()
    with holder(tmp_path / "stores") as (process, left):
        process.kill()

    run(tmp_path, START, str(tmp_path / "stores" / "agents.db"))

    assert not left.exists()


def test_the_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    """Another process that starts does not touch it; at its end the process removes it itself."""
    with holder(tmp_path) as (process, held):
        run(tmp_path, SWEEP)
        files = [path.name for path in held.iterdir()]
        process.communicate()

    assert files == ["upload"]
    assert not held.exists()


def test_only_scratch_folders_are_removed(tmp_path: Path) -> None:
    """Neither where a link leads, nor a file, nor a folder of another name or with folders in it."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "letter").write_text("kept")
    (tmp_path / "perdure-scratch-link").symlink_to(own)
    (tmp_path / "perdure-scratch-file").write_text("kept")
    inside = tmp_path / "perdure-scratch-full" / "folder"
    inside.mkdir(parents=True)
    (inside / "letter").write_text("kept")
    empty = tmp_path / "perdure-scratch-empty"
    empty.mkdir()
    (empty / "link").symlink_to(own / "letter")

    run(tmp_path, SWEEP)

    assert not empty.exists()
    assert (own / "letter").read_text() == (inside / "letter").read_text() == "kept"
    assert (tmp_path / "perdure-scratch-link").is_symlink() and (tmp_path / "perdure-scratch-file").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_stays(tmp_path: Path) -> None:
    """Also if the process could remove it, as root can."""
    other = tmp_path / "perdure-scratch-other"
    other.mkdir()
    os.chown(other, 65534, 65534)

    run(tmp_path, SWEEP)

    assert other.is_dir()


def test_temporary_files_lie_in_scratch_folders() -> None:
    """Only `perdure.scratch` makes temporary files that have a name."""
    makers = [
        path.name
        for path, tree in modules(SRC)
        for node in imports_and_calls(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMED
    ]

    assert makers == ["scratch.py"]


def test_the_end_of_a_folder_that_somebody_removed_is_no_error(tmp_path: Path) -> None:
    """A cleaner of temporary folders may do so; and what can't be removed stays for the next start."""
    with scratch_folder("file", parent=tmp_path) as folder:
        folder.rmdir()
    with scratch_folder("file", parent=tmp_path) as folder:
        (folder / "inner").mkdir()
    assert folder.is_dir()


def test_a_store_opens_without_a_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError("no usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    remove_leftovers()
