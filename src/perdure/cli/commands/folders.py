"""`perdure folders`, `perdure files` and `perdure upload`: folders of files, and how far each file is."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.confirm import agreed
from perdure.cli.tree import Picked, Skipped, picked
from perdure.cli.views.fold import fold, visible
from perdure.core.errors import InvalidInput, NotFound, PerdureError, StoreError
from perdure.core.files import AgentFile, File
from perdure.core.ids import FileId, FolderId
from perdure.library.folders import AsyncFolder
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["files", "folders", "upload"]

PAGE = 500
BARS = 4  # files that are shown at once while they are read
SHOWN = 12  # skipped or failed files that are named one by one
PROBLEM_CHARS = 160


async def folders(
    *, attach: tuple[str, str] | None, detach: tuple[str, str] | None, delete: str | None, yes: bool
) -> int:
    """List the folders, once what is asked for has been done to one of them; the exit code.

    Args:
        attach, detach: a folder and an agent.
    """
    terminal = _terminal()
    try:
        found: list[tuple[AsyncFolder, int]] = []
        if not _settings().store_path.exists():
            if asked := attach or detach or delete:
                raise NotFound("folder", asked if isinstance(asked, str) else asked[0], hint="there is none yet")
        else:
            async with await AsyncPerdure.open(settings=_settings()) as perdure:
                if attach is not None:
                    await (await perdure.agent(attach[1])).files.attach(attach[0], open_files=False)
                if detach is not None:
                    await (await perdure.agent(detach[1])).files.detach(detach[0])
                if delete is not None and not await _deleted(perdure, delete, yes=yes):
                    terminal.hint("Nothing was deleted.")
                    return 1
                after: FolderId | None = None
                while page := await perdure.folders.list(limit=PAGE, after=after):
                    found += [(folder, len(await folder.agents())) for folder in page]
                    after = page[-1].id
    except PerdureError as error:
        terminal.error(str(error))
        return 1
    for folder, agents in found:
        about = f" · {fold(folder.info.description, 60)}" if folder.info.description else ""
        _say(terminal, f"{folder.name} · {_count(folder.info.file_count, 'file')} · {_count(agents, 'agent')}{about}")
    hint = "`perdure files FOLDER` lists its files." if found else "`perdure upload PATH --folder NAME` makes one."
    terminal.hint(hint)
    return 0


async def _deleted(perdure: AsyncPerdure, name: str, *, yes: bool) -> bool:
    """Whether a person wanted it so."""
    folder = await perdure.folders.get(name)
    agents = len(await folder.agents())
    told = (
        f"Folder {folder.name!r} with {_count(folder.info.file_count, 'file')} will be gone for good, also for"
        f" {_count(agents, 'agent')}. Delete?"
    )
    if not yes and not agreed(told, whether="the folder shall be deleted"):
        return False
    await perdure.folders.delete(folder.id)
    return True


async def _file_deleted(folder: AsyncFolder, name: str, *, yes: bool) -> bool:
    """Whether a person wanted it so."""
    file = await folder.file(name)
    told = f"File {file.name!r} of folder {folder.name!r} will be gone for good. Delete?"
    if not yes and not agreed(told, whether="the file shall be deleted"):
        return False
    await folder.delete_file(file.id)
    return True


async def files(*, name: str, delete: str | None, yes: bool) -> int:
    """List the files of a folder, once one of them is deleted, or those that an agent has; the exit code."""
    terminal = _terminal()
    try:
        if not _settings().store_path.exists():
            raise InvalidInput(f"there is no store yet at {_settings().store_path}: `perdure upload` makes one")
        async with await AsyncPerdure.open(settings=_settings()) as perdure:
            try:
                folder = await perdure.folders.get(name)
            except NotFound as error:
                try:
                    if delete is not None:  # it is a folder's
                        raise
                    agent = await perdure.agent(name)
                except NotFound:
                    raise error from None
                for one in await agent.files.list(limit=10_000):
                    _say(terminal, f"{one.path} · {_state(one.file)}{_view(one)}")
                return 0
            if delete is not None and not await _file_deleted(folder, delete, yes=yes):
                terminal.hint("Nothing was deleted.")
                return 1
            after: FileId | None = None
            while page := await folder.files(limit=PAGE, after=after):
                for file in page:
                    _say(terminal, f"{file.name} · {_state(file)}")
                after = page[-1].id
    except PerdureError as error:
        terminal.error(str(error))
        return 1
    return 0


async def upload(*, paths: Sequence[Path], folder: str | None, agent: str | None) -> int:
    """Take files and whole folders in, wait for their text, and say what came of each; the exit code."""
    terminal = _terminal()
    try:
        settings = _settings()
        found = await asyncio.to_thread(lambda: list(picked(paths, most_bytes=settings.file_limit_bytes)))
        chosen = [one for one in found if isinstance(one, Picked)]
        skipped = [one for one in found if isinstance(one, Skipped)]
        if not chosen:
            raise InvalidInput(f"there is nothing to upload: {skipped[0] if skipped else 'the folder is empty'}")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            return await _upload(perdure, terminal, chosen, skipped, folder=folder or _name_of(paths[0]), agent=agent)
    except PerdureError as error:
        terminal.error(str(error))
        return 1


async def _upload(
    perdure: AsyncPerdure,
    terminal: Terminal,
    chosen: Sequence[Picked],
    skipped: Sequence[Skipped],
    *,
    folder: str,
    agent: str | None,
) -> int:
    try:
        into = await perdure.folders.get(folder)
    except NotFound:
        into = await perdure.folders.create(folder)
    reader = None if agent is None else await perdure.agent(agent)
    taken: dict[FileId, str] = {}
    there: set[FileId] = set()
    failed: list[str] = []
    try:
        with _bars(terminal) as progress:
            whole = progress.add_task(f"uploading {_count(len(chosen), 'file')}", total=len(chosen))
            for one in chosen:
                try:
                    file = await into.upload(one.path, name=one.name)
                    taken[file.id] = one.name
                    if file.status == "completed":
                        there.add(file.id)
                except InvalidInput as error:
                    failed.append(f"{one.name}: {error}")
                progress.advance(whole)
            read = await _watched(into, list(taken), progress)
    except asyncio.CancelledError:
        terminal.hint("Stopped. What was uploaded stays, and is read when the store is open again.")
        raise
    except StoreError as error:
        terminal.error(str(error))
        terminal.hint("What was uploaded stays, and is read as soon as there is room: upload the same again then.")
        return 1
    failed += [f"{file.name}: {file.problem}" for file in read if file.status == "error"]
    if reader is not None:
        await reader.files.attach(into.id, open_files=len(chosen) == 1)
    _told(terminal, read, failed, skipped, into.name, None if reader is None else reader.name, len(there))
    return int(bool(failed))


async def _watched(folder: AsyncFolder, ids: Sequence[FileId], progress: Progress) -> Sequence[File]:
    """The files once all have ended, with a bar for those that are being read and one for all."""
    whole = progress.add_task(f"reading {_count(len(ids), 'file')}", total=len(ids))
    bars: dict[FileId, TaskID] = {}

    def show(files: Sequence[File]) -> None:
        for file in files:
            if file.status == "parsing" and file.total and (file.id in bars or len(bars) < BARS):
                if file.id not in bars:
                    bars[file.id] = progress.add_task(fold(file.name, 40), total=file.total)
                progress.update(bars[file.id], completed=file.done)
            if file.ended and (bar := bars.pop(file.id, None)) is not None:
                progress.remove_task(bar)
        progress.update(whole, completed=sum(file.ended for file in files))

    return await folder.wait(ids, progress=show)


def _told(
    terminal: Terminal,
    read: Sequence[File],
    failed: Sequence[str],
    skipped: Sequence[Skipped],
    folder: str,
    agent: str | None,
    there: int,
) -> None:
    done = [file for file in read if file.status == "completed"]
    lines, pages = sum(file.line_count for file in done), sum(file.page_count for file in done)
    size = f"{lines:,} lines" + (f", {pages:,} pages" if pages else "")
    size += f"; {there:,} of the files there already" if there else ""
    _say(terminal, f"{_count(len(done), 'file')} done ({size}), {len(failed)} failed, {len(skipped)} skipped.")
    for what, items in (("failed", failed), ("skipped", [str(one) for one in skipped])):
        for item in items[:SHOWN]:
            (terminal.error if what == "failed" else terminal.hint)(f"{what}: {fold(visible(item), PROBLEM_CHARS)}")
        if len(items) > SHOWN:
            terminal.hint(f"... and {len(items) - SHOWN} more {what}.")
    if failed:
        terminal.hint("Upload those again once that is mended; the others stay as they are.")
    if not done:
        return
    if agent is None:
        terminal.hint(f"`perdure folders --attach {shlex.quote(folder)} NAME` lets an agent read them.")
    else:
        terminal.hint(f"Ask about them: `perdure chat {shlex.quote(agent)}`.")


@contextmanager
def _bars(terminal: Terminal) -> Iterator[Progress]:
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    percent = TextColumn("{task.percentage:>3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


def _state(file: File) -> str:
    if file.status == "error":
        return f"error: {fold(file.problem, PROBLEM_CHARS)}"
    if file.status != "completed":
        return f"{file.status}, {100 * file.done // max(1, file.total)} %"
    pages = f", {_count(file.page_count, 'page')}" if file.page_count else ""
    return f"{_count(file.line_count, 'line')}{pages}"


def _view(file: AgentFile) -> str:
    return f" · open, lines {file.first_line}-{file.last_line}" if file.is_open else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _name_of(path: Path) -> str:
    """The folder's name where none is given: that of the directory, or `files`."""
    whole = path.expanduser().resolve()
    return whole.name if whole.is_dir() and whole.name else "files"


def _say(terminal: Terminal, line: str) -> None:
    from rich.text import Text

    terminal.show(Text(visible(line)))


def _terminal() -> Terminal:
    out, err = standard_streams()
    return Terminal(out, err, interactive=False)


def _settings() -> Settings:
    return Settings.from_environment()
