"""What the commands take away, and that they ask first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.library import open_sync
from tests.support.programs import run_inside


def test_an_agent_is_deleted_only_if_somebody_agrees(tmp_path: Path) -> None:
    """Without a terminal by --yes alone; the others are listed."""
    assert "agent 'ann' not found" in run_inside(tmp_path, "agent", "delete", "ann", "--yes").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        store.create_agent("ben")
    unasked = run_inside(tmp_path, "agent", "delete", "ann")
    assert (unasked.returncode, "Pass --yes to" in unasked.stderr) == (1, True)
    assert "agent 'eve' not found" in run_inside(tmp_path, "agent", "delete", "eve", "--yes").stderr

    deleted = run_inside(tmp_path, "agent", "delete", "ann", "--yes")
    assert "Deleted agent 'ann'. This can't be undone; its memory blocks" in deleted.stderr
    result = run_inside(tmp_path, "agent", "list", "--json")
    assert [row["name"] for row in json.loads(result.stdout)] == ["ben"]


def test_folders_are_given_taken_and_deleted(tmp_path: Path) -> None:
    """And single files of them; what is not there is an error, and an agent's list is none to delete from."""
    assert "folder 'docs' not found" in run_inside(tmp_path, "folder", "delete", "docs", "--yes").stderr
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
        docs = store.folders.create("docs")
        for name in ("a.txt", "b.txt"):
            docs.upload(b"one line\n", name=name)
        docs.wait()

    assert run_inside(tmp_path, "folder", "attach", "docs", "ann").stdout == "docs · 2 files · 1 agent\n"
    assert "docs/b.txt · 1 line" in run_inside(tmp_path, "file", "list", "ann").stdout
    assert run_inside(tmp_path, "file", "delete", "b.txt", "ann", "--yes").returncode == 1
    unasked = run_inside(tmp_path, "file", "delete", "b.txt", "docs")
    assert (unasked.returncode, "Pass --yes to" in unasked.stderr) == (1, True)
    assert run_inside(tmp_path, "file", "delete", "b.txt", "docs", "--yes").returncode == 0
    assert run_inside(tmp_path, "file", "list", "docs").stdout == "a.txt · 1 line\n"
    assert "'c.txt' not found" in run_inside(tmp_path, "file", "delete", "c.txt", "docs").stderr
    assert run_inside(tmp_path, "folder", "detach", "docs", "ann").stdout == "docs · 1 file · 0 agents\n"
    unasked = run_inside(tmp_path, "folder", "delete", "docs")
    assert (unasked.returncode, "Pass --yes to" in unasked.stderr) == (1, True)
    gone = run_inside(tmp_path, "folder", "delete", "docs", "--yes")
    assert "Deleted folder 'docs' with 1 file. This can't be undone; `perdure file upload`" in gone.stderr
    assert (gone.returncode, gone.stdout) == (0, "")


def test_archives_are_given_taken_and_deleted(tmp_path: Path) -> None:
    """By name or id; what is not there is an error, and so is what a folder's files say."""

    def rows(*change: str) -> list[tuple[str, list[str]]]:
        """The archives after a change."""
        if change:
            changed = run_inside(tmp_path, "archive", *change, "--json")
            assert (changed.returncode, changed.stderr) == (0, "")
        result = run_inside(tmp_path, "archive", "list", "--json")
        return [(row["name"], row["agents"]) for row in json.loads(result.stdout)]

    none = run_inside(tmp_path, "archive", "delete", "house", "--yes")
    assert (none.returncode, "archive 'house' not found" in none.stderr) == (1, True)
    with open_sync(tmp_path / "perdure.db") as store:
        ann, _ = store.create_agent("ann"), store.create_agent("ben")
        ann.archive("Quinces are ripe in October.")
        house = store.archives.create("house")
        house.insert_many(["The jam is in the cellar.", "The key is under the pot."])
        files = store.archives.get(store.folders.create("docs").info.archive_id)

    before = rows("attach", "house", "ben")
    assert ("house", ["ben"]) in before
    assert rows("attach", house.id, "ben") == before
    assert "The jam is in the cellar." in run_inside(tmp_path, "search", "jam", "--agent", "ben").stdout
    assert ("house", []) in rows("detach", "house", "ben")
    for options in (("attach", "house", "eve"), ("detach", "barn", "ben"), ("delete", "barn", "--yes")):
        wrong = run_inside(tmp_path, "archive", *options)
        assert (wrong.returncode, "not found" in wrong.stderr, "Traceback" in wrong.stderr) == (1, True, False)
    unasked = run_inside(tmp_path, "archive", "delete", "house")
    assert (unasked.returncode, "Pass --yes to" in unasked.stderr) == (1, True)
    refused = run_inside(tmp_path, "archive", "delete", files.id, "--yes")
    assert (refused.returncode, "folder" in refused.stderr) == (1, True)

    remaining = rows("delete", "house", "--yes")
    assert [name for name, _ in remaining] == [name for name, _ in before if name != "house"]
    assert ("ann's archive", ["ann"]) in remaining


def test_a_deleted_conversation_is_named(tmp_path: Path) -> None:
    """With what stays."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann").new_conversation()

    result = run_inside(tmp_path, "conversation", "delete", "1", "ann", "--yes")
    assert (
        "Deleted conversation 1 of agent 'ann'. This can't be undone; memory blocks and archives stay." in result.stderr
    )
