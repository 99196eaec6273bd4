"""Helpers of commands: the view and its errors, the open store, whole lists, questions to a person, what files hold."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile, SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, TypeVar

import typer

from perdure.cli.session.needs import NO_AGENT, CommandSetup
from perdure.cli.views.json import JsonView
from perdure.cli.views.terminal import standard_streams
from perdure.cli.views.text import TextView
from perdure.cli.views.view import Output, local_time
from perdure.core.agents import AgentFilter
from perdure.core.conversations import Conversation
from perdure.core.errors import FeatureMissing, InvalidInput, NotFound, PerdureError, file_errors, rename_arguments
from perdure.core.features import Point
from perdure.core.incoming.addresses import is_postgres
from perdure.core.store_errors import disk_error
from perdure.core.tools.arguments import read_json
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import user_path
from perdure.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

PAGE = 100
MAKERS = {
    "tool": "`perdure tool add FILE.py` makes one",
    "secret": "`perdure secret set NAME` makes one",
    "folder": "`perdure file upload PATH --folder NAME` makes one",
    "file": "`perdure file upload PATH --folder NAME` adds one",
    "fact": "facts are extracted from what is said, or `perdure fact add TEXT` adds one",
    "group": "`perdure group create round_robin AGENT AGENT` makes one",
    "MCP server": "`perdure mcp add NAME --url URL` registers one",
}
"""Kind -> what makes the first one, of those that need no agent."""
STDIN = "-"
SAME_NAME_MAX = 10
MEMORY_BYTES = 16_000_000  # of stdin; more goes to a temporary file


OPEN_ACCESS: Point[[Settings, str | None], AbstractAsyncContextManager[Any]] = Point("open_access")
"""Opens the rights of the store's users, of an organisation by its name or id, or of the default one."""

OPEN_ORGANISATION: Point[[AsyncPerdure, str], AbstractAsyncContextManager[AsyncPerdure]] = Point("open_organisation")
"""Opens the store of another organisation, by its name or id. Raises: NotFound; StoreError."""


class HasId(Protocol):
    """A thing with an id."""

    @property
    def id(self) -> str:
        """The id."""


Item = TypeVar("Item", bound=HasId)


def standard_view(*, as_json: bool = False, interactive: bool = False) -> Output:
    """The view on stdout and stderr, for people or for programs."""
    out, err = standard_streams()
    return JsonView(out) if as_json else TextView(out, err, interactive=interactive)


async def run_work(
    work: Callable[..., Awaitable[int | None]], needs: CommandSetup, *, as_json: bool = False, **arguments: Any
) -> int:
    """Run a command's function with its view, arguments and needs; show errors; return the exit code."""
    view = standard_view(as_json=as_json)
    try:
        with rename_arguments(needs.argument_names):
            async with _open_needs(view, needs, arguments) as found:
                code = await work(view, **arguments | found)
        view.finish()
        return code or 0
    except (PerdureError, OSError) as error:
        told = error if isinstance(error, PerdureError) else disk_error(error)
        if told is None or getattr(error, "filename", "") is None:  # a defect; or stdout, which can't take it either
            raise
        view.clear_status()
        view.error(told)
        return 1


@asynccontextmanager
async def _open_needs(view: Output, needs: CommandSetup, arguments: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Open what the function of a command gets beside `arguments`: parameter -> value. Raises: PerdureError."""
    org = arguments.get("org")
    if "access" in needs.given:
        (opened,) = OPEN_ACCESS(Settings.from_environment(), org)
        async with opened as access:
            yield {"access": access}
    elif needs.agents or "perdure" in needs.given:
        if not has_store(Settings.from_environment()):
            _end_without_store(view, needs, arguments)
        async with open_store(org=org) as perdure:
            change = needs.change if isinstance(needs.change, bool) else needs.change(arguments)
            found: dict[str, Any] = {"perdure": perdure} if "perdure" in needs.given else {}
            for name in needs.agents:
                if needs.none and arguments[name] is None and await perdure.last_agent() is None:
                    _end_empty(view, needs)
                try:
                    found[name] = await get_agent(view, perdure, arguments[name], change=change)
                except NotFound as error:
                    raise await _find_swapped(perdure, needs, arguments, name) or error from None
            yield found
    else:
        yield {}


async def _find_swapped(
    perdure: AsyncPerdure, needs: CommandSetup, arguments: Mapping[str, Any], name: str
) -> NotFound | None:
    """Return the error that shows the right order of arguments, if another argument than `name` names an agent; else
    None. `name`: the argument that should have named one."""
    given = [(place, word) for place in needs.places for word in _words(arguments[place])]
    for place, word in given:
        if place == name or (name not in needs.places):
            continue
        with suppress(PerdureError):
            await perdure.agent(word)
            words = [other for _, other in given if other != word]
            words.insert(len(words) if needs.places[-1] == name else needs.places.index(name), word)
            line = shlex.join(("perdure", *needs.command.split(), *words))
            return NotFound("agent", arguments[name], hint=f"{word!r} is an agent. Did you mean `{line}`?")
    return None


def _words(value: object) -> Sequence[str]:
    """The words of an argument, of which it may take several."""
    return [value] if isinstance(value, str) else value if isinstance(value, list) else []


def _end_without_store(view: Output, needs: CommandSetup, arguments: Mapping[str, Any]) -> None:
    """End a command where there is no store yet, unless it makes the store. Raises: PerdureError."""
    if needs.none:
        _end_empty(view, needs)
    if needs.lacks:
        raise no_store(needs.lacks)
    if needs.finds:
        name = arguments[needs.named]
        raise none_yet(needs.finds, name if isinstance(name, str) else name[0])
    if needs.agents:
        name = arguments[needs.agents[0]]
        raise no_agent() if name is None else none_yet("agent", name)


def _end_empty(view: Output, needs: CommandSetup) -> NoReturn:
    """End a command that has nothing to show, with the result and the hint that `needs` has for that."""
    view.show(needs.shape)
    view.hint(needs.none)
    raise typer.Exit


@asynccontextmanager
async def open_store(*, org: str | None = None) -> AsyncIterator[AsyncPerdure]:
    """The open store of the settings, which is made if it is not there; of an organisation by its name or id."""
    # A command ends soon: it must not begin runs that nobody goes on with.
    settings = replace(Settings.from_environment(), schedules="off")
    async with await AsyncPerdure.open(settings=settings) as perdure:
        if org is None:
            yield perdure
        else:
            if not (opened := OPEN_ORGANISATION(perdure, org)):
                raise FeatureMissing("access", f"the organisation {org!r:.80} can't be opened", "leave out --org")
            async with opened[0] as other:
                yield other


def has_store(settings: Settings) -> bool:
    """Whether there is a store. A database on a server counts as one: it is made there when it is first opened."""
    return is_postgres(settings.store) or settings.store_path.exists()


def no_store(consequence: str) -> InvalidInput:
    """The error of a command that needs a store where there is none."""
    return InvalidInput(f"there is no store yet at {Settings.from_environment().store_address}: {consequence}")


def none_yet(kind: str, name: str) -> NotFound:
    """The error about a missing thing where there is no store yet."""
    return NotFound(kind, name, hint=f"there is none yet: {MAKERS[kind]}" if kind in MAKERS else NO_AGENT)


def no_agent() -> NotFound:
    """The error where there is no agent at all."""
    error = NotFound("agent", "")
    error.args = (NO_AGENT,)
    return error


async def get_agent(view: Output, perdure: AsyncPerdure, name: str | None, *, change: bool = False) -> AsyncAgent:
    """The agent of this name or id, or the one used last; of several of one name the newest, with a hint.

    Args:
        change: something of the agent is changed or deleted, so that a name which several have is refused.
    Raises: NotFound; InvalidInput: several have the name.
    """
    agent = await perdure.last_agent() if name is None else await perdure.agent(name)
    if agent is None:
        raise no_agent()
    if name is not None and name != agent.id:
        several = await describe_same_name(perdure, name)
        if several and change:
            raise InvalidInput(f"{several[0]}: give an id, {several[1]}")
        if several:
            view.hint(f"{several[0]}; this is the newest, {agent.id}. By id: {several[1]}.")
    return agent


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


def read_pairs(what: str, texts: Sequence[str] | None, form: str = "NAME=VALUE") -> dict[str, str]:
    """Split texts of a form into name -> value. `what` names one in the error. Raises: InvalidInput."""
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not name or not equals:
            raise InvalidInput(f"{what} is {name + equals + value!r:.80}: write {form}")
    return {name: value for name, _, value in pairs}


def read_value(text: str) -> Any:
    """The value of a setting: JSON, or the text itself, which the check of the setting refuses where it must."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text


def read_object(what: str, text: str, example: str) -> dict[str, Any]:
    """The JSON object in the text of the argument `what`; the error shows the example. Raises: InvalidInput."""
    why = ""
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        value, why = None, f" is not JSON ({error!s:.200})" if str(error) else ""
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{what} is {text[:80]!r}{why and f', which{why}'}: write a JSON object, such as '{example}'"
        )
    return value


def _stdin() -> BinaryIO:
    """The bytes of stdin. Raises: OSError: the parent process closed it."""
    if sys.stdin is None:
        raise OSError("stdin is closed")
    return sys.stdin.buffer


def read_bytes(name: str) -> bytes:
    """What a file holds, or stdin for `-`. Raises: InvalidInput."""
    try:
        return _stdin().read() if name == STDIN else user_path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{name!r} can't be read: {getattr(error, 'strerror', None) or error}") from error


def read_text(name: str) -> str:
    """What a file, or stdin for `-`, holds as text in UTF-8. Raises: InvalidInput."""
    try:
        return read_bytes(name).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name!r} is not text in UTF-8: byte {error.start + 1} is none") from error


def edit_in_file(name: str, text: str) -> tuple[str, Path]:
    """Let a person edit a text in the editor of VISUAL or EDITOR; return what they saved, and the file that holds it,
    which only they can read: the caller removes it. Raises: InvalidInput: no terminal, or no such editor."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("there is no terminal for an editor: give the value as --text, or --text - to read stdin")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with NamedTemporaryFile(
        "w", prefix=f"perdure-{Path(name).name[:40]}-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    path = Path(file.name)
    try:
        code = subprocess.call([*shlex.split(editor), str(path)])
        edited = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise InvalidInput(f"the editor {editor!r} can't be used: {error}. Set EDITOR, or give --text") from error
    if code:
        path.unlink()
        raise InvalidInput(f"nothing was changed: the editor {editor!r} ended with code {code}")
    # Editors end a file with a line break, which the text may not have had.
    return edited if text.endswith("\n") else edited.removesuffix("\n"), path


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


def confirm(view: Output, question: str, *, action: str, yes: bool) -> None:
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


@contextmanager
def deleting(view: Output, what: str, more: str = "", *, id_: str, yes: bool, after: str = "") -> Iterator[None]:
    """Ask before the block deletes something for good, and say afterwards that it was deleted.

    Args:
        what: names the thing, such as "agent 'Ada'"; `more`: what stays, or who loses it too, for the question.
        after: advice for afterwards; by default `more`.
        id_: what programs get as the deleted id.
    """
    question = f"{what[0].upper()}{what[1:]} will be gone for good{more and f'; {more}'}. Delete?"
    confirm(view, question, action=f"delete the {what}", yes=yes)
    yield
    view.show({"deleted": id_})
    advice = after or more
    view.hint(f"Deleted {what}. This can't be undone{advice and f'; {advice}'}.")


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
    """Show a progress bar on stderr; yields a function that takes (current step, amount done, whole amount)."""
    with progress_bars() as bars:
        task = bars.add_task("", total=None)
        yield lambda step, done, total: bars.update(task, description=step, completed=done, total=total)


class InputLines:
    """The lines of a file, or of stdin for `-`; each iteration starts at the first line.

    Raises: InvalidInput: the file can't be read; while iterating, a line is not UTF-8.
    """

    def __init__(self, name: str) -> None:
        with file_errors(name, "read"):
            if name != STDIN:
                self._file: Any = user_path(name).open("rb")
            else:  # a stream can be read only once
                stdin, self._file = _stdin(), SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115
                shutil.copyfileobj(stdin, self._file)

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


@contextmanager
def output_lines(view: Output, name: str, *, overwrite: bool) -> Iterator[Callable[[str], None]]:
    """Give a function that writes a line to a file, which appears when all are written, or with `-` to stdout.

    Raises: InvalidInput: the file can't be written, it exists, or it is the store.
    """
    if name == STDIN:
        yield view.print
        return
    file = user_path(name)
    if file.exists() and not overwrite:
        raise InvalidInput(f"{name} exists already: choose another name, or replace it with --overwrite")
    if file.resolve() == Path(Settings.from_environment().store_address).resolve():
        raise InvalidInput(f"{name} is the store itself: choose another name")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as out:
            yield lambda line: print(line, file=out)
        part.replace(file)
    except OSError as error:
        raise InvalidInput(f"{name} can't be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
