"""Checks of arguments, made before the store is read; and pages of lists, for everybody who shows a list in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import DEFAULT_USER
from perdure.core.incoming.principals import current_principal as current_principal
from perdure.core.text.forms import in_name_form as in_name_form
from perdure.core.text.forms import name_form as name_form


def outside(otherwise: str = DEFAULT_USER) -> Author:
    """Return the author of a change that no agent makes: the current request's user, else its key, else `otherwise`."""
    principal = current_principal.get()
    return Author(kind="user", id=principal.user_id or principal.key_id or otherwise)


LIMIT_MAX = 10_000
"""The most items of one page or search: it is in memory as a whole."""

NUMBER_MAX = 2**63 - 1  # what an integer column holds


def check_limit(limit: int) -> None:
    """Check that the limit is a number from 1 to 10,000. Raises: InvalidInput."""
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit is {limit!r:.80}: give a number from 1 to {LIMIT_MAX:,}, and read page by page")


def check_page(page: Page, **texts: Any) -> None:
    """Check the limit and the cursors of a page, and that `texts` are texts or None. Raises: InvalidInput."""
    check_limit(page.limit)
    for name, value in {**texts, "after": page.after, "before": page.before}.items():
        if value is not None:
            check_text(name, value)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that the value is one of `choices`. Raises: InvalidInput."""
    if value not in choices:
        raise InvalidInput(f"{name} is {value!r:.80}: it can be {', '.join(map(repr, choices))}")


def check_text(name: str, value: Any) -> None:
    """Check that the value is a text. Raises: InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r:.80}: give a text")


def check_number(name: str, value: Any) -> None:
    """Check that the value is a whole number that the store can compare, or None. Raises: InvalidInput."""
    if value is not None and (type(value) is not int or abs(value) > NUMBER_MAX):
        raise InvalidInput(f"{name} is {value!r:.80}: give a whole number of at most {NUMBER_MAX:,}")


def utc(name: str, moment: datetime | None) -> datetime | None:
    """The moment in UTC, as the store compares them: as text. Raises: InvalidInput: no time, or one without a zone."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{name} is {moment!r:.80}: give a datetime with a zone, such as tzinfo=datetime.UTC")
    if moment.utcoffset() is None:
        raise InvalidInput(f"{name} is {moment}, a time without a zone: add one, such as tzinfo=datetime.UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"{name} is {moment}: in UTC this is before the year 1 or after 9999") from error


T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: at most `limit` items, in ascending or descending order of creation.

    Args:
        after: the id of the item before the page.
        before: the id of the item behind it. Without `after`, the page is the last `limit` items before this one.
    """

    limit: int
    ascending: bool
    after: str | None = None
    before: str | None = None

    @property
    def from_end(self) -> bool:
        """Whether the page is read from its end: only the item behind it is known."""
        return self.before is not None and self.after is None

    @property
    def arguments(self) -> dict[str, Any]:
        """The page as the `page` verbs of a transaction take it."""
        return {"ascending": self.ascending, "limit": self.limit, "after": self.after, "before": self.before}

    def load(self, query: Callable[..., Sequence[T]], place_of: Callable[[str], K]) -> Sequence[T]:
        """The items of this page.

        Args:
            query: loads items; it takes `above` and `below`, places between which they are, both excluded,
                `newest_first` and `limit`.
            place_of: an item's id -> its place in the order of creation.
        """
        after, before = (None if cursor is None else place_of(cursor) for cursor in (self.after, self.before))
        above, below = (after, before) if self.ascending else (before, after)
        newest_first = self.ascending is self.from_end
        found = query(above=above, below=below, newest_first=newest_first, limit=self.limit)
        return found[::-1] if self.from_end else found

    def select_shown(self, shown: Iterable[Sequence[T]], *, id_of: Callable[[T], str]) -> list[T]:
        """Return the items of this page. `shown`: one list of items for each message, oldest first; the items of a
        message are not split over pages. Raises: NotFound, as `select`."""
        groups = self.select(list(filter(None, shown)), kind="message", id_of=lambda group: id_of(group[0]))
        return [one for group in groups for one in (group if self.ascending else reversed(group))]

    def select(self, items: Sequence[T], *, kind: str, id_of: Callable[[T], str]) -> list[T]:
        """The items of this page. `items` is the whole list, oldest first.

        Raises: NotFound: `after` or `before` is not in the list; the message calls its items `kind`.
        """
        ordered = list(items) if self.ascending else list(reversed(items))
        places = {id_of(item): place for place, item in enumerate(ordered)}
        for name, cursor in (("after", self.after), ("before", self.before)):
            if cursor is not None and cursor not in places:
                raise NotFound(kind, cursor, hint=f"`{name}` must be one of the list")
        first = 0 if self.after is None else places[self.after] + 1
        end = len(ordered) if self.before is None else places[self.before]
        if self.before is not None and self.after is None:
            first = max(first, end - self.limit)
        return ordered[first : min(end, first + self.limit)]
