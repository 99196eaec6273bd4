"""One line of `perdure doctor`, and how all of them are shown to people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from perdure.cli.views.fold import visible

__all__ = ["Check", "Status", "checks_view"]

Status = Literal["ok", "note", "broken"]

_SIGNS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class Check:
    """What was found out about one thing.

    Args:
        status: "note" is something to know of, or that is not set up; "broken" makes the exit code 1.
        fix: what helps; empty where nothing needs help.
    """

    name: str
    status: Status
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class _Hanging:
    """A text behind its head, below which nothing stands where the text is wrapped."""

    head: Text
    body: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(20, options.max_width - self.head.cell_len)
        for number, line in enumerate(self.body.wrap(console, width)):
            yield Text.assemble(self.head if number == 0 else " " * self.head.cell_len, line)


def checks_view(checks: Sequence[Check]) -> Iterator[RenderableType]:
    """A line for each check, what helps under it, and the sum at the end."""
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        sign, style = _SIGNS[check.status]
        name = Text(f"{check.name:<{width}}  ", style="bold" if check.status == "broken" else "")
        yield _Hanging(Text.assemble((f"{sign} ", style), name), Text(visible(check.text)))
        if check.fix:
            yield Padding(Text(f"→ {visible(check.fix)}", style="cyan"), (0, 0, 0, width + 4))
    broken = sum(check.status == "broken" for check in checks)
    if broken:
        yield Text(f"{broken} {'thing is' if broken == 1 else 'things are'} broken.", style="bold red")
    else:
        yield Text("All is well.", style="green")
