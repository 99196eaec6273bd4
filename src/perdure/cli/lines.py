"""Files of lines, read twice: once to look at all of them, once to take them; and a bar that shows how far it is."""

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

__all__ = ["STDIN", "InputLines", "output_lines", "progress_bar"]

STDIN = "-"
KEPT_BYTES = 16_000_000  # of stdin in memory; more is put into a file


class InputLines:
    """The lines of a file, or of stdin for `-`; each iteration begins anew.

    Raises: InvalidInput: it can't be read; while iterating, a line is no UTF-8.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == STDIN else name
        try:
            self._file: BinaryIO = _kept(sys.stdin.buffer) if name == STDIN else Path(name).expanduser().open("rb")
        except OSError as error:
            raise InvalidInput(f"{name} can't be read: {error.strerror or error}") from error

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"line {number}: it is no UTF-8 ({error.reason} at byte {error.start + 1})"
                ) from error
            yield text.removeprefix("\ufeff") if number == 1 else text

    def close(self) -> None:
        self._file.close()


def _kept(stream: BinaryIO) -> BinaryIO:
    """What a stream holds, as a file that can be read again."""
    file: Any = tempfile.SpooledTemporaryFile(max_size=KEPT_BYTES)  # noqa: SIM115  # whoever reads it closes it
    shutil.copyfileobj(stream, file)
    kept: BinaryIO = file
    return kept


@contextmanager
def output_lines(name: str, *, overwrite: bool) -> Iterator[Callable[[str], None]]:
    """Writes a line each time it is called; the file is there when all of them are.

    Raises: InvalidInput: it can't be written, or it is there already.
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


@contextmanager
def progress_bar(what: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, told how much is done; nothing where nobody watches."""
    if not shown:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
