"""Declare commands, and run the work of one. Nothing heavier than typer is imported before a command runs."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from perdure.cli.session.exit_codes import INTERRUPTED
from perdure.cli.session.needs import CommandSetup

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
    """Return columns of a table's newest visible rows, for completion in a shell; none if it can't be read."""
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
            from perdure.app import open_for_reading

            with open_for_reading(settings.store_address, timeout_s=SERVER_TIMEOUT_S) as rows:
                return rows(query)
        uri = f"{settings.store_path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            return connection.execute(query).fetchall()
    return ()


def argument(help: str, metavar: str | None = None, **more: Any) -> Any:
    """An argument of a command that is given by its place."""
    return typer.Argument(metavar=metavar, help=help, **more)


def option(help: str, metavar: str | None = None, *, name: str = "", **more: Any) -> Any:
    """An option with a value, by default named as the parameter."""
    return typer.Option(*([name] if name else []), metavar=metavar, help=help, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """An option without a value: `--all`, or `--wake/--note` with its contrary."""
    return typer.Option(name, help=help, **more)


def agent_option(help: str, *, name: str = "--agent") -> Any:
    """The option --agent, or another that names an agent."""
    return option(help, "AGENT", name=name, autocompletion=agent_names)


LAST_AGENT = argument("Name or id; by default the agent used last.", "AGENT", autocompletion=agent_names)
IS_AGENT = object()
"""Marks an argument that names an agent: the function of the command gets the agent itself."""

if TYPE_CHECKING:
    from perdure.library.agent import AsyncAgent

    Agent = AsyncAgent
    LastAgent = AsyncAgent
else:
    Agent = Annotated[str, argument("Name or id.", "AGENT", autocompletion=agent_names), IS_AGENT]
    LastAgent = Annotated[str | None, LAST_AGENT, IS_AGENT]

AsJson = Annotated[bool, flag("--json", "Print one line of JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
NewProfile = Annotated[
    str | None, option("Of a new agent: `small` or `full`; by default as its model needs.", "NAME", name="--profile")
]
Limit = Annotated[int, option("How many.", name="--limit", min=1, max=10_000)]
Org = Annotated[str | None, option("Name or id of the organisation; without it, the default one.", "ORG", name="--org")]


Work = TypeVar("Work", bound=Callable[..., Coroutine[Any, Any, int | None]])
READ = "read: "
"""Begins the name of a module of commands that is read for their arguments only."""
_callbacks: dict[str, dict[str, Callable[..., None]]] = {}
"""Name of such a module -> name of a command -> what typer calls."""


def for_work(module: str) -> bool:
    """Whether a module of commands, by its `__name__`, is imported to run a command. Else it is read for the arguments
    of its commands, as before each command, for `--help` and for completion: then it skips slow imports."""
    return not module.startswith(READ)


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
    """Set PERDURE_STORE to an address until the command ends."""
    if address is None:
        return
    before = os.environ.get("PERDURE_STORE")

    def put_back() -> None:
        """Restore the variable PERDURE_STORE."""
        os.environ.pop("PERDURE_STORE")
        if before is not None:
            os.environ["PERDURE_STORE"] = before

    context.call_on_close(put_back)
    os.environ["PERDURE_STORE"] = address


class _FullHelp:
    """A command whose line in a list is the first sentence of its help, never cut off. It takes `--store`."""

    help: str | None
    params: list[Any]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(store_option(hidden=True))

    def get_short_help_str(self, limit: int = 0) -> str:
        first, end, _ = " ".join((self.help or "").split("\n\n")[0].split()).partition(". ")
        return first + end.strip()


class Verb(_FullHelp, TyperCommand):
    """A command."""


class NounGroup(_FullHelp, TyperGroup):
    """A group of commands; an unknown one is answered with their names."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            verbs = ", ".join(self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}: `perdure {self.name}` has {verbs}")
        return super().resolve_command(ctx, args)


def command(
    name: str, *, json: bool = True, loop: Callable[[], Any] = lambda: None, **needs: Any
) -> Callable[[Work], Work]:
    """Declare a command, such as `agent create`: its arguments are those of the function behind the `Output`, where a
    dataclass stands for its fields, and the docstring is its help. The function returns the exit code; None is 0.

    Args:
        json: whether it has the option --json, which decides on the view.
        loop: gives the factory of its event loop; None: asyncio's own.
        needs: fields of `CommandSetup`.
    """

    def register(work: Work) -> Work:
        """Register the function as the command."""
        if not for_work(work.__module__):
            _callbacks[work.__module__][name] = _callback(name, work, json=json, loop=loop, needs=needs)
        return work

    return register


def _callback(
    command: str, work: Callable[..., Any], *, json: bool, loop: Callable[[], Any], needs: Mapping[str, Any]
) -> Callable[..., None]:
    """Return the function that typer calls for a command: it imports the module of `work` anew and runs it."""
    opened = [name for name in ("view", "perdure", "access") if work.__annotations__.pop(name, None)]  # not imported
    hints = get_type_hints(work, include_extras=True)
    agents = [name for name, hint in hints.items() if IS_AGENT in getattr(hint, "__metadata__", ())]
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}  # argument -> dataclass
    for name, parameter in signature(work).parameters.items():
        if name in opened:
            continue
        hint: Any = hints[name]
        if is_dataclass(hint):
            groups[name] = hint
            parameters += signature(groups[name], eval_str=True).parameters.values()
        else:
            is_last = name in agents and type(None) in get_args(get_args(hint)[0])
            parameters.append(parameter.replace(annotation=hint, default=None if is_last else parameter.default))
    if json:
        parameters.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))
    first = {"named": parameters[0].name} if parameters else {}
    kind = typer.models.ArgumentInfo
    places = [one.name for one in parameters if any(isinstance(about, kind) for about in get_args(one.annotation))]
    options = {one.name.rstrip("_"): option for one in parameters if (option := _option_name(one))}
    named = {"argument_names": options | dict(needs.get("argument_names", {}))}
    needed = CommandSetup(given=opened, agents=agents, command=command, places=places, **first | dict(needs) | named)

    def run(**arguments: Any) -> None:
        """Check the arguments, then run the command's function with them."""
        for is_wrong, why, about in needed.refuses:
            if is_wrong(arguments):
                raise typer.BadParameter(why.format(**arguments), param_hint=about)
        from perdure.cli.session.work import run_work

        module = import_module(work.__module__.removeprefix(READ))
        for name, group in groups.items():
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            arguments[name] = getattr(module, group.__name__)(**values)
        run_and_exit(run_work(getattr(module, work.__name__), needed, **arguments), loop_factory=loop())

    run.__doc__ = work.__doc__
    run.__signature__ = Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters])  # type: ignore[attr-defined]
    return run


def _option_name(parameter: Parameter) -> str | None:
    """The name of the option that a parameter is; None: it is none."""
    for about in get_args(parameter.annotation):
        if isinstance(about, typer.models.OptionInfo):
            given = [about.default, *(about.param_decls or ())]  # typer takes the first name for a default
            own = (one.partition("/")[0] for one in given if isinstance(one, str) and one.startswith("--"))
            return next(own, f"--{parameter.name.replace('_', '-')}")
    return None


def group_of(noun: str, *modules: str) -> Any:
    """Return the group of commands of a noun, or the commands of one word for "", from these modules.

    Args:
        modules: below `perdure.cli.commands`; the whole name of one in a feature.
    """
    app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)
    for module in modules:
        for name, callback in _read_commands(module).items():
            first, _, verb = name.rpartition(" ")
            if first == noun:
                app.command(verb, cls=Verb)(callback)
    return typer.main.get_group(app)


@functools.cache
def _read_commands(module: str) -> Mapping[str, Callable[..., None]]:
    """Name -> what typer calls, of the commands of a module."""
    if not module.startswith("perdure."):
        module = f"perdure.cli.commands.{module}"
    spec: Any = find_spec(module)
    name = READ + module
    _callbacks[name] = {}
    sys.modules[name] = read = ModuleType(name)  # dataclasses look there for the names in their annotations
    exec(spec.loader.get_code(module), vars(read))
    return _callbacks[name]


def run_and_exit(work: Coroutine[Any, Any, int], *, loop_factory: Callable[[], Any] | None = None) -> None:
    """Run the work in an event loop, and exit with the code that it returns."""
    import asyncio

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
