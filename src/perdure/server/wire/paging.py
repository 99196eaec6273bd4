"""Pages of lists: `limit`, `order`, `before` and `after` as clients send them.

A page is a bare JSON array. A client asks for the next one with `after=<id of the last item>`, or backwards with
`before=<id of the first item>`, until a page is empty. Both are relative to the asked order: `after` is what comes
later in the list as it is shown, whichever way it is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Query

from perdure.core.errors import NotFound
from perdure.library.checks import LIMIT_MAX
from perdure.server.ids import IdFormat

__all__ = ["Limit", "Order", "Page", "pages"]

T = TypeVar("T")

Order = Literal["asc", "desc"]
Limit = Annotated[int | None, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]


@dataclass(frozen=True, slots=True)
class Page:
    """Which page is asked for: at most `limit` items in ascending or descending order of creation, those that follow
    `after` or, with `before` alone, those that lead up to it."""

    limit: int
    ascending: bool
    after: str | None = None
    before: str | None = None

    def of(self, items: Sequence[T], *, kind: str, id_of: Callable[[T], str]) -> list[T]:
        """The page of a list that is at hand as a whole, oldest first.

        Raises: NotFound: `after` or `before` is none of its items; `kind` is what they are called.
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


def pages(kind: str, *, limit: int, order: Order) -> Any:
    """The annotation `Annotated[Page, pages("block", limit=50, order="asc")]`: a page with these defaults.

    `kind` is a key of `core.ids.PREFIXES`. What is no number, no order or no id of this kind is refused with 422.
    `ascending` is the older name of `order`, which wins if both are given.
    """
    default_limit, default_order = limit, order
    cursor = Annotated[Annotated[str, IdFormat(kind)] | None, Query(description=f"The id of a {kind} of the list.")]

    def page(
        limit: Limit = None,
        order: Annotated[Order | None, Query()] = None,
        before: str | None = None,
        after: str | None = None,
        ascending: Annotated[bool | None, Query(deprecated=True)] = None,
    ) -> Page:
        shown = order or (default_order if ascending is None else ("asc" if ascending else "desc"))
        return Page(default_limit if limit is None else limit, shown == "asc", after, before)

    # Annotations are texts here, and FastAPI could not look a local name up in them.
    page.__annotations__ |= {"before": cursor, "after": cursor}
    return Depends(page)
