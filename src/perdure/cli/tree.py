"""Select the files of directories to upload: no version control, no installed packages, no binary files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from perdure.app import check_file
from perdure.core.errors import InvalidInput

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
