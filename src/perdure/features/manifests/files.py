"""The files of a manifest: a file, or a folder of them, and the Python files that they name."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.features.manifests.documents import FILE_CHARS
from perdure.scratch import user_path

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000
WALK_MAX = 100_000

Files = str | Path | Mapping[str, str]
"""A file or folder, or texts by their paths."""


def _read_file(folder: Path, path: str) -> str:
    """Return a file's text. Raises: KeyError: there is none; InvalidInput: it is outside, too large, or no text."""
    try:
        real = (folder / path).resolve()
        if not real.is_relative_to(folder):
            raise InvalidInput(f"{path}: it lies outside of {folder}")
        if not real.is_file():
            raise KeyError(path)
        with real.open("rb") as file:
            data = file.read(4 * FILE_CHARS + 1)
        if len(data) > 4 * FILE_CHARS:
            raise InvalidInput(f"{path}: the file is larger than {4 * FILE_CHARS:,} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: the file is no text in UTF-8 (byte {error.start})") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: it can't be read: {getattr(error, 'strerror', None) or error}") from error


def open_files(files: Files) -> tuple[Callable[[str], str], list[str]]:
    """Return (function that reads a file by its path, the sorted paths of the YAML files), sub-folders included; a file
    is read only when asked for. Raises: InvalidInput."""
    if isinstance(files, Mapping):
        return files.__getitem__, sorted(path for path in files if path.endswith(SUFFIXES))
    path = user_path(files)
    if path.is_file():
        return partial(_read_file, path.parent.resolve()), [path.name]
    if not path.is_dir():
        raise InvalidInput(f"{files}: there is no such file or folder")
    found: list[str] = []
    for number, one in enumerate(path.rglob("*")):
        if number == WALK_MAX:
            raise InvalidInput(f"{files}: it holds more than {WALK_MAX:,} files and folders: name the folder of agents")
        inside = one.relative_to(path)
        if one.suffix in SUFFIXES and one.is_file() and not any(part.startswith(".") for part in inside.parts):
            found.append(inside.as_posix())
            if len(found) > FILES_MAX:
                raise InvalidInput(f"{files}: the folder has more than {FILES_MAX:,} YAML files")
    if not found:
        raise InvalidInput(f"{files}: the folder has no file that ends with {' or '.join(SUFFIXES)}")
    return partial(_read_file, path.resolve()), sorted(found)


def join_path(file: str, path: str) -> str | None:
    """The path that a file names from its own folder; None: it leads outside, or is no path of its own."""
    if "\x00" in path or "\\" in path or path.startswith("/") or path[1:2] == ":":
        return None
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    return None if joined.partition("/")[0] == ".." else joined
