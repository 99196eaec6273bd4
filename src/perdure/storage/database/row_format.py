"""How values are stored in columns, and dataclasses as rows; and the checksums of rows."""

from __future__ import annotations

import base64
import functools
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from perdure.core.errors import StoreDamaged
from perdure.core.text.forms import name_form
from perdure.core.text.json_strings import compact_json

K = TypeVar("K")
T = TypeVar("T")

Row = Sequence[Any]

DAMAGED_HELPS = "restore a backup by `perdure restore FILE`; `perdure store verify` tells what else is damaged"


# A text column of either database can't hold a lone surrogate, PostgreSQL's no NUL either. Both are written as an
# escape sequence, and the escape character itself doubled; all other text stands in the database as it is.
_ESCAPE = "\x1b"
_UNSTORABLE = re.compile("[\x00\x1b\ud800-\udfff]")
_ESCAPED = re.compile("\x1b(?:\x1b|([0-9a-f]{4}))")


def storable(text: str) -> str:
    """`text` as any text column can hold it; `restore` gives it back. Most texts come back as they are."""
    if "\x00" not in text and _ESCAPE not in text:
        if text.isascii():
            return text
        try:
            text.encode()
            return text
        except UnicodeEncodeError:
            pass
    return _UNSTORABLE.sub(lambda match: _ESCAPE * 2 if match[0] == _ESCAPE else f"{_ESCAPE}{ord(match[0]):04x}", text)


def stored_key(name: str) -> str:
    """An id, name, tag, label or key as its column holds it."""
    return storable(name_form(name))


def restore(text: str) -> str:
    """Undo `storable`: put the characters that a database can not hold back in place of their escapes."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPE, text)


def iso(at: datetime) -> str:
    """The time as sortable text, in UTC with microseconds."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def from_iso(text: str) -> datetime:
    """The time that a text, written by `iso`, stands for. Raises: StoreDamaged: it is no time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise StoreDamaged("the store is damaged: it contains a time that cannot be read: " + DAMAGED_HELPS) from error


def dump(value: Any) -> str:
    """Compact JSON, storable in any text column."""
    return storable(compact_json(value))


def dump_fields(value: Any) -> str:
    """The fields of a dataclass with slots as compact JSON, storable in any text column."""
    return dump({name: getattr(value, name) for name in value.__slots__})


def load(text: str) -> Any:
    """The inverse of `dump`. Raises: StoreDamaged."""
    if text == "{}":  # most columns of JSON are empty
        return {}
    try:
        return json.loads(restore(text))
    except ValueError as error:  # only what `dump` made is ever written
        raise StoreDamaged(f"a value of {len(text):,} characters is not JSON any more: {DAMAGED_HELPS}") from error


class Codec(NamedTuple):
    """How the values of a column are stored and loaded. None and `null` are stored as NULL, which loads as `null`."""

    store: Callable[[Any], Any]
    load: Callable[[Any], Any]
    null: Any = None


TEXT = Codec(storable, restore)
JSON = Codec(dump, load)
JSON_TUPLE = Codec(dump, lambda text: tuple(load(text)))
TIME = Codec(iso, from_iso)
FLAG = Codec(int, bool)
BYTES = Codec(lambda data: base64.b64encode(data).decode(), base64.b64decode)


_OF_TYPES: Mapping[str, Codec] = {
    "datetime": TIME,
    "str": TEXT,
    "bool": FLAG,
    "bytes": BYTES,
    "Mapping": JSON,
    "tuple": JSON_TUPLE,
}
"""How a field of a dataclass is stored by its type; those of other types as they are."""


_StorePlan: TypeAlias = tuple[Sequence[str], Callable[[Any], Sequence[Any]], Sequence[tuple[str, Codec]]]
"""The columns, what gets their values, and those with a codec."""


class RowFormat(Generic[T]):
    """The columns that hold a `T`, in order.

    Args:
        of: the dataclass; or what makes a `T` of the loaded values, by the names of their columns.
        codecs: codec -> the columns that are stored with it, separated by spaces; those of a dataclass by their types.
        columns: the names of the columns, separated by commas; by default the fields of the dataclass.
        attributes: column -> the path of attributes that it stores; other columns store the attribute of their name.
        build: makes a `T` of a dataclass, where columns are not its fields.
    """

    def __init__(
        self,
        of: Callable[..., T],
        codecs: Mapping[Codec, str] | None = None,
        *,
        columns: str = "",
        attributes: Mapping[str, str] | None = None,
        build: Callable[..., T] | None = None,
    ) -> None:
        types = {field.name: str(field.type) for field in fields(of)} if is_dataclass(of) else {}
        self._names = columns.split(", ") if columns else [*types]
        self.columns = ", ".join(self._names)
        self._build = build or of
        own = {name: codec for codec, names in (codecs or {}).items() for name in names.split()}
        assert own.keys() <= set(self._names), f"{own.keys()} are not all columns"
        plain = {name: type_.removesuffix(" | None").partition("[")[0] for name, type_ in types.items()}
        codecs_of = {name: own.get(name) or _OF_TYPES.get(plain.get(name, "")) for name in self._names}
        self._codecs = {name: codec for name, codec in codecs_of.items() if codec is not None}
        self._attributes = {name: (attributes or {}).get(name, name) for name in self._names}
        self._plans: dict[str, _StorePlan] = {}  # by the columns, which all stand in the code

    def columns_of(self, alias: str) -> str:
        """The columns, for a statement in which their table has this alias."""
        return f"{alias}.{self.columns.replace(', ', f', {alias}.')}"

    def params(self, value: T, columns: str | None = None) -> dict[str, Any]:
        """Column -> what it stores of a value, for all columns, or for `columns`, names separated by commas."""
        names, fields, codecs = self._plans.get(columns or self.columns) or self._plan(columns or self.columns)
        row = dict(zip(names, fields(value), strict=False))
        for name, codec in codecs:
            if (field := row[name]) is not None:
                row[name] = None if field == codec.null else codec.store(field)
        return row

    def _plan(self, columns: str) -> _StorePlan:
        """How these columns are stored, which is kept."""
        names = columns.split(", ")
        codecs = [(name, self._codecs[name]) for name in names if name in self._codecs]
        # The last name stands there again so that the getter returns a tuple also for a single column.
        fields = attrgetter(*[self._attributes[name] for name in (*names, names[-1])])
        plan = self._plans[columns] = names, fields, codecs
        return plan

    def read(self, row: Row) -> T:
        """The value that a row stores; columns behind those of this format are ignored. Raises: StoreDamaged."""
        fields = dict(zip(self._names, row, strict=False))
        for name, codec in self._codecs.items():
            field = fields[name]
            fields[name] = codec.null if field is None else codec.load(field)
        return self._build(**fields)

    def read_each(self, rows_by_key: Mapping[K, Sequence[Row]]) -> dict[K, Sequence[T]]:
        """Key -> the values that its rows store."""
        return {key: [self.read(row) for row in rows] for key, rows in rows_by_key.items()}


@functools.cache
def insert_into(table: str, columns: str) -> str:
    """The statement that inserts a row; each column's parameter has its name."""
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':{name}' for name in columns.split(', '))})"


@functools.cache
def assignments(columns: str) -> str:
    """The assignments of an update; each column's parameter has its name."""
    return ", ".join(f"{name} = :{name}" for name in columns.split(", "))


@dataclass(frozen=True, slots=True)
class ChecksumColumns:
    """A table whose rows have a checksum: the columns of its key, and the columns that the checksum covers.

    A database reports a page that it can't read, but not a changed letter. The columns never change, or change together
    with the checksum. Rows from before checksums existed have none.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]

    def of(self, row: Mapping[str, Any]) -> int:
        """The checksum of a stored row: CRC-32 of its values, separated by NUL, which no stored text contains."""
        return zlib.crc32("\0".join([str(row[column]) for column in self.columns]).encode())
