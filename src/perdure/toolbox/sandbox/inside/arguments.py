"""Convert JSON arguments to the types of a function's annotations: models, dataclasses, enums, dates."""

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


class ArgumentsDoNotFit(Exception):
    """The job has no such function, or its arguments don't fit the function; the text says what is wrong."""


def bind_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], agent: object) -> dict[str, Any]:
    """The keyword arguments to call the function with, `agent_state` among them if the function takes it.

    Raises: ArgumentsDoNotFit: one is missing, unknown, or can't be converted to the type of its annotation.
    """
    values = dict(arguments)
    signature = inspect.signature(function)
    if AGENT_STATE in signature.parameters:
        values[AGENT_STATE] = agent
    try:
        signature.bind(**values)
    except TypeError as error:
        name = getattr(function, "__name__", "it")
        raise ArgumentsDoNotFit(f"the arguments don't fit {name}{signature}: {error}") from None
    hints = _type_hints(function)
    for name in values.keys() & hints.keys() - {AGENT_STATE}:
        try:
            values[name] = _convert(hints[name], values[name])
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1_000]
            type_name = str(getattr(hints[name], "__name__", hints[name]))[:100]
            raise ArgumentsDoNotFit(f"argument {name!r} can't be made {type_name}: {text}") from None
    return values


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter -> the type that its annotation names. An annotation that is no type is left out.

    Names that the source does not import have their usual meaning.
    """
    names = {**_USUAL_TYPES, **getattr(function, "__globals__", {})}
    hints: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(holder, names)
        except Exception:
            continue
    return hints


_USUAL_TYPES: Mapping[str, Any] = {
    **{name: getattr(typing, name) for name in typing.__all__},
    **{kind.__name__: kind for kind in (datetime, date, time, PurePath)},
}


def _convert(target: Any, value: Any) -> Any:
    """The value as an instance of a type; as it is, if the type says nothing about it."""
    origin = typing.get_origin(target)
    if origin is typing.Annotated:
        return _convert(typing.get_args(target)[0], value)
    if origin in {typing.Union, types.UnionType}:
        return _convert_to_one_of(typing.get_args(target), value)
    if origin is not None:
        return _convert_container(origin, typing.get_args(target), value)
    if isinstance(target, type):
        return _convert_to_class(target, value)
    return value


def _convert_to_one_of(choices: tuple[Any, ...], value: Any) -> Any:
    """The value as the first choice that it already is an instance of, else as the first that it converts to."""
    if value is None and type(None) in choices:
        return None
    if type(value) in choices:
        return value
    problem: Exception | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value)
        except Exception as error:
            problem = error
    if problem is not None:
        raise problem
    return value


def _convert_container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if isinstance(origin, type) and isinstance(value, list) and inner:
        if issubclass(origin, tuple) and inner[-1:] != (...,):
            return tuple(_convert(kind, item) for kind, item in zip(inner, value, strict=True))
        items = [_convert(inner[0], item) for item in value]
        for kind in (tuple, set, frozenset):
            if issubclass(origin, kind):
                return kind(items)
        return items
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict) and len(inner) == 2:
        return {key: _convert(inner[1], item) for key, item in value.items()}
    return value


def _convert_to_class(target: type, value: Any) -> Any:
    """The value as an instance of a class, if there is a usual way from JSON to it; else as it is."""
    if isinstance(value, target):
        return value
    if issubclass(target, Enum):
        return target(value)
    if isinstance(value, str) and target in {datetime, date, time}:
        return target.fromisoformat(value)
    if isinstance(value, str) and issubclass(target, PurePath):
        return target(value)
    if isinstance(value, list) and target in {set, frozenset, tuple}:
        return target(value)
    if target is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        if callable(validate := getattr(target, "model_validate", None)):
            return validate(value)
        if dataclasses.is_dataclass(target):
            hints = typing.get_type_hints(target)
            return target(**{key: _convert(hints.get(key, Any), item) for key, item in value.items()})
    return value
