"""`perdure secret ...`: arguments only; the work is done in `cli.commands.secrets`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exit import run_and_exit

secret_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Keep values that tools need, encrypted.", add_completion=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _, as of an environment variable.")]
Owner = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="The agent whose secret it is; by default all may be given it."),
]


@secret_app.command("set")
def set_secret(name: Name, agent: Owner = None) -> None:
    """Make or change a secret. Its value is asked for, or read from stdin; it is never an argument.

    Tools are given it where their environment says `secret:NAME`; an agent's own go to all of its custom tools.
    """
    from perdure.cli.commands.secrets import set_secret

    run_and_exit(set_secret(name=name, agent=agent))


@secret_app.command("list")
def list_secrets(
    agent: Owner = None, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False
) -> None:
    """List the names of the secrets; values are never shown."""
    from perdure.cli.commands.secrets import list_secrets

    run_and_exit(list_secrets(agent=agent, as_json=as_json))


@secret_app.command("remove")
def remove_secret(name: Name, agent: Owner = None) -> None:
    """Remove a secret."""
    from perdure.cli.commands.secrets import remove_secret

    run_and_exit(remove_secret(name=name, agent=agent))
