"""`perdure reindex`: embed all texts with the embedder in use, and show the progress."""

from __future__ import annotations

import asyncio
import time

from perdure.cli.open_store import Output, with_store
from perdure.cli.progress import progress_bar
from perdure.cli.views.fold import plural
from perdure.core.errors import InvalidInput
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.upkeep import Reindexed
from perdure.settings import Settings


async def reindex(*, archive: str | None, agent: str | None, again: bool) -> int:
    """Embed the texts without a vector of this embedder, wait for them, and return the exit code."""
    output = Output()

    def check(settings: Settings) -> None:
        if not settings.store_path.exists():
            raise InvalidInput(f"there is no store yet at {settings.store_path}: nothing to embed")

    async def work(perdure: AsyncPerdure) -> int:
        owners: list[str] = [] if archive is None else [(await perdure.archives.get(archive)).id]
        owners += [] if agent is None else [(await perdure.agent(agent)).id]
        start = time.monotonic()
        try:
            with progress_bar() as progress:
                result = await perdure.services.upkeep.reindex(owners, again=again, progress=progress)
        except asyncio.CancelledError:
            output.view.hint(
                "Stopped. What is done stays; `perdure reindex` goes on, and so does any process with the store."
            )
            raise
        return _print_result(output, result, seconds=time.monotonic() - start)

    return await with_store(output, work, check=check)


def _print_result(output: Output, result: Reindexed, *, seconds: float) -> int:
    embedded, rate = result.made, ""
    if embedded > 0:
        rate = f", {embedded:,} of them now ({embedded / max(seconds, 0.001):,.0f} a second)"
    texts = plural(sum(scope.scope.row_count for scope in result.counts), "text")
    output.print(f"{texts} with a vector of {result.model}{rate}.")
    failed = [scope for scope in result.counts if scope.failed]
    for scope in failed:
        output.terminal.error(f"{scope.failed:,} of {scope.scope.owner_id} could not be embedded: {scope.failure}")
    if failed:
        output.view.hint("They are found by their words; `perdure reindex` tries them again.")
    return int(bool(failed))
