"""Archives written as lines of JSON and read again, a batch at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from perdure.app import App
from perdure.core.errors import InvalidInput
from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive, Passage
from perdure.domain.archives.batching import BATCH, batches
from perdure.domain.archives.transfer import (
    Header,
    archive_line,
    import_passages,
    open_import,
    parse_line,
    passage_line,
)
from perdure.storage.tx import Tx

__all__ = ["Carried", "check_lines", "export_lines", "import_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What came of reading: `skipped` passages were there already. `archives` are those that took something."""

    archives: tuple[Archive, ...]
    imported: int
    skipped: int


async def export_lines(app: App, archive_id: ArchiveId) -> AsyncIterator[str]:
    """The archive's header, then its passages, oldest first: a line each, without line ends.

    Raises: NotFound, StoreError.
    """
    archive = await app.store.read(lambda tx: tx.archives.get(archive_id))
    yield archive_line(archive)
    after = -1
    while page := await app.store.read(_page, archive_id, after):
        for passage in page:
            yield passage_line(passage)
        after = page[-1].seq


def check_lines(lines: Iterable[str], *, headless: bool = False) -> int:
    """How many passages the lines hold, all of them looked at; empty lines are passed over.

    Args:
        headless: the archive is given, so that no header has to come first.
    Raises: InvalidInput, naming the first line that can't be read, from 1, and why.
    """
    count, begun = 0, headless
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        said = _parsed(number, text)
        if isinstance(said, Header):
            begun = True
            continue
        if not begun:
            raise InvalidInput(f"line {number}: it is a passage, and no archive was begun: name one to import into")
        count += 1
    return count


async def import_lines(
    app: App,
    lines: Iterable[str],
    *,
    into: ArchiveId | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Carried:
    """Put what the lines hold into the store, in transactions of up to 500 passages; what is there already is skipped.

    Args:
        into: the archive that takes everything; by default each header's own, which is made if it is not there.
        progress: is told how many passages have been looked at.
    Raises: InvalidInput, as `check_lines`; NotFound, StoreError: what was imported before it stays, and the same import
        goes on there.
    """
    took: dict[ArchiveId, Archive] = {}
    archive = None if into is None else await app.store.read(lambda tx: tx.archives.get(into))
    if archive is not None:
        took[archive.id] = archive
    seen = added = 0
    batch: list[Passage] = []

    async def store() -> None:
        nonlocal seen, added
        if batch and archive is not None:
            for some in batches(batch):
                added += await app.store.write(import_passages, archive.id, some)
                seen += len(some)
                progress(seen)
            batch.clear()

    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        said = _parsed(number, text)
        if isinstance(said, Passage):
            if archive is None:
                raise InvalidInput(f"line {number}: it is a passage, and no archive was begun: name one to import into")
            batch.append(said)
            if len(batch) == BATCH:
                await store()
        elif into is None:
            await store()
            archive = await app.store.write(open_import, said, ArchiveId(app.ports.ids.new("archive")))
            took[archive.id] = archive
    await store()
    return Carried(archives=tuple(took.values()), imported=added, skipped=seen - added)


def _parsed(number: int, text: str) -> Header | Passage:
    try:
        return parse_line(text)
    except InvalidInput as error:
        raise InvalidInput(f"line {number}: {error}") from error


def _page(tx: Tx, archive_id: ArchiveId, after: int) -> list[Passage]:
    return list(tx.passages.list(archive_id, limit=BATCH, after_seq=after))
