"""Arguments as the function's annotations want them: models, dataclasses, enums and dates are made of plain JSON."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import Any

AGENT_STATE = "agent_state"


class Misfit(Exception):
    """The arguments are not the function's; the text says what is wrong."""


def bound(function: Callable[..., Any], arguments: Mapping[str, Any], agent: object) -> dict[str, Any]:
    """The keyword arguments to call the function with.

    Raises: Misfit: one is missing, unknown, or can't be made what its annotation says.
    """
    given = _named(function, arguments, agent)
    hints = _hints(function)
    for name in given.keys() & hints.keys() - {AGENT_STATE}:
        try:
            given[name] = _made(hints[name], given[name])
        except Misfit:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1_000]
            raise Misfit(f"argument {name!r} can't be made {_name(hints[name])}: {text}") from None
    return given


def _named(function: Callable[..., Any], arguments: Mapping[str, Any], agent: object) -> dict[str, Any]:
    """The arguments, and the agent where it is wanted. Raises: Misfit: one is missing or unknown."""
    given = dict(arguments)
    if type(function) is types.FunctionType and not hasattr(function, "__wrapped__"):
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        if AGENT_STATE in names:
            given[AGENT_STATE] = agent
        needed = names[: len(names) - len(function.__defaults__ or ())]
        stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_posonlyargcount
        if not (stars or code.co_kwonlyargcount) and set(needed) <= given.keys() <= set(names):
            return given  # the usual case, without the cost of a signature
    signature = inspect.signature(function)
    if AGENT_STATE in signature.parameters:
        given[AGENT_STATE] = agent
    try:
        signature.bind(**given)
    except TypeError as error:
        raise Misfit(f"the arguments don't fit {getattr(function, '__name__', 'it')}{signature}: {error}") from None
    return given


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types that its annotations name. One that is no type says nothing about its value.

    Names that the source does not import have their usual meaning.
    """
    own = getattr(function, "__globals__", {})
    written = getattr(function, "__annotations__", {}).items()
    open_ones = {name: one for name, one in written if not (isinstance(one, str) and one in _PLAIN and one not in own)}
    if not open_ones:
        return {}
    names = {**_USUAL, **own}
    hints: dict[str, Any] = {}
    for name, annotation in open_ones.items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(holder, names)
        except Exception:
            continue
    return hints


_PLAIN = ("str", "int", "bool", "list", "dict")
"""Annotations of which nothing has to be made: JSON has them as they are."""

_USUAL: Mapping[str, Any] = {
    **{name: getattr(typing, name) for name in typing.__all__},
    **{kind.__name__: kind for kind in (datetime, date, time, PurePath)},
}


def _made(wanted: Any, value: Any) -> Any:
    origin = typing.get_origin(wanted)
    if origin is typing.Annotated:
        return _made(typing.get_args(wanted)[0], value)
    if origin in {typing.Union, types.UnionType}:
        return _one_of(typing.get_args(wanted), value)
    if origin is not None:
        return _container(origin, typing.get_args(wanted), value)
    if isinstance(wanted, type):
        return _instance(wanted, value)
    return value


def _one_of(choices: tuple[Any, ...], value: Any) -> Any:
    """The first of the choices that the value is already, else the first that it can be made."""
    if value is None and type(None) in choices:
        return None
    plain = [choice for choice in choices if isinstance(choice, type) and type(value) is choice]
    if plain:
        return value
    problem: Exception | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _made(choice, value)
        except Exception as error:
            problem = error
    if problem is not None:
        raise problem
    return value


def _container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if isinstance(origin, type) and isinstance(value, list) and inner:
        if issubclass(origin, tuple) and inner[-1:] != (...,):
            return tuple(_made(kind, item) for kind, item in zip(inner, value, strict=True))
        items = [_made(inner[0], item) for item in value]
        for kind in (tuple, set, frozenset):
            if issubclass(origin, kind):
                return kind(items)
        return items
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict) and len(inner) == 2:
        return {key: _made(inner[1], item) for key, item in value.items()}
    return value


def _instance(wanted: type, value: Any) -> Any:
    if isinstance(value, wanted):
        return value
    if issubclass(wanted, Enum):
        return wanted(value)
    if isinstance(value, str) and wanted in {datetime, date, time}:
        return wanted.fromisoformat(value)
    if isinstance(value, str) and issubclass(wanted, PurePath):
        return wanted(value)
    if isinstance(value, list) and wanted in {set, frozenset, tuple}:
        return wanted(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        if callable(validate := getattr(wanted, "model_validate", None)):
            return validate(value)
        if dataclasses.is_dataclass(wanted):
            hints = typing.get_type_hints(wanted)
            return wanted(**{key: _made(hints.get(key, Any), item) for key, item in value.items()})
    return value


def _name(wanted: Any) -> str:
    return str(getattr(wanted, "__name__", wanted))[:100]
