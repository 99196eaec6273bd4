"""Tables without lines, as all commands print them."""

from __future__ import annotations

from collections.abc import Container

from rich.table import Table


def new_table(*columns: str, right: Container[str] = ()) -> Table:
    """A table with these column heads, none without columns; the columns in `right` are aligned to the right."""
    table = Table(box=None, show_header=bool(columns), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return table
