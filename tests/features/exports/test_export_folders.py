"""Folders of exports: what is there already is never lost, whatever happens meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput
from perdure.features.exports.folders import ABANDONED_AFTER_S, new_folder, write_marker
from perdure.features.imports.sources.files import SourceFiles

pytestmark = pytest.mark.uses("imports")


def write(target: Path, text: str, *, overwrite: bool = True) -> None:
    """Write an export with this text."""
    with new_folder(target, overwrite=overwrite) as part:
        (part / "messages.jsonl").write_text(text)
        write_marker(part, {})


def test_an_export_stays_if_the_new_one_cannot_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "out", "first")
    replace = Path.replace

    def refuse(self: Path, target: Any) -> Path:
        if self.suffix == ".part":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(InvalidInput, match="Permission denied"):
            write(tmp_path / "out", "second")

    assert (tmp_path / "out" / "messages.jsonl").read_text() == "first"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("next_one", ["export", "import"])
def test_a_kill_between_the_folders_loses_none(tmp_path: Path, next_one: str) -> None:
    """The former one lies beside, out of sight, and the next export or import puts it back."""
    target = tmp_path / "my[1]"
    write(target, "first")
    target.replace(tmp_path / ".my[1].0a1b2c3d.old")

    if next_one == "export":
        with pytest.raises(InvalidInput, match="not empty"):
            write(target, "second", overwrite=False)
    else:
        assert SourceFiles(target).find("*.jsonl") == ["messages.jsonl"]

    assert (target / "messages.jsonl").read_text() == "first"
    assert [one.name for one in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("name", ["my notes.md", ".git/HEAD", "conversations/mine.md"])
def test_a_folder_with_files_of_a_person_is_not_replaced(tmp_path: Path, name: str) -> None:
    write(tmp_path / "out", "first")
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(InvalidInput, match="no export has written"):
        write(tmp_path / "out", "second")

    assert (tmp_path / "out" / name).read_text() == "mine"
    (tmp_path / "out" / name).unlink()
    write(tmp_path / "out", "second")
    assert (tmp_path / "out" / "messages.jsonl").read_text() == "second"


def test_what_a_desktop_puts_into_a_folder_does_not_keep_it(tmp_path: Path) -> None:
    write(tmp_path / "out", "first")
    (tmp_path / "out" / "conversations").mkdir()
    for name in (".DS_Store", "Thumbs.db", "conversations/desktop.ini"):
        (tmp_path / "out" / name).write_bytes(b"x")
    write(tmp_path / "out", "second")

    assert [one.name for one in (tmp_path / "out").iterdir() if one.suffix != ".json"] == ["messages.jsonl"]


def test_what_comes_into_the_folder_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not empty"), new_folder(tmp_path / "out", overwrite=False):
        write(tmp_path / "out", "other")

    assert (tmp_path / "out" / "messages.jsonl").read_text() == "other"


def test_what_a_killed_export_has_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    for name, age in (("old", 2 * ABANDONED_AFTER_S), ("new", 10)):
        part = tmp_path / f".out.{name}.part"
        part.mkdir()
        when = part.stat().st_mtime - age
        os.utime(part, (when, when))
    write(tmp_path / "out", "first")

    assert sorted(one.name for one in tmp_path.iterdir()) == [".out.new.part", "out"]
