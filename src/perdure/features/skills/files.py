"""The files beside a skill's instructions: those of its folder, or the scripts in its text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.core.errors import ToolError
from perdure.features.plugins.definitions import SKILL_FILE
from perdure.features.skills.values import SkillView, scripts_in

FILES_MAX = 200
FILE_BYTES = 1_000_000
ALL_BYTES = 8_000_000
"""The most bytes of the files that a script runs beside."""
DEPTH_MAX = 5
NAMES_SHOWN = 30


def list_files(skill: SkillView) -> Sequence[str]:
    """Return the names of a skill's files beside its instructions, such as `scripts/check.py`, sorted."""
    return sorted(_paths(skill) if skill.path else scripts_in(skill.text))


def read_file(skill: SkillView, name: str) -> bytes:
    """Return the bytes of a file of a skill. Raises: ToolError: it has no such file, or it is too large."""
    if not skill.path and name in (scripts := scripts_in(skill.text)):
        return scripts[name].encode("utf-8", "surrogatepass")
    if not skill.path or (path := _paths(skill).get(name.removeprefix("./"))) is None:
        names = list_files(skill)[:NAMES_SHOWN]
        has = f"it has {', '.join(names)}" if names else "it has no files beside its instructions"
        raise ToolError(f"{skill.name} has no file {name!r:.80}: {has}")
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise ToolError(f"{name!r:.80} can't be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise ToolError(f"{name!r:.80} has more than {FILE_BYTES:,} bytes, the limit of a skill's file")
    return data


def read_files(skill: SkillView) -> Mapping[str, bytes]:
    """Return name -> bytes of all files of a skill. Raises: ToolError: they are too large."""
    found, size = dict[str, bytes](), 0
    for name in list_files(skill):
        found[name] = read_file(skill, name)
        size += len(found[name])
        if size > ALL_BYTES:
            raise ToolError(f"the files of {skill.name} have more than {ALL_BYTES:,} bytes, the limit")
    return found


def _paths(skill: SkillView) -> Mapping[str, Path]:
    """Name -> path of the files in a skill's folder, without links that lead out of it and hidden files."""
    root, found = Path(skill.path).parent.resolve(), dict[str, Path]()
    for place, folders, files in os.walk(root):
        depth = len(Path(place).relative_to(root).parts)
        folders[:] = sorted(one for one in folders if not one.startswith(".")) if depth < DEPTH_MAX else []
        for file in sorted(files):
            path = Path(place) / file
            name = path.relative_to(root).as_posix()
            if file.startswith(".") or name == SKILL_FILE or not path.resolve().is_relative_to(root):
                continue
            if path.is_file() and len(found) < FILES_MAX:
                found[name] = path
    return found
