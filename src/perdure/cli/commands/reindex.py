"""`perdure reindex`: have every text get its vector from the embedder in use, and watch it happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.core.errors import InvalidInput, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.upkeep import Progress, Reindexed
from perdure.settings import Settings

__all__ = ["progress_bar", "reindex"]


async def reindex(*, archive: str | None, agent: str | None, again: bool) -> int:
    """Queue what has no vector of this embedder, and wait for it; the exit code."""
    out, err = standard_streams()
    terminal = Terminal(out, err, interactive=False)
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise InvalidInput(f"there is no store yet at {settings.store_path}: nothing to embed")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            owners: list[str] = [] if archive is None else [(await perdure.archives.get(archive)).id]
            owners += [] if agent is None else [(await perdure.agent(agent)).id]
            began = time.monotonic()
            try:
                with progress_bar(shown=err.isatty()) as progress:
                    found = await perdure.services.upkeep.reindex(owners, again=again, progress=progress)
            except asyncio.CancelledError:
                terminal.hint(
                    "Stopped. What is done stays; `perdure reindex` goes on, and so does any process with the store."
                )
                raise
            return _show(terminal, found, seconds=time.monotonic() - began)
    except PerdureError as error:
        terminal.error(str(error))
        return 1


def _show(terminal: Terminal, found: Reindexed, *, seconds: float) -> int:
    """Show how far the embedder is; the exit code."""
    from rich.text import Text

    count, made = sum(one.scope.row_count for one in found.counts), found.made
    failed = [one for one in found.counts if one.failed]
    rate = f", {made:,} of them now ({made / max(seconds, 0.001):,.0f} a second)" if made > 0 else ""
    terminal.show(Text(f"{count:,} text{'' if count == 1 else 's'} with a vector of {found.model}{rate}."))
    for one in failed:
        terminal.error(f"{one.failed:,} of {one.scope.owner_id} could not be embedded: {one.failure}")
    if failed:
        terminal.hint("They are found by their words; `perdure reindex` tries them again.")
    return int(bool(failed))


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Progress]:
    """A line of progress on stderr, where a person watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), disable=not shown, transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield show
