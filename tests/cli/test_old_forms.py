"""Commands as they were written before nouns and verbs: they work, and name the new form."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from perdure.cli.root import OLD_FORMS, new_form
from tests.support.library import open_sync
from tests.support.programs import run_inside

NEW_FORMS = {
    "agents --json": "agent list --json",
    "agents --delete ann --yes": "agent delete ann --yes",
    "agents --yes --delete=ann": "agent delete ann --yes",
    "reset ann --yes": "agent reset ann --yes",
    "cancel ann --conversation default": "agent cancel ann --conversation default",
    "approvals": "approval list",
    "approve ann call_1": "approval approve ann call_1",
    "deny ann --reason 'not now'": "approval deny ann --reason 'not now'",
    "conversations ann": "conversation list ann",
    "conversations ann --rename 1 'the trip'": "conversation rename 1 'the trip' ann",
    "conversations --delete 1 ann --yes": "conversation delete 1 ann --yes",
    "import-messages ann -": "conversation import ann -",
    "archives --json": "archive list --json",
    "archives --attach house ann": "archive attach house ann",
    "archives --detach house ann --json": "archive detach house ann --json",
    "archives --delete house -y": "archive delete house -y",
    "export --all all.jsonl": "archive export --all all.jsonl",
    "import all.jsonl --into house": "archive import all.jsonl --into house",
    "folders": "folder list",
    "folders --attach docs ann": "folder attach docs ann",
    "folders --detach docs ann": "folder detach docs ann",
    "folders --delete docs --yes": "folder delete docs --yes",
    "files docs": "file list docs",
    "files docs --delete a.txt --yes": "file delete a.txt docs --yes",
    "upload src --folder work": "file upload src --folder work",
    "tool attach roll --agent ann": "tool attach roll ann",
    "tool detach --agent=ann roll": "tool detach roll ann",
    "tool remove roll": "tool delete roll",
    "mcp tools web": "mcp show web",
    "mcp remove web": "mcp delete web",
    "secret remove TOKEN": "secret delete TOKEN",
    "hooks": "hook list",
    "key": "key show",
    "reindex --again": "store reindex --again",
    "verify --repair": "store verify --repair",
}


@pytest.mark.parametrize(("old", "new"), NEW_FORMS.items())
def test_an_old_form_runs_the_new_one(tmp_path: Path, old: str, new: str) -> None:
    """One line on stderr names it, and the command that answers is the new one."""
    assert new_form(shlex.split(old)) == shlex.split(new)
    assert new_form(shlex.split(new)) is None

    helped = run_inside(tmp_path, *shlex.split(old), *(() if old == "key" else ("--help",)))
    noun, verb = new.split()[:2]
    first, *more = helped.stderr.splitlines()
    assert first.startswith(f"This form goes with the next version: write `perdure {noun} {verb}")
    assert (more == [], helped.stdout.startswith(f"Usage: perdure {noun} {verb} ")) == (old != "key", old != "key")


def test_every_old_form_is_tried() -> None:
    """The list above has each entry of the table, so an entry that leads nowhere is found."""
    tried = {next(old for old in OLD_FORMS if _fits(old, form)) for form in NEW_FORMS}

    assert tried == set(OLD_FORMS)


def _fits(old: str, form: str) -> bool:
    head, _, option = old.partition(" --")
    flag = f"--{option.split()[0]}" if option else ""
    return form.split()[: len(head.split())] == head.split() and flag in form


def test_old_forms_change_what_they_changed(tmp_path: Path) -> None:
    """A folder is attached, a file and an agent are deleted, a conversation is named."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann").new_conversation()
        store.create_agent("ben")
        docs = store.folders.create("docs")
        docs.upload(b"one line\n", name="a.txt")
        docs.wait()

    attached = run_inside(tmp_path, "folders", "--attach", "docs", "ann")
    run_inside(tmp_path, "files", "docs", "--delete", "a.txt", "--yes")
    run_inside(tmp_path, "conversations", "ann", "--rename", "1", "the trip")
    run_inside(tmp_path, "agents", "--delete", "ben", "--yes")

    assert attached.stdout == "docs · 1 file · 1 agent\n"
    assert attached.stderr.startswith("This form goes with the next version: write `perdure folder attach docs ann`.\n")
    assert run_inside(tmp_path, "folder", "list").stdout == "docs · 0 files · 1 agent\n"
    assert "the trip" in run_inside(tmp_path, "conversation", "list", "ann").stdout
    agents = json.loads(run_inside(tmp_path, "agent", "list", "--json").stdout)
    assert [agent["name"] for agent in agents] == ["ann"]
