"""What a command declares is what its work takes."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from perdure.cli.app import app
from perdure.cli.root import NOUNS

BY_HAND = {"chat", "serve", "ui"}  # they need more than a view

APPS = [app, *(getattr(import_module(f"perdure.cli.nouns.{module}"), noun) for noun, (module, _) in NOUNS.items())]
CALLBACKS = {
    command.callback.__name__: command.callback
    for group in APPS
    for command in group.registered_commands
    if command.callback is not None and command.callback.__name__ not in BY_HAND
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_command_and_its_work_have_the_same_arguments(name: str) -> None:
    """The work is found by its name when the command runs, so no type checker compares the two."""
    variables = inspect.getclosurevars(CALLBACKS[name]).nonlocals
    module, _, function = variables["work"].partition(".")
    work = getattr(import_module(f"perdure.cli.commands.{module}"), function)
    declared = set(inspect.signature(variables["declare"]).parameters)

    assert inspect.iscoroutinefunction(work)
    assert {"view", *declared} - {"as_json"} == set(inspect.signature(work).parameters)
