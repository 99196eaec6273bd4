"""Convert what a tool returned to values that JSON can hold, or say in one sentence why it can't be."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import PurePath
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

DEPTH_MAX = 100
CONTAINERS_MAX = 200_000
"""The most lists and dicts in a result, as in a request's body: parsing more takes too long."""

INTEGER_BITS_MAX = 14_000  # some 4,200 digits: Python refuses to read more
NAME_CHARS = 60

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WHAT_HELPS = "return text, numbers, True, False, None, lists or dicts"


class NotJson(Exception):
    """A value that JSON can't hold; the text says what, where, and what helps."""


def clean(text: str) -> str:
    """The text without what breaks readers: lone surrogates, and control characters but tab and line breaks."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub("\ufffd", text)


def to_json(value: object, *, bytes_max: int) -> Any:
    """The value with plain types only. Dataclasses, pydantic models, sets, dates, enums and paths are converted.

    Raises: NotJson: something in it has no such form, or it is larger than `bytes_max` as JSON.
    """
    try:
        plain = _JsonWalker(bytes_max).convert(value)
        size = len(json.dumps(plain, ensure_ascii=False).encode())
    except NotJson:
        raise
    except RecursionError:
        raise NotJson(f"the result is nested too deeply: {_WHAT_HELPS}") from None
    except MemoryError:
        raise
    except BaseException as error:  # a property, __iter__ or model_dump of the tool's own class
        raise NotJson(f"the result can't be read: reading it raised {type(error).__name__}; {_WHAT_HELPS}") from None
    if size > bytes_max:
        raise NotJson(_too_large(bytes_max))
    return plain


def _too_large(bytes_max: int) -> str:
    """What is said of a result of more bytes."""
    return f"the result is larger than {bytes_max:,} bytes as JSON: return less, or a part of it"


class _JsonWalker:
    """One walk over a value, which knows the path to the part it is at, and how much of the limits is left."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = self._bytes_max = bytes_max  # each value takes at least one byte
        self._containers = 0
        self._ancestors: set[int] = set()
        self._path: list[str] = []  # to the value that is looked at, put together only for an error

    def convert(self, value: object) -> Any:
        """The value with plain types only. Raises: NotJson."""
        self._bytes_left -= 1
        if self._bytes_left < 0:
            raise NotJson(_too_large(self._bytes_max))
        if isinstance(value, Enum):
            return self.convert(value.value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self._bytes_left -= len(value)
            return clean(str.__str__(value))
        if isinstance(value, int):
            number = int(value)
            if number.bit_length() > INTEGER_BITS_MAX:
                raise self._not_json("is an integer of more than 4,000 digits: return it as text")
            return number
        if isinstance(value, float):
            real = float(value)
            if not math.isfinite(real):
                raise self._not_json(f"is {real}, which JSON has no word for: return None or a text instead")
            return real
        return self._convert_nested(value)

    def _convert_nested(self, value: object) -> Any:
        """Convert a value that may hold others. Raises: NotJson: it holds itself, or is too deep."""
        if id(value) in self._ancestors:
            raise self._not_json("contains itself: return a copy without the cycle")
        if len(self._ancestors) >= DEPTH_MAX:
            raise NotJson(f"the result is nested more than {DEPTH_MAX} deep: return a flatter one")
        self._ancestors.add(id(value))
        try:
            return self._convert_by_type(value)
        finally:
            self._ancestors.discard(id(value))

    def _convert_by_type(self, value: object) -> Any:
        """Convert a container, or a value of a type that has a usual text. Raises: NotJson."""
        if isinstance(value, Mapping):
            self._count_container()
            return {
                self._convert_key(key): self._convert_part(f"[{_render_key(key)}]", item) for key, item in value.items()
            }
        if isinstance(value, list | tuple | range):
            return self._convert_list(value)
        if isinstance(value, set | frozenset):
            return self._convert_list(_sort_set(value))
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, PurePath):
            return clean(str(value))
        if isinstance(value, bytes | bytearray | memoryview):
            raise self._not_json("is bytes: return text, as with .decode() or base64")
        if isinstance(value, GeneratorType | AsyncGeneratorType):
            raise self._not_json("is a generator: return list(...) of it")
        if isinstance(value, CoroutineType):
            raise self._not_json("is a coroutine that was not awaited: make the function `async def` and await it")
        return self._convert_object(value)

    def _convert_object(self, value: object) -> Any:
        """Convert an object of a class. Raises: NotJson."""
        if not isinstance(value, type):
            if dataclasses.is_dataclass(value):
                self._count_container()
                names = [field.name for field in dataclasses.fields(value)]
                return {name: self._convert_part(f".{name}", getattr(value, name)) for name in names}
            if callable(dump := getattr(value, "model_dump", None)):
                return self.convert(dump(mode="json"))
            if type(value).__module__.split(".")[0] == "numpy" and callable(to_list := getattr(value, "tolist", None)):
                return self.convert(to_list())
        for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction")):
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None and isinstance(value, kind):
                return str(value)
        raise self._not_json(f"is {_describe_type(type(value).__name__)}, which JSON has no form for: {_WHAT_HELPS}")

    def _convert_list(self, values: Iterable[object]) -> list[Any]:
        """The values as a list with plain types only. Raises: NotJson."""
        self._count_container()
        return [self._convert_part(f"[{number}]", item) for number, item in enumerate(values)]

    def _count_container(self) -> None:
        """Count a list or dict. Raises: NotJson: the result has too many."""
        self._containers += 1
        if self._containers > CONTAINERS_MAX:
            raise NotJson(f"the result holds more than {CONTAINERS_MAX:,} lists and dicts: return fewer, or text")

    def _convert_part(self, step: str, value: object) -> Any:
        """Convert a part of the current value, to which `step` leads, such as `[3]` or `.name`. Raises: NotJson."""
        self._path.append(step)
        plain = self.convert(value)
        self._path.pop()
        return plain

    def _convert_key(self, key: object) -> str:
        """The key of a dict as text, as JSON writes it. Raises: NotJson."""
        if isinstance(key, Enum):
            key = key.value
        if isinstance(key, str):
            self._bytes_left -= len(key)
            return clean(str.__str__(key))
        if key is None or isinstance(key, bool | int | float):
            return json.dumps(key)
        raise self._not_json(f"has a key that is {_describe_type(type(key).__name__)}: use text as keys")

    def _not_json(self, problem: str) -> NotJson:
        """The error about the part at the current path; `problem` goes on after it: "is bytes"."""
        path = "".join(self._path)
        place = f"the result{path}" if len(path) <= 5 * NAME_CHARS else "a part of the result"
        return NotJson(f"{clean(place)} {problem}")


def _sort_set(values: Iterable[object]) -> list[object]:
    """Return a set as a list in a stable order, if its values can be sorted."""
    items = list(values)
    order: Callable[[Any], Any] = str if any(isinstance(value, str) for value in items) else lambda value: value
    try:
        return sorted(items, key=order)
    except Exception:
        return items


def _render_key(key: object) -> str:
    """The key of a dict for the path in an error, shortened."""
    text = repr(key) if isinstance(key, str | int | float) else type(key).__name__
    return text if len(text) <= NAME_CHARS else f"{text[:NAME_CHARS]}…"


def _describe_type(name: str) -> str:
    return f"an object of type {clean(name)[:NAME_CHARS]}"


PARTS_MAX = 5
PART_CHARS = 600
GROUP_DEPTH = 3


def describe_error(error: BaseException, describe_one: Callable[[BaseException], str], depth: int = 0) -> str:
    """Describe an exception in one line by `describe_one`; of a group, its first part, `depth` groups deep."""
    text = describe_one(error)
    if not isinstance(error, BaseExceptionGroup) or depth == GROUP_DEPTH:
        return text
    parts = [describe_error(part, describe_one, depth + 1)[:PART_CHARS] for part in error.exceptions[:PARTS_MAX]]
    more = len(error.exceptions) - len(parts)
    return f"{text[:PART_CHARS]}: [{'; '.join(parts)}{f'; and {more} more' if more else ''}]"
