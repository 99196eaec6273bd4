"""One order of arguments for every command: the agent comes last, and only what may be left out stands behind it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from perdure.cli.app import app
from perdure.cli.root import nouns
from tests.support.library import open_sync
from tests.support.programs import environment, perdure, run_inside
from tests.support.warm import warm


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    for name in root.list_commands(context):
        found = root.get_command(context, name)
        if name in nouns():
            yield from ((f"{name} {verb}", one) for verb, one in found.commands.items())
        else:
            yield name, found


@pytest.mark.uses("snapshots", "memory_git")
def test_the_agent_comes_last() -> None:
    """But where something is made of it, which stands behind it as the target of `cp` does."""
    wrong = []
    for name, one in commands():
        places = [param for param in one.params if param.param_type_name == "argument"]
        agents = [index for index, param in enumerate(places) if param.metavar == "AGENT"]
        if agents and any(param.required for param in places[agents[0] + 1 :]):
            wrong.append(name)

    assert wrong == ["agent clone", "memory checkout"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the agents nova and "Ada B"."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("Ada B")
        store.create_agent("nova", human="Likes tea.")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("memory show nova human", "memory show human nova"),
        ("memory history nova human", "memory history human nova"),
        ("memory restore nova 1 human", None),
        ("memory edit nova human --text x", "memory edit human nova"),
        ("forget nova tea --yes", "forget tea nova"),
        ("event nova login", "event login nova"),
        ("fact search nova tea", "fact search tea nova"),
        ("conversation import nova file.jsonl", "conversation import file.jsonl nova"),
        ("memory revert nova block-1@2 block-3@4", "memory revert block-1@2 block-3@4 nova"),
        ("agent export nova.af nova", "agent export nova nova.af"),
        ("memory show nova nobody", "memory show nobody nova"),
    ],
)
def test_swapped_arguments_are_understood(home: Path, given: str, right: str | None) -> None:
    """The error has the command in the right order; nothing is changed."""
    done = run_inside(home, *given.split())

    assert done.returncode != 0
    if right is not None:
        assert f"'nova' is an agent. Did you mean `perdure {right}`?" in " ".join(done.stderr.split())


def test_the_right_order_is_quoted_for_a_shell(home: Path) -> None:
    done = run_inside(home, "memory", "show", "Ada B", "human")
    other = run_inside(home, "memory", "show", "human", "nobody")

    assert "`perdure memory show human 'Ada B'`" in " ".join(done.stderr.split())
    assert "Did you mean" not in other.stderr and "nobody" in other.stderr


def test_an_agent_is_made_with_persona_human_and_model(tmp_path: Path) -> None:
    """In one command, which programs read as JSON."""
    done = run_inside(
        tmp_path,
        "agent",
        "create",
        "nova",
        "--persona",
        "A gardener.",
        "--human",
        "Ada.",
        "--model",
        "perdure/extractive",
    )
    shown = [run_inside(tmp_path, "memory", "show", label, "nova").stdout for label in ("persona", "human")]

    assert done.returncode == 0 and "with model perdure/extractive (as you asked)" in done.stdout
    assert "A gardener." in shown[0] and "Ada." in shown[1]


def test_a_block_is_edited_by_its_text(home: Path) -> None:
    """The difference is shown, the hint takes it back, and the agent used last is the default."""
    done = run_inside(home, "memory", "edit", "human", "--text", "Likes coffee.")
    piped = perdure(home, "memory", "edit", "human", "nova", "--text", "-", stdin="Likes\nmilk.\n")
    same = run_inside(home, "memory", "edit", "human", "nova", "--text", "Likes\nmilk.")
    unasked = run_inside(home, "memory", "edit", "human", "nova")

    assert "Likes coffee." in done.stdout and "Likes tea." in done.stdout
    assert "`perdure memory restore human" in done.stderr
    assert piped.returncode == 0 and same.stdout == "Nothing was changed.\n"
    assert unasked.returncode == 1 and "there is no terminal for an editor" in " ".join(unasked.stderr.split())
    with open_sync(home / "perdure.db") as store:
        assert store.agent("nova").blocks.get("human").value == "Likes\nmilk."


def edit_with(home: Path, editor: str, *, label: str = "human") -> tuple[int, str]:
    """(Exit code, output) of `memory edit` in a terminal, with a shell script as its editor; `$1` is the file."""
    script = home / "editor"
    script.write_text(f"#!/bin/sh\n{editor}\n")
    script.chmod(0o700)
    ours, terminal = pty.openpty()
    variables = environment(home, VISUAL="", EDITOR=str(script), TMPDIR=str(home))
    try:
        done = subprocess.run(
            [warm("perdure", variables), "memory", "edit", label, "nova"],
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=60,
            env=variables,
        )
    finally:
        os.close(ours)
        os.close(terminal)
    return done.returncode, done.stdout + done.stderr


def test_a_block_is_edited_in_the_editor(home: Path) -> None:
    """Its file has the value, is the owner's alone, and is gone in the end; the last line break is the editor's."""
    code, output = edit_with(
        home,
        'stat -c %a "$1" > seen; cat "$1" >> seen; echo "Likes coffee." > "$1"'.replace("seen", str(home / "seen")),
    )

    assert code == 0, output
    assert (home / "seen").read_text() == "600\nLikes tea."
    assert not list(home.glob("perdure-human-*"))
    with open_sync(home / "perdure.db") as store:
        store.agent("nova").blocks.create("system/rules", "Be kind.")
    assert edit_with(home, 'test "$(cat "$1")" = "Be kind."', label="system/rules") == (0, "Nothing was changed.\n")
    with open_sync(home / "perdure.db") as store:
        assert store.agent("nova").blocks.get("human").value == "Likes coffee."


def test_what_was_written_is_kept_if_it_can_not_be_stored(home: Path) -> None:
    """It is too long, or somebody else has changed the block meanwhile; a failing editor changes nothing."""
    long, output = edit_with(home, 'yes "Likes coffee." | head -c 60000 > "$1"')
    (kept,) = home.glob("perdure-human-*")
    failed, why = edit_with(home, "exit 3")

    assert long == 1 and kept.name in "".join(output.split()) and kept.stat().st_size == 60_000
    assert failed == 1 and "ended with code 3" in " ".join(why.split())
    with open_sync(home / "perdure.db") as store:
        assert store.agent("nova").blocks.get("human").value == "Likes tea."


@pytest.mark.uses("agent_files")
def test_an_agent_is_exported_under_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the current folder; the hint quotes the name where a shell needs it."""
    monkeypatch.chdir(home)
    plain, quoted = run_inside(home, "agent", "export", "nova"), run_inside(home, "agent", "export", "Ada B")

    assert (plain.returncode, quoted.returncode) == (0, 0)
    assert (home / "nova.af").exists() and "`perdure agent import 'Ada B.af'`" in " ".join(quoted.stderr.split())
    assert "--overwrite" in run_inside(home, "agent", "export", "nova").stderr
    store = run_inside(home, "agent", "export", "nova", "perdure.db", "--overwrite")
    assert store.returncode == 1 and "perdure.db is the store itself" in " ".join(store.stderr.split())
    assert run_inside(home, "agent", "settings", "nova").returncode == 0


@pytest.mark.uses("files")
def test_files_are_listed_without_a_folder(home: Path) -> None:
    """Those of all folders, each with its folder."""
    none = run_inside(home, "file", "list")
    for folder in ("garden", "house"):
        (home / f"{folder}.txt").write_text(folder)
        run_inside(home, "file", "upload", str(home / f"{folder}.txt"), "--folder", folder)
    done = run_inside(home, "file", "list")

    assert (none.returncode, none.stdout) == (0, "") and "perdure file upload" in none.stderr
    assert [line.split(" · ")[0] for line in sorted(done.stdout.splitlines())] == [
        "garden/garden.txt",
        "house/house.txt",
    ]


@pytest.mark.uses("facts", "schedules", "access")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("search", "tea", "--agent", "nova", "--since", "soon"), "--since is 'soon': write a date"),
        (("search", "tea", "--agent", "nova", "--until", "soon"), "--until is 'soon': write a date"),
        (("fact", "add", "Ada lives in Oslo", "nova", "--since", "soon"), "--since is 'soon': write a date"),
        (("fact", "list", "nova", "--as-of", "soon"), "--as-of is 'soon': write a date"),
        (("schedule", "add", "tea", "nova", "--every", "1h", "--until", "soon"), "--until is 'soon': give a time"),
        (("schedule", "add", "tea", "nova", "--every", "1h", "--times", "0"), "--times is 0: give a whole number"),
        (("key", "create", "mine", "--expires", "soon"), "--expires is 'soon': write 90d"),
    ],
)
def test_errors_name_the_option_that_was_given(home: Path, given: tuple[str, ...], problem: str) -> None:
    """Not the argument of the library behind it."""
    done = run_inside(home, *given)

    assert (done.returncode, done.stderr.startswith(f"error: {problem}")) == (1, True), done.stderr
