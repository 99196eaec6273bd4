"""What is shown of a value: a representation of one line, some of its attributes, a number with its noun."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

TEXT_CHARS = 60
"""A longer text is cut, and its length follows."""


def short_repr(*names: str) -> Callable[[Any], str]:
    """Return a `__repr__` of one line: the class, and those of the attributes `names` that are not empty. Of a
    collection it shows the size only. A path such as `info.model` is shown as `model`."""

    def represent(self: Any) -> str:
        """`Class(name=value, ...)` of the attributes that are not empty."""
        values = [(name.split(".")[-1].strip("_"), attrgetter(name)(self)) for name in names]
        shown = [f"{name}={_short(value)}" for name, value in values if value or (value == 0 and value is not False)]
        return f"{type(self).__name__}({', '.join(shown)})"

    return represent


def describe_value(value: Any) -> str:
    """Return the beginning of a value, for an error text."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # what can't be written as JSON may have no repr either
        return f"a {type(value).__name__}"


def attributes(value: object, *names: str, **others: str) -> dict[str, Any]:
    """Return name -> attribute of `value`, for `names` and then `others`: new name -> path, `size="file.size"`."""
    shape = {name: getattr(value, name) for name in names}
    return shape | {name: attrgetter(path)(value) for name, path in others.items()}


def _short(value: object) -> str:
    """Return a value for a representation of one line: a long text cut, of a collection its size."""
    if isinstance(value, str) and len(value) > TEXT_CHARS:
        return f"{value[:TEXT_CHARS]!r}… ({len(value):,} characters)"
    if isinstance(value, Collection) and not isinstance(value, str):
        return f"<{len(value)}>"
    return f"{value:.2f}" if isinstance(value, float) else repr(value)


def plural(number: int, one: str, many: str = "") -> str:
    """Return the number with its noun: `1 file`, `1,200 files`; `many` is the plural where it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
