"""The filters of mem0 over a memory's fields: values, operators, and AND, OR and NOT of filters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

_COMPARES: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, allowed: value in allowed,
    "nin": lambda value, excluded: value not in excluded,
    "contains": lambda value, part: part in value,
    "icontains": lambda value, part: str(part).lower() in str(value).lower(),
    "eq": operator.eq,
    "ne": operator.ne,
}
_WITHOUT_VALUE = frozenset({"eq", "ne", "nin"})
"""Operators that a field without a value may meet."""


def matches(fields: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Return whether the fields meet all of the filters. Raises: ValueError: an unknown operator, no list."""
    for name, condition in filters.items():
        if name in ("AND", "OR", "NOT"):
            if not isinstance(condition, list) or not condition:
                raise ValueError(f"{name} is {condition!r:.80}: give a list of filters")
            results = [matches(fields, one) for one in condition]
            if not (all(results) if name == "AND" else any(results) is (name == "OR")):
                return False
        elif not _meets(fields.get(name), condition):
            return False
    return True


def _meets(value: Any, condition: Any) -> bool:
    """Return whether a value meets one condition. Raises: ValueError."""
    if isinstance(condition, Mapping):
        return all(_compare(value, name, operand) for name, operand in condition.items())
    if condition == "*":
        return value is not None
    return bool(value == condition or (isinstance(condition, list) and value in condition))


def _compare(value: Any, name: str, operand: Any) -> bool:
    """Apply an operator; values that don't compare don't meet it. Raises: ValueError."""
    if name not in _COMPARES:
        raise ValueError(f"the filter has the operator {name!r:.80}: give one of {', '.join(_COMPARES)}")
    if value is None and name not in _WITHOUT_VALUE:
        return False
    try:
        return bool(_COMPARES[name](value, operand))
    except TypeError:
        return False
