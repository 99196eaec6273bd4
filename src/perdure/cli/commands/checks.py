"""The checks of `perdure doctor`, and how they are shown to people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from perdure.cli.views.view import visible
from perdure.core.tools.pip_line import NAMED_HERE

UPGRADED = "when it is opened"
"""Stands in what is said of a store of an older version."""

Status = Literal["ok", "note", "broken"]

_SIGNS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Args:
        status: "note" is worth knowing, or not set up; "broken" makes the exit code 1.
        fix: what to do; empty if there is nothing to do.
    """

    name: str
    status: Status
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class _Hanging:
    """A text with a hanging indent: wrapped lines begin below the body, not below the head."""

    head: Text
    body: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(20, options.max_width - self.head.cell_len)
        for number, line in enumerate(self.body.wrap(console, width)):
            yield Text.assemble(self.head if number == 0 else " " * self.head.cell_len, line)


def _with_python(text: str) -> str:
    """A text with the interpreter's path, where others are referred to these checks for it."""
    return text.replace(NAMED_HERE, "").replace("`PYTHON ", f"`{sys.executable} ")


def checks_view(checks: Sequence[Check]) -> Iterator[RenderableType]:
    """A line for each check, its fix below it, and the result of all at the end."""
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        sign, style = _SIGNS[check.status]
        name = Text(f"{check.name:<{width}}  ", style="bold" if check.status == "broken" else "")
        yield _Hanging(Text.assemble((f"{sign} ", style), name), Text(visible(_with_python(check.text))))
        if check.fix:
            yield Padding(Text(f"→ {visible(_with_python(check.fix))}", style="cyan"), (0, 0, 0, width + 4))
    broken = sum(check.status == "broken" for check in checks)
    if broken:
        yield Text(f"{broken} {'thing is' if broken == 1 else 'things are'} broken.", style="bold red")
    else:
        yield Text("All is well.", style="green")
