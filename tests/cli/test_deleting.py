"""What the commands take away, and that they ask first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import called
from tests.library.opened import open_sync


def test_an_agent_is_deleted_only_if_somebody_agrees(tmp_path: Path) -> None:
    """Without a terminal by --yes alone; the others are listed."""
    assert "agent 'ann' not found" in called(tmp_path, "agents", "--delete", "ann", "--yes").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        store.create_agent("ben")
    unasked = called(tmp_path, "agents", "--delete", "ann")
    assert (unasked.returncode, "say so with --yes" in unasked.stderr) == (1, True)
    assert "agent 'eve' not found" in called(tmp_path, "agents", "--delete", "eve", "--yes").stderr

    done = called(tmp_path, "agents", "--delete", "ann", "--yes", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["ben"]


def test_folders_are_given_taken_and_deleted(tmp_path: Path) -> None:
    """And single files of them; what is not there is an error, and an agent's list is none to delete from."""
    assert "folder 'docs' not found" in called(tmp_path, "folders", "--delete", "docs", "--yes").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        docs = store.folders.create("docs")
        for name in ("a.txt", "b.txt"):
            docs.upload(b"one line\n", name=name)
        docs.wait()

    assert called(tmp_path, "folders", "--attach", "docs", "ann").stdout == "docs · 2 files · 1 agent\n"
    assert "docs/b.txt · 1 line" in called(tmp_path, "files", "ann").stdout
    assert called(tmp_path, "files", "ann", "--delete", "b.txt").returncode == 1
    unasked = called(tmp_path, "files", "docs", "--delete", "b.txt")
    assert (unasked.returncode, "say so with --yes" in unasked.stderr) == (1, True)
    assert called(tmp_path, "files", "docs", "--delete", "b.txt", "--yes").stdout == "a.txt · 1 line\n"
    assert "'c.txt' not found" in called(tmp_path, "files", "docs", "--delete", "c.txt").stderr
    assert called(tmp_path, "folders", "--detach", "docs", "ann").stdout == "docs · 1 file · 0 agents\n"
    unasked = called(tmp_path, "folders", "--delete", "docs")
    assert (unasked.returncode, "say so with --yes" in unasked.stderr) == (1, True)
    gone = called(tmp_path, "folders", "--delete", "docs", "--yes")
    assert (gone.returncode, gone.stdout) == (0, "")
