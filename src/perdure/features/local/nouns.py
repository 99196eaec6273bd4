"""The verbs of `perdure model`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.run import AsJson, Yes, old_command as command, verbs

model = verbs()

COMMANDS = "perdure.features.local.commands"
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `perdure model list` shows it.")]
NameOrFile = Annotated[str, typer.Argument(metavar="NAME", help="A model that is here, or a .gguf file anywhere.")]


@command(model, f"{COMMANDS}.list_models", name="list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that are here, and those that can be fetched."""


@command(model, f"{COMMANDS}.get_model", name="get")
def get_model(name: Name, as_json: AsJson = False) -> None:
    """Fetch a model. Broken off, the same command goes on where it was."""


@command(model, f"{COMMANDS}.use_model", name="use")
def use_model(name: NameOrFile, as_json: AsJson = False) -> None:
    """Make a model the default: of new agents, and of those that follow the default."""


@command(model, f"{COMMANDS}.remove_model", name="remove")
def remove_model(name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a model that was fetched. A file elsewhere that is in use stays where it is."""
