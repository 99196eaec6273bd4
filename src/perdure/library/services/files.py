"""Files of a folder: taken in, listed, read and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.files import File, IfExists
from perdure.core.ids import FileId, FolderId, is_id
from perdure.domain.files.text import read_lines, read_text
from perdure.library.checks import LIMIT_MAX, check_number, check_page, check_text
from perdure.library.paging import Page
from perdure.library.services.folders import POLL_S
from perdure.library.services.uploads import Source, upload
from perdure.storage.tx import Tx

FILES_PER_LOOK = 16
TEXT_CHARS = 20_000_000  # more than any file has
PAGE_TEXT_CHARS = 10_000_000  # of all files of one page together


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as it stands. `waiting` of its chunks have no vectors yet; `text` is None where it was not read."""

    file: File
    waiting: int = 0
    text: str | None = None


class FileService:
    """What can be done with files. A file is named by its id, or by its name in the folder."""

    def __init__(self, app: App) -> None:
        self._app, self._store = app, app.store

    async def upload(
        self,
        folder_id: FolderId,
        source: Source,
        *,
        name: str | None = None,
        if_exists: IfExists = "replace",
        media_type: str = "",
        original_name: str = "",
    ) -> File:
        """Take a file in. It is durable when this returns; its text is made in the background.

        Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileTooLarge; InvalidInput: there is
            nothing to read at this path.
        """
        return await upload(
            self._app,
            folder_id,
            source,
            name=name,
            if_exists=if_exists,
            media_type=media_type,
            original_name=original_name,
        )

    async def list(self, folder_id: FolderId, page: Page, *, with_text: bool = False) -> Sequence[FileState]:
        """A page of the folder's files. Of texts, those that fit into 10 million characters together are read.

        Raises: InvalidInput, NotFound.
        """
        check_page(page)

        def load(tx: Tx) -> Sequence[FileState]:
            tx.folders.get(folder_id)
            files = page.load(partial(tx.files.list, folder_id), lambda one: tx.files.get(FileId(one)).number)
            return _states(tx, folder_id, files, max_chars=PAGE_TEXT_CHARS if with_text else 0)

        return await self._store.read(load)

    async def get(self, folder_id: FolderId, name_or_id: str, *, with_text: bool = False) -> FileState:
        """One file. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)

        def load(tx: Tx) -> FileState:
            file = _find(tx, folder_id, name_or_id)
            return _states(tx, folder_id, [file], max_chars=TEXT_CHARS if with_text else 0)[0]

        return await self._store.read(load)

    async def read(self, folder_id: FolderId, name_or_id: str, first_line: int, last_line: int | None) -> str:
        """Lines of a file's text, both ends included; to its end without a `last_line`.

        Raises: NotFound; InvalidInput: no line numbers, or the last before the first.
        """
        check_text("a file's name or id", name_or_id)
        check_lines(first_line, last_line)

        def load(tx: Tx) -> str:
            file = _find(tx, folder_id, name_or_id)
            if first_line <= 1 and last_line is None:
                return read_text(tx, file.id, max_chars=TEXT_CHARS)
            last = file.line_count if last_line is None else last_line
            return "\n".join(line.text for line in read_lines(tx, file.id, first_line, last, max_chars=TEXT_CHARS))

        return await self._store.read(load)

    async def delete(self, folder_id: FolderId, name_or_id: str) -> None:
        """Remove a file with its text. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)
        await self._store.write(lambda tx: tx.files.delete(_find(tx, folder_id, name_or_id).id))
        self._app.files.wake()

    async def wait(
        self,
        folder_id: FolderId,
        files: Iterable[FileId] | None = None,
        *,
        progress: Callable[[Sequence[File]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[File]:
        """The files, once the text of each is there or will never be: then its status is `error`.

        Args:
            files: ids; by default all of the folder, at most 10,000.
            progress: is called with the files from time to time.
        Raises: NotFound: one was deleted; TimeoutError; StoreFull, StoreError: what was read can't be stored.
        """
        worker = self._app.files
        problem_before = worker.held_up
        if files is None:
            all_files = await self._store.read(lambda tx: tx.files.list(folder_id, limit=LIMIT_MAX))
            ids = [file.id for file in all_files]
        else:
            ids = list(files)
        known: dict[FileId, File] = {}

        def look(tx: Tx) -> Sequence[File]:
            # The oldest are read first, so of many only the first that wait can have changed.
            waiting = [file_id for file_id in ids if file_id not in known or not known[file_id].ended]
            return [tx.files.get(file_id) for file_id in (waiting[:FILES_PER_LOOK] if known else waiting)]

        async with asyncio.timeout(timeout_s):
            while True:
                known |= {file.id: file for file in await self._store.read(look)}
                found = [known[file_id] for file_id in ids]
                if progress is not None:
                    progress(found)
                if all(file.ended for file in found):
                    return found
                if (problem := worker.held_up) is not None and problem is not problem_before:
                    raise problem
                await asyncio.sleep(POLL_S)


def check_lines(first_line: int, last_line: int | None) -> None:
    """Nothing, when these can be lines of a file. Raises: InvalidInput."""
    check_number("first_line", first_line)
    check_number("last_line", last_line)
    if last_line is not None and last_line < first_line:
        raise InvalidInput(f"last_line is {last_line}, before first_line, {first_line}: give the lines in order")


def _states(tx: Tx, folder_id: FolderId, files: Sequence[File], *, max_chars: int) -> list[FileState]:
    """The files as they stand, with the texts that fit into `max_chars` together."""
    waiting, left = tx.files.unembedded(folder_id), max_chars
    states: list[FileState] = []
    for file in files:
        text = read_text(tx, file.id, max_chars=left) if max_chars and file.char_count <= left else None
        left -= len(text or "")
        if file.status == "completed" and file.id in waiting:
            file = replace(file, status="embedding")
        states.append(FileState(file=file, waiting=waiting.get(file.id, 0), text=text))
    return states


def _find(tx: Tx, folder_id: FolderId, name_or_id: str) -> File:
    """The folder's file of this id or name. Raises: NotFound."""
    tx.folders.get(folder_id)
    if is_id("file", name_or_id):
        file = tx.files.get(FileId(name_or_id))
        if file.folder_id == folder_id:
            return file
    elif (found := tx.files.find(folder_id, name_or_id)) is not None:
        return found
    raise NotFound("file", name_or_id, hint="the folder has no such file")
