"""Files of lines to import and export."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from perdure.core.errors import InvalidInput

STDIN = "-"
MEMORY_BYTES = 16_000_000  # of stdin; more goes to a temporary file


class InputLines:
    """The lines of a file, or of stdin for `-`; each iteration starts at the first line.

    Raises: InvalidInput: the file can't be read; while iterating, a line is not UTF-8.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == STDIN else name
        try:
            self._file: BinaryIO = _seekable(sys.stdin.buffer) if name == STDIN else Path(name).expanduser().open("rb")
        except OSError as error:
            raise InvalidInput(f"{name} can't be read: {error.strerror or error}") from error

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"line {number}: it is not UTF-8 ({error.reason} at byte {error.start + 1})"
                ) from error
            yield text.removeprefix("\ufeff") if number == 1 else text

    def close(self) -> None:
        self._file.close()


def _seekable(stream: BinaryIO) -> BinaryIO:
    """A file with the content of a stream, at its end; the caller closes it."""
    file: Any = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
    shutil.copyfileobj(stream, file)
    copy: BinaryIO = file
    return copy


@contextmanager
def output_lines(name: str, *, overwrite: bool) -> Iterator[Callable[[str], None]]:
    """A function that writes one line; the file appears under its name when all lines are written.

    Raises: InvalidInput: the file can't be written, or it exists.
    """
    file = Path(name).expanduser()
    if file.exists() and not overwrite:
        raise InvalidInput(f"{name} exists already: choose another name, or replace it with --overwrite")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as out:
            yield lambda line: print(line, file=out)
        part.replace(file)
    except OSError as error:
        raise InvalidInput(f"{name} can't be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
