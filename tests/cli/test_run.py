"""A command is declared once, by the function that does its work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure.cli.commands
from perdure.cli.run import READ, group_of

NEEDED_BY_WORK = ("perdure.library", "perdure.app", "perdure.storage", "perdure.server", "asyncio", "httpx", "rich")

READ_ALL = f"""
import json, sys, typer
from perdure.cli.app import app
root = typer.main.get_group(app)
context = typer.Context(root)
found = [root.get_command(context, name) for name in root.list_commands(context)]
print(json.dumps([[one.name for one in found], [name for name in {NEEDED_BY_WORK} if name in sys.modules]]))
"""

MODULE = '''
"""A module of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from perdure.cli.run import argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.views.view import View


@dataclass(frozen=True, slots=True)
class Look:
    """How a parcel looks."""

    size: Annotated[int, option("How large.", min=1)] = 3
    colours: Annotated[list[str] | None, option("Which colours.", "COLOUR", name="--colour")] = None


@command("parcel show")
async def show(
    view: View,
    *,
    name: Annotated[str, argument("Whose.", "NAME")],
    look: Look,
    wide: Annotated[bool, flag("--wide", "All of it.")] = False,
) -> int:
    """Show a parcel. It is not opened."""
    if look.size > 9:
        raise typer.BadParameter("it is too large")
    view.show([name, look.size, look.colours, wide], f"{name} for people, {look == Look(look.size, look.colours)}")
    return 4


@command("parcel send", json=False)
async def send(view: View, name: Annotated[str, argument("Whose.", "NAME")] = "ann") -> None:
    """Send a parcel."""
    view.print(name)


@command("other")
async def other(view: View) -> None:
    """Do something else."""
'''


@pytest.fixture
def parcels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of commands."""
    name = f"parcels_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(perdure.cli.commands, "__path__", [*perdure.cli.commands.__path__, str(tmp_path)])
    yield name
    for prefix in ("", READ):
        sys.modules.pop(f"{prefix}perdure.cli.commands.{name}", None)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(parcels: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """The exit code, the output and the errors of a command of `parcel`."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            group_of("parcel", parcels).main(words, prog_name="parcel")
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def test_the_arguments_of_all_commands_are_read_without_what_their_work_needs() -> None:
    """`--help` and completion wait for no library; what a module imports for its work stands below `for_work`."""
    done = subprocess.run([sys.executable, "-c", READ_ALL], capture_output=True, text=True, timeout=60, check=True)

    names, imported = json.loads(done.stdout)
    assert {"agent", "search", "doctor"} <= set(names)
    assert imported == []


def test_a_noun_has_the_commands_that_begin_with_it(run: Run, parcels: str) -> None:
    """In the order of their declarations, with the first sentence of each help."""
    code, out, _ = run("--help")

    assert code == 0
    assert [line.split(maxsplit=1) for line in out.partition("Commands:\n")[2].splitlines()] == [
        ["show", "Show a parcel."],
        ["send", "Send a parcel."],
    ]
    assert list(group_of("", parcels).commands) == ["other"]


def test_the_help_of_a_command_does_not_import_its_module(run: Run, parcels: str) -> None:
    """The module is imported when the command runs."""
    name = f"perdure.cli.commands.{parcels}"
    _, text, _ = run("show", "--help")
    before = name in sys.modules
    run("show", "ann")

    assert "It is not opened." in text
    assert (before, name in sys.modules) == (False, True)


def test_a_dataclass_stands_for_its_fields(run: Run) -> None:
    """They are options at its place, and the function gets an object of the class of its own module."""
    _, text, _ = run("show", "--help")
    named = run("show", "ann", "--size", "5", "--colour", "red", "--colour", "blue", "--wide", "--json")
    plain = run("show", "ann")

    assert [word for word in text.split() if word in ("--size", "--colour", "--wide", "--json")] == [
        *("--size", "--colour", "--wide", "--json")
    ]
    assert (named[0], json.loads(named[1])) == (4, ["ann", 5, ["red", "blue"], True])
    assert plain[:2] == (4, "ann for people, True\n")


def test_a_command_without_a_view_for_programs_has_no_json(run: Run) -> None:
    """None as the result is exit code 0."""
    assert run("send") == (0, "ann\n", "")
    assert run("send", "--json")[0] == 2


def test_the_work_can_refuse_its_arguments(run: Run) -> None:
    """As typer does: with the usage, and exit code 2."""
    refused = run("show", "ann", "--size", "10")
    too_small = run("show", "ann", "--size", "0")

    assert (refused[0], too_small[0]) == (2, 2)
    assert "Usage: parcel show" in refused[2]
    assert "it is too large" in refused[2]
