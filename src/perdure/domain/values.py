"""Values from outside that memory is to keep: whether the store can, and what would do in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.limits import Limits

__all__ = ["as_tags", "check_json", "check_kept", "filter_tags", "shown"]


def as_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags as they are kept. Raises: InvalidInput: one text in place of several, something else than texts."""
    if not isinstance(tags, list | tuple | set | frozenset) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput(f"tags are {tags!r:.80}: give a list of texts, such as ['travel']")
    return tuple(tags)


def filter_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags to look for, as passages have them: without space around them. An empty one stays, and no passage
    has it: left out, it would let more through.

    Raises: InvalidInput: one text in place of several, something else than texts.
    """
    return tuple(tag.strip() for tag in as_tags(tags))


def check_json(name: str, value: Any) -> None:
    """Nothing, when the store can keep it. Raises: InvalidInput: no mapping, values that JSON does not have (NaN and
    Infinity among them), a number of more than 4,300 digits, too deep nesting."""
    try:
        if isinstance(value, Mapping):
            json.dumps(dict(value), allow_nan=False)
            return
        why = ""
    except (TypeError, ValueError, RecursionError) as error:
        why = " (it is nested too deep)" if isinstance(error, RecursionError) else f" ({error!s:.120})"
    raise InvalidInput(f"{name} is {shown(value)}{why}: give names with JSON values, such as {{'team': 'red'}}")


def check_kept(limits: Limits, *, tags: Sequence[str] = (), **values: Any) -> None:
    """Nothing, when an item may have so many tags and JSON values so large. Raises: TooMany."""
    limits.check("tags_per_item", len(tags))
    for value in values.values():
        if value:
            limits.check("metadata_limit_chars", len(json.dumps(value)))


def shown(value: Any) -> str:
    """The beginning of a value, for a message about it."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # what can't be written as JSON may have no repr either
        return f"a {type(value).__name__}"
