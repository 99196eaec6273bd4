"""Helpers of commands: the view and its errors, the open store, whole lists, questions to a person, files of lines."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

import typer

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.views.json import JsonView
from perdure.cli.views.text import TextView
from perdure.cli.views.view import View, local_time
from perdure.core.agents import AgentFilter
from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.text.addresses import is_postgres
from perdure.core.tools.arguments import read_json
from perdure.library.agent import AsyncAgent
from perdure.library.checks import Page
from perdure.library.organisations import open_organisation
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

PAGE = 100
MAKERS = {
    "tool": ": `perdure tool add FILE.py` makes one",
    "secret": ": `perdure secret set NAME` makes one",
    "folder": ": `perdure file upload PATH --folder NAME` makes one",
    "fact": ": facts are extracted from what is said, or `perdure fact add TEXT` adds one",
    "group": ": `perdure group create round_robin AGENT AGENT` makes one",
    "MCP server": ": `perdure mcp add NAME --url URL` registers one",
}
"""Kind -> what makes the first one."""
NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"
STDIN = "-"
SAME_NAME_MAX = 10
MEMORY_BYTES = 16_000_000  # of stdin; more goes to a temporary file


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


def standard_view(*, as_json: bool = False, interactive: bool = False) -> View:
    """The view on stdout and stderr, for people or for programs."""
    out, err = standard_streams()
    return JsonView(out) if as_json else TextView(Terminal(out, err, interactive=interactive))


async def show_errors(work: Callable[..., Awaitable[int | None]], *, as_json: bool = False, **arguments: Any) -> int:
    """Run the work of a command with its view and arguments, show an error, and return the exit code."""
    view = standard_view(as_json=as_json)
    try:
        return await work(view, **arguments) or 0
    except PerdureError as error:
        view.clear_status()
        view.error(error)
        return 1


@asynccontextmanager
async def open_store(
    view: View, *, empty: str | PerdureError | None = None, empty_shape: object = (), org: str | None = None
) -> AsyncIterator[AsyncPerdure]:
    """The open store of the settings.

    Args:
        org: the name or id of the organisation; by default the default one.
        empty: the hint or the error with which the command ends where there is no store yet; None makes the store.
        empty_shape: what programs get in place of the hint.
    """
    settings = Settings.from_environment()
    if empty is not None and not has_store(settings):
        if isinstance(empty, PerdureError):
            raise empty
        view.show(empty_shape)
        view.hint(empty)
        raise typer.Exit
    # A command ends soon: it must not begin runs that nobody goes on with.
    async with await AsyncPerdure.open(settings=replace(settings, schedules="off")) as perdure:
        if org is None:
            yield perdure
        else:
            async with open_organisation(perdure, org) as other:
                yield other


def has_store(settings: Settings) -> bool:
    """Whether there is a store. A database on a server counts as one: it is made there when it is first opened."""
    return is_postgres(settings.store) or settings.store_path.exists()


def no_store(consequence: str) -> InvalidInput:
    """The error of a command that needs a store where there is none."""
    return InvalidInput(f"there is no store yet at {Settings.from_environment().store_address}: {consequence}")


def none_yet(kind: str, name: str) -> NotFound:
    """The error about a missing thing where there is no store yet."""
    hint = NO_AGENT if kind == "agent" else "there is none yet"
    return NotFound(kind, name, hint=f"{hint}{MAKERS.get(kind, '')}")


def no_agent(name: str | None) -> NotFound:
    """The error where there is no agent at all."""
    error = NotFound("agent", name or "")
    error.args = (NO_AGENT,)
    return error


async def get_agent(view: View, perdure: AsyncPerdure, name: str | None, *, change: bool = False) -> AsyncAgent:
    """The agent of this name or id, or the one used last; of several of one name the newest, with a hint.

    Args:
        change: something of the agent is changed or deleted, so that a name which several have is refused.
    Raises: NotFound; InvalidInput: there is none at all, or several have the name.
    """
    agent = await perdure.last_agent() if name is None else await perdure.agent(name)
    if agent is None:
        raise InvalidInput(NO_AGENT)
    if name is not None and name != agent.id:
        several = await describe_same_name(perdure, name)
        if several and change:
            raise InvalidInput(f"{several[0]}: give an id, {several[1]}")
        if several:
            view.hint(f"{several[0]}; this is the newest, {agent.id}. By id: {several[1]}.")
    return agent


@asynccontextmanager
async def named_agent(
    view: View, name: str | None, *, change: bool = False, empty: PerdureError | None = None, org: str | None = None
) -> AsyncIterator[tuple[AsyncPerdure, AsyncAgent]]:
    """The open store, and the agent as `get_agent` has it.

    Args:
        empty: the error where there is no store yet; by default that there is no such agent.
    """
    none = no_agent(None) if name is None else none_yet("agent", name)
    async with open_store(view, empty=empty or none, org=org) as perdure:
        yield perdure, await get_agent(view, perdure, name, change=change)


async def describe_same_name(perdure: AsyncPerdure, name: str) -> tuple[str, str] | None:
    """(How many agents have this name, their ids with their dates, newest first) if it is more than one."""
    where = AgentFilter(name=name)
    found = await perdure.all_agents.page(where, Page(SAME_NAME_MAX, ascending=False))
    if len(found) < 2:
        return None
    count = len(found) if len(found) < SAME_NAME_MAX else await perdure.all_agents.count(where)
    ids = [f"{agent.id} (made {local_time(agent.created_at)})" for agent in found]
    if count > len(ids):
        ids.append("... (`perdure agent list --json` lists all)")
    return f"{count:,} agents are named {name!r}", ", ".join(ids)


def read_pairs(what: str, texts: Sequence[str]) -> dict[str, str]:
    """Name -> value of texts as NAME=VALUE. Raises: InvalidInput."""
    pairs = [text.partition("=") for text in texts]
    for name, equals, value in pairs:
        if not name or not equals:
            raise InvalidInput(f"{what} is {name + equals + value!r:.80}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def read_value(text: str) -> Any:
    """The value of a setting: JSON, or the text itself, which the check of the setting refuses where it must."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text


async def load_all(list_page: Callable[..., Awaitable[Sequence[Item]]]) -> list[Item]:
    """Every item of a list that the library returns page by page."""
    items: list[Item] = []
    while page := await list_page(limit=PAGE, after=items[-1].id if items else None):
        items += page
    return items


async def load_conversations(agent: AsyncAgent) -> list[Conversation]:
    """Every conversation of an agent, oldest first."""
    items: list[Conversation] = []
    while page := await agent.conversations(limit=PAGE, after_seq=items[-1].seq if items else -1):
        items += page
    return items


def confirm(view: View, question: str, *, action: str, yes: bool) -> None:
    """Ask a person before something is changed for good; Enter means no, which ends the command. `yes` asks nothing.

    Args:
        action: what the question is about, for the error: "delete the agent".
    Raises: InvalidInput: stdin is no terminal.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput(
            f"nothing was changed: there is no terminal to ask at. Pass --yes to {action} without a prompt"
        )
    if not typer.confirm(question, default=False, err=True):
        view.hint("Nothing was changed.")
        raise typer.Exit(1)


def deleted(what: str, more: str = "") -> str:
    """The line about a deletion that nothing takes back; `more`: what stays, or what helps."""
    return f"Deleted {what}. This can't be undone{f'; {more}' if more else ''}."


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar for each task on stderr, which vanishes at the end; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        yield bars


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """One such bar: a function of the current step, how much of it is done, and how much there is."""
    with progress_bars() as bars:
        task = bars.add_task("", total=None)
        yield lambda step, done, total: bars.update(task, description=step, completed=done, total=total)


class InputLines:
    """The lines of a file, or of stdin for `-`; each iteration starts at the first line.

    Raises: InvalidInput: the file can't be read; while iterating, a line is not UTF-8.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == STDIN else name
        try:
            self._file: BinaryIO = _seekable(sys.stdin.buffer) if name == STDIN else Path(name).expanduser().open("rb")
        except OSError as error:
            raise InvalidInput(f"{name} can't be read: {error.strerror or error}") from error

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"line {number}: it is not UTF-8 ({error.reason} at byte {error.start + 1})"
                ) from error
            yield text.removeprefix("\ufeff") if number == 1 else text

    def close(self) -> None:
        self._file.close()


def _seekable(stream: BinaryIO) -> BinaryIO:
    """A file with the content of a stream, at its end; the caller closes it."""
    file: Any = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
    shutil.copyfileobj(stream, file)
    copy: BinaryIO = file
    return copy


@contextmanager
def output_lines(name: str, *, overwrite: bool) -> Iterator[Callable[[str], None]]:
    """A function that writes one line; the file appears under its name when all lines are written.

    Raises: InvalidInput: the file can't be written, or it exists.
    """
    file = Path(name).expanduser()
    if file.exists() and not overwrite:
        raise InvalidInput(f"{name} exists already: choose another name, or replace it with --overwrite")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as out:
            yield lambda line: print(line, file=out)
        part.replace(file)
    except OSError as error:
        raise InvalidInput(f"{name} can't be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
