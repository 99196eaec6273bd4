"""The public names: one list, all of them there."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import library
from scripts.generate_names import generate

HIDDEN = {"app"}
OF_FRONTS = {
    "CompactionCounts",
    "Episode",
    "Graph",
    "Pass",
    "RequestPreview",
    "Prices",
    "RunRequest",
    "RunSpan",
    "Step",
    "StepTimes",
}
"""What methods return that only the server, the pages and the CLI call."""
LIBRARY = [
    found.name
    for found in pkgutil.walk_packages(library.__path__, "perdure.library.")
    if not found.ispkg and not found.name.endswith(".feature_parts")
]


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    """Names are loaded at first use, so a wrong home would show only then."""
    value = getattr(importlib.import_module("perdure"), name)

    assert value.__module__.startswith("perdure.")


def test_the_names_are_those_of_the_list() -> None:
    """`make format` writes the module."""
    assert Path(perdure.__file__).read_text(encoding="utf-8") == generate()


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        perdure.no_such_name  # noqa: B018


def test_importing_perdure_loads_no_engine() -> None:
    """What is not used costs nothing."""
    code = "import perdure, sys; print(any(name.startswith('perdure.') for name in sys.modules))"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "False"


@pytest.mark.parametrize("module", LIBRARY)
def test_what_public_methods_return_can_be_imported(module: str) -> None:
    """A program can write the types of all that it gets; the parts of an agent or store are reached through it."""
    home = importlib.import_module(module)
    own = [one for one in vars(home).values() if isinstance(one, type) and one.__module__ == module]
    classes = [one for one in own if one.__name__.startswith("Async") or ".sync." in module]
    missing = {
        found.__name__
        for one in classes
        for name, member in vars(one).items()
        if not name.startswith("_") and name not in HIDDEN
        for found in _classes_of(_return_type(member))
        if found.__module__.startswith("perdure.") and found.__module__ not in LIBRARY
    }

    assert missing - OF_FRONTS - {*perdure.__all__, "Agent", "Archive", "Folder"} == set()


def test_every_error_of_the_page_can_be_imported() -> None:
    """Programs catch them by name."""
    page = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `([A-Z]\w+)`", page, re.MULTILINE)

    assert [name for name in names if not hasattr(perdure, name)] == []


def _return_type(member: Any) -> Any:
    """The annotation of what a method or property returns."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return typing.get_type_hints(function).get("return") if callable(function) else None


def _classes_of(annotation: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _classes_of(argument)
