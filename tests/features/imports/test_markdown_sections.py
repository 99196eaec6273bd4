"""Sections of Markdown: what they become, whatever a file holds, and when it changes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.features.imports.work import pieces
from tests.features.imports import golden
from tests.support.library import open_sync


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


def texts(store: Perdure, agent: str = "markdown") -> list[str]:
    """All passages of an agent."""
    return [one.text for one in store.agent(agent).passages(limit=500)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "# a" + " " * 20_000 + "b\ntext\n",
        "# a" + " #" * 20_000 + "b\ntext\n",
        "---\n" + "tags:\n" + "  - a" + " " * 20_000 + "\n" * 20_000 + "-\n---\ntext\n",
        "---\ndate" + " " * 20_000 + "\n---\ntext\n",
        "---\n" + "--- x\n" * 20_000 + "text\n",
        "# " + "x" * 20_000 + "\n" + "## b\nc\n" * 5_000,
    ],
)
def test_no_file_takes_long(store: Perdure, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    begun = time.process_time()
    plan = store.imports.plan("markdown", tmp_path / "a.md")

    assert plan.memories.new and time.process_time() - begun < 5


def test_files_of_other_kinds_are_counted(store: Perdure, tmp_path: Path) -> None:
    """The case of a name's end says nothing."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("A.MD", "b.md", "C.TXT", "d.org", ".hidden"):
        (notes / name).write_text(f"text {name}")
    report = store.imports.run("markdown", notes)

    assert sorted(texts(store)) == ["text A.MD", "text C.TXT", "text b.md"]
    assert report.left_out == {"files of other kinds": 1}


def test_a_heading_has_no_number_signs_behind_it(store: Perdure, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One  ##  \n\nfirst\n\n#\ttwo # 2\t#\n\nsecond\n")
    store.imports.run("markdown", tmp_path / "a.md")

    assert {*texts(store)} == {"One\n\nfirst", "two # 2\n\nsecond"}


def test_a_long_text_is_cut_in_time_that_grows_with_it() -> None:
    begun = time.process_time()
    found = list(pieces("a word\n" * 3_000_000))

    assert len(found) > 2_000 and time.process_time() - begun < 2


LONG = "\n\n".join(f"p{number} " + "w " * 400 for number in range(20))


def test_a_long_section_and_others_of_its_heading_are_kept_whole(store: Perdure, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"# Log\n\n{LONG}\n\n# Log\n\nsecond\n\n# Log#2\n\nthird\n\n# Log\n\n{LONG}")
    store.imports.run("markdown", tmp_path / "a.md")
    found = texts(store)

    assert {"Log\n\nsecond", "Log#2\n\nthird"} <= {*found}
    assert [n for n in range(20) if sum(f"p{n} " in text for text in found) != 2] == []
    assert store.imports.run("markdown", tmp_path / "a.md").changed == 0


def test_pieces_that_a_section_has_no_more_are_gone_unless_they_were_changed_here(
    store: Perdure, tmp_path: Path
) -> None:
    place = tmp_path / "a.md"
    place.write_text(f"# Plan\n\n{LONG}\n\n{LONG}")
    store.imports.run("markdown", place)
    agent = store.agent("markdown")
    agent.update_passage(agent.passages(limit=500)[-1].id, text="mine now")
    place.write_text("# Plan\n\nnew\n")
    plan, report = store.imports.plan("markdown", place), store.imports.run("markdown", place)

    assert sorted(texts(store)) == ["Plan\n\nnew", "mine now"]
    assert plan.changed == report.changed > 1
    assert store.imports.run("markdown", place).has_news is False
    place.write_text(f"# Plan\n\n{LONG}")
    store.imports.run("markdown", place)
    assert [n for n in range(20) if not any(f"p{n} " in text for text in texts(store))] == []


def test_equal_names_and_headings_in_two_folders_are_two_memories(store: Perdure, tmp_path: Path) -> None:
    """Also the same file alone, through a link, or in the folder above, is the same."""
    for name in ("a", "b"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "README.md").write_text(f"# Intro\n\nNotes of {name}.\n")
        store.imports.run("markdown", tmp_path / name / "deep")
    (tmp_path / "link").symlink_to(tmp_path / "a")

    assert sorted(texts(store)) == ["Intro\n\nNotes of a.", "Intro\n\nNotes of b."]
    for again in ("a", "b", "a/deep/README.md", "link", "."):
        assert store.imports.run("markdown", tmp_path / again).has_news is False
    assert str(tmp_path) not in str(store.agent("markdown").passages())


def test_uploads_of_one_name_do_not_overwrite_one_another(store: Perdure) -> None:
    for name in "aba":
        store.imports.run("markdown", io.BytesIO(f"# Intro\n\nNotes of {name}.\n".encode()), label="README.md")

    assert sorted(texts(store)) == ["Intro\n\nNotes of a.", "Intro\n\nNotes of b."]


def test_lines_without_a_conversation_are_one_for_each_file(store: Perdure, tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        line = {"role": "user", "text": f"in {name}", "occurred_at": 1.7e9}
        golden.write_lines(tmp_path / name / "chat.jsonl", [line])
    store.imports.run("jsonl", tmp_path)
    agent = store.agent("jsonl")

    assert [[one.text for one in agent.messages(conversation=talk.id)] for talk in agent.conversations()[1:]] == [
        ["in x"],
        ["in y"],
    ]
    assert store.imports.run("jsonl", tmp_path / "x" / "chat.jsonl").new == 0
