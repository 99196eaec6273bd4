"""The packages whose interfaces the adapters have, installed apart: mem0 and Zep are read as source, because what they
need is not installed, the others are imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "adapters"


def need(name: str) -> None:
    """Skip the test where this package is not installed."""
    if not (FOLDER / name).is_dir():
        pytest.skip(f"{name} is installed by `make setup`")


@pytest.fixture(scope="module")
def frameworks() -> Iterator[None]:
    """The packages can be imported."""
    if not FOLDER.is_dir():
        pytest.skip("the frameworks are installed by `make setup`")
    sys.path.append(str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def source(path: str) -> ast.Module:
    """The source of a module, by its path in the folder."""
    return ast.parse((FOLDER / path).read_text(encoding="utf-8"))


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    """The class of this name."""
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def methods(cls: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public methods of a class."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Mapping[str, str | None]:
    """Parameter -> its default as text; None: it has none. `**` before the name of one that takes all others."""
    arguments = method.args
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    texts = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(one) for one in arguments.defaults]
    found = {argument.arg: default for argument, default in zip(positional, texts, strict=True)}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found[argument.arg] = None if default is None else ast.unparse(default)
    if arguments.kwarg is not None:
        found[f"**{arguments.kwarg.arg}"] = None
    return found


def fields(cls: ast.ClassDef) -> set[str]:
    """The fields of a class of data."""
    return {
        node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def returned_keys(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The keys of the dictionaries that a function writes down."""
    return {
        key.value
        for node in ast.walk(method)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
