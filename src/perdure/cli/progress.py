"""Progress bars on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar for each task on stderr, which vanishes at the end; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        yield bars


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """One such bar: a function of the current step, how much of it is done, and how much there is."""
    with progress_bars() as bars:
        task = bars.add_task("", total=None)
        yield lambda step, done, total: bars.update(task, description=step, completed=done, total=total)
