"""The files of a folder: taken in, listed, read and removed.

An upload is stored part by part; the file is added with the last one.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import mimetypes
import tempfile
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from perdure.app import App
from perdure.core.errors import AlreadyExists, FileNameInvalid, FileTooLarge, InvalidInput, NotFound
from perdure.core.ids import FileId, FolderId, is_id
from perdure.features.files.converters.convert import check_file, copy_as_utf8
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.units import add_file, place_file
from perdure.features.files.values import File, IfExists
from perdure.features.files.views import read_lines, read_text
from perdure.features.files.worker import UPLOAD_PART_BYTES, FileWorker, key_of, write_contents
from perdure.library.parts.checks import LIMIT_MAX, Page, check_choice, check_number, check_page, check_text
from perdure.library.parts.part import AsyncPart, reads
from perdure.scratch import user_path
from perdure.storage.tx import Tx

FILES_PER_LOOK = 16
TEXT_CHARS = 20_000_000  # more than any file has
PAGE_TEXT_CHARS = 10_000_000  # of all files of one page together


Source = bytes | str | Path | BinaryIO
"""The bytes themselves, the path of a file, or an open file that can seek."""

IF_EXISTS: tuple[IfExists, ...] = ("skip", "error", "suffix", "replace")
HEAD_BYTES = 4_096

POLL_S = 0.1
"""How often a caller that waits looks whether the worker of files is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file, how many of its chunks wait for their vectors, and its text; None: the text was not read."""

    file: File
    waiting: int = 0
    text: str | None = None


class AsyncFiles(AsyncPart):
    """The files of one folder. A file is named by its id, or by its name in the folder."""

    @property
    def id(self) -> FolderId:
        """The folder's id."""
        raise NotImplementedError

    async def upload(
        self,
        source: Source,
        *,
        name: str | None = None,
        if_exists: IfExists = "replace",
        media_type: str = "",
        original_name: str = "",
        encoding: str | None = None,
    ) -> File:
        """Take a file in. It is durable when this returns; its text is made in the background (`wait`).

        Args:
            source: a path, bytes, or an open file.
            name: what it is called in the folder, also with folders, `src/app.py`; by default its own name.
            original_name: what it was called before, by default the same.
            if_exists: what to do if the name is taken: `replace` (a file with the same bytes stays as it is), `skip`,
                `suffix` (it is called `name_(1)`) or `error`.
            encoding: that of a text, such as `gb18030`; by default it is guessed, and the file's `warnings` name it.
        Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileEncodingInvalid, FileTooLarge,
            InvalidInput.
        """
        check_choice("if_exists", if_exists, IF_EXISTS)
        for field, value in (("name", name), ("encoding", encoding)):
            if value is not None:
                check_text(field, value)
        stream, own_name = await asyncio.to_thread(_open_source, source)
        wanted = name if name is not None else own_name
        try:
            if not wanted:
                raise FileNameInvalid("", "bytes have no name of their own: give them one")
            return await _store_upload(
                self._app, self.id, stream, wanted, original_name or own_name or wanted, if_exists, media_type, encoding
            )
        finally:
            if not hasattr(source, "read"):
                stream.close()

    async def files(self, *, limit: int = 100, after: FileId | None = None) -> Sequence[File]:
        """A page of files, oldest first; `after` is the last one of the page before. Raises: InvalidInput, NotFound."""
        return [state.file for state in await self.list_files(Page(limit, ascending=True, after=after))]

    @reads
    def list_files(self, tx: Tx, page: Page, *, with_text: bool = False) -> Sequence[FileState]:
        """A page of the folder's files. Of texts, those that fit into 10 million characters together are read.

        Raises: InvalidInput, NotFound.
        """
        check_page(page)
        tx.of(Folders).get(self.id)
        files = page.load(partial(tx.of(Files).list, self.id), lambda file_id: place_of(tx, file_id, [self.id])[1])
        return _load_states(tx, self.id, files, max_chars=PAGE_TEXT_CHARS if with_text else 0)

    async def file(self, name_or_id: str) -> File:
        """The file of this id or name. Raises: NotFound."""
        return (await self.file_state(name_or_id)).file

    @reads
    def file_state(self, tx: Tx, name_or_id: str, *, with_text: bool = False) -> FileState:
        """The file of this id or name, with how far it is read. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)
        file = _find_file(tx, self.id, name_or_id)
        return _load_states(tx, self.id, [file], max_chars=TEXT_CHARS if with_text else 0)[0]

    @reads
    def text(self, tx: Tx, name_or_id: str, *, first_line: int = 1, last_line: int | None = None) -> str:
        """Lines of a file's text, both ends included.

        Raises: NotFound; InvalidInput: no line numbers, or the last before the first.
        """
        check_text("a file's name or id", name_or_id)
        check_lines(first_line, last_line)
        file = _find_file(tx, self.id, name_or_id)
        if first_line <= 1 and last_line is None:
            return read_text(tx, file.id, max_chars=TEXT_CHARS)
        last = file.line_count if last_line is None else last_line
        return "\n".join(line.text for line in read_lines(tx, file.id, first_line, last, max_chars=TEXT_CHARS))

    async def original(self, name_or_id: str) -> bytes:
        """The bytes of a file as they were uploaded, checked by their SHA-256.

        Raises: NotFound; InvalidInput: they are not kept, because `PERDURE_FILES` was not set; StoreUnavailable: the
        object store does not answer; StoreDamaged: it has other bytes, or none.
        """
        check_text("a file's name or id", name_or_id)
        file = await self._ports.store.read(_find_file, self.id, name_or_id)
        if not file.object_key:
            raise InvalidInput(
                f"the bytes of {file.name!r} are not kept once its text is made: only files that are uploaded with"
                " PERDURE_FILES set keep them"
            )
        data = io.BytesIO()
        await write_contents(self._app.ports.contents, file, data)
        return data.getvalue()

    async def delete_file(self, name_or_id: str) -> None:
        """Remove a file with its text. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)
        await self._ports.store.write(lambda tx: tx.of(Files).delete(_find_file(tx, self.id, name_or_id).id))
        self._app.service(FileWorker).wake()

    async def wait(
        self,
        files: Iterable[FileId] | None = None,
        *,
        progress: Callable[[Sequence[File]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[File]:
        """The files, once the text of each is there or will never be: then its status is `error`.

        Vectors may still be made: the text is found by words already.

        Args:
            files: ids; by default all of the folder, at most 10,000.
            progress: is called with the files from time to time, in the store's own thread: `done` of `total`, and the
                status.
        Raises: NotFound: one was deleted; TimeoutError; StoreFull, StoreError: what was read can't be stored. The files
            wait then, and are read once they can be.
        """
        worker = self._app.service(FileWorker)
        problem_before = worker.held_up
        if files is None:
            all_files = await self._ports.store.read(lambda tx: tx.of(Files).list(self.id, limit=LIMIT_MAX))
            ids = [file.id for file in all_files]
        else:
            ids = list(files)
        files_by_id: dict[FileId, File] = {}

        def look(tx: Tx) -> Sequence[File]:
            """Return the files that are still being read; the first time all."""
            # The oldest are read first, so of many only the first that wait can have changed.
            waiting = [file_id for file_id in ids if file_id not in files_by_id or not files_by_id[file_id].ended]
            return [tx.of(Files).get(file_id) for file_id in (waiting[:FILES_PER_LOOK] if files_by_id else waiting)]

        async with asyncio.timeout(timeout_s):
            while True:
                files_by_id |= {file.id: file for file in await self._ports.store.read(look)}
                found = [files_by_id[file_id] for file_id in ids]
                if progress is not None:
                    progress(found)
                if all(file.ended for file in found):
                    return found
                if (problem := worker.held_up) is not None and problem is not problem_before:
                    raise problem
                await asyncio.sleep(POLL_S)


def check_lines(first_line: int, last_line: int | None) -> None:
    """Raises: InvalidInput: these can't be the numbers of the first and the last line to read; None: the end."""
    check_number("first_line", first_line)
    check_number("last_line", last_line)
    if last_line is not None and last_line < first_line:
        raise InvalidInput(f"last_line is {last_line}, before first_line, {first_line}: give the lines in order")


def _load_states(tx: Tx, folder_id: FolderId, files: Sequence[File], *, max_chars: int) -> list[FileState]:
    """The states of files, in their order, with the texts that fit into `max_chars` together."""
    waiting, chars_left = tx.of(Files).count_queued_passages(folder_id), max_chars
    states: list[FileState] = []
    for file in files:
        text = read_text(tx, file.id, max_chars=chars_left) if max_chars and file.char_count <= chars_left else None
        chars_left -= len(text or "")
        if file.status == "completed" and file.id in waiting:
            file = replace(file, status="embedding")
        states.append(FileState(file=file, waiting=waiting.get(file.id, 0), text=text))
    return states


def place_of(tx: Tx, file_id: str, folders: Container[FolderId]) -> tuple[FolderId, int]:
    """The folder of the file at which a page begins, and its number there. Raises: NotFound: it is in no such one."""
    folder_id, number = tx.of(Files).place(FileId(file_id))
    if folder_id not in folders:
        raise NotFound("file", file_id, hint="it must be one of the list")
    return folder_id, number


def _find_file(tx: Tx, folder_id: FolderId, name_or_id: str) -> File:
    """The folder's file of this id or name. Raises: NotFound."""
    tx.of(Folders).get(folder_id)
    if is_id("file", name_or_id):
        file = tx.of(Files).get(FileId(name_or_id))
        if file.folder_id == folder_id:
            return file
    elif (found := tx.of(Files).find(folder_id, name_or_id)) is not None:
        return found
    raise NotFound("file", name_or_id, hint="the folder has no such file")


async def _store_upload(
    app: App,
    folder_id: FolderId,
    stream: BinaryIO,
    wanted_name: str,
    original_name: str,
    if_exists: IfExists,
    media_type: str,
    encoding: str | None = None,
) -> File:
    """Store the bytes of an upload, of a text with an encoding as UTF-8, then its row; return the file, or the one that
    `if_exists` keeps. Raises: as `AsyncFiles.upload`."""
    store, ids, clock = app.store, app.ports.ids, app.ports.clock
    size, digest, head = await asyncio.to_thread(_measure, stream, app.settings.file_limit_bytes, wanted_name)
    name = check_file(wanted_name, head)
    if encoding is not None:
        with tempfile.TemporaryFile() as text:
            await asyncio.to_thread(copy_as_utf8, name, stream, text, encoding)
            return await _store_upload(app, folder_id, text, name, original_name, if_exists, media_type)
    found = await store.read(place_file, folder_id, name, digest, if_exists)
    if isinstance(found, File):
        return found
    now = clock.now()
    file = File(
        id=FileId(ids.new("file")),
        org_id=await store.read(lambda tx: tx.org_id),
        folder_id=folder_id,
        name=name,
        original_name=original_name,
        media_type=media_type or mimetypes.guess_type(name)[0] or "application/octet-stream",
        size_bytes=size,
        digest=digest,
        created_at=now,
        updated_at=now,
    )
    if (contents := app.ports.contents) is not None:
        file = replace(file, object_key=key_of(file.org_id, file.id))
        await asyncio.to_thread(stream.seek, 0)
        await contents.put(file.object_key, stream)
        try:
            added = await store.write(lambda tx: add_file(tx, file, if_exists))
        except (NotFound, AlreadyExists):
            await contents.delete([file.object_key])
            raise
        if added.id != file.id:  # a file that was there is kept instead
            await contents.delete([file.object_key])
        app.service(FileWorker).wake()
        return added
    parts = range(0, size, UPLOAD_PART_BYTES)
    *first, last = parts or (0,)
    for offset in first:
        data = await asyncio.to_thread(_read_part, stream, offset)
        await store.write(
            lambda tx, offset=offset, data=data: tx.of(Files).put_bytes(  # type: ignore[misc]
                file.id, offset // UPLOAD_PART_BYTES, data, at=now
            )
        )
    data = await asyncio.to_thread(_read_part, stream, last)

    # Until this is committed, the stored bytes belong to no file; they are removed later if it never is.
    def add(tx: Tx) -> File:
        """Store the last bytes and add the file."""
        tx.of(Files).put_bytes(file.id, last // UPLOAD_PART_BYTES, data, at=now)
        return add_file(tx, file, if_exists)

    added = await store.write(add)
    app.service(FileWorker).wake()
    return added


def _open_source(source: Source) -> tuple[BinaryIO, str]:
    """A stream of the bytes, and the source's own name, empty where it has none."""
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source), ""
    if isinstance(source, str | Path):
        path = user_path(source)
        if path.is_dir():
            raise InvalidInput(
                f"{str(path)!r:.200} is a folder: upload its files one by one, or `perdure file upload` it"
            )
        try:
            return path.open("rb"), path.name
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidInput(f"{str(path)!r:.200} can't be read: {reason}") from error
    if hasattr(source, "read") and hasattr(source, "seek"):
        name = getattr(source, "name", "")
        return source, Path(name).name if isinstance(name, str) else ""
    raise InvalidInput(f"source is {source!r:.80}: give a path, bytes, or an open file")


def _measure(stream: BinaryIO, limit: int, name: str) -> tuple[int, str, bytes]:
    """The size of a stream in bytes, its SHA-256 in hexadecimal digits, and its first bytes. Raises: FileTooLarge."""
    size = stream.seek(0, io.SEEK_END)
    if size > limit:
        raise FileTooLarge(name, size=size, limit=limit)
    stream.seek(0)
    digest, head = hashlib.sha256(), b""
    while data := stream.read(UPLOAD_PART_BYTES):
        head = head or data[:HEAD_BYTES]
        digest.update(data)
    return size, digest.hexdigest(), head


def _read_part(stream: BinaryIO, offset: int) -> bytes:
    stream.seek(offset)
    return stream.read(UPLOAD_PART_BYTES)
