"""Tables without lines, as all commands print them."""

from __future__ import annotations

from collections.abc import Container, Mapping

from rich.table import Table


def new_table(
    *columns: str,
    right: Container[str] = (),
    styles: Mapping[str, str] | None = None,
    head: bool = True,
) -> Table:
    """A table of these columns.

    Args:
        right: the columns of numbers, which are aligned to the right and never broken.
        styles: column -> style of its cells.
        head: whether the names of the columns stand above them.
    """
    table = Table(box=None, show_header=head and any(columns), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        style, number = (styles or {}).get(name), name in right
        table.add_column(name, style=style, overflow="fold", justify="right" if number else "left", no_wrap=number)
    return table
