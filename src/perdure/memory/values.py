"""Values from outside that memory is to keep: whether the store can, and what would do in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput

__all__ = ["as_tags", "check_json"]


def as_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags as they are kept. Raises: InvalidInput: one text in place of several, something else than texts."""
    if not isinstance(tags, list | tuple | set | frozenset) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput(f"tags are {tags!r:.80}: give a list of texts, such as ['travel']")
    return tuple(tags)


def check_json(name: str, value: Any) -> None:
    """Nothing, when the store can keep it. Raises: InvalidInput."""
    try:
        kept = isinstance(value, Mapping) and json.dumps(dict(value)) is not None
    except (TypeError, ValueError, RecursionError):
        kept = False
    if not kept:
        raise InvalidInput(f"{name} is {value!r:.80}: give names with JSON values, such as {{'team': 'red'}}")
