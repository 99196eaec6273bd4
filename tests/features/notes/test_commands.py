"""Notes on the command line: of a project's folder, of the memory behind all projects, or of an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.features.notes.folders import state_folder
from perdure.features.notes.nudges import EditCounter
from tests.features.notes.examples import KINDS, fields_of, title_of
from tests.support.library import open_sync
from tests.support.programs import perdure, run_inside


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, which is the current one."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def note(home: Path, *arguments: str) -> Any:
    """The JSON that a command of notes prints."""
    done = run_inside(home, "note", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_note_of_each_kind_is_written_shown_found_and_listed(tmp_path: Path, project: Path, kind: str) -> None:
    first, *others = fields_of(kind)
    more = [word for name in others for word in ("--field", f"{name}={fields_of(kind)[name]}")]
    made = note(tmp_path, "add", kind, title_of(kind), fields_of(kind)[first], *more, "--tag", "web")
    shown = run_inside(tmp_path, "note", "show", made["id"][:20])

    assert (made["kind"], made["title"], made["tags"]) == (kind, title_of(kind), ["web"])
    assert made["fields"] == fields_of(kind)
    assert shown.stdout.rstrip("\n") == made["text"]
    assert note(tmp_path, "search", f"{kind} {first} text") == [made | {"level": "project"}]
    assert note(tmp_path, "list", "--kind", kind) == [made | {"level": "project"}]


def test_a_note_is_changed_put_away_restored_kept_reviewed_and_deleted(tmp_path: Path, project: Path) -> None:
    made = note(tmp_path, "add", "plan", "the boat", "sail", "--field", "risks=wind")
    edited = note(tmp_path, "edit", "the boat", "--title", "our boat", "--field", "risks=", "--field", "steps=a\nb")
    assert (edited["title"], edited["fields"]) == ("our boat", {"goal": "sail", "steps": "a\nb"})
    archived = run_inside(tmp_path, "note", "archive", made["id"])
    assert archived.stdout == "our boat is archived.\n" and "perdure note restore" in archived.stderr
    assert (note(tmp_path, "list"), len(note(tmp_path, "list", "--archived"))) == ([], 1)
    assert (note(tmp_path, "search", "sail"), len(note(tmp_path, "search", "sail", "--archived"))) == ([], 1)
    assert not note(tmp_path, "restore", made["id"])["is_archived"]
    assert note(tmp_path, "review") == []
    review = run_inside(tmp_path, "note", "review", "--days", "0")
    assert "our boat" in review.stdout and "perdure note keep ID" in review.stderr
    assert note(tmp_path, "keep", "our boat")["changed_at"] > edited["changed_at"]
    unsure = run_inside(tmp_path, "note", "delete", "our boat")
    assert unsure.returncode != 0 and len(note(tmp_path, "list")) == 1
    assert run_inside(tmp_path, "note", "delete", "our boat", "--yes").returncode == 0
    assert note(tmp_path, "list") == []


def test_what_a_command_did_is_taken_back_as_its_last_line_says(tmp_path: Path, project: Path) -> None:
    made = run_inside(tmp_path, "note", "add", "doc", "one", "text")
    edited = run_inside(tmp_path, "note", "edit", "one", "--field", "text=new")
    deleted = run_inside(tmp_path, "note", "delete", "one", "--yes")
    for done, texts in ((deleted, ["new"]), (edited, ["text"]), (made, [])):
        (line,) = [line for line in done.stderr.splitlines() if "perdure undo" in line]
        command = line[line.index("perdure undo") :].split("`")[0].split()
        assert run_inside(tmp_path, *command[1:]).returncode == 0, command
        assert [one["fields"]["text"] for one in note(tmp_path, "list")] == texts


def test_notes_of_the_project_and_those_behind_it_are_read_together(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder below the project too, and not from another project."""
    note(tmp_path, "add", "decision", "here", "hemp ropes")
    note(tmp_path, "add", "decision", "everywhere", "hemp sails", "--global")
    (project / "src").mkdir()
    other = tmp_path / "other"
    other.mkdir()

    def seen(*arguments: str) -> set[tuple[str, str]]:
        found = note(tmp_path, *arguments)
        return {(one["level"], one["title"]) for one in found}

    both = {("project", "here"), ("global", "everywhere")}
    monkeypatch.chdir(project / "src")
    assert seen("list") == seen("search", "hemp") == seen("review", "--days", "0") == both
    assert seen("list", "--project", str(other)) == seen("list", "--global") == {("global", "everywhere")}
    monkeypatch.chdir(other)
    assert seen("search", "hemp") == {("global", "everywhere")}
    assert seen("search", "hemp", "--project", str(project)) == both
    assert run_inside(tmp_path, "note", "show", "here").returncode == 1


def test_an_agent_may_take_the_place_of_the_projects(tmp_path: Path, project: Path) -> None:
    run_inside(tmp_path, "agent", "create", "ann")
    note(tmp_path, "add", "intel", "hers", "a secret", "--agent", "ann")

    assert note(tmp_path, "list") == []
    assert [one["title"] for one in note(tmp_path, "list", "--agent", "ann")] == ["hers"]
    nobody = run_inside(tmp_path, "note", "list", "--agent", "ben")
    assert (nobody.returncode, "'ben'" in nobody.stderr) == (1, True)
    both = run_inside(tmp_path, "note", "list", "--agent", "ann", "--global")
    assert (both.returncode, "don't go together" in both.stderr) == (1, True)


def test_a_text_may_come_from_stdin(tmp_path: Path, project: Path) -> None:
    done = perdure(tmp_path, "note", "add", "doc", "long", "-", "--json", stdin="one\r\n\r\ntwo\n")

    assert json.loads(done.stdout)["fields"] == {"text": "one\n\ntwo"}


def test_writing_a_note_begins_the_count_of_edits_anew(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    counter = EditCounter(state_folder(project))
    counter.count("a.py", 9)
    note(tmp_path, "add", "doc", "one", "x")

    assert counter.totals() == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "poem", "a", "b"], "give one of error, decision"),
        (["add", "error", "a"], "field 'happened' is empty"),
        (["add", "error", "two\nlines", "b"], "control characters"),
        (["add", "error", "x" * 201, "b"], "201 characters"),
        (["add", "error", "a", "x" * 100_000], "100,000 characters"),
        (["add", "error", "a", "b", "--field", "mood=x"], "'mood' is not a field"),
        (["add", "error", "a", "b", "--field", "mood"], "NAME=TEXT"),
        (["add", "error", "a", "b", "--tag", "plan"], "tag 'plan'"),
        (["add", "error", "a", "b", "--project", "nowhere"], "give a folder that exists"),
        (["list", "--project", "nowhere"], "give a folder that exists"),
        (["list", "--kind", "poem"], "give one of error, decision"),
        (["edit", "one"], "give --title TITLE or --field NAME=TEXT"),
        (["edit", "one", "--field", "text="], "field 'text' is empty"),
        (["show", "nothing"], "perdure note list"),
        (["archive", ""], "perdure note list"),
    ],
)
def test_what_is_wrong_is_refused_with_what_helps_and_nothing_is_written(
    tmp_path: Path, project: Path, arguments: list[str], says: str
) -> None:
    made = note(tmp_path, "add", "doc", "one", "text")
    done = run_inside(tmp_path, "note", *arguments)

    assert done.returncode in (1, 2) and says in " ".join(done.stderr.split()), done.stderr
    assert note(tmp_path, "list") == [made | {"level": "project"}]


def test_without_notes_the_next_command_is_named(tmp_path: Path, project: Path) -> None:
    for arguments in (("list",), ("search", "x"), ("review",)):
        done = run_inside(tmp_path, "note", *arguments)
        assert (done.returncode, "perdure note add error" in done.stdout + done.stderr) == (0, True), arguments
    kinds = note(tmp_path, "kinds")
    assert [kind["name"] for kind in kinds] == list(KINDS)
    assert not (tmp_path / "perdure.db").exists()


def test_control_characters_of_a_text_do_not_reach_the_terminal(tmp_path: Path, project: Path) -> None:
    """A passage may hold what a note may not."""
    made = note(tmp_path, "add", "doc", "one", "text")
    with open_sync(tmp_path / "perdure.db") as store:
        store.agents()[0].update_passage(made["id"], text="# \x1b[31mred\n\n## Text\n\nx\x07")
    shown, table = (run_inside(tmp_path, "note", *one).stdout for one in (("show", made["id"]), ("list",)))

    assert "red" in shown and "red" in table
    assert not {"\x1b", "\x07"} & {*shown, *table}


@pytest.mark.parametrize("has_model", [False, True])
def test_a_chat_is_not_with_the_agent_that_keeps_the_memory_of_other_programs(
    tmp_path: Path, project: Path, has_model: bool
) -> None:
    """Except where somebody gave it a model."""
    note(tmp_path, "add", "intel", "the harbour", "It is closed on Sundays.", "--global")
    if has_model:
        with open_sync(tmp_path / "perdure.db") as store:
            [agent] = store.agents()
            agent.update(model="test/scripted")

    done = run_inside(tmp_path, "chat", "-p", "Hello.")

    with open_sync(tmp_path / "perdure.db") as store:
        names = [agent.name for agent in store.agents()]
    assert names == (["global-memory"] if has_model else ["Perdure", "global-memory"]), done.stderr
