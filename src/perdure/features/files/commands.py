"""`perdure folder` and `perdure file`: also which files of a directory are uploaded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

from perdure.cli.commands.run import LastAgent, Yes, agent_option, argument, command, for_work, option

if for_work(__name__):
    import asyncio

    from rich.progress import Progress, TaskID

    from perdure.cli.session.agent_choice import chat_command
    from perdure.cli.session.work import deleting, get_agent, load_all, open_store, progress_bars
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, fold, plural, visible
    from perdure.core.errors import InvalidInput, NotFound, StoreError
    from perdure.core.ids import FileId
    from perdure.features.files.converters.convert import check_file
    from perdure.features.files.folder_service import AsyncFolder
    from perdure.features.files.values import File
    from perdure.library.perdure import AsyncPerdure
    from perdure.scratch import user_path
    from perdure.settings import Settings

FolderName = Annotated[str, argument("Name or id of the folder.", "FOLDER")]

NO_FOLDER = "`perdure file upload PATH --folder NAME` makes one."
UPLOAD_AGAIN = "`perdure file upload` adds the files again"
BARS = 4  # of files that are read at once
NAMES_MAX = 12  # of skipped or failed files
PROBLEM_CHARS = 160


@command("folder list", none=NO_FOLDER)
async def list_folders(view: Output, perdure: AsyncPerdure) -> None:
    """List the folders of files."""
    rows = [await _folder_row(folder) for folder in await load_all(perdure.folders.list)]
    view.show([shape for shape, _ in rows], *(line for _, line in rows))
    view.hint("`perdure file list FOLDER` lists its files." if rows else NO_FOLDER)


@command("folder attach", finds="folder", change=True)
async def attach_folder(view: Output, perdure: AsyncPerdure, folder: FolderName, agent: LastAgent) -> None:
    """Let an agent read a folder."""
    await agent.files.attach(folder, open_files=False)
    view.show(*await _folder_row(await perdure.folders.get(folder)))
    view.hint(f"{agent.name} reads it: `{chat_command(agent)}`.")


@command("folder detach", finds="folder", change=True)
async def detach_folder(view: Output, perdure: AsyncPerdure, folder: FolderName, agent: LastAgent) -> None:
    """Detach a folder from an agent."""
    await agent.files.detach(folder)
    view.show(*await _folder_row(await perdure.folders.get(folder)))
    view.hint(f"{agent.name} has it no longer; the folder itself stays.")


@command("folder delete", finds="folder")
async def delete_folder(view: Output, perdure: AsyncPerdure, folder: FolderName, yes: Yes = False) -> None:
    """Delete a folder with its files, for good."""
    target = await perdure.folders.get(folder)
    what = f"folder {target.name!r} with {plural(target.info.file_count, 'file')}"
    also = f"also for {plural(len(await target.agents()), 'agent')}"
    with deleting(view, what, also, yes=yes, after=UPLOAD_AGAIN, id_=target.id):
        await perdure.folders.delete(target.id)


async def _folder_row(folder: AsyncFolder) -> tuple[dict[str, Any], str]:
    """A folder for programs, and for people: how many files are in it, and how many agents read it."""
    info, agents = folder.info, await folder.agents()
    about = f" · {fold(info.description, 60)}" if info.description else ""
    line = f"{folder.name} · {plural(info.file_count, 'file')} · {plural(len(agents), 'agent')}{about}"
    shape = fields(info, "name", "id", "description", "created_at", "updated_at", files="file_count")
    return shape | {"agents": list(agents)}, visible(line)


@command("file upload")
async def upload(
    view: Output,
    paths: Annotated[list[Path], argument("Files, or whole directories.", "PATH...")],
    folder: Annotated[str | None, option("The folder; by default named after the directory.", "NAME")] = None,
    agent: Annotated[str | None, agent_option("Give the folder to this agent, by name or id.")] = None,
    encoding: Annotated[
        str | None, option("Encoding of texts, such as gb18030; by default it is guessed.", "NAME")
    ] = None,
) -> int:
    """Add files to a folder that agents read. A file that is already there with the same bytes stays as it is.

    From directories, version control, third-party packages and whatever is not text are left out.
    """
    entries = list(select_files(paths, max_bytes=Settings.from_environment().file_limit_bytes))
    selected = [entry for entry in entries if not entry.skipped]
    skipped = [entry for entry in entries if entry.skipped]
    if not selected:
        raise InvalidInput(f"there is nothing to upload: {skipped[0] if skipped else 'the folder is empty'}")
    async with open_store() as perdure:
        path = user_path(paths[0]).resolve()
        name = folder or (path.name if path.is_dir() and path.name else "files")
        try:
            target = await perdure.folders.get(name)
        except NotFound:
            target = await perdure.folders.create(name)
        reader = None if agent is None else await get_agent(view, perdure, agent, change=True)
        files, failures, existing = await _upload(target, selected, encoding, view)
        if reader is not None:
            await reader.files.attach(target.id, open_files=len(selected) == 1)
        _report(view, target, files, failures, skipped, existing)
        if any(file.status == "completed" for file in files):
            to_read = f"`perdure folder attach {shlex.quote(target.name)} AGENT` lets an agent read them."
            view.hint(to_read if reader is None else f"Ask about them: `perdure chat {shlex.quote(reader.name)}`.")
        return int(bool(failures))


@command("file list", lacks="`perdure file upload` makes one")
async def list_files(
    view: Output,
    perdure: AsyncPerdure,
    name: Annotated[
        str | None, argument("A folder, or an agent, for its open files; by default all folders.", "FOLDER")
    ] = None,
) -> None:
    """List the files of a folder, or of all folders, and the progress of each."""
    if name is None:
        folders = await load_all(perdure.folders.list)
        rows = [(f"{folder.name}/{file.name}", file) for folder in folders for file in await load_all(folder.files)]
        view.show([_file_shape(file) | {"path": path} for path, file in rows], *(_file_line(*row) for row in rows))
        view.hint("`perdure folder attach FOLDER AGENT` lets an agent read one." if folders else NO_FOLDER)
        return
    try:
        folder = await perdure.folders.get(name)
    except NotFound as error:
        try:
            agent = await get_agent(view, perdure, name)
        except NotFound:
            raise error from None
        shapes, lines = [], []
        for reading in await agent.files.list(limit=10_000):
            shapes.append(_file_shape(reading.file) | fields(reading, "path", "is_open", "first_line", "last_line"))
            part = f" · open, lines {reading.first_line}-{reading.last_line}" if reading.is_open else ""
            lines.append(_file_line(reading.path, reading.file) + part)
        view.show(shapes, *lines)
        view.hint(f"Ask about them: `{chat_command(agent)}`.")
        return
    files = await load_all(folder.files)
    view.show([_file_shape(file) for file in files], *(_file_line(file.name, file) for file in files))
    view.hint(f"`perdure folder attach {shlex.quote(folder.name)} AGENT` lets an agent read them.")


@command("file delete", finds="file")
async def delete_file(
    view: Output,
    perdure: AsyncPerdure,
    file: Annotated[str, argument("Name or id of the file.", "FILE")],
    folder: FolderName,
    yes: Yes = False,
) -> None:
    """Delete a file of a folder, for good."""
    owner = await perdure.folders.get(folder)
    target = await owner.file(file)
    what = f"file {target.name!r} of folder {owner.name!r}"
    with deleting(view, what, yes=yes, after=UPLOAD_AGAIN, id_=target.id):
        await owner.delete_file(target.id)


async def _upload(
    folder: AsyncFolder, selected: Sequence[UploadEntry], encoding: str | None, view: Output
) -> tuple[Sequence[File], Sequence[str], int]:
    """Upload the files and wait until all are read. Return the files, "name: problem" of those that failed, and how
    many were in the folder already. Raises: StoreError: the store can't take them."""
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
    except StoreError:
        view.hint("What was uploaded stays, and is read as soon as there is room: upload the same again then.")
        raise
    failures += [f"{file.name}: {file.problem}" for file in files if file.status == "error"]
    return files, failures, len(existing)


async def _wait(folder: AsyncFolder, ids: Sequence[FileId], progress: Progress) -> Sequence[File]:
    """Wait until all files are read, and return them; bars show the progress of some files, and of all together."""
    total = progress.add_task(f"reading {plural(len(ids), 'file')}", total=len(ids))
    bars: dict[FileId, TaskID] = {}

    def show(files: Sequence[File]) -> None:
        """Draw a bar for each file that is being read, and the total."""
        for file in files:
            if file.status == "parsing" and file.total and (file.id in bars or len(bars) < BARS):
                if file.id not in bars:
                    bars[file.id] = progress.add_task(fold(file.name, 40), total=file.total)
                progress.update(bars[file.id], completed=file.done)
            if file.ended and (bar := bars.pop(file.id, None)) is not None:
                progress.remove_task(bar)
        progress.update(total, completed=sum(file.ended for file in files))

    return await folder.wait(ids, progress=show)


def _report(
    view: Output,
    folder: AsyncFolder,
    files: Sequence[File],
    failures: Sequence[str],
    skipped: Sequence[UploadEntry],
    existing: int,
) -> None:
    """Print how many files were read, which failed, which were skipped, and how many existed already."""
    done = [file for file in files if file.status == "completed"]
    lines, pages = sum(file.line_count for file in done), sum(file.page_count for file in done)
    size = f"{lines:,} lines" + (f", {pages:,} pages" if pages else "")
    size += f"; {existing:,} of the files there already" if existing else ""
    shape = {"folder": folder.name, "folder_id": folder.id, "files": [_file_shape(file) for file in done]}
    rest = {"existing": existing, "failed": list(failures), "skipped": list(map(str, skipped))}
    line = f"{plural(len(done), 'file')} done ({size}), {len(failures)} failed, {len(skipped)} skipped."
    view.show(shape | rest, line)
    notes = [f"{file.name}: {warning}" for file in done for warning in file.warnings]
    for kind, items in (("failed", failures), ("skipped", [str(entry) for entry in skipped]), ("note", notes)):
        for item in items[:NAMES_MAX]:
            show = view.note if kind == "failed" else view.hint
            show(f"{kind}: {fold(visible(item), PROBLEM_CHARS)}")
        if len(items) > NAMES_MAX:
            view.hint(f"... and {len(items) - NAMES_MAX} more {kind}.")
    if failures:
        view.hint("Upload those again once that is mended; the others stay as they are.")


def _file_shape(file: File) -> dict[str, Any]:
    """A file as `--json` prints it."""
    names = ("name", "id", "folder_id", "status", "problem", "size_bytes", "line_count", "page_count", "created_at")
    return fields(file, *names) | {"warnings": list(file.warnings)}


def _file_line(path: str, file: File) -> str:
    """A file by its path, and how far it is."""
    return visible(f"{path} · {_state(file)}")


def _state(file: File) -> str:
    """How large a file is; if it is not read yet, how far it is; or why it can't be read."""
    if file.status == "error":
        return f"error: {fold(file.problem, PROBLEM_CHARS)}"
    if file.status != "completed":
        return f"{file.status}, {100 * file.done // max(1, file.total)} %"
    pages = f", {plural(file.page_count, 'page')}" if file.page_count else ""
    return f"{plural(file.line_count, 'line')}{pages}"


DIRECTORIES = frozenset(
    {
        *(".git", ".hg", ".svn", ".idea", ".vscode", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".venv", "venv", "node_modules", "__pycache__", ".eggs", ".gradle", ".terraform", ".next", ".cache"),
        *("dist", "build", "target", "site-packages"),
    }
)
HEAD_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class UploadEntry:
    """A file or directory to upload, its name below its folder, and why it is `skipped`; empty: it is uploaded."""

    path: Path
    name: str
    skipped: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.skipped}"


def select_files(paths: Sequence[Path], *, max_bytes: int) -> Iterator[UploadEntry]:
    """The files at these paths, those of a directory ordered by name; a file in `paths` itself is never skipped.

    Raises: InvalidInput: a path does not exist.
    """
    for path in paths:
        expanded = user_path(path)
        if expanded.is_dir():
            yield from _select_in(expanded, max_bytes)
        elif expanded.is_file():
            yield UploadEntry(expanded, expanded.name)
        else:
            raise InvalidInput(f"there is no file or directory {str(path)!r:.200}")


def _select_in(root: Path, max_bytes: int) -> Iterator[UploadEntry]:
    """The files of a directory and of those below it, also those to skip."""
    ignored: list[tuple[str, str]] = []  # (directory, pattern)
    for directory, folders, files in os.walk(root):
        current = Path(directory)
        ignored += [(current.relative_to(root).as_posix(), pattern) for pattern in _patterns(current / ".gitignore")]
        descend = []
        for folder in sorted(folders):
            name = (current / folder).relative_to(root).as_posix()
            if folder in DIRECTORIES:
                yield UploadEntry(current / folder, f"{name}/", "not a part of the sources")
            elif (current / folder).is_symlink() or _is_ignored(name, ignored, directory=True):
                yield UploadEntry(current / folder, f"{name}/", "ignored")
            else:
                descend.append(folder)
        folders[:] = descend
        for path in (current / file for file in sorted(files)):
            name = path.relative_to(root).as_posix()
            yield UploadEntry(path, name, _why_skipped(path, name, max_bytes, ignored))


def _why_skipped(path: Path, name: str, max_bytes: int, ignored: Sequence[tuple[str, str]]) -> str:
    """Why a file is not uploaded; empty if it is."""
    if path.is_symlink() or not path.is_file():
        return "not a plain file"
    if _is_ignored(name, ignored, directory=False):
        return "ignored by .gitignore"
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    if not size:
        return "empty"
    if size > max_bytes:
        return f"{size:,} bytes, the limit is {max_bytes:,}"
    if b"\0" in head and path.suffix.lower() not in (".pdf", ".docx", ".xlsx", ".xlsm"):
        return "binary"
    try:
        check_file(name, head)
    except InvalidInput as error:
        return str(error)
    return ""


def _patterns(file: Path) -> list[str]:
    """The patterns of a .gitignore; negated ones are not supported and left out."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]


def _is_ignored(name: str, ignored: Sequence[tuple[str, str]], *, directory: bool) -> bool:
    """Whether a path `name` fits one of the `ignored`, each the directory of a .gitignore and a pattern in it."""
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
