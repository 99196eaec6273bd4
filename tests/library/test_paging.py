"""Pages of lists: loaded by places in an order, they are the pages of the whole list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from perdure.library.parts.checks import Page

ITEMS = [f"item-{number}" for number in range(5)]


def query(*, above: int | None, below: int | None, newest_first: bool, limit: int) -> Sequence[str]:
    """As the lists of a transaction read."""
    found = [
        item
        for place, item in enumerate(ITEMS)
        if (above is None or place > above) and (below is None or place < below)
    ]
    return (found[::-1] if newest_first else found)[:limit]


def test_a_loaded_page_is_the_page_of_the_whole_list() -> None:
    """For every limit, order, and item before and behind the page."""
    cursors = [None, *ITEMS]
    pages = [Page(*values) for values in product((1, 2, 5, 9), (True, False), cursors, cursors)]

    assert [page for page in pages if page.load(query, ITEMS.index) != page.select(ITEMS, kind="item", id_of=str)] == []
