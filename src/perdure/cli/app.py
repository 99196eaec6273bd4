"""`perdure` itself and `perdure chat`. All other commands are in `commands`, as `root` lists them."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from perdure.cli.commands.run import LAST_AGENT, NewProfile, Verb, flag, option, run_and_exit
from perdure.cli.root import Root

# Without rich markup typer does not import rich, which would triple the time of `--help`.
app = typer.Typer(
    cls=Root,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="PERDURE_HOME names the data folder, PERDURE_MODEL the default model.",
)

Message = Annotated[str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send one message and exit.")]
ChatJson = Annotated[bool, flag("--json", "Print one JSON object for each message.")]
NewModel = Annotated[str | None, option("The model of the new agent, as provider/name.", "HANDLE", name="--model")]


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if the option is given; typer calls it before other arguments are read."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(f"perdure {version('perdure')}")
    except PackageNotFoundError:
        typer.echo("perdure (not installed)")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    message: Message = None,
    as_json: ChatJson = False,
    model: NewModel = None,
) -> None:
    """Agents that remember. Without a command: chat with the agent used last.

    `perdure "TEXT"` sends one message. A pipe sends each line as a message.
    """
    if context.invoked_subcommand is None:
        chat(message=message, as_json=as_json, model=model)
    elif message is not None or as_json or model is not None:
        raise typer.BadParameter(
            "--prompt, --json and --model stand after the name of the command, as in `perdure agent list --json`"
        )


@app.command(cls=Verb)
def chat(
    agent: Annotated[str | None, LAST_AGENT] = None,
    message: Message = None,
    as_json: ChatJson = False,
    new: Annotated[bool, flag("--new", "Create the agent AGENT first.")] = False,
    model: NewModel = None,
    profile: NewProfile = None,
    conversation: Annotated[str | None, option("A number or id; by default the one used last.", "NUMBER")] = None,
    turns: Annotated[int, option("How many of the last turns to show.", min=0, max=20)] = 3,
) -> None:
    """Chat with an agent. Lines on stdin are messages when it is no terminal.

    Lines that begin with a slash are commands; /help lists them.
    """
    if new and not agent:
        raise typer.BadParameter("it needs the name of the agent to make: perdure chat NAME --new", param_hint="--new")
    if new and conversation is not None:
        raise typer.BadParameter("an agent that is made has none yet: leave it out", param_hint="--conversation")
    from perdure.cli.chat.chat import chat

    start = functools.partial(chat, name=agent, new=new, model=model, profile=profile)
    run_and_exit(start(message=message, as_json=as_json, conversation=conversation, turns=turns))
