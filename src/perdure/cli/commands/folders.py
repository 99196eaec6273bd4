"""`perdure folder` and `perdure file`: also which files of a directory are uploaded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

from perdure.cli.run import LastAgent, Yes, agent_option, argument, command, for_work, option

if for_work(__name__):
    import asyncio

    from rich.progress import Progress, TaskID

    from perdure.app import check_file
    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.views.view import View, fold, plural, visible
    from perdure.cli.work import confirm, deleted, get_agent, load_all, no_store, none_yet, open_store, progress_bars
    from perdure.core.errors import InvalidInput, NotFound, StoreError
    from perdure.core.files import File
    from perdure.core.ids import FileId
    from perdure.library.folders import AsyncFolder
    from perdure.settings import Settings

FolderName = Annotated[str, argument("Name or id of the folder.", "FOLDER")]

NO_FOLDER = "`perdure file upload PATH --folder NAME` makes one."
UPLOAD_AGAIN = "`perdure file upload` adds the files again"
BARS = 4  # of files that are read at once
NAMES_MAX = 12  # of skipped or failed files
PROBLEM_CHARS = 160


@command("folder list", json=False)
async def list_folders(view: View) -> None:
    """List the folders of files."""
    async with open_store(view, empty=NO_FOLDER) as perdure:
        rows = await load_all(perdure.folders.list)
        for folder in rows:
            view.print(await _folder_line(folder))
        view.hint("`perdure file list FOLDER` lists its files." if rows else NO_FOLDER)


@command("folder attach", json=False)
async def attach_folder(view: View, folder: FolderName, agent: LastAgent = None) -> None:
    """Let an agent read a folder."""
    async with open_store(view, empty=none_yet("folder", folder)) as perdure:
        owner = await get_agent(view, perdure, agent, change=True)
        await owner.files.attach(folder, open_files=False)
        view.print(await _folder_line(await perdure.folders.get(folder)))
        view.hint(f"{owner.name} reads it: `{chat_command(owner)}`.")


@command("folder detach", json=False)
async def detach_folder(view: View, folder: FolderName, agent: LastAgent = None) -> None:
    """Take a folder from an agent."""
    async with open_store(view, empty=none_yet("folder", folder)) as perdure:
        owner = await get_agent(view, perdure, agent, change=True)
        await owner.files.detach(folder)
        view.print(await _folder_line(await perdure.folders.get(folder)))
        view.hint(f"{owner.name} has it no longer; the folder itself stays.")


@command("folder delete", json=False)
async def delete_folder(view: View, folder: FolderName, yes: Yes = False) -> None:
    """Delete a folder with its files, for good."""
    async with open_store(view, empty=none_yet("folder", folder)) as perdure:
        target = await perdure.folders.get(folder)
        count = plural(target.info.file_count, "file")
        question = (
            f"Folder {target.name!r} with {count} will be gone for good, also for"
            f" {plural(len(await target.agents()), 'agent')}. Delete?"
        )
        confirm(view, question, action="delete the folder", yes=yes)
        await perdure.folders.delete(target.id)
        view.hint(deleted(f"folder {target.name!r} with {count}", UPLOAD_AGAIN))


async def _folder_line(folder: AsyncFolder) -> str:
    """A folder, how many files are in it, and how many agents read it."""
    info, agents = folder.info, plural(len(await folder.agents()), "agent")
    about = f" · {fold(info.description, 60)}" if info.description else ""
    return visible(f"{folder.name} · {plural(info.file_count, 'file')} · {agents}{about}")


@command("file upload", json=False)
async def upload(
    view: View,
    paths: Annotated[list[Path], argument("Files, or whole directories.", "PATH...")],
    folder: Annotated[str | None, option("The folder; by default named as the directory.", "NAME")] = None,
    agent: Annotated[str | None, agent_option("Give the folder to this agent, by name or id.")] = None,
    encoding: Annotated[str | None, option("Of texts, such as gb18030; by default it is guessed.", "NAME")] = None,
) -> int:
    """Add files to a folder that agents read. A file that is there with the same bytes stays as it is.

    Of directories, version control, packages of others and what is no text are left out.
    """
    entries = list(select_files(paths, max_bytes=Settings.from_environment().file_limit_bytes))
    selected = [entry for entry in entries if isinstance(entry, Selected)]
    skipped = [entry for entry in entries if isinstance(entry, Skipped)]
    if not selected:
        raise InvalidInput(f"there is nothing to upload: {skipped[0] if skipped else 'the folder is empty'}")
    async with open_store(view) as perdure:
        name = folder or _folder_name(paths[0])
        try:
            target = await perdure.folders.get(name)
        except NotFound:
            target = await perdure.folders.create(name)
        reader = None if agent is None else await get_agent(view, perdure, agent, change=True)
        upload = await _upload(target, selected, encoding, view)
        if upload is None:
            return 1
        if reader is not None:
            await reader.files.attach(target.id, open_files=len(selected) == 1)
        _report(view, upload, skipped, target.name, None if reader is None else reader.name)
        return int(bool(upload.failures))


@command("file list", json=False)
async def list_files(
    view: View, name: Annotated[str, argument("A folder; or an agent, for its open files.", "FOLDER")]
) -> None:
    """List the files of a folder, and the progress of each."""
    async with open_store(view, empty=no_store("`perdure file upload` makes one")) as perdure:
        try:
            folder = await perdure.folders.get(name)
        except NotFound as error:
            try:
                agent = await get_agent(view, perdure, name)
            except NotFound:
                raise error from None
            for reading in await agent.files.list(limit=10_000):
                lines = f" · open, lines {reading.first_line}-{reading.last_line}" if reading.is_open else ""
                view.print(visible(f"{reading.path} · {_state(reading.file)}{lines}"))
            view.hint(f"Ask about them: `{chat_command(agent)}`.")
            return
        for file in await load_all(folder.files):
            view.print(visible(f"{file.name} · {_state(file)}"))
        view.hint(f"`perdure folder attach {shlex.quote(folder.name)} AGENT` lets an agent read them.")


@command("file delete", json=False)
async def delete_file(
    view: View, file: Annotated[str, argument("Name or id of the file.", "FILE")], folder: FolderName, yes: Yes = False
) -> None:
    """Delete a file of a folder, for good."""
    async with open_store(view, empty=none_yet("folder", folder)) as perdure:
        owner = await perdure.folders.get(folder)
        target = await owner.file(file)
        question = f"File {target.name!r} of folder {owner.name!r} will be gone for good. Delete?"
        confirm(view, question, action="delete the file", yes=yes)
        await owner.delete_file(target.id)
        view.hint(deleted(f"file {target.name!r} of folder {owner.name!r}", UPLOAD_AGAIN))


@dataclass(frozen=True, slots=True)
class _Upload:
    """The files that are read, "name: problem" of those that failed, and how many were there before."""

    files: Sequence[File]
    failures: Sequence[str]
    existing: int


async def _upload(
    folder: AsyncFolder, selected: Sequence[Selected], encoding: str | None, view: View
) -> _Upload | None:
    """Upload the files and wait until all are read; None: the store can't take them, which the view shows."""
    ids: list[FileId] = []
    existing: set[FileId] = set()
    failures: list[str] = []
    try:
        with progress_bars() as progress:
            total = progress.add_task(f"uploading {plural(len(selected), 'file')}", total=len(selected))
            for entry in selected:
                try:
                    is_text = not entry.name.lower().endswith((".pdf", ".docx", ".xlsx"))
                    file = await folder.upload(entry.path, name=entry.name, encoding=encoding if is_text else None)
                    ids.append(file.id)
                    if file.status == "completed":
                        existing.add(file.id)
                except InvalidInput as error:
                    failures.append(f"{entry.name}: {error}")
                progress.advance(total)
            files = await _wait(folder, [*dict.fromkeys(ids)], progress)
    except asyncio.CancelledError:
        view.hint("Stopped. What was uploaded stays, and is read when the store is open again.")
        raise
    except StoreError as error:
        view.error(error)
        view.hint("What was uploaded stays, and is read as soon as there is room: upload the same again then.")
        return None
    failures += [f"{file.name}: {file.problem}" for file in files if file.status == "error"]
    return _Upload(files, failures, len(existing))


async def _wait(folder: AsyncFolder, ids: Sequence[FileId], progress: Progress) -> Sequence[File]:
    """The files once all are read, with a bar for each file in work and one for all."""
    total = progress.add_task(f"reading {plural(len(ids), 'file')}", total=len(ids))
    bars: dict[FileId, TaskID] = {}

    def show(files: Sequence[File]) -> None:
        for file in files:
            if file.status == "parsing" and file.total and (file.id in bars or len(bars) < BARS):
                if file.id not in bars:
                    bars[file.id] = progress.add_task(fold(file.name, 40), total=file.total)
                progress.update(bars[file.id], completed=file.done)
            if file.ended and (bar := bars.pop(file.id, None)) is not None:
                progress.remove_task(bar)
        progress.update(total, completed=sum(file.ended for file in files))

    return await folder.wait(ids, progress=show)


def _report(view: View, upload: _Upload, skipped: Sequence[Skipped], folder: str, agent: str | None) -> None:
    """Print how many files were read, which failed and which were skipped, and what to do next."""
    done = [file for file in upload.files if file.status == "completed"]
    lines, pages = sum(file.line_count for file in done), sum(file.page_count for file in done)
    size = f"{lines:,} lines" + (f", {pages:,} pages" if pages else "")
    size += f"; {upload.existing:,} of the files there already" if upload.existing else ""
    failures = upload.failures
    view.print(f"{plural(len(done), 'file')} done ({size}), {len(failures)} failed, {len(skipped)} skipped.")
    notes = [f"{file.name}: {warning}" for file in done for warning in file.warnings]
    for kind, items in (("failed", failures), ("skipped", [str(entry) for entry in skipped]), ("note", notes)):
        for item in items[:NAMES_MAX]:
            line = f"{kind}: {fold(visible(item), PROBLEM_CHARS)}"
            if kind == "failed":
                view.error(InvalidInput(line))
            else:
                view.hint(line)
        if len(items) > NAMES_MAX:
            view.hint(f"... and {len(items) - NAMES_MAX} more {kind}.")
    if failures:
        view.hint("Upload those again once that is mended; the others stay as they are.")
    if done and agent is None:
        view.hint(f"`perdure folder attach {shlex.quote(folder)} AGENT` lets an agent read them.")
    elif done and agent is not None:
        view.hint(f"Ask about them: `perdure chat {shlex.quote(agent)}`.")


def _state(file: File) -> str:
    """How large a file is, how far it is read, or what is wrong with it."""
    if file.status == "error":
        return f"error: {fold(file.problem, PROBLEM_CHARS)}"
    if file.status != "completed":
        return f"{file.status}, {100 * file.done // max(1, file.total)} %"
    pages = f", {plural(file.page_count, 'page')}" if file.page_count else ""
    return f"{plural(file.line_count, 'line')}{pages}"


def _folder_name(path: Path) -> str:
    """The folder's name by default: that of the directory, or `files`."""
    path = path.expanduser().resolve()
    return path.name if path.is_dir() and path.name else "files"


DIRECTORIES = frozenset(
    {
        *(".git", ".hg", ".svn", ".idea", ".vscode", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".venv", "venv", "node_modules", "__pycache__", ".eggs", ".gradle", ".terraform", ".next", ".cache"),
        *("dist", "build", "target", "site-packages"),
    }
)
HEAD_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Selected:
    """A file to upload, and its name below its folder."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or directory that is not uploaded, and why."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def select_files(paths: Sequence[Path], *, max_bytes: int) -> Iterator[Selected | Skipped]:
    """The files at these paths, those of a directory ordered by name; a file in `paths` itself is never skipped.

    Raises: InvalidInput: a path does not exist.
    """
    for path in paths:
        expanded = path.expanduser()
        if expanded.is_dir():
            yield from _select_in(expanded, max_bytes)
        elif expanded.is_file():
            yield Selected(expanded, expanded.name)
        else:
            raise InvalidInput(f"there is no file or directory {str(path)!r:.200}")


def _select_in(root: Path, max_bytes: int) -> Iterator[Selected | Skipped]:
    """The files of a directory and of those below it."""
    ignored: list[tuple[str, str]] = []  # (directory, pattern)
    for directory, folders, files in os.walk(root):
        current = Path(directory)
        ignored += [(current.relative_to(root).as_posix(), pattern) for pattern in _patterns(current / ".gitignore")]
        descend = []
        for folder in sorted(folders):
            name = (current / folder).relative_to(root).as_posix()
            if folder in DIRECTORIES:
                yield Skipped(f"{name}/", "not a part of the sources")
            elif (current / folder).is_symlink() or _is_ignored(name, ignored, directory=True):
                yield Skipped(f"{name}/", "ignored")
            else:
                descend.append(folder)
        folders[:] = descend
        for path in (current / file for file in sorted(files)):
            yield _select(path, path.relative_to(root).as_posix(), max_bytes, ignored)


def _select(path: Path, name: str, max_bytes: int, ignored: Sequence[tuple[str, str]]) -> Selected | Skipped:
    """A file, or why it is skipped."""
    if path.is_symlink() or not path.is_file():
        return Skipped(name, "not a plain file")
    if _is_ignored(name, ignored, directory=False):
        return Skipped(name, "ignored by .gitignore")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return Skipped(name, error.strerror or str(error))
    if not size:
        return Skipped(name, "empty")
    if size > max_bytes:
        return Skipped(name, f"{size:,} bytes, the limit is {max_bytes:,}")
    if b"\0" in head and path.suffix.lower() not in (".pdf", ".docx", ".xlsx", ".xlsm"):
        return Skipped(name, "binary")
    try:
        check_file(name, head)
    except InvalidInput as error:
        return Skipped(name, str(error))
    return Selected(path, name)


def _patterns(file: Path) -> list[str]:
    """The patterns of a .gitignore; negated ones are not supported and left out."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]


def _is_ignored(name: str, ignored: Sequence[tuple[str, str]], *, directory: bool) -> bool:
    """Whether a pattern of a .gitignore above or beside the path matches it."""
    for folder, pattern in ignored:
        if folder != "." and not name.startswith(f"{folder}/"):
            continue
        if pattern.endswith("/") and not directory:
            continue
        below = name if folder == "." else name[len(folder) + 1 :]
        anchored = "/" in pattern.rstrip("/")
        stripped = pattern.strip("/")
        if fnmatch(below, stripped) or (not anchored and fnmatch(below.rpartition("/")[2], stripped)):
            return True
    return False
