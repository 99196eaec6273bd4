"""`kill -9` while files of agents are applied: all of it is there or nothing, and the same again ends at the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.test_kill_import import run
from tests.features.manifests.office_files import OFFICE, write_office
from tests.support.library import open_sync

pytestmark = [pytest.mark.faults, pytest.mark.uses("manifests")]


def test_an_apply_that_was_killed_has_done_all_or_nothing(tmp_path: Path) -> None:
    """At each moment before and after a transaction."""
    file = write_office(tmp_path / "office", OFFICE.replace("test/scripted", "perdure/extractive"))
    count = run(tmp_path / "whole.db", "manifest", file, -1)
    assert count > 0

    for moment in range(count):
        (folder := tmp_path / f"killed{moment}").mkdir()
        # On a slow machine work behind the scenes writes in between, in one run more than in another.
        reached = run(folder / "perdure.db", "manifest", file, moment)
        assert reached == -1 or reached <= moment
        with open_sync(folder / "perdure.db") as store:
            before = len(store.manifests.plan(file).changes)
            store.manifests.apply(file)

            assert before in (0, 10)
            assert store.manifests.plan(file).changes == []
            assert len([agent for agent in store.agents() if agent.name in ("ada", "bob", "cleo")]) == 3
