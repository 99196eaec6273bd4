"""Folders that appear whole under their names, and names that every file system takes."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.agent_files.replaced import OLD, restore_replaced

MARKER = "export.json"
"""The file by which a folder is known as an export, so that another one may replace it."""
NAME_CHARS = 60
ABANDONED_AFTER_S = 86_400
_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}
"""Files that a desktop puts into each folder that it has shown."""

_NOT_IN_NAME = re.compile(r"[^\w-]+")
_RESERVED = re.compile(r"con|prn|aux|nul|(?:com|lpt)\d", re.IGNORECASE)


def safe_name(text: str, otherwise: str) -> str:
    """Return a name for a file or folder that reminds of a text: letters, digits and dashes."""
    name = _NOT_IN_NAME.sub("-", text.encode("utf-8", "ignore").decode())[:NAME_CHARS].strip("-_")
    while len(name.encode()) > 2 * NAME_CHARS:
        name = name[:-1]
    return name if name and not _RESERVED.fullmatch(name) else otherwise


def unused_name(name: str, used: set[str]) -> str:
    """Return the name, with a number added if `used` has it in any case, and put it there."""
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
    restore_replaced(target)
    check_target(target, overwrite=overwrite)
    name = f".{target.name}.{token_hex(4)}"
    part, old = target.with_name(f"{name}.part"), target.with_name(f"{name}{OLD}")
    try:
        part.mkdir(parents=True)
        _drop_abandoned(target)
        yield part
        check_target(target, overwrite=overwrite)  # what was put there meanwhile stays
        if target.exists():
            target.replace(old)
        try:
            part.replace(target)
        except OSError:
            if old.exists():
                old.replace(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise InvalidInput(f"{target} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_marker(folder: Path, about: Mapping[str, Any]) -> None:
    """Write what a folder says about itself, and which files are the export's."""
    text = json.dumps({**about, "files": sorted(_files(folder))}, indent=2)
    (folder / MARKER).write_text(f"{text}\n", "utf-8")


def check_target(target: Path, *, overwrite: bool) -> None:
    """Check that a folder may be written. Raises: InvalidInput."""
    if not target.exists():
        return
    if target.is_symlink() or not target.is_dir():
        raise InvalidInput(f"{target} is not a folder: choose another name")
    if any(target.iterdir()):
        if not overwrite:
            raise InvalidInput(f"{target} is not empty: choose another folder, or replace an export with --overwrite")
        try:
            written = {MARKER, *json.loads((target / MARKER).read_text("utf-8"))["files"]}
        except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
            why = "is not an export of Perdure, so it is not replaced: choose another folder"
            raise InvalidInput(f"{target} {why}") from error
        if others := sorted(_files(target) - written):
            raise InvalidInput(
                f"{target} has {len(others):,} files that no export has written, such as {others[0]!r:.120}: move them"
                " away, or choose another folder"
            )


def _files(folder: Path) -> set[str]:
    """Return the names of all files below a folder, and of links, but for those of desktops."""
    found = (
        one for one in folder.rglob("*") if one.name not in _OF_DESKTOPS and (one.is_symlink() or not one.is_dir())
    )
    return {one.relative_to(folder).as_posix() for one in found}


def _drop_abandoned(target: Path) -> None:
    """Remove what exports into this folder have left that were killed long ago."""
    before = time.time() - ABANDONED_AFTER_S
    for one in target.parent.iterdir():
        with suppress(OSError):  # another export removes them, too
            if one.name.startswith(f".{target.name}.") and one.suffix == ".part" and one.stat().st_mtime < before:
                shutil.rmtree(one, ignore_errors=True)
