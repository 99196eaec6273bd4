"""A memory in a folder: checked out, edited, pushed; conflicts shown as git shows them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, Perdure
from tests.support.library import open_sync


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


@pytest.fixture
def agent(store: Perdure) -> Agent:
    return store.create_agent("ann", human="Name: Ada")


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder of a user."""
    own = {"HOME": str(folder.parent), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    own |= {f"GIT_{who}_{what}": "ben@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *arguments], cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commit(folder: Path, message: str, **files: str) -> None:
    """Commit files, with `/` for `__` in their names; the last part is the name without `.md`."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def test_an_edit_in_a_folder_becomes_a_version_with_its_reason(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    human = (folder / "system" / "human.md").read_text()
    assert human.endswith("---\n\nName: Ada\n")

    commit(folder, "She told me her town", system__human=human + "Town: Turin\n")
    agent.memory_git.push(folder)

    newest = agent.blocks.history("human")[0]
    assert newest.value == "Name: Ada\nTown: Turin"
    assert (newest.author.kind, newest.reason) == ("user", "She told me her town")
    assert agent.memory_git.commits(limit=1)[0].versions == (f"human {newest.version}",)


def test_a_file_of_windows_is_the_same_memory(agent: Agent, tmp_path: Path) -> None:
    """Its line ends are not part of the value."""
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    (folder / "system" / "human.md").write_bytes(b"---\r\ndescription: Her\r\n---\r\n\r\nName: Eva\r\nTown: Turin\r\n")
    git(folder, "-c", "core.autocrlf=false", "commit", "-q", "--all", "-m", "from Windows")
    agent.memory_git.push(folder)

    human = agent.blocks.get("human")
    assert (human.value, human.description) == ("Name: Eva\nTown: Turin", "Her")
