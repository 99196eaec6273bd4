"""Which files of a directory to upload: no version control, no packages of others, nothing that is no text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from perdure.app import check_file
from perdure.core.errors import InvalidInput

__all__ = ["Picked", "Skipped", "picked"]

DIRECTORIES = frozenset(
    {
        *(".git", ".hg", ".svn", ".idea", ".vscode", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".venv", "venv", "node_modules", "__pycache__", ".eggs", ".gradle", ".terraform", ".next", ".cache"),
        *("dist", "build", "target", "site-packages"),
    }
)
HEAD_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Picked:
    """A file to upload, and what it is called below its folder."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is left out, and why."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def picked(paths: Sequence[Path], *, most_bytes: int) -> Iterator[Picked | Skipped]:
    """The files at these paths, those of directories in the order of their names. A file that is named itself is never
    left out: it is uploaded, or refused with what is wrong.

    Raises: InvalidInput: there is nothing at a path.
    """
    for path in paths:
        whole = path.expanduser()
        if whole.is_dir():
            yield from _of_directory(whole, most_bytes)
        elif whole.is_file():
            yield Picked(whole, whole.name)
        else:
            raise InvalidInput(f"there is no file or directory {str(path)!r:.200}")


def _of_directory(root: Path, most_bytes: int) -> Iterator[Picked | Skipped]:
    ignored: list[tuple[str, str]] = []  # (directory, pattern)
    for directory, below, files in os.walk(root):
        here = Path(directory)
        place = here.relative_to(root).as_posix()
        ignored += [(place, pattern) for pattern in _patterns(here / ".gitignore")]
        kept = []
        for name in sorted(below):
            inner = (here / name).relative_to(root).as_posix()
            if name in DIRECTORIES or (here / name).is_symlink() or _is_ignored(inner, ignored, directory=True):
                yield Skipped(f"{inner}/", "not a part of the sources" if name in DIRECTORIES else "ignored")
            else:
                kept.append(name)
        below[:] = kept
        for name in sorted(files):
            path = here / name
            inner = path.relative_to(root).as_posix()
            yield _looked_at(path, inner, most_bytes, ignored)


def _looked_at(path: Path, name: str, most_bytes: int, ignored: Sequence[tuple[str, str]]) -> Picked | Skipped:
    if path.is_symlink() or not path.is_file():
        return Skipped(name, "no plain file")
    if _is_ignored(name, ignored, directory=False):
        return Skipped(name, "ignored by .gitignore")
    try:
        size = path.stat().st_size
        with path.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
    except OSError as error:
        return Skipped(name, error.strerror or str(error))
    if not size:
        return Skipped(name, "empty")
    if size > most_bytes:
        return Skipped(name, f"{size:,} bytes, the limit is {most_bytes:,}")
    if b"\0" in head and path.suffix.lower() not in (".pdf", ".docx", ".xlsx", ".xlsm"):
        return Skipped(name, "binary")
    try:
        check_file(name, head)
    except InvalidInput as error:
        return Skipped(name, str(error))
    return Picked(path, name)


def _patterns(file: Path) -> list[str]:
    """The lines of a .gitignore that leave something out; what takes something in again is not looked at."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]


def _is_ignored(name: str, ignored: Sequence[tuple[str, str]], *, directory: bool) -> bool:
    for place, pattern in ignored:
        if place != "." and not name.startswith(f"{place}/"):
            continue
        inner = name if place == "." else name[len(place) + 1 :]
        if pattern.endswith("/") and not directory:
            continue
        bare = pattern.strip("/")
        anchored = "/" in pattern.rstrip("/")
        if fnmatch(inner, bare) or (not anchored and fnmatch(inner.rpartition("/")[2], bare)):
            return True
    return False
