"""Declare commands, and run the work of one. Nothing heavier than typer is imported before a command runs."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

INTERRUPTED = 130  # the code of shells for an end by SIGINT
NAMES_MAX = 50
BUSY_TIMEOUT_S = 0.2
SERVER_TIMEOUT_S = 2  # a shell waits


def agent_names(incomplete: str) -> Iterator[tuple[str, str]]:
    """(name, help) of agents, newest first; the id in place of a name that a shell would take apart."""
    for name, agent_id, model in _newest_rows("agents", "name, id, model"):
        plain = shlex.quote(name) == name
        yield (name, model) if plain else (agent_id, f"{name}, {model}")


def group_names(incomplete: str) -> Iterator[tuple[str, str]]:
    """(id, help) of groups, newest first."""
    for group_id, kind, description in _newest_rows("groups", "id, kind, description"):
        yield group_id, f"{kind} {description}".rstrip()


def _newest_rows(table: str, columns: str) -> Sequence[tuple[Any, ...]]:
    """The newest rows of the store that are not hidden. One that is not there or can't be read has none: there is
    nowhere to show an error."""
    import sqlite3
    from contextlib import closing, suppress

    from perdure.core.errors import PerdureError
    from perdure.core.ids import DEFAULT_ORG
    from perdure.settings import Settings

    query = (
        f"SELECT {columns} FROM {table} WHERE org_id = '{DEFAULT_ORG}' AND hidden = 0"
        f" ORDER BY number DESC LIMIT {NAMES_MAX}"
    )
    with suppress(sqlite3.Error, PerdureError, OSError):
        settings = Settings.from_environment()
        if isinstance(settings.store_address, str):
            from perdure.app import look

            with look(settings.store_address, timeout_s=SERVER_TIMEOUT_S) as rows:
                return rows(query)
        uri = f"{settings.store_path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            return connection.execute(query).fetchall()
    return ()


Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Name or id.", autocompletion=agent_names)]
LastAgent = Annotated[
    str | None,
    typer.Argument(metavar="AGENT", help="Name or id; by default the agent used last.", autocompletion=agent_names),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
NewProfile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Of a new agent: `small` or `full`; by default as its model needs."),
]
Org = Annotated[
    str | None, typer.Option("--org", metavar="ORG", help="Name or id of the organisation; by default the default one.")
]


def agent_option(help: str, *, name: str = "--agent") -> Any:
    """The option --agent, or another that names an agent."""
    return typer.Option(name, metavar="AGENT", help=help, autocompletion=agent_names)


Declaration = Callable[..., None]


@functools.cache
def store_option(*, hidden: bool) -> Any:
    """The option --store, which every command has. It sets PERDURE_STORE while the command runs."""
    one = typer.Typer(add_completion=False)

    @one.command()
    def only(
        store: str | None = typer.Option(
            None,
            "--store",
            metavar="ADDRESS",
            help="A file or postgresql://...",
            callback=_set_store,
            expose_value=False,
            hidden=hidden,
        ),
    ) -> None:
        raise AssertionError("unreachable: it lends its option")

    return typer.main.get_command(one).params[0]


def _set_store(context: typer.Context, address: str | None) -> None:
    """Set the variable until the command ends."""
    if address is None:
        return
    before = os.environ.get("PERDURE_STORE")

    def put_back() -> None:
        os.environ.pop("PERDURE_STORE")
        if before is not None:
            os.environ["PERDURE_STORE"] = before

    context.call_on_close(put_back)
    os.environ["PERDURE_STORE"] = address


class _WholeHelp:
    """A command whose line in a list is the first sentence of its help, never cut off. It takes `--store`."""

    help: str | None
    params: list[Any]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(store_option(hidden=True))

    def get_short_help_str(self, limit: int = 0) -> str:
        first, end, _ = " ".join((self.help or "").split("\n\n")[0].split()).partition(". ")
        return first + end.strip()


class Verb(_WholeHelp, TyperCommand):
    """A command."""


class Noun(_WholeHelp, TyperGroup):
    """A group of commands."""


def command(app: typer.Typer, work: str, *, name: str | None = None) -> Callable[[Declaration], Declaration]:
    """Add a command to `app`. The decorated function declares the arguments, and may check how they go together.

    Args:
        work: `module.function` below `perdure.cli.commands`, or the whole name in a feature. It is imported when the
            command runs: a coroutine function of a `View` and the same arguments, but for `as_json`. It returns the
            exit code; None is 0.
        name: of the command; by default that of the function.
    """

    def register(declare: Declaration) -> Declaration:
        @functools.wraps(declare)
        def run(**arguments: Any) -> None:
            declare(**arguments)
            from perdure.cli.work import show_errors

            module, _, function = work.rpartition(".")
            commands = import_module(full_name(module, "perdure.cli.commands"))
            run_and_exit(show_errors(getattr(commands, function), **arguments))

        app.command(name, cls=Verb)(run)
        return run

    return register


def full_name(module: str, folder: str) -> str:
    """The whole name of a module of this folder, or of a feature's, which is given whole."""
    return module if module.startswith("perdure.") else f"{folder}.{module}"


def verbs() -> typer.Typer:
    """The verbs of a noun."""
    return typer.Typer(cls=Noun, rich_markup_mode=None, add_completion=False)


def run_and_exit(work: Coroutine[Any, Any, int], *, loop_factory: Callable[[], Any] | None = None) -> None:
    """Run the work in an event loop, and exit with the code that it returns."""
    import asyncio

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
