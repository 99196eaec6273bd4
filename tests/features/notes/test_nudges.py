"""Reminders to write a note: exactly by the counts, once among several processes, and never in the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.notes.nudges import EDITS_FILE, FILE_BYTES, EditCounter, NudgeLevel, check_nudge_level
from tests.support.programs import environment

PROGRAM = Path(__file__).with_name("edit_counter.py")


def reminders(counter: EditCounter, level: NudgeLevel, edits: int, *, files: int = 2) -> list[int]:
    """The numbers of the edits after which there is a reminder, of so many edits in files that take turns."""
    found = []
    for number in range(1, edits + 1):
        counter.count(f"{number % files}.py")
        if counter.take_nudge(level):
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("level", "numbers"), [("off", []), ("light", [8]), ("balanced", [8, 16, 24]), ("strict", list(range(4, 26)))]
)
def test_reminders_come_exactly_by_the_counts_of_their_level(
    tmp_path: Path, level: NudgeLevel, numbers: list[int]
) -> None:
    assert reminders(EditCounter(tmp_path), level, 25) == numbers


@pytest.mark.parametrize("level", ["light", "balanced", "strict"])
def test_edits_of_one_file_give_no_reminder_until_there_is_a_second_one(tmp_path: Path, level: NudgeLevel) -> None:
    counter = EditCounter(tmp_path)
    assert reminders(counter, level, 30, files=1) == []

    counter.count("other.py")
    text = counter.take_nudge(level)
    assert text.startswith("31 edits in 2 files since the last note:") and "`note`" in text


@pytest.mark.parametrize(("level", "first"), [("balanced", 8), ("strict", 4)])
def test_a_note_begins_the_count_anew(tmp_path: Path, level: NudgeLevel, first: int) -> None:
    counter = EditCounter(tmp_path)
    assert reminders(counter, level, first - 1) == []
    counter.clear()
    assert counter.totals() == (0, 0)
    assert reminders(counter, level, first) == [first]
    counter.clear()
    assert reminders(counter, level, first) == [first]


def test_light_reminds_each_session_once_also_after_a_note(tmp_path: Path) -> None:
    """Two sessions may be open at once on one project: neither takes the other's reminder."""
    counter = EditCounter(tmp_path)
    for number in range(8):
        counter.count(f"{number}.py")
    assert counter.take_nudge("light", "first")
    assert counter.take_nudge("light", "second")
    assert counter.take_nudge("light", "first") == counter.take_nudge("light", "second") == ""
    counter.clear()
    assert reminders(counter, "light", 20) == [8]  # a third one
    assert counter.take_nudge("light", "first") == ""
    assert counter.take_nudge("light", "fourth")


def test_a_light_reminder_of_one_session_takes_none_of_another_level(tmp_path: Path) -> None:
    counter = EditCounter(tmp_path)
    for number in range(8):
        counter.count(f"{number}.py")

    assert counter.take_nudge("light", "first") and counter.take_nudge("balanced", "second")
    assert counter.take_nudge("balanced", "first") == ""


def test_light_reminds_once_also_where_the_file_of_edits_began_anew(tmp_path: Path) -> None:
    """A note after thousands of edits begins a new file."""
    counter = EditCounter(tmp_path)
    assert reminders(counter, "light", 8) == [8]
    for number in range(FILE_BYTES // 1_500):
        counter.count(f"{number}" + "x" * 900)
    counter.clear()

    assert (tmp_path / EDITS_FILE).stat().st_size < 1_000
    assert reminders(counter, "light", 20) == []


def test_several_edits_may_be_counted_at_once(tmp_path: Path) -> None:
    counter = EditCounter(tmp_path)
    counter.count("a.py", 7)
    counter.count("b.py", 0)  # at least one
    counter.count("x" * 5_000 + "\ud800\n")

    assert counter.totals() == (9, 3)
    assert counter.take_nudge("balanced")
    assert counter.take_nudge("balanced") == ""


def run_together(folder: Path, tasks: Sequence[tuple[str, str, int]]) -> list[int]:
    """Run each task in a process, all at once; return how many reminders each was given."""
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, folder, action, what, str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(folder),
        )
        for action, what, times in tasks
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [int(process.communicate(timeout=60)[0]) for process in processes]


def test_edits_of_several_processes_at_once_are_all_counted(tmp_path: Path) -> None:
    run_together(tmp_path, [("count", f"{one}.py", 60) for one in range(4)])

    assert EditCounter(tmp_path).totals() == (240, 4)


@pytest.mark.parametrize("level", ["light", "balanced"])
def test_one_of_several_processes_gives_a_reminder_that_is_due(tmp_path: Path, level: NudgeLevel) -> None:
    for number in range(12):
        EditCounter(tmp_path).count(f"{number}.py")

    assert sum(run_together(tmp_path, [("nudge", level, 20)] * 4)) == 1


class SlowCounter(EditCounter):
    """Finds a reminder due, and before it can note that, another process takes it."""

    taken = ""

    def _append(self, line: Mapping[str, object]) -> bool:
        if "nudged" in line:
            self.taken = EditCounter(self._path.parent).take_nudge("balanced")
        return super()._append(line)


def test_who_notes_a_reminder_second_gives_none(tmp_path: Path) -> None:
    slow = SlowCounter(tmp_path)
    for number in range(8):
        slow.count(f"{number}.py")

    assert slow.take_nudge("balanced") == ""
    assert slow.taken.startswith("8 edits")


def test_a_line_that_is_cut_off_or_foreign_counts_nothing_and_spoils_no_other(tmp_path: Path) -> None:
    counter, file = EditCounter(tmp_path), tmp_path / EDITS_FILE
    counter.count("a.py")
    wrong = [
        '{"file": "b.py", "edi',
        '{"file": 3, "edits": 1}',
        '{"file": "c.py", "edits": "x"}',
        "[1]",
        "null",
        "\x00",
    ]
    for line in (*wrong, "[" * 30_000):
        with file.open("a") as lines:
            lines.write(line)
        counter.count("b.py")

    assert counter.totals() == (1 + len(wrong) + 1, 2)
    assert counter.take_nudge("balanced")
    file.write_bytes(b"\xff\xfe" + file.read_bytes())
    assert counter.totals()[0] == 1 + len(wrong) + 1


def test_a_file_that_is_full_counts_no_more_until_a_note(tmp_path: Path) -> None:
    counter = EditCounter(tmp_path)
    for number in range(200):
        counter.count(f"{number}" + "x" * 900)
    edits, _ = counter.totals()

    assert (tmp_path / EDITS_FILE).stat().st_size < FILE_BYTES + 2_000
    assert 8 < edits < 200
    assert counter.take_nudge("balanced") == ""  # it could not be noted, and would come again and again
    assert counter.take_nudge("strict")
    counter.clear()
    assert reminders(counter, "balanced", 8) == [8]


def test_a_folder_that_cannot_be_written_stands_in_nobodys_way(tmp_path: Path) -> None:
    """A file stands where the folder should be; or a folder where the file should be."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / EDITS_FILE).mkdir(parents=True)
    for place in (tmp_path / "file", tmp_path / "folder", Path("/proc/nowhere")):
        counter = EditCounter(place)
        assert reminders(counter, "strict", 10) == []
        counter.clear()
        assert counter.totals() == (0, 0)


def test_nothing_is_written_before_the_first_edit(tmp_path: Path) -> None:
    counter = EditCounter(tmp_path / "new")
    counter.clear()
    assert counter.take_nudge("strict") == ""

    assert not (tmp_path / "new").exists()


def test_an_unknown_level_is_refused_with_those_that_there_are() -> None:
    assert check_nudge_level("strict") == "strict"
    with pytest.raises(InvalidInput, match="nudges is 'loud': give one of off, light, balanced, strict"):
        check_nudge_level("loud")
