"""Checks of values from outside before they are stored; each error says what would do instead. And batches of texts
that one transaction writes or deletes; other writers wait for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.incoming.limits import Limits
from perdure.core.text.reprs import describe_value

T = TypeVar("T")
A = TypeVar("A")


def as_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags as a tuple. Raises: InvalidInput: no list, or an item that is no text."""
    if not isinstance(tags, list | tuple | set | frozenset) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput(f"tags are {tags!r:.80}: give a list of texts, such as ['travel']")
    return tuple(tags)


def filter_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a filter, stripped as passages store them.

    An empty tag stays and matches no passage; without it the filter would match more than its caller meant.
    Raises: InvalidInput: no list, or an item that is no text.
    """
    return tuple(tag.strip() for tag in as_tags(tags))


def is_there(get: Callable[[A], object], id_: A) -> bool:
    """Return whether `get(id_)` finds a thing, and does not raise NotFound."""
    try:
        get(id_)
    except NotFound:
        return False
    return True


def check_fields(owner: str, changes: Iterable[str], fields: Iterable[str]) -> None:
    """Check that `changes` name only `fields`; `owner` is what is changed, as "an agent". Raises: InvalidInput."""
    fields = list(fields)
    if unknown := [name for name in changes if name not in fields]:
        raise InvalidInput(f"{owner} has no field {', '.join(unknown)} to change: there are {', '.join(fields)}")


def check_names(owner: str, value: Mapping[str, Any], kind: Any) -> None:
    """Check that the setting `owner` has only fields of the dataclass `kind`. Raises: InvalidInput."""
    names = [field.name for field in fields(kind)]
    if unknown := [one for one in value if one not in names]:
        raise InvalidInput(f"{owner} has no {', '.join(map(repr, unknown))}: there are {', '.join(names)}")


def read_object(name: str, settings: Mapping[str, Any], kind: type[T], helps: str = "") -> T | None:
    """Return the object setting `name` as dataclass `kind`; `helps`: hint for errors. Raises: InvalidInput."""
    if (value := settings.get(name)) is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} is {value!r:.80}: give an object with its fields{helps}")
    check_fields(name, value, [field.name for field in fields(kind)])  # type: ignore[arg-type]
    return kind(**value)


def check_short_text(name: str, value: Any, most: int, *, may_be_none: bool = True) -> None:
    """Check that a value is a text of at most `most` characters; `name` is its field. Raises: InvalidInput."""
    if value is None and may_be_none:
        return
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r:.80}: give a text")
    if len(value) > most:
        raise InvalidInput(f"{name} has {len(value):,} characters: at most {most:,} are kept")


def check_json(name: str, value: Any) -> None:
    """Check that the value of the field `name` is a JSON object that the store can keep.

    Raises: InvalidInput: no mapping, values that JSON does not have (NaN, Infinity), a number of more than 4,300
        digits, or nesting that is too deep.
    """
    try:
        if isinstance(value, Mapping):
            json.dumps(dict(value), allow_nan=False)
            return
        why = ""
    except (TypeError, ValueError, RecursionError) as error:
        why = " (it is nested too deep)" if isinstance(error, RecursionError) else f" ({error!s:.120})"
    raise InvalidInput(
        f"{name} is {describe_value(value)}{why}: give names with JSON values, such as {{'team': 'red'}}"
    )


def check_range(name: str, value: Any, least: float, most: float, *, whole: bool = True) -> None:
    """Check that the field `name` is a number, if `whole` a whole one, from `least` to `most`. Raises: InvalidInput."""
    kind = int if whole else int | float
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
        number = "whole number" if whole else "number"
        raise InvalidInput(f"{name} is {describe_value(value)}: give a {number} from {least:,} to {most:,}")


def check_item_limits(
    limits: Limits,
    *,
    tags: Sequence[str] = (),
    names: Mapping[str, str | None] | None = None,
    description: str | None = None,
    **values: Any,
) -> None:
    """Check the sizes of one item: `names` are field -> name, `values` JSON such as metadata. Raises: TooMany."""
    limits.check("tags_per_item", len(tags))
    limits.check("name_limit_chars", max(map(len, tags), default=0), field="tags")
    for field, name in (names or {}).items():
        limits.check("name_limit_chars", len(name or ""), field=field)
    limits.check("description_limit_chars", len(description or ""))
    for value in values.values():
        if value:
            limits.check("metadata_limit_chars", len(json.dumps(value)))


BATCH = 500
"""The most texts of one transaction."""

BATCH_CHARS = 250_000
"""The most characters of one transaction: indexing a million takes 0.5 s."""


class HasText(Protocol):
    """A passage or a message."""

    @property
    def text(self) -> str:
        """The text."""


OfText = TypeVar("OfText", bound=HasText)


def batches(items: Iterable[OfText]) -> Iterator[list[OfText]]:
    """Yield the items in order, in batches of at least one item that one transaction may write."""
    batch: list[OfText] = []
    chars = 0
    for item in items:
        if batch and (len(batch) == BATCH or chars + len(item.text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(item)
        chars += len(item.text)
    if batch:
        yield batch
