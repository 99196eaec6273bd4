"""Archives written as lines of JSON and read again, a batch at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perdure.core.errors import InvalidInput
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import Message
from perdure.core.passages import Archive, Passage
from perdure.domain.conversations.agent_copies import (
    add_passages_of_copy,
    begin_archive,
    copy_agent,
    list_forgotten,
    read_rows_of_copy,
    restore_agent,
)
from perdure.domain.conversations.copy_values import AgentCopy
from perdure.domain.conversations.transfer import archive_line, import_passages, open_import, parse_line, passage_line
from perdure.domain.provenance.context import with_sources
from perdure.domain.values import BATCH, batches
from perdure.engine.ports import Ports
from perdure.library.parts.checks import outside
from perdure.library.parts.part import AsyncPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedArchives:
    """The result of an import: `archives` took passages, `imported` is how many, `skipped` were there already."""

    archives: tuple[Archive, ...]
    imported: int
    skipped: int


class Transfer(AsyncPart):
    """Takes archives, and what agents have of their own, out of a store and into one."""

    async def copy_agent(self, agent_id: AgentId, lines: Mapping[int, Sequence[Message]]) -> AgentCopy:
        """What an agent has beyond what its agent file holds. `lines`: number of a conversation -> its messages in the
        file. Raises: NotFound, StoreError."""
        return await self._ports.store.read(copy_agent, agent_id, lines)

    async def list_forgotten(self, agent_id: AgentId) -> Sequence[Correction]:
        """What the agent has forgotten, so that no file may hold it. Raises: NotFound, StoreError."""
        return await self._ports.store.read(list_forgotten, agent_id)

    async def restore_agent(self, agent_id: AgentId, copy: AgentCopy, lines: Sequence[int] = (0,)) -> Sequence[str]:
        """Give a copy to an agent that was made of an agent file; return what was left out, a sentence each. `lines`:
        the numbers that the conversations of the file have now.

        Raises: InvalidInput, NotFound, TooMany, BlockLimitExceeded, StoreError.
        """
        ids, at = self._ports.ids, self._ports.clock.now()
        passages = await copy_passages(self._ports, agent_id, copy.passages)
        rows = await self._ports.store.read(read_rows_of_copy, agent_id, copy, lines, passages)
        return await self._ports.store.write(restore_agent, agent_id, copy, rows, author=outside(), ids=ids, at=at)

    async def export_archive(self, archive_id: ArchiveId) -> AsyncIterator[str]:
        """The archive's header, then its passages, oldest first: a line each, without line ends.

        Raises: NotFound, StoreError.
        """
        yield archive_line(await self._ports.store.read(lambda tx: tx.archives.get(archive_id)))
        after = -1
        while page := await self._ports.store.read(
            lambda tx, above: with_sources(tx, tx.passages.page(archive_id, limit=BATCH, above=above)), after
        ):
            for passage in page:
                yield passage_line(passage)
            after = page[-1].seq

    async def import_archives(
        self,
        lines: Iterable[str],
        *,
        into: ArchiveId | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportedArchives:
        """Store the passages of the lines, in transactions of up to 500; those that are there already are skipped.

        Args:
            into: the archive that takes everything; by default each header's own, which is made if it is missing.
            progress: takes how many passages are done.
        Raises: InvalidInput, as `check_lines`; NotFound, StoreError: what was imported before it stays, and the same
            import goes on there.
        """
        archives: dict[ArchiveId, Archive] = {}
        archive = None if into is None else await self._ports.store.read(lambda tx: tx.archives.get(into))
        if archive is not None:
            archives[archive.id] = archive
        done = added = 0
        pending: list[Passage] = []

        async def store_pending() -> None:
            """Store the passages read so far."""
            nonlocal done, added
            if pending and archive is not None:
                for batch in batches(pending):
                    added += await self._ports.store.write(import_passages, archive.id, batch)
                    done += len(batch)
                    progress(done)
                pending.clear()

        for number, line in _parse_lines(lines):
            if isinstance(line, Passage):
                if archive is None:
                    raise _no_archive(number)
                pending.append(line)
                if len(pending) == BATCH:
                    await store_pending()
            elif into is None:
                await store_pending()
                archive = await self._ports.store.write(open_import, line, ArchiveId(self._ports.ids.new("archive")))
                archives[archive.id] = archive
        await store_pending()
        return ImportedArchives(archives=tuple(archives.values()), imported=added, skipped=done - added)


async def copy_passages(ports: Ports, agent_id: AgentId, passages: Sequence[Passage]) -> Mapping[str, Passage]:
    """Add passages of a copy to a new archive of an agent, some at a time, and return their ids in the copy -> the
    passages. Nobody sees them until `restore_agent`; until then they are deleted with the agent. Raises: InvalidInput,
    NotFound, TooMany, StoreError."""
    added: dict[str, Passage] = {}
    archive_id = ArchiveId(ports.ids.new("archive"))
    if passages:
        await ports.store.write(begin_archive, agent_id, archive_id, at=ports.clock.now())
    for batch in batches(passages):
        added |= await ports.store.write(add_passages_of_copy, archive_id, batch)
    return added


def check_lines(lines: Iterable[str], *, headless: bool = False) -> int:
    """How many passages these lines of JSON hold, all of them checked; empty lines are skipped.

    Args:
        headless: the archive is known, so that no header has to come first.
    Raises: InvalidInput, naming the first line that can't be read, from 1, and why.
    """
    count, has_archive = 0, headless
    for number, line in _parse_lines(lines):
        if isinstance(line, Archive):
            has_archive = True
        elif not has_archive:
            raise _no_archive(number)
        else:
            count += 1
    return count


def _parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, Archive | Passage]]:
    """Yield (line number from 1, archive or passage) of each line that is not empty. Raises: InvalidInput."""
    for number, text in enumerate(lines, 1):
        if text.strip():
            try:
                line = parse_line(text)
            except InvalidInput as error:
                raise InvalidInput(f"line {number}: {error}") from error
            yield number, line


def _no_archive(number: int) -> InvalidInput:
    """The error for a passage, on the line of this number, before any archive."""
    return InvalidInput(f"line {number}: it is a passage, and no archive was begun: name one to import into")
