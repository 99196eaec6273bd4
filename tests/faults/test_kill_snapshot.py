"""`kill -9` in a clone or a restore: the clone is whole or not there, the agent is as before or as in its snapshot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.killing import moments_until_killed
from tests.support.library import open_sync

FULL = os.environ.get("PERDURE_FAULTS") == "full"
MOMENTS = 40 if FULL else 4

pytestmark = [pytest.mark.faults, pytest.mark.uses("snapshots")]


def prepare(address: Path) -> None:
    """Make a store with an agent that was spoken to, before and after a snapshot, and remembers something."""
    with open_sync(address) as store:
        agent = store.create_agent("ann")
        agent.blocks.update("human", "Ann.")
        agent.archive("Ann likes tea.")
        agent.send("one")
        agent.snapshots.make()
        agent.send("two")


def run(address: Path, moment: int) -> int:
    """Clone and restore in a process that is killed at this moment; return the number of moments, -1: it was killed."""
    return moments_until_killed("snapshot_program", address.parent, address, moment, PERDURE_SCHEDULES="off")


def test_a_killed_clone_or_restore_leaves_a_whole_state(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    prepare(whole := tmp_path / "whole" / "perdure.db")
    count = run(whole, -1)
    before, after = ["one", "OK.", "two", "OK."], ["one", "OK."]
    assert count > 10

    for number in range(MOMENTS):
        (folder := tmp_path / f"killed{number}").mkdir()
        prepare(address := folder / "perdure.db")
        assert run(address, moment := number * count // MOMENTS) == -1
        with open_sync(address) as store:
            agents = {agent.name: agent for agent in store.agents() if not agent.info.hidden}
            archives = [archive.name for archive in store.archives.list()]
            blocks = [block.value for block in store.blocks.list()]
            said = {name: [one.text for one in agent.messages()] for name, agent in agents.items()}
            agents["ann"].snapshots.clone("another")
            agents["ann"].send("three")
            again = [one.text for one in store.agent("another").messages()]
            known = [hit.passage.text for hit in store.agent("another").search_archive("tea")]

        assert said["ann"] in (before, after), moment
        assert said.get("clone", before) == before, moment
        assert again == said["ann"], moment
        assert known == ["Ann likes tea."], moment
        assert len(archives) == len(said), moment
        assert blocks.count("Ann.") == len(said), moment
