"""What the commands take away, and that they ask first."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from perdure.cli.app import app
from perdure.cli.root import Root
from tests.support import mcp_raw_server
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


@pytest.mark.uses("files")
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


@pytest.mark.uses("files")
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


DELETIONS = {
    "model remove": (("tiny",), "Removed tiny. `perdure model get tiny` fetches it again."),
    "secret delete": (("TOKEN",), "Deleted secret 'TOKEN'. This can't be undone; `perdure secret set TOKEN`"),
    "tool delete": (("roll",), "Deleted tool 'roll'. This can't be undone; `perdure tool add FILE.py`"),
    "mcp delete": (("raw",), "Deleted MCP server 'raw' with 1 tool. This can't be undone; `perdure mcp add`"),
    "file delete": (("a.txt", "docs"), "Deleted file 'a.txt' of folder 'docs'. This can't be undone; `perdure file"),
    "folder delete": (("docs",), "Deleted folder 'docs' with 0 files. This can't be undone; `perdure file upload`"),
    "archive delete": (("house",), "Deleted archive 'house' with 1 passage. This can't be undone."),
    "forget": (("under the pot", "ann"), "`perdure undo ann 1` brings it back."),
    "fact forget": (("{fact}",), "brings it back."),
    "note delete": (("tree", "--global"), "Deleted note 'tree'. `perdure undo agent-"),
    "conversation delete": (("1", "ann"), "Deleted conversation 1 of agent 'ann'. This can't be undone; memory blocks"),
    "agent reset": (("ann",), "This can't be undone; `perdure chat ann` begins anew."),
    "group reset": (("trip",), "This can't be undone; `perdure group send group-"),
    "group delete": (("trip",), "This can't be undone; its agents stay."),
    "schedule delete": (("tea",), "This can't be undone; what it sent stays in the history"),
    "plugin remove": (("tidy",), "with all that it brought. This can't be undone; `perdure plugin install`"),
    "user delete": (("tom",), "Deleted user 'tom'. This can't be undone"),
    "key delete": (("ci",), "Deleted key 'ci'. This can't be undone"),
    "org delete": (("lab",), "This can't be undone; `perdure store scrub` empties free space too"),
    "agent delete": (("ann",), "Deleted agent 'ann'. This can't be undone; its memory blocks"),
}
"""Command -> its arguments, and what it says at the end."""

NEXT_STEPS = {
    "agent list": "perdure chat NAME",
    "archive list": "perdure archive export NAME",
    "fact list ann": "perdure fact edit ID TEXT",
    "fact show {fact}": "perdure fact edit",
    "fact history {fact}": "perdure fact edit",
    "fact entities": "perdure fact list --entity NAME",
    "fact rules": "perdure fact rule TEXT",
    "fact pause ann": "perdure fact resume ann",
    "fact resume ann": "perdure fact list ann",
    "conversation list ann": "perdure chat ann --conversation NUMBER",
    "file list docs": "perdure folder attach docs AGENT",
    "folder list": "perdure file list FOLDER",
    "mcp list": "perdure mcp show SERVER",
    "mcp show raw": "perdure tool attach TOOL AGENT",
    "memory history human": "perdure memory restore human N ann",
    'memory edit human "my aunt" --text Hi': 'perdure memory restore human 0 "my aunt"',
    "memory restore human 0": "perdure chat ann",
    'memory show human "my aunt"': 'perdure memory history human "my aunt"',
    'fact resume "my aunt"': 'perdure fact list "my aunt"',
    "note list --global": "perdure note show ID",
    "plugin list": "perdure plugin show NAME",
    "run list": "perdure run show ID",
    "schedule list": "perdure schedule show ID",
    "secret list": "perdure secret set NAME",
    "tool list": "perdure tool show NAME",
    "tool show roll": "perdure tool test roll '{}'",
}
"""Command -> the command that it names at the end."""

JSON_LINES = {
    "folder list": "name id description created_at updated_at files agents",
    "folder attach docs ann": "name id description created_at updated_at files agents",
    "file list": "path name id folder_id status problem size_bytes line_count page_count created_at warnings",
    "file list docs": "name id folder_id status problem size_bytes line_count page_count created_at warnings",
    "file list ann": "path name id folder_id status problem size_bytes line_count page_count created_at warnings"
    " is_open first_line last_line",
    "folder detach docs ann": "name id description created_at updated_at files agents",
    "file upload {home}/listing.json --folder docs": "folder folder_id files existing failed skipped",
    "file delete a.txt docs --yes": "deleted",
    "folder delete docs --yes": "deleted",
    "tool attach roll ann": "agent_id attached",
    "tool detach roll ann": "agent_id detached",
    "tool delete roll --yes": "deleted",
    "secret delete TOKEN --yes": "deleted",
    "mcp refresh raw": "active pending changed missing removed unusable added left_out",
    "mcp approve raw --yes": "active pending changed missing removed unusable added left_out",
    "mcp delete raw --yes": "deleted",
    "plugin remove tidy --yes": "deleted",
    "note delete tree --global --yes": "deleted",
    "schedule delete tea --yes": "deleted",
    "user delete tom --yes": "deleted",
    "key delete ci --yes": "deleted",
    "agent cancel ann": "",
    "agent reset ann --yes": "reset",
    "conversation import {home}/lines.jsonl ann": "conversation_id imported skipped out_of_order reset",
    "store verify": "rows owners without_checksum unfinished faults",
    "store scrub": "seconds",
}
"""Command -> the keys of what it prints with --json, or of the first in its list."""


@pytest.mark.slow
@pytest.mark.uses("groups")
@pytest.mark.uses("notes")
@pytest.mark.uses("origins")
@pytest.mark.uses("plugins")
def test_whatever_takes_away_asks_first_and_says_how_to_undo_it(tmp_path: Path) -> None:
    """Each command of the tree that does has a line above; without a terminal nothing is changed. What only shows names
    the next command."""
    root = get_command(app)
    assert isinstance(root, Root)
    tree = {name: root.get_command(None, name) for name in root.list_commands(None)}
    names = [*tree, *(f"{noun} {verb}" for noun, group in tree.items() for verb in getattr(group, "commands", ()))]
    assert {name for name in names if name.split()[-1] in ("delete", "remove", "reset", "forget")} == set(DELETIONS)
    fact = _store_one_of_each(tmp_path)

    for line, command in NEXT_STEPS.items():
        shown = run_inside(tmp_path, *shlex.split(line.format(fact=fact)))
        assert (shown.returncode, f"`{command}" in shown.stderr) == (0, True), (line, shown.stderr)
    for name, (arguments, words) in DELETIONS.items():
        arguments = tuple(one.format(fact=fact) for one in arguments)
        unasked = run_inside(tmp_path, *name.split(), *arguments)
        assert (unasked.returncode, "nothing was changed" in unasked.stderr) == (1, True), (name, unasked.stderr)
        assert re.search(r"Pass --yes to (delete|forget|reset) the .+ without a prompt", unasked.stderr), name
        done = run_inside(tmp_path, *name.split(), *arguments, "--yes")
        assert (done.returncode, words in done.stderr) == (0, True), (name, done.stderr)


@pytest.mark.uses("groups")
@pytest.mark.uses("notes")
@pytest.mark.uses("plugins")
def test_what_changes_something_prints_one_line_for_programs(tmp_path: Path) -> None:
    """With `--json` it is all that is printed, and says which thing it was."""
    _store_one_of_each(tmp_path)
    line = {"role": "user", "text": "Hello.", "occurred_at": "2026-11-20T09:00:00Z"}
    (tmp_path / "lines.jsonl").write_text(json.dumps(line))

    for command, keys in JSON_LINES.items():
        done = run_inside(tmp_path, *command.format(home=tmp_path).split(), "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1), (command, done)
        printed = json.loads(done.stdout)
        first = (printed or [{}])[0] if isinstance(printed, list) else printed
        assert set(first) == set(keys.split()), command


def _store_one_of_each(home: Path) -> str:
    """Store one of each thing that a command deletes; return the id of the fact."""
    for noun, name in (("org", "lab"), ("user", "tom"), ("key", "ci")):
        assert run_inside(home, noun, "create", name).returncode == 0
    assert run_inside(home, "note", "add", "doc", "tree", "A quince.", "--global").returncode == 0
    (home / "models").mkdir()
    (home / "models" / "tiny.gguf.part").write_bytes(b"GGUF")
    (home / "plugins" / "tidy").mkdir(parents=True)
    (home / "plugins" / "plugins.json").write_text('{"tidy": {}}')
    with open_sync(home / "perdure.db") as store:
        store.create_agent("my aunt")
        ann = store.create_agent("ann", human="The key is under the pot.")
        ann.new_conversation()
        ann.send("Hello.")
        store.groups.create("round_robin", agents=[ann], description="trip")
        ann.schedules.create("Make tea.", every="1d", name="tea")
        store.archives.create("house").insert_many(["The jam is in the cellar."])
        store.folders.create("docs").upload(b"one line\n", name="a.txt")
        store.secrets.set("TOKEN", "value")
        store.tools.upsert('def roll() -> int:\n    """Roll a die."""\n    return 4\n')
        listing = home / "listing.json"
        listing.write_text(json.dumps([{"name": "good", "inputSchema": {"type": "object"}}]))
        store.mcp.add("raw", command=sys.executable, args=("-P", mcp_raw_server.__file__, str(listing)))
        return str(ann.facts.add("Ada likes tea.").fact.id)
