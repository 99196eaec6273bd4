"""The files of a manifest: a file, or a folder of them, and the Python files that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.manifests.yaml_nodes import FILE_CHARS

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000


class FolderFiles(Mapping[str, str]):
    """The texts of the files in a folder by their paths in it. Each is read when it is asked for, and only if it lies
    in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def __getitem__(self, path: str) -> str:
        """Raises: KeyError: there is no such file; InvalidInput: it is outside, too large, or no text."""
        found = self._folder / path
        try:
            real = found.resolve()
            if not real.is_relative_to(self._folder):
                raise InvalidInput(f"{path}: it lies outside of {self._folder}")
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
            raise InvalidInput(f"{path}: it can't be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a folder is not listed: only files that something names are read")

    def __len__(self) -> int:
        return 1


def open_files(place: str | Path) -> tuple[Mapping[str, str], list[str]]:
    """Return (texts by their paths, the paths of the YAML files in order) of a file or a folder, whose folders are
    looked into. Raises: InvalidInput."""
    path = Path(place).expanduser()
    if path.is_file():
        return FolderFiles(path.parent), [path.name]
    if not path.is_dir():
        raise InvalidInput(f"{place}: there is no such file or folder")
    found: list[str] = []
    for one in path.rglob("*"):
        inside = one.relative_to(path)
        if one.suffix in SUFFIXES and one.is_file() and not any(part.startswith(".") for part in inside.parts):
            found.append(inside.as_posix())
            if len(found) > FILES_MAX:
                raise InvalidInput(f"{place}: the folder has more than {FILES_MAX:,} YAML files")
    if not found:
        raise InvalidInput(f"{place}: the folder has no file that ends with {' or '.join(SUFFIXES)}")
    return FolderFiles(path), sorted(found)


def given_files(files: Any) -> tuple[Mapping[str, str], list[str]]:
    """Return what `open_files` does, of texts by their paths."""
    return files, sorted(path for path in files if path.endswith(SUFFIXES))


def join_path(file: str, path: str) -> str | None:
    """The path that a file names from its own folder; None: it leads outside, or is no path of its own."""
    if "\x00" in path or "\\" in path or PurePosixPath(path).is_absolute() or path[1:2] == ":":
        return None
    parts: list[str] = []
    for part in (*PurePosixPath(file).parent.parts, *PurePosixPath(path).parts):
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            return None
    return "/".join(parts)
