"""A command is declared once, by the function that does its work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure.cli.commands
from perdure import AsyncPerdure
from perdure.cli.commands.run import READ, group_of
from perdure.cli.views.text import TextView
from tests.support.library import open_sync
from tests.support.programs import run_inside

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

from perdure.cli.commands.run import LastAgent, Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.views.view import Output
    from perdure.cli.session.work import deleting
    from perdure.library.perdure import AsyncPerdure


@dataclass(frozen=True, slots=True)
class Look:
    """How a parcel looks."""

    size: Annotated[int, option("How large.", min=1)] = 3
    colours: Annotated[list[str] | None, option("Which colours.", "COLOUR", name="--colour")] = None


@command("parcel show")
async def show(
    view: Output,
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
async def send(view: Output, name: Annotated[str, argument("Whose.", "NAME")] = "ann") -> None:
    """Send a parcel."""
    view.print(name)


@command(
    "parcel weigh",
    change=lambda given: given["heavy"],
    refuses=[(lambda given: given["times"] > 9, "{times} times is too often", "--times")],
)
async def weigh(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    times: Annotated[int, option("How often.")] = 1,
    heavy: Annotated[bool, flag("--heavy", "It is put on.")] = False,
) -> None:
    """Weigh a parcel."""
    view.show([(await perdure.agent(agent.id)).name, times], f"{agent.name} weighs")


@command("parcel list", none="There are no parcels.", shape={"parcels": []})
async def list_parcels(view: Output, agent: LastAgent) -> None:
    """List the parcels."""
    view.show({"parcels": [agent.name]}, agent.name)


@command("parcel open", finds="parcel")
async def open_parcel(
    view: Output, perdure: AsyncPerdure, names: Annotated[list[str], argument("Which.", "NAME...")]
) -> None:
    """Open parcels."""
    view.show(names)


@command("parcel count", lacks="nothing to count")
async def count(view: Output, perdure: AsyncPerdure) -> None:
    """Count the parcels."""
    view.show_long(0, f"{len(await perdure.agents())} of them")
    view.hint("that is all")


@command("parcel delete")
async def delete(view: Output, name: Annotated[str, argument("Whose.", "NAME")], yes: Yes = False) -> None:
    """Delete a parcel."""
    with deleting(view, f"parcel {name!r}", "its string stays", yes=yes, id_=name):
        view.print("cut")


@command("other")
async def other(view: Output) -> None:
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, which is not there yet."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERDURE_EMBEDDING", "none")
    return tmp_path / "home"


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
        ["weigh", "Weigh a parcel."],
        ["list", "List the parcels."],
        ["open", "Open parcels."],
        ["count", "Count the parcels."],
        ["delete", "Delete a parcel."],
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


def test_arguments_that_do_not_go_together_are_refused_before_anything_is_opened(run: Run, home: Path) -> None:
    """As typer does, naming the option; also where there is no store."""
    code, _, said = run("weigh", "--times", "10")

    assert (code, "Invalid value for --times: 10 times is too often" in said, home.exists()) == (2, True, False)


def test_without_a_store_a_command_says_what_it_lacks_and_makes_none(run: Run, home: Path) -> None:
    """No agent, no such agent, nothing to list, no such thing, or nothing to work on."""
    assert "error: there is no agent yet: `perdure` makes one" in run("weigh")[2]
    assert "error: agent 'ann' not found: there is no agent yet" in run("weigh", "ann")[2]
    assert run("list") == (0, "", "There are no parcels.\n")
    assert run("list", "--json") == (0, '{"parcels": []}\n', "")
    assert "error: parcel 'red' not found: there is no agent yet" in run("open", "red", "blue")[2]
    assert "error: there is no store yet at " in (said := run("count")[2]) and ": nothing to count" in said
    assert not home.exists()


def test_an_agent_is_found_by_its_name_or_is_the_one_used_last(run: Run, home: Path) -> None:
    """The function gets it and the open store; without any agent a list is empty in a store, too."""
    with open_sync(home / "perdure.db"):
        assert run("list", "--json") == (0, '{"parcels": []}\n', "")
    with open_sync(home / "perdure.db") as store:
        first, _ = store.create_agent("ann"), store.create_agent("ben")
        first.send("Hello.")

    assert [run("weigh", *words)[1] for words in ((), ("ben",), ("ben", "--json"))] == [
        *("ann weighs\n", "ben weighs\n", '["ben", 1]\n')
    ]
    assert (run("weigh", "eve")[0], run("list")[1]) == (1, "ann\n")


@pytest.mark.uses("agent_files")
def test_only_what_changes_an_agent_refuses_a_name_of_several(run: Run, home: Path) -> None:
    """Which may depend on the arguments."""
    with open_sync(home / "perdure.db") as store:
        store.create_agent("zed")
        agent_file = home / "zed.af"
        run_inside(home, "agent", "export", "zed", str(agent_file))
    run_inside(home, "agent", "import", str(agent_file))

    assert "2 agents are named 'zed'; this is the newest" in run("weigh", "zed")[2]
    assert "2 agents are named 'zed': give an id" in run("weigh", "zed", "--heavy")[2]


def test_a_long_result_is_shown_when_the_store_is_closed(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person can read it for hours; what to do next stands below it."""
    open_stores = []
    opened, closed = AsyncPerdure.__aenter__, AsyncPerdure.__aexit__

    async def enter(self: AsyncPerdure) -> AsyncPerdure:
        open_stores.append(self)
        return await opened(self)

    async def leave(self: AsyncPerdure, *error: Any) -> None:
        await closed(self, *error)
        open_stores.clear()

    monkeypatch.setattr(AsyncPerdure, "__aenter__", enter)
    monkeypatch.setattr(AsyncPerdure, "__aexit__", leave)
    monkeypatch.setattr(TextView, "page", lambda self, *parts: self.print(f"{len(open_stores)} open", *parts))
    with open_sync(home / "perdure.db") as store:
        store.create_agent("ann")

    assert run("count") == (0, "0 open\n1 of them\n", "that is all\n")


def test_a_deletion_asks_first_and_is_told(run: Run) -> None:
    """Without a terminal there is nobody to ask; what stays is said before and after."""
    unasked, done, told = run("delete", "red"), run("delete", "red", "--yes"), run("delete", "red", "-y", "--json")

    assert (unasked[0], unasked[1]) == (1, "")
    assert "Pass --yes to delete the parcel 'red' without a prompt" in unasked[2]
    assert done == (0, "cut\n", "Deleted parcel 'red'. This can't be undone; its string stays.\n")
    assert told == (0, '{"deleted": "red"}\n', "")
