"""Archives as lines of JSON: exported and imported, a batch at a time."""

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

__all__ = ["ImportedArchives", "check_lines", "export_lines", "import_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedArchives:
    """The result of an import: `skipped` passages were there already; `archives` are those that it added to."""

    archives: tuple[Archive, ...]
    imported: int
    skipped: int


async def export_lines(app: App, archive_id: ArchiveId) -> AsyncIterator[str]:
    """Yield the archive's header, then its passages, oldest first: a line each, without line ends.

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
    """Check all lines and return the number of passages in them. Empty lines are skipped.

    Args:
        headless: no header has to come first: the caller names the archive.
    Raises: InvalidInput, with the number of the first line that can't be read, from 1, and the reason.
    """
    count, has_archive = 0, headless
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if isinstance(_parse(number, text), Header):
            has_archive = True
            continue
        if not has_archive:
            raise _no_archive(number)
        count += 1
    return count


async def import_lines(
    app: App,
    lines: Iterable[str],
    *,
    into: ArchiveId | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ImportedArchives:
    """Store the archives and passages of the lines, in transactions of up to 500 passages. Known passages are skipped.

    Args:
        into: the archive for all passages; by default the one of each header, which is created if need be.
        progress: is called with the number of passages that are done.
    Raises: InvalidInput, as `check_lines`; NotFound, StoreError: the passages before it stay, and the same import
        goes on there.
    """
    archives: dict[ArchiveId, Archive] = {}
    archive = None if into is None else await app.store.read(lambda tx: tx.archives.get(into))
    if archive is not None:
        archives[archive.id] = archive
    done = added = 0
    batch: list[Passage] = []

    async def store() -> None:
        nonlocal done, added
        if batch and archive is not None:
            for part in batches(batch):
                added += await app.store.write(import_passages, archive.id, part)
                done += len(part)
                progress(done)
            batch.clear()

    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        line = _parse(number, text)
        if isinstance(line, Passage):
            if archive is None:
                raise _no_archive(number)
            batch.append(line)
            if len(batch) == BATCH:
                await store()
        elif into is None:
            await store()
            archive = await app.store.write(open_import, line, ArchiveId(app.ports.ids.new("archive")))
            archives[archive.id] = archive
    await store()
    return ImportedArchives(archives=tuple(archives.values()), imported=added, skipped=done - added)


def _no_archive(number: int) -> InvalidInput:
    return InvalidInput(f"line {number}: it is a passage, and no archive was begun: name one to import into")


def _parse(number: int, text: str) -> Header | Passage:
    try:
        return parse_line(text)
    except InvalidInput as error:
        raise InvalidInput(f"line {number}: {error}") from error


def _page(tx: Tx, archive_id: ArchiveId, after: int) -> list[Passage]:
    return list(tx.passages.list(archive_id, limit=BATCH, after_seq=after))
