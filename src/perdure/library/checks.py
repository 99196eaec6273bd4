"""What callers may ask for, checked before the store is asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perdure.core.errors import InvalidInput, ModelNotFound

__all__ = ["LIMIT_MAX", "check_choice", "check_limit", "check_model"]

LIMIT_MAX = 10_000
"""Of one page or search: what is returned stands in memory as a whole."""


def check_limit(limit: int) -> None:
    """Nothing, when so many can be asked for. Raises: InvalidInput."""
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit is {limit!r:.80}: give a number from 1 to {LIMIT_MAX:,}, and read page by page")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Nothing, when the value is one of those there are. Raises: InvalidInput."""
    if value not in choices:
        raise InvalidInput(f"{name} is {value!r:.80}: it can be {', '.join(map(repr, choices))}")


def check_model(handle: str, known: Collection[str]) -> None:
    """Nothing, when the model can be used here. Raises: ModelNotFound, naming those that can."""
    if handle not in known:
        raise ModelNotFound(handle, known=tuple(known))
