"""`kill -9` in a push to a memory: all of its commits are versions then, or none is; the same push ends it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perdure import Perdure
from tests.faults.killing import moments_until_killed
from tests.support.git_folders import GitFolder
from tests.support.library import open_sync

FULL = os.environ.get("PERDURE_FAULTS") == "full"
VALUES = ["Name: Ada", "Name: Eva", "Name: Ida", "Name: Ona"]

pytestmark = [pytest.mark.faults, pytest.mark.uses("memory_git")]


def prepare(folder: Path) -> GitFolder:
    """A store with an agent, and a folder with three commits to push."""
    with open_sync(folder / "perdure.db") as store:
        agent = store.create_agent("ann", human=VALUES[0])
        mine = GitFolder(Path(agent.memory_git.checkout(folder / "mine").folder))
        for value in VALUES[1:]:
            mine.commit(value, {"system/human.md": value, "further.md": value})
    return mine


def push(folder: Path, moment: int) -> int:
    """Push in a process that is killed at this moment; return the number of moments, -1: it was killed."""
    address, mine = folder / "perdure.db", folder / "mine"
    more = {"TMPDIR": str(folder), "PERDURE_SCHEDULES": "off"}
    return moments_until_killed("memory_git_program", folder, address, mine, moment, **more)


def versions(store: Perdure) -> tuple[list[str], list[tuple[str, ...]], str]:
    """The values of the block, oldest first, what each commit is, and what the further file holds."""
    agent = store.agent("ann")
    values = [one.value for one in reversed(agent.blocks.history("human"))]
    commits = agent.memory_git.commits()
    return values, [tuple(one.versions) for one in reversed(commits)], commits[0].hash


@pytest.mark.slow
def test_a_push_that_was_killed_has_happened_whole_or_not_at_all(tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    prepare(whole)
    count = push(whole, -1)
    outcomes = set()
    for moment in range(0, count, 1 if FULL else 25):
        (folder := tmp_path / f"killed{moment}").mkdir()
        mine = prepare(folder)
        head = mine.git("rev-parse", "HEAD").strip()
        # On a slow machine work behind the scenes writes in between, in one run more than in another.
        reached = push(folder, moment)
        assert reached == -1 or reached <= moment
        with open_sync(folder / "perdure.db") as store:
            values, made, newest = versions(store)
            is_done = newest == head
            assert values == (VALUES if is_done else VALUES[:1])
            assert [one for one in made if one[:1] != ("persona 0",)] == [
                (),
                *((f"human {number}",) for number in range(len(values))),
            ]
            store.agent("ann").memory_git.push(folder / "mine")
            assert versions(store)[0] == VALUES and versions(store)[2] == head
        outcomes.add(is_done)
        shutil.rmtree(folder)

    assert count > 10
    assert outcomes == {True, False} or not FULL
