"""Pages of lists, for everybody who shows a list in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perdure.core.errors import NotFound

__all__ = ["Page"]

T = TypeVar("T")


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
