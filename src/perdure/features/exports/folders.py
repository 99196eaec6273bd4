"""Folders that appear whole under their names, and names that every file system takes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.core.errors import InvalidInput

MARKER = "export.json"
"""The file by which a folder is known as an export, so that another one may replace it."""
NAME_CHARS = 60

_NOT_IN_NAME = re.compile(r"[^\w-]+")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)\d", re.IGNORECASE)


def absolute(path: str | Path) -> Path:
    """Return a path from the root, with the home folder in place of `~`."""
    return Path(path).expanduser().absolute()


def safe_name(text: str, otherwise: str) -> str:
    """Return a name for a file or folder that reminds of a text: letters, digits and dashes."""
    name = _NOT_IN_NAME.sub("-", text.encode("utf-8", "ignore").decode())[:NAME_CHARS].strip("-_")
    while len(name.encode()) > 2 * NAME_CHARS:
        name = name[:-1]
    return name if name and not _RESERVED.fullmatch(name) else otherwise


def unused_name(name: str, used: set[str]) -> str:
    """Return the name, with a number behind it if it is `used` in any case, and add it to those."""
    number, found = 1, name
    while found.casefold() in used:
        number += 1
        found = f"{name}-{number}"
    used.add(found.casefold())
    return found


@contextmanager
def new_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write to, which takes the place of `target` when all is written. Raises: InvalidInput: there is
    something in `target`, and it is no export that may be replaced; it can't be written."""
    check_target(target, overwrite=overwrite)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        part.mkdir(parents=True)
        yield part
        if target.exists():
            target.replace(old)
        part.replace(target)
    except OSError as error:
        raise InvalidInput(f"{target} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Check that a folder may be written. Raises: InvalidInput."""
    if not target.exists():
        return
    if target.is_symlink() or not target.is_dir():
        raise InvalidInput(f"{target} is no folder: choose another name")
    if any(target.iterdir()):
        if not overwrite:
            raise InvalidInput(f"{target} is not empty: choose another folder, or replace an export with --overwrite")
        if not (target / MARKER).is_file():
            raise InvalidInput(f"{target} is no export of Perdure, so it is not replaced: choose another folder")
