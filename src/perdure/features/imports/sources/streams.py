"""JSON of any size, read one item at a time; errors name the file, and the line and byte of it."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Any, TypeVar

from perdure.core.errors import InvalidInput
from perdure.core.incoming.json_limits import JsonLimits, check_json, parse_json
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Omission
from perdure.features.imports.sources.kinds import missing_file
from perdure.features.imports.sources.plain import object_in, time_of

ODD = "items that can't be read, the first: {first!s:.200}"
OLDER = "things that are there once more, changed later"
JSON = ["*.json"]

T = TypeVar("T")
Item = tuple[Any, str, datetime]
"""A value, the name of its file, and when that was changed."""
CHUNK_BYTES = 1 << 20
ITEM_BYTES = 64 << 20
"""The longest item of a list."""
_ITEM = JsonLimits(size_bytes=ITEM_BYTES, containers=1_000_000)
_WHOLE = JsonLimits(size_bytes=256 << 20, containers=3_000_000)
_LINE = JsonLimits(size_bytes=16 << 20)
_NEAR_END = 32
"""A parser that stops so near to the end of what was read may only lack the rest."""
_CLOSERS = " \t\r\n,"

_DECODER = json.JSONDecoder(strict=False)


def each_item(files: SourceFiles, patterns: Sequence[str], wanted: str, keys: Sequence[str] = ()) -> Iterator[Item]:
    """Yield (item, name of its file, when that was changed) of the files with names of these forms, as `json_items`.
    Raises: InvalidInput: there is no such file; `wanted` says which."""
    if not (names := files.find(*patterns)):
        raise missing_file(files.label, wanted)
    for name in names:
        at = files.modified_at(name)
        for item in json_items(files, name, *keys):
            yield item, name, at


def read_each(
    items: Iterable[Item], read: Callable[[Any, str, datetime], Iterable[T]], *, is_strict: bool = False
) -> Iterator[T | Omission]:
    """Yield the result of `read` for each item. A refused item becomes a `Omission`, unless all are refused or
    `is_strict`. Raises: InvalidInput."""
    first: InvalidInput | None = None
    is_right, odd = False, 0
    for value, name, at in items:
        try:
            found = [*read(value, name, at)]
        except (InvalidInput, ValueError, TypeError, LookupError, AttributeError) as error:
            why = str(error) if isinstance(error, (InvalidInput, ValueError)) else "its fields have other forms"
            first, odd = first or InvalidInput(why if name in why else f"{name}: {why:.300}"), odd + 1
            if is_strict:
                raise first from error
            continue
        is_right = True
        yield from found
    if first is not None and not is_right:
        raise first
    if first is not None:
        yield Omission(ODD.format(first=first), odd)


def read_newest(
    files: SourceFiles,
    patterns: Sequence[str],
    items: Callable[[], Iterator[Item]],
    read: Callable[[Any, str, datetime], Iterable[T]],
    id_of: Callable[[Mapping[str, Any]], Any],
    *times: str,
) -> Iterator[T | Omission]:
    """Yield as `read_each` does, but of items with one id only the newest, as a folder may hold two downloads.

    Args:
        id_of: the id of an item; nothing: it is read in any case.
        times: the fields that say when it was changed; else the file's time counts, then the order.
    Raises: InvalidInput.
    """
    newest: dict[str, tuple[datetime, datetime, int]] = {}
    older: set[int] = set()
    for place, (value, _, at) in enumerate(items() if len(files.find(*patterns)) > 1 else ()):
        fields = object_in(value)
        if not (id_ := id_of(fields)):
            continue
        changed = next(filter(None, (time_of(fields.get(name)) for name in times)), datetime.min.replace(tzinfo=UTC))
        this = (changed, at, place)
        first, last = sorted((newest.get(str(id_), this), this))
        if first != last:
            older.add(first[2])
        newest[str(id_)] = last
    yield from read_each((one for place, one in enumerate(items()) if place not in older), read)
    yield Omission(OLDER, len(older))


def json_items(files: SourceFiles, name: str, *keys: str) -> Iterator[Any]:
    """Yield the items of a JSON list; of an object, the items of the list under the first of `keys` that it has, else
    the object itself. Raises: InvalidInput."""
    with files.open(name) as file:
        text = _TextStream(file, name)
        start = text.skip(" \t\r\n")
        if start == "[":
            yield from text.items()
            if text.skip(_CLOSERS):
                raise text.error("there is more behind the list")
            return
        if start != "{":
            raise text.error("it is not JSON" if start else "it is empty")
    data = files.read(name, _WHOLE.size_bytes)
    value = _parse(data.removeprefix(codecs.BOM_UTF8), _WHOLE, name, 0, 1)
    found = next((value[key] for key in keys if isinstance(value.get(key), list)), None)
    yield from [value] if found is None else found


def json_lines(files: SourceFiles, name: str, *, is_own: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield (number from 1, value) of each line that is not blank. Raises: InvalidInput."""
    limits = _WHOLE if is_own else _LINE
    with files.open(name) as file:
        start = 0
        for number, line in enumerate(iter(lambda: file.readline(limits.size_bytes + 2), b""), 1):
            data = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if data.strip():
                yield number, _parse(data, limits, name, start, number)
            start += len(line)


def _parse(data: bytes, limits: JsonLimits, name: str, start: int, line: int) -> Any:
    """Return the value of JSON that begins at this byte and line of a file. Raises: InvalidInput."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: byte {start + error.start + 1:,} (line {line:,}) is not UTF-8") from error
    try:
        return parse_json(text, limits)
    except json.JSONDecodeError as error:
        at = start + len(text[: error.pos].encode())
        where = f"line {line + error.lineno - 1:,}, byte {at + 1:,}"
        raise InvalidInput(f"{name}: {where}: {_json_problem(error, len(text))}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: line {line:,}: {error!s:.200}") from error


def _json_problem(error: json.JSONDecodeError, end: int) -> str:
    """Say what is wrong with a text of `end` characters."""
    if error.pos >= end or error.msg.startswith("Unterminated"):
        return "it ends in the middle; get the file once more"
    return f"it is not JSON ({error.msg})"


class _TextStream:
    """The text of a file as far as it was read and not taken yet: `pending` from `at` on."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._pending, self._at, self._ended = "", 0, False
        self._bytes = self._lines = self._read = 0  # before `pending`, and read

    def skip(self, chars: str) -> str:
        """Skip these characters; return the next one, empty at the end. Raises: InvalidInput."""
        while True:
            while self._at < len(self._pending):
                if self._pending[self._at] not in chars:
                    return self._pending[self._at]
                self._at += 1
            if not self._fill():
                return ""

    def items(self) -> Iterator[Any]:
        """Yield the items of the list that begins here. Raises: InvalidInput."""
        self._at += 1
        while (start := self.skip(_CLOSERS)) != "]":
            if not start:
                raise self.error("it ends in the middle; get the file once more")
            yield self._item()
        self._at += 1

    def error(self, why: str, at: int | None = None) -> InvalidInput:
        """Return an error about the text at this place of `pending`."""
        before = self._pending[: self._at if at is None else at]
        line = self._lines + before.count("\n") + 1
        byte = self._bytes + len(before.encode("utf-8", "surrogatepass")) + 1
        return InvalidInput(f"{self._name}: line {line:,}, byte {byte:,}: {why}")

    def _item(self) -> Any:
        """Return the item that begins here. Raises: InvalidInput."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._pending, self._at)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated")
                if not self._ended and (is_open or error.pos >= len(self._pending) - _NEAR_END):
                    self._fill(len(self._pending) - self._at)
                    continue
                raise self.error(_json_problem(error, len(self._pending.rstrip())), error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.error(f"an item can't be read: {error!s:.100}") from error
            if end > len(self._pending) - _NEAR_END and not self._ended:
                self._fill()  # of a number there may be more
                continue
            self._at = end
            return value

    def _fill(self, least: int = 0) -> bool:
        """Drop what was consumed, read at least so many more bytes; return False at the end. Raises: InvalidInput."""
        if self._ended:
            return False
        taken = self._pending[: self._at]
        self._bytes += len(taken.encode("utf-8", "surrogatepass"))
        self._lines += taken.count("\n")
        self._pending, self._at = self._pending[self._at :], 0
        if least > CHUNK_BYTES:
            try:
                check_json(self._pending.encode("utf-8", "surrogatepass"), _ITEM)
            except ValueError as error:
                raise self.error(f"an item is {error}") from error
        data, held = self._file.read(max(least, CHUNK_BYTES)), len(self._decoder.getstate()[0])
        self._ended = not data
        try:
            self._pending += self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{self._name}: byte {self._read - held + error.start + 1:,} is not UTF-8") from error
        self._read += len(data)
        return not self._ended
