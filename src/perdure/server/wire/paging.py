"""Pages of lists: `limit`, `order`, `before` and `after` as clients send them.

A page is a bare JSON array. A client asks for the next one with `after=<id of the last item>`, or backwards with
`before=<id of the first item>`, until a page is empty. Both are relative to the asked order: `after` is what comes
later in the list as it is shown, whichever way it is sorted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from perdure.library.checks import LIMIT_MAX
from perdure.library.paging import Page
from perdure.server.ids import IdFormat

Order = Literal["asc", "desc"]
Limit = Annotated[int | None, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]


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
