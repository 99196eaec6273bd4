"""Notes are passages: what holds for these holds for them in agent files, backups, forgetting, undo and fading."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import Perdure
from tests.features.notes.examples import KINDS, fields_of, title_of
from tests.support.library import open_sync
from tests.support.programs import run_inside


def write_all(store: Perdure) -> None:
    """An agent with a note of each kind, of which the last is archived."""
    agent = store.create_agent("ann")
    for kind in KINDS:
        note, _ = agent.notes.add(kind, title_of(kind), fields_of(kind), tags=["shop"])
    agent.notes.archive(note.id)


def shapes(store: Perdure, name: str = "ann") -> list[object]:
    """What the notes of an agent hold, without their ids."""
    notes = store.agent(name).notes.list(archived=None)
    return [(one.kind, one.title, one.fields, one.tags, one.is_archived, one.changed_at) for one in notes]


@pytest.mark.uses("agent_files")
def test_an_agent_file_has_the_notes(tmp_path: Path) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "ann.af"
    home.mkdir()
    with open_sync(home / "perdure.db") as store:
        write_all(store)
        before = shapes(store)
    assert run_inside(home, "agent", "export", "ann", str(file)).returncode == 0
    assert run_inside(other, "agent", "import", str(file), "--name", "copy").returncode == 0
    with open_sync(other / "perdure.db") as store:
        assert shapes(store, "copy") == before
        agent = store.agent("copy")
        assert agent.notes.search("decision trade offs text")[0].note.kind == "decision"
        agent.notes.edit(agent.notes.find(title_of("plan")).id, title="changed")


@pytest.mark.uses("copies")
def test_a_backup_has_the_notes(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        write_all(store)
        before = shapes(store)
    assert run_inside(tmp_path, "backup", str(tmp_path / "backup.db")).returncode == 0
    with open_sync(tmp_path / "backup.db") as store:
        assert shapes(store) == before


@pytest.mark.uses("origins")
def test_a_text_that_is_forgotten_goes_from_notes_and_comes_back_with_undo(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann")
        agent.notes.add("intel", "the port", {"finding": "Zorblatt listens on 8283.", "source": "a log"})
        agent.notes.add("doc", "Zorblatt", {"text": "a machine"})
        kept, _ = agent.notes.add("doc", "other", {"text": "a tree"})
        forgotten = agent.forget("Zorblatt")
        seen = [note.text for note in agent.notes.list()]
        found = agent.notes.search("Zorblatt")
        assert forgotten.correction is not None
        agent.undo()

        assert not any("Zorblatt" in text for text in seen) and kept.text in seen
        assert not any("Zorblatt" in hit.note.text for hit in found)
        assert sorted(note.title for note in agent.notes.list()) == ["Zorblatt", "other", "the port"]


@pytest.mark.uses("origins")
def test_a_text_that_is_erased_is_in_no_version_of_a_note(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann")
        note, _ = agent.notes.add("intel", "the port", {"finding": "Zorblatt-7431 listens.", "source": "Zorblatt-7431"})
        agent.notes.edit(note.id, fields={"finding": "It listens."})
        agent.notes.archive(note.id)
        agent.forget("Zorblatt-7431", erase=True)
    assert b"Zorblatt-7431" not in (tmp_path / "perdure.db").read_bytes()
