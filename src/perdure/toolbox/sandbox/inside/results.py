"""What a tool returned, as JSON can hold it; or one sentence on why it can't."""

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
"""As in a request's body: whoever parses more is held up for too long."""

INTEGER_BITS_MAX = 14_000  # some 4,200 digits: Python refuses to read more
SHOWN_CHARS = 60

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WHAT_HELPS = "return text, numbers, True, False, None, lists or dicts"


class Unfit(Exception):
    """A value that JSON can't hold; the text says what, where, and what helps."""


def clean(text: str) -> str:
    """The text without what breaks readers: lone surrogates, and control characters but tab and line breaks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub("\ufffd", text)


def to_json(value: object, *, bytes_max: int) -> Any:
    """The same value of plain types. Dataclasses, pydantic models, sets, dates, enums, paths are turned into those.

    Raises: Unfit: something in it has no such form, or it is larger than `bytes_max` as JSON.
    """
    try:
        plain = _Walk(bytes_max).plain(value)
        size = len(json.dumps(plain, ensure_ascii=False).encode())
    except Unfit:
        raise
    except RecursionError:
        raise Unfit(f"the result is nested too deeply: {_WHAT_HELPS}") from None
    except MemoryError:
        raise
    except BaseException as error:  # a property, __iter__ or model_dump of the tool's own class
        raise Unfit(f"the result can't be read: reading it raised {type(error).__name__}; {_WHAT_HELPS}") from None
    if size > bytes_max:
        raise Unfit(_too_large(bytes_max))
    return plain


def _too_large(bytes_max: int) -> str:
    return f"the result is larger than {bytes_max:,} bytes as JSON: return less, or a part of it"


class _Walk:
    def __init__(self, bytes_max: int) -> None:
        self._left = self._bytes_max = bytes_max  # each value takes at least one byte
        self._containers = 0
        self._open: set[int] = set()
        self._path: list[str] = []  # to the value that is looked at, put together only for an error

    def plain(self, value: object) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Unfit(_too_large(self._bytes_max))
        if isinstance(value, Enum):
            return self.plain(value.value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self._left -= len(value)
            return clean(str.__str__(value))
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            number = float(value)
            if not math.isfinite(number):
                raise self._unfit(f"is {number}, which JSON has no word for: return None or a text instead")
            return number
        return self._nested(value)

    def _integer(self, value: int) -> int:
        number = int(value)
        if number.bit_length() > INTEGER_BITS_MAX:
            raise self._unfit("is an integer of more than 4,000 digits: return it as text")
        return number

    def _nested(self, value: object) -> Any:
        if id(value) in self._open:
            raise self._unfit("contains itself: return a copy without the cycle")
        if len(self._open) >= DEPTH_MAX:
            raise Unfit(f"the result is nested more than {DEPTH_MAX} deep: return a flatter one")
        self._open.add(id(value))
        try:
            return self._of_type(value)
        finally:
            self._open.discard(id(value))

    def _of_type(self, value: object) -> Any:
        if isinstance(value, Mapping):
            self._count_container()
            return {self._key(key): self._at(f"[{_shown(key)}]", item) for key, item in value.items()}
        if isinstance(value, list | tuple | range):
            return self._list(value)
        if isinstance(value, set | frozenset):
            return self._list(_ordered(value))
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, PurePath):
            return clean(str(value))
        if isinstance(value, bytes | bytearray | memoryview):
            raise self._unfit("is bytes: return text, as with .decode() or base64")
        if isinstance(value, GeneratorType | AsyncGeneratorType):
            raise self._unfit("is a generator: return list(...) of it")
        if isinstance(value, CoroutineType):
            raise self._unfit("is a coroutine that was not awaited: make the function `async def` and await it")
        return self._object(value)

    def _object(self, value: object) -> Any:
        if not isinstance(value, type):
            if dataclasses.is_dataclass(value):
                self._count_container()
                names = [field.name for field in dataclasses.fields(value)]
                return {name: self._at(f".{name}", getattr(value, name)) for name in names}
            if callable(dump := getattr(value, "model_dump", None)):
                return self.plain(dump(mode="json"))
            if type(value).__module__.split(".")[0] == "numpy" and callable(to_list := getattr(value, "tolist", None)):
                return self.plain(to_list())
        for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction")):
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None and isinstance(value, kind):
                return str(value)
        raise self._unfit(f"is {_article(type(value).__name__)}, which JSON has no form for: {_WHAT_HELPS}")

    def _list(self, values: Iterable[object]) -> list[Any]:
        self._count_container()
        return [self._at(f"[{number}]", item) for number, item in enumerate(values)]

    def _count_container(self) -> None:
        self._containers += 1
        if self._containers > CONTAINERS_MAX:
            raise Unfit(f"the result holds more than {CONTAINERS_MAX:,} lists and dicts: return fewer, or text")

    def _at(self, step: str, value: object) -> Any:
        self._path.append(step)
        plain = self.plain(value)
        self._path.pop()
        return plain

    def _key(self, key: object) -> str:
        if isinstance(key, Enum):
            key = key.value
        if isinstance(key, str):
            self._left -= len(key)
            return clean(str.__str__(key))
        if key is None or isinstance(key, bool | int | float):
            return json.dumps(key)
        raise self._unfit(f"has a key that is {_article(type(key).__name__)}: use text as keys")

    def _unfit(self, what: str) -> Unfit:
        where = "".join(self._path)
        place = f"the result{where}" if len(where) <= 5 * SHOWN_CHARS else "a part of the result"
        return Unfit(f"{clean(place)} {what}")


def _ordered(values: Iterable[object]) -> list[object]:
    """A set in an order that is the same each time, where its values have one."""
    found = list(values)
    order: Callable[[Any], Any] = str if any(isinstance(value, str) for value in found) else lambda value: value
    try:
        return sorted(found, key=order)
    except Exception:
        return found


def _shown(key: object) -> str:
    text = repr(key) if isinstance(key, str | int | float) else type(key).__name__
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _article(name: str) -> str:
    return f"an object of type {clean(name)[:SHOWN_CHARS]}"
