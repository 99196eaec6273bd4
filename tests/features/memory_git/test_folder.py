"""A memory in a folder: checked out, edited, pushed; conflicts shown as git shows them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, Perdure
from perdure.features.memory_git.values import PushRefused
from tests.support.library import open_sync
from tests.support.programs import run_inside


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


@pytest.mark.slow
def test_a_program_reads_the_log(agent: Agent, tmp_path: Path) -> None:
    """Also the times in it."""
    agent.memory_git.checkout(tmp_path / "memory")
    (newest, *_) = json.loads(run_inside(tmp_path, "memory", "log", "ann", "--json").stdout)

    assert newest["at"] == agent.memory_git.commits(limit=1)[0].at.isoformat()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_file_of_windows_is_the_same_memory(agent: Agent, tmp_path: Path) -> None:
    """Its line ends are not part of the value."""
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    (folder / "system" / "human.md").write_bytes(b"---\r\ndescription: Her\r\n---\r\n\r\nName: Eva\r\nTown: Turin\r\n")
    git(folder, "-c", "core.autocrlf=false", "commit", "-q", "--all", "-m", "from Windows")
    agent.memory_git.push(folder)

    human = agent.blocks.get("human")
    assert (human.value, human.description) == ("Name: Eva\nTown: Turin", "Her")


def versions_of(agent: Agent) -> list[str]:
    """Which version each commit but the first is, oldest first; of one that is none what it says."""
    return [" ".join(one.versions) or one.subject for one in reversed(agent.memory_git.commits()[:-1])]


@pytest.mark.slow
def test_an_older_block_that_had_a_label_of_another_one_is_committed_once(store: Perdure, agent: Agent) -> None:
    """Its old versions do not take the file of the block that has the label now."""
    old = store.blocks.create("plan", "The old plan.")
    agent.blocks.create("plan", "The new plan.")
    agent.memory_git.commits()
    store.blocks.update(old.id, label="old_plan")
    agent.blocks.attach(old.id)

    made = versions_of(agent)
    assert sorted(made) == ["human 0", "old_plan 0", "old_plan 1", "persona 0", "plan 0"]
    agent.blocks.update("plan", "A newer plan.")
    assert versions_of(agent) == [*made, "plan 1"]


@pytest.mark.slow
def test_labels_that_went_round_are_committed_once(agent: Agent, tmp_path: Path) -> None:
    """Each block is in the file of its label, and each version is one commit."""
    for label in ("one", "two"):
        agent.blocks.create(label, f"I was {label}.")
    agent.memory_git.commits()
    for before, after in (("one", "three"), ("two", "one"), ("three", "two")):
        agent.blocks.change(before, label=after)
    made = versions_of(agent)

    assert len(made) == len({*made}) == 7
    assert versions_of(agent) == made
    agent.memory_git.checkout(tmp_path / "memory")
    texts = {name: (tmp_path / "memory" / "system" / f"{name}.md").read_text() for name in ("one", "two")}
    assert "I was two." in texts["one"] and "I was one." in texts["two"]


@pytest.mark.slow
def test_a_note_in_another_form_is_one_commit(agent: Agent, tmp_path: Path) -> None:
    """It is the same note: nothing is left to say by another commit."""
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    commit(folder, "a note", notes__tea="# Tea\nGreen,\n\n\nnot black.\n")
    agent.memory_git.push(folder)

    assert [one.subject for one in agent.memory_git.commits(limit=2)] == ["a note", "Create human"]
    assert [note.title for note in agent.notes.list()] == ["Tea"]
    agent.notes.edit(agent.notes.list()[0].id, title="Green tea")
    assert agent.memory_git.commits(limit=1)[0].subject == "Edit the note Green tea"


@pytest.mark.slow
def test_a_note_whose_file_has_another_name_stays_the_same_note(agent: Agent, tmp_path: Path) -> None:
    """Also if a little of it changes in the same commit; a name alone is no edit, and another text is another note."""
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    text = "# Tea\n\nGreen tea is made with water of eighty degrees, and is never left in it for long.\n"
    commit(folder, "a note", notes__tea=text)
    agent.memory_git.push(folder)
    (note,) = agent.notes.list()
    git(folder, "mv", "notes/tea.md", "notes/drink.md")
    commit(folder, "another name")
    agent.memory_git.push(folder)
    named = agent.notes.list()
    git(folder, "mv", "notes/drink.md", "notes/green.md")
    commit(folder, "another name and title", notes__green=text.replace("# Tea", "# Green tea"))
    commit(folder, "more", notes__green=f"{text.replace('# Tea', '# Green tea')}\n## Sources\n\na book\n")
    agent.memory_git.push(folder)

    assert named == [note]
    (last,) = agent.notes.list()
    assert (last.id, last.title, last.fields["sources"]) == (note.id, "Green tea", "a book")
    assert agent.memory_git.commits(limit=1)[0].subject == "more"
    git(folder, "rm", "-q", "notes/green.md")
    commit(folder, "something else", notes__jam="# Jam\n\nPlums are cut and boiled with half their weight of sugar.\n")
    agent.memory_git.push(folder)
    assert [one.id == note.id for one in agent.notes.list()] == [False]


@pytest.mark.slow
def test_a_file_that_is_pushed_again_stays(agent: Agent, tmp_path: Path) -> None:
    """A skill leaves the archive, also with the text that it had; a name in NFD keeps its form, once in a memory."""
    folder = tmp_path / "memory"
    agent.memory_git.checkout(folder)
    texts = {"skills__tea__SKILL": "---\ndescription: Make tea\n---\n\nBoil water.\n", "cafe\u0301": "Open at 8.\n"}
    for name in texts:
        commit(folder, f"add {name}", **texts)
        agent.memory_git.push(folder)
        git(folder, "rm", "-q", "-r", "skills")
        git(folder, "commit", "-q", "-m", "delete")
        agent.memory_git.push(folder)
    commit(folder, "again", **texts)
    agent.memory_git.push(folder)

    assert agent.memory_git.commits(limit=1)[0].subject == "again"
    assert agent.skills.get("tea").archived_at is None
    commit(folder, "the same name", **{"caf\u00e9": "Open at 9."})
    with pytest.raises(PushRefused, match="another file has this name"):
        agent.memory_git.push(folder)


@pytest.mark.slow
def test_a_hidden_block_is_a_file(store: Perdure, agent: Agent, tmp_path: Path) -> None:
    """As it is in the agent's own list, and in what its model reads: only lists of all blocks leave it out."""
    hidden = store.blocks.create("rules", "Be brief.")
    store.blocks.update(hidden.id, hidden=True)
    agent.blocks.attach(hidden.id)
    agent.memory_git.checkout(tmp_path / "memory")
    commit(tmp_path / "memory", "longer", system__rules="Be brief, and kind.")
    agent.memory_git.push(tmp_path / "memory")

    block = agent.blocks.get("rules")
    assert (block.value, block.hidden) == ("Be brief, and kind.", True)
