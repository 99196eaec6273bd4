"""Every `perdure` command that the documentation shows is run, and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, RUN_PAGES, Fence, fences, page_name
from tests.support.cases import for_each
from tests.support.programs import environment
from tests.support.warm import warm

BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES, ids=page_name)
def test_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """The commands of one page share a data folder. `…` stands for anything within a line."""
    for block in fences(page):
        if block.info != "console":
            continue
        for command, expected in _commands(block):
            assert "perdure" in command, f"{page_name(page)}:{block.line} shows {command!r}: mark it `console no-run`"
            printed = _run(command, tmp_path)

            assert _matches(printed, expected), f"{page_name(page)}:{block.line}: {command}\n{printed}"


@for_each(PAGES)
def test_make_targets_on_the_pages_exist(page: Path) -> None:
    """What is not run because it takes long is at least there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    named = set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
    for block in fences(page):
        named |= set(re.findall(r"^\$ make ([a-z-]+)", block.text, re.MULTILINE))

    assert named <= targets


def test_the_transcript_of_the_chat_is_what_the_chat_says(tmp_path: Path) -> None:
    """What is typed in the tour's transcript goes to the real command; each line of its answers stands there."""
    page = ROOT / "docs" / "tour.md"
    (transcript,) = (block.text for block in fences(page) if block.text.startswith("$ make run\n"))
    starts = transcript.split("$ make run\n")[1:]

    assert len(starts) == 2
    for start in starts:
        shown = start.splitlines()
        typed = [line.removeprefix("> ") for line in shown if line.startswith("> ")]
        answers = _run("perdure 2>notes", tmp_path, typed="\n".join(typed) + "\n").splitlines()
        place = iter(shown)

        assert answers, (tmp_path / "notes").read_text(encoding="utf-8")
        for answer in filter(None, answers):
            assert any(_line_matches(answer, line) for line in place), f"{answer!r} is not in the transcript, in order"


def _commands(block: Fence) -> Iterator[tuple[str, str]]:
    """(command, expected output) of each `$ ` line."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def _run(command: str, folder: Path, *, typed: str = "") -> str:
    """What the command prints on both streams."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=_environment(folder),
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def _environment(folder: Path) -> Mapping[str, str]:
    ours = environment(folder / "home", COLUMNS="80")
    folders = (warm("perdure", ours).parent, BIN, os.environ["PATH"])
    return ours | {"PATH": os.pathsep.join(map(str, folders))}


def _matches(printed: str, expected: str) -> bool:
    lines, wanted = printed.rstrip().splitlines(), expected.rstrip().splitlines()
    return len(lines) == len(wanted) and all(map(_line_matches, lines, wanted))


def _line_matches(line: str, wanted: str) -> bool:
    pattern = ".*".join(re.escape(piece) for piece in wanted.rstrip().split("…"))
    return re.fullmatch(pattern, line.rstrip()) is not None
