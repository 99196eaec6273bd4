"""The verbs of `perdure model`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.run import AsJson, Yes, command, verbs

model = verbs()

COMMANDS = "perdure.features.local.commands"
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `perdure model list` shows it.")]


@command(model, f"{COMMANDS}.list_models", name="list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that are here, and those that can be fetched."""


@command(model, f"{COMMANDS}.get_model", name="get")
def get_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the list, or the address of a .gguf file.")],
    sha256: Annotated[
        str, typer.Option("--sha256", metavar="HEX", help="What the file at an address has to have.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Fetch a model. Broken off, the same command goes on where it was."""
    if sha256 and (len(sha256) != 64 or not set(sha256.lower()) <= set("0123456789abcdef")):
        raise typer.BadParameter("a SHA-256 has 64 hexadecimal digits", param_hint="--sha256")


@command(model, f"{COMMANDS}.use_model", name="use")
def use_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model that is here, or a .gguf file anywhere.")],
    as_json: AsJson = False,
) -> None:
    """Make a model the default: of new agents, and of those that follow the default."""


@command(model, f"{COMMANDS}.remove_model", name="remove")
def remove_model(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a model that was fetched. A file elsewhere that is in use stays where it is."""
