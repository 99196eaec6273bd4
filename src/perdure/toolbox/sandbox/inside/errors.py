"""Exceptions as text for a model: what happened, and in an exception group what happened in its parts."""

from __future__ import annotations

from collections.abc import Callable

PARTS_MAX = 5
PART_CHARS = 600
DEPTH_MAX = 3


def describe_error(error: BaseException, describe_one: Callable[[BaseException], str], depth: int = 0) -> str:
    """One line about an exception; of an exception group with the first of its parts.

    Args:
        describe_one: the text of a single exception.
    """
    text = describe_one(error)
    if not isinstance(error, BaseExceptionGroup) or depth == DEPTH_MAX:
        return text
    parts = [describe_error(part, describe_one, depth + 1)[:PART_CHARS] for part in error.exceptions[:PARTS_MAX]]
    more = len(error.exceptions) - len(parts)
    return f"{text[:PART_CHARS]}: [{'; '.join(parts)}{f'; and {more} more' if more else ''}]"
