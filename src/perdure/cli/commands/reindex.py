"""`perdure reindex`: have every text get its vector from the embedder in use, and watch it happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.vectors import ScopeCounts
from perdure.domain.archives.embedding import reindex as begin
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["progress_bar", "reindex"]

PAGE = 500
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent or archive; `texts`: how many texts it has at most that get a vector."""

    number: int
    kind: str
    id: str
    texts: int


async def reindex(*, archive: str | None, agent: str | None, again: bool) -> int:
    """Queue what has no vector of this embedder, and wait for it; the exit code."""
    out, err = standard_streams()
    terminal = Terminal(out, err, interactive=False)
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise InvalidInput(f"there is no store yet at {settings.store_path}: nothing to embed")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            return await _reindex(perdure, terminal, archive=archive, agent=agent, again=again, bar=err.isatty())
    except PerdureError as error:
        terminal.error(str(error))
        return 1


async def _reindex(
    perdure: AsyncPerdure, terminal: Terminal, *, archive: str | None, agent: str | None, again: bool, bar: bool
) -> int:
    app = perdure.app
    if app.embedder is None or app.worker is None:
        raise InvalidInput(f"there is no embedder: {app.embedding_reason}")
    owners = await _owners(perdure, archive=archive, agent=agent)
    for first in range(0, len(owners), PAGE):
        part = [(one.number, one.kind, one.id) for one in owners[first : first + PAGE]]
        await app.store.write(begin, part, app.embedder.handle, force=again)
    app.worker.nudge()
    began = time.monotonic()
    texts = {one.number: one.texts for one in owners}
    try:
        with progress_bar(shown=bar) as progress:
            task = progress.add_task(app.embedder.handle, total=sum(texts.values()))
            before = None
            while True:
                counts = [one for one in await _counts(perdure) if one.scope.number in texts]
                done = sum(one.scope.row_count + one.failed for one in counts)
                before = done if before is None else before
                total = sum(_total(one, texts[one.scope.number]) for one in counts)
                progress.update(
                    task, completed=done, total=total, description=app.worker.trouble or app.embedder.handle
                )
                if all(not one.waiting and one.scope.fill_from is None for one in counts):
                    break
                await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        terminal.hint("Stopped. What is done stays; `perdure reindex` goes on, and so does any process with the store.")
        raise
    return _told(terminal, counts, app.embedder.handle, made=done - before, seconds=time.monotonic() - began)


def _told(terminal: Terminal, counts: Sequence[ScopeCounts], handle: str, *, made: int, seconds: float) -> int:
    from rich.text import Text

    have = sum(one.scope.row_count for one in counts)
    failed = [one for one in counts if one.failed]
    rate = f", {made:,} of them now ({made / max(seconds, 0.001):,.0f} a second)" if made > 0 else ""
    terminal.show(Text(f"{have:,} text{'' if have == 1 else 's'} with a vector of {handle}{rate}."))
    for one in failed:
        terminal.error(f"{one.failed:,} of {one.scope.owner_id} could not be embedded: {one.failure}")
    if failed:
        terminal.hint("They are found by their words; `perdure reindex` tries them again.")
    return int(bool(failed))


def _total(counts: ScopeCounts, texts: int) -> int:
    known = counts.scope.row_count + counts.waiting + counts.failed
    return known if counts.scope.fill_from is None else max(known, texts)


async def _owners(perdure: AsyncPerdure, *, archive: str | None, agent: str | None) -> list[Owner]:
    """What to embed: what was named, or else everything. Raises: NotFound."""
    store = perdure.app.store
    owners: list[Owner] = []
    if archive is not None:
        owners.append(await store.read(_archive, ArchiveId(archive)))
    if agent is not None:
        info = (await perdure.agent(agent)).info
        owners.append(Owner(info.number, "agent", info.id, info.message_count))
    if archive is not None or agent is not None:
        return owners
    after: AgentId | None = None
    while page := await perdure.agents(limit=PAGE, after=after):
        owners += [Owner(one.info.number, "agent", one.info.id, one.info.message_count) for one in page]
        after = page[-1].id
    above = -1
    while archives := await store.read(_archives, above):
        owners += archives
        above = archives[-1].number
    return owners


def _archive(tx: Tx, archive_id: ArchiveId) -> Owner:
    archive = tx.archives.get(archive_id)
    return Owner(archive.number, "archive", archive.id, archive.passage_count)


def _archives(tx: Tx, above: int) -> list[Owner]:
    found = tx.archives.list(above=above, limit=PAGE)
    return [Owner(one.number, "archive", one.id, one.passage_count) for one in found]


async def _counts(perdure: AsyncPerdure) -> list[ScopeCounts]:
    found: list[ScopeCounts] = []
    after = -1
    while page := await perdure.app.store.read(_page, after):
        found += page
        after = page[-1].scope.number
    return found


def _page(tx: Tx, after: int) -> Sequence[ScopeCounts]:
    return tx.vectors.counts(after=after, limit=PAGE)


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Progress]:
    """A line of progress on stderr, where a person watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as progress:
        yield progress
