"""What a command declares is what its work takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

from perdure.cli.app import app
from perdure.cli.root import NOUNS
from perdure.cli.run import full_name

BY_HAND = {"chat", "serve", "ui"}  # they need more than a view

APPS = [
    app,
    *(getattr(import_module(full_name(module, "perdure.cli.nouns")), noun) for noun, (module, _) in NOUNS.items()),
]
CALLBACKS = [
    command.callback
    for group in APPS
    for command in group.registered_commands
    if command.callback is not None and command.callback.__name__ not in BY_HAND
]


def arguments_of(work: Any) -> Iterator[str]:
    """The names of its arguments, with those of a TypedDict that it unpacks."""
    hints = get_type_hints(work)
    for name, parameter in inspect.signature(work).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from get_args(hints[name])[0].__annotations__
        else:
            yield name


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_command_and_its_work_have_the_same_arguments(callback: Any) -> None:
    """The work is found by its name when the command runs, so no type checker compares the two."""
    variables = inspect.getclosurevars(callback).nonlocals
    module, _, function = variables["work"].rpartition(".")
    work = getattr(import_module(full_name(module, "perdure.cli.commands")), function)
    declared = set(inspect.signature(variables["declare"]).parameters)

    assert inspect.iscoroutinefunction(work)
    assert {"view", *declared} - {"as_json"} == set(arguments_of(work))
