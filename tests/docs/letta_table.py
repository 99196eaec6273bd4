"""The operations that docs/letta-compat.md lists as not answered, made from the routes.

`python -m tests.docs.letta_table` writes it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import Literal

from starlette.routing import Route, compile_path

from perdure.server.serving.absent import ABSENT
from perdure.server.serving.app import build_routes
from tests.docs.markdown import ROOT
from tests.wire.sdk import Operation, operations

PAGE = ROOT / "docs" / "letta-compat.md"
BEGIN, END = "<!-- operations begin -->\n", "<!-- operations end -->"

State = Literal["answered", "cloud", "open"]
WORDS: dict[State, str] = {"answered": "answered", "cloud": "of Letta's cloud only", "open": "open"}


def state_of(operation: Operation) -> State:
    """Whether the server answers an operation of the client, refuses it because it is the cloud's, or lacks it."""
    if any(compile_path(path)[0].match(operation.path) for path in ABSENT):
        return "cloud"
    return "answered" if f"{operation.method} {_plain(operation.path)}" in _answered() else "open"


@functools.cache
def _answered() -> frozenset[str]:
    """`METHOD path` of every route."""
    routes = [route for route in build_routes() if isinstance(route, Route) and route.include_in_schema]
    return frozenset(f"{method} {_plain(route.path)}" for route in routes for method in route.methods or ())


def _plain(path: str) -> str:
    """A path without the names of its parameters and without its final slash."""
    return re.sub(r"\{[^}]*\}", "{}", path.rstrip("/"))


def table() -> str:
    """The totals, and a row for each operation that is not answered, in Markdown."""
    rows = [(operation, state_of(operation)) for operation in operations()]
    totals = Counter(state for _, state in rows)
    count = ", ".join(f"{totals[state]} {word}" for state, word in WORDS.items() if totals[state])
    lines = [f"{len(rows)} operations: {count}. These are not answered:", "", "| operation | route |", "|---|---|"]
    lines += [f"| `{one.name}` | `{one.method} {one.path}` |" for one, state in rows if state != "answered"]
    return "\n".join(lines) + "\n"


def rewrite(page: str) -> str:
    """The page with the table as it is now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for the table"
    return before + begin + table() + end + after


def main(page: Path = PAGE) -> None:
    page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
