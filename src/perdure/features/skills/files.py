"""The files beside a skill's instructions: those of its folder, or the scripts in its text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from perdure.core.errors import ToolError
from perdure.core.text.forms import name_form
from perdure.features.plugins.definitions import SKILL_FILE
from perdure.features.skills.values import SkillView, scripts_in

FILES_MAX = 200
FILE_BYTES = 1_000_000
ALL_BYTES = 8_000_000
"""The most bytes of the files that a script runs beside."""
DEPTH_MAX = 5
LOOKED_AT = 2_000
"""At so many files of a skill's folder is looked, whatever they are."""
NAMES_SHOWN = 30


def list_files(skill: SkillView) -> Sequence[str]:
    """Return the names of a skill's files beside its instructions, such as `scripts/check.py`, sorted."""
    return sorted(_paths(skill) if skill.path else scripts_in(skill.text))


def read_file(skill: SkillView, name: str) -> bytes:
    """Return the bytes of a file of a skill. Raises: ToolError: it has no such file, or it is too large."""
    name = name.removeprefix("./")
    if not skill.path and name in (scripts := scripts_in(skill.text)):
        return scripts[name].encode("utf-8", "surrogatepass")
    if skill.path and (path := _path_of(skill, name)) is not None:
        return _read(path, name)
    names = list_files(skill)[:NAMES_SHOWN]
    has = f"it has {', '.join(names)}" if names else "it has no files beside its instructions"
    raise ToolError(f"{skill.name} has no file {name!r:.80}: {has}")


def read_files(skill: SkillView) -> Mapping[str, bytes]:
    """Return name -> bytes of all files of a skill. Raises: ToolError: they are too large."""
    if not skill.path:
        return {name: read_file(skill, name) for name in list_files(skill)}
    found, size = dict[str, bytes](), 0
    for name, path in sorted(_paths(skill).items()):
        found[name] = _read(path, name)
        size += len(found[name])
        if size > ALL_BYTES:
            raise ToolError(f"the files of {skill.name} have more than {ALL_BYTES:,} bytes, the limit")
    return found


def _read(path: Path, name: str) -> bytes:
    """The bytes of a file. Raises: ToolError: it is too large, or can't be read."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise ToolError(f"{name!r:.80} can't be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise ToolError(f"{name!r:.80} has more than {FILE_BYTES:,} bytes, the limit of a skill's file")
    return data


def _path_of(skill: SkillView, name: str) -> Path | None:
    """Return the path of a file in a skill's folder, also of one left out of the list of files; None: there is none."""
    root, place = Path(skill.path).parent.resolve(), PurePosixPath(name)
    if place.is_absolute() or any(part.startswith(".") for part in place.parts) or len(place.parts) > DEPTH_MAX + 1:
        return None
    return path if _is_own(path := root / place, root) else _paths(skill).get(name_form(name))


def _is_own(path: Path, root: Path) -> bool:
    """Whether a path is a file in this folder, and no link that leads out of it."""
    try:
        return path.resolve().is_relative_to(root) and path.is_file() and path != root / SKILL_FILE
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        return False


def _paths(skill: SkillView) -> Mapping[str, Path]:
    """Name -> path of the files in a skill's folder, at most `FILES_MAX`, without hidden files and links that lead out
    of it; of a large folder only the first files, by name, are looked at."""
    root, found, looked = Path(skill.path).parent.resolve(), dict[str, Path](), 0
    for place, folders, files in os.walk(root):
        depth = len(Path(place).relative_to(root).parts)
        folders[:] = sorted(folder for folder in folders if not folder.startswith(".")) if depth < DEPTH_MAX else []
        for file in sorted(files):
            if len(found) >= FILES_MAX or looked >= LOOKED_AT:
                return found
            path, looked = Path(place) / file, looked + 1
            if not file.startswith(".") and _is_own(path, root):
                found[name_form(path.relative_to(root).as_posix())] = path
    return found
