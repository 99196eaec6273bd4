"""The files of an export: one file, a folder, or a ZIP file as it was downloaded; bounded before they are read."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, BinaryIO

from perdure.core.errors import InvalidInput
from perdure.features.agent_files.replaced import restore_replaced
from perdure.features.imports.sources.plain import hash_of
from perdure.scratch import user_path

FILE_BYTES = 1_000_000_000
"""A file of so many bytes is refused before it is read."""
FILES_MAX = 100_000
RATIO_MAX, RATIO_FROM_BYTES = 200, 1 << 20
"""An entry of a ZIP file that is larger, and was so many times smaller when packed, is no text that anybody wrote; nor
are all entries together that are."""
ZIP_BYTES = 20_000_000_000
"""A ZIP file whose entries have more bytes together is refused before it is unpacked."""

_DRIVE = re.compile(r"[A-Za-z]:")


def _is_hidden(name: PurePath) -> bool:
    """Whether a file is hidden, or what a Mac puts into ZIP files beside it."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.parts)


class SourceFiles:
    """The files of an export by their names, with slashes; `label` is what errors call the whole.

    Raises: InvalidInput: it can't be read, is too large, or has names that lead out of it.
    """

    def __init__(self, place: str | Path | BinaryIO, label: str = "") -> None:
        self.place: Path | BinaryIO = Path(place) if isinstance(place, str) else place
        self.label = label or (self.place.name if isinstance(self.place, Path) else "the file")
        self._zip: zipfile.ZipFile | None = None
        self._sizes: dict[str, int] = {}
        try:
            if isinstance(self.place, Path):
                self.place = user_path(self.place)
                restore_replaced(self.place)
            place = self.place
            if isinstance(place, Path) and place.is_dir():
                self._list_folder(place)
            elif zipfile.is_zipfile(place):
                self._list_zip(zipfile.ZipFile(place))
            elif isinstance(place, Path):
                self._sizes = {place.name: self._file_size()}
            else:
                self._sizes = {self.label: self._file_size()}
        except (OSError, zipfile.BadZipFile, ValueError, RuntimeError) as error:
            where = str(place) if isinstance(place, Path) else self.label
            raise InvalidInput(f"{where!r:.200} can't be read: {getattr(error, 'strerror', None) or error}") from error
        if self.is_one and self.label.lower().endswith(".zip"):
            raise InvalidInput(f"{self.label} is no whole ZIP file: download it again")

    @property
    def is_one(self) -> bool:
        """Whether it is one file, whatever its name is."""
        return self._zip is None and not (isinstance(self.place, Path) and self.place.is_dir())

    def find(self, *patterns: str) -> Sequence[str]:
        """Return the sorted names of files whose last part, in lower case, matches one of the patterns, such as
        `conversations*.json`; if the source is one file, its name, whatever it is."""
        if self.is_one:
            return [*self._sizes]
        return sorted(n for n in self._sizes if any(fnmatch(PurePosixPath(n).name.lower(), one) for one in patterns))

    def identity(self, name: str, first: str) -> str:
        """Return what tells a file from its namesakes: its path; of an upload the label and `first`, a text in it."""
        if not isinstance(self.place, Path):
            return f"{self.label}\n{name}\n{hash_of(first)}"
        place = self.place.resolve()
        whole = place if self.is_one else place / name
        return f"{whole.name}\n{hash_of(whole.as_posix())}"  # a place may say more than others shall see

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file. Raises: InvalidInput: it is too large, packed too well, encrypted or damaged."""
        if (size := self._sizes[name]) >= FILE_BYTES:
            raise InvalidInput(f"{name} has {size:,} bytes, the limit is {FILE_BYTES:,}: split it")
        try:
            if self._zip is not None:
                if self._zip.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise NotImplementedError("it is packed in another way than ZIP files usually are")
                with self._zip.open(name) as entry:
                    yield entry
            elif not isinstance(self.place, Path):
                self.place.seek(0)
                yield self.place
            else:
                with (self.place / name if self.place.is_dir() else self.place).open("rb") as file:
                    yield file
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
            raise InvalidInput(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from error

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Return the bytes of a file. Raises: InvalidInput, also if there are more than `limit_bytes`."""
        with self.open(name) as file:
            if len(data := file.read(limit_bytes + 1)) > limit_bytes:
                raise InvalidInput(f"{name} has more than {limit_bytes:,} bytes: it is left unread")
        return data

    def modified_at(self, name: str) -> datetime:
        """Return when a file was changed; of an upload, or an entry of a ZIP file without a date, the present time."""
        if self._zip is not None:
            with suppress(ValueError):
                return datetime(*self._zip.getinfo(name).date_time, tzinfo=UTC)
            return datetime.now(UTC)
        if not isinstance(self.place, Path):
            return datetime.now(UTC)
        path = self.place / name if self.place.is_dir() else self.place
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)

    def close(self) -> None:
        """Close the ZIP file."""
        if self._zip is not None:
            self._zip.close()

    def _list_folder(self, folder: Path) -> None:
        """List the files of a folder; what is hidden, and links out of it, are left out. Raises: InvalidInput."""
        root = folder.resolve()
        for path in folder.rglob("*"):
            name = path.relative_to(folder)
            if not _is_hidden(name) and path.is_file() and path.resolve().is_relative_to(root):
                self._sizes[name.as_posix()] = path.stat().st_size
                self._check_count(len(self._sizes))

    def _list_zip(self, opened: zipfile.ZipFile) -> None:
        """List the files of a ZIP file. Raises: InvalidInput: a name leads out of it, or it is a bomb."""
        self._zip = opened
        entries = opened.infolist()
        self._check_count(len(entries))
        size, packed = sum(entry.file_size for entry in entries), self._file_size()
        if size > min(ZIP_BYTES, RATIO_MAX * packed + RATIO_FROM_BYTES):
            raise InvalidInput(
                f"{self.label} has {packed:,} bytes, and its files have {size:,} bytes when they are unpacked: no"
                " export is like that; unpack it, and give the folder of the export alone"
            )
        for entry in entries:
            name = entry.filename
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if name.startswith(("/", "\\")) or _DRIVE.match(name) or ".." in parts or "\0" in entry.orig_filename:
                raise InvalidInput(f"{self.label} has a file {name!r:.120}: its name leads out of it")
            if entry.file_size > RATIO_FROM_BYTES and entry.file_size > RATIO_MAX * max(entry.compress_size, 1):
                raise InvalidInput(
                    f"{self.label} has a file {name!r:.120} of {entry.file_size:,} bytes that were packed into"
                    f" {entry.compress_size:,}: no export is like that"
                )
            if not (entry.is_dir() or _is_hidden(PurePosixPath(name))):
                self._sizes[name] = entry.file_size

    def _file_size(self) -> int:
        """Return the size of the one file, packed or not."""
        if isinstance(self.place, Path):
            return self.place.stat().st_size
        return self.place.seek(0, 2)

    def _check_count(self, count: int) -> None:
        """Raises: InvalidInput: these are too many files."""
        if count > FILES_MAX:
            raise InvalidInput(f"{self.label} has more than {FILES_MAX:,} files: take the folder of the export alone")
