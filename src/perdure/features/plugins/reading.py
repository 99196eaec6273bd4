"""The definitions in a folder: its Markdown files, found and read. Nothing outside of the folder is read."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.text.forms import name_form
from perdure.features.plugins.definitions import (
    NAME_RULE,
    SKILL_FILE,
    Definition,
    DefinitionKind,
    DefinitionProblem,
    Layer,
    is_name,
)
from perdure.features.plugins.frontmatter import (
    FIELDS_OF,
    FRONTMATTER_BYTES,
    FrontmatterInvalid,
    parse_frontmatter,
    snake_case,
    typed_fields,
)

FILE_BYTES = 1_000_000
"""The most bytes of a definition's file."""
FILES_MAX = 1_000
"""The most definitions of a folder."""
ENTRIES_MAX = 10_000
"""The most files and folders that are looked at in a folder."""
DEPTH_MAX = 5
"""How deep folders of definitions may be nested."""
OUTSIDE = "it is a link to outside of the folder, which is not followed"
_OWN_NAME = re.compile(rb"^[\"']?name[\"']?[ \t]*:[ \t]*([^\r\n#]+)", re.MULTILINE | re.IGNORECASE)
"""The field `name` in a file whose frontmatter can't be read."""
FLAGS = Path("PERDURE_HELPERS")
"""What stands for a file where that setting has a problem."""


@dataclass(frozen=True, slots=True)
class DefinitionSource:
    """A folder, or one file, with definitions of a kind.

    Args:
        plugin: the plug-in that it belongs to; empty: none.
        within: the folder that no file may lie outside of, whatever links say; None: the root.
    """

    kind: DefinitionKind
    layer: Layer
    root: Path
    plugin: str = ""
    within: Path | None = None


def read_source(source: DefinitionSource) -> Iterator[Definition | DefinitionProblem]:
    """The definitions of a source in the order of their paths, and the problems of those that define nothing. A file
    that did not change since it was read last is not read again."""
    for count, (relative, state) in enumerate(_find_files(source)):
        if isinstance(state, str):
            file = f"{relative}/{SKILL_FILE}" if source.kind == "skills" and relative else relative
            names = [":".join(_parts_of_name(source, file))] if file.lower().endswith(".md") else []
            yield DefinitionProblem(path=source.root / relative, line=0, why=state, names=names)
        elif count >= FILES_MAX:
            why = f"there are more than {FILES_MAX:,} definitions: the others are left out"
            yield DefinitionProblem(path=source.root, line=0, why=why)
            return
        else:
            size, changed = state.st_size, (state.st_mtime_ns, state.st_ctime_ns)
            yield _read_file(source, relative, size, stat.S_ISREG(state.st_mode), changed)


def _find_files(source: DefinitionSource) -> Iterator[tuple[str, os.stat_result | str]]:
    """Return (path below the root, its state or its problem) of each possible definition file, sorted."""
    try:
        state = source.root.stat()
    except (FileNotFoundError, NotADirectoryError):
        if source.root.is_symlink():
            yield "", "it is a link that leads nowhere"
        return
    except OSError as error:  # of a policy it must not be passed over
        yield "", f"the folder can't be read: {error.strerror}"
        return
    if source.within is not None and not _is_inside(source, source.root):
        yield "", OUTSIDE
        return
    if not stat.S_ISDIR(state.st_mode):
        yield "", state
        return
    if source.kind == "skills" and source.plugin:
        yield from _find_skill(source.root, "")
    looked_at = 0
    waiting = [""]
    while waiting:
        folder = waiting.pop(0)
        try:
            with os.scandir(source.root / folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield folder, f"the folder can't be read: {error.strerror}"
            continue
        for entry in entries:
            looked_at += 1
            if looked_at > ENTRIES_MAX:
                yield "", f"there are more than {ENTRIES_MAX:,} files: the others are left out"
                return
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_symlink() and entry.is_dir() and not _is_inside(source, source.root / relative):
                    yield relative, OUTSIDE
                elif entry.is_dir():
                    if source.kind == "skills":
                        yield from _find_skill(source.root, relative)
                    elif relative.count("/") < DEPTH_MAX:
                        waiting.append(relative)
                elif source.kind != "skills" and entry.name.lower().endswith(".md"):
                    yield relative, entry.stat()
            except OSError as error:
                yield relative, f"it can't be read: {error.strerror}"


def _find_skill(root: Path, folder: str) -> Iterator[tuple[str, os.stat_result | str]]:
    """The file of a skill in its folder, if it has one."""
    relative = f"{folder}/{SKILL_FILE}".lstrip("/")
    try:
        yield relative, (root / relative).stat()
    except FileNotFoundError:
        return


@functools.lru_cache(maxsize=20_000)  # with fewer, each message reads the files of large plug-ins again
def _read_file(
    source: DefinitionSource, relative: str, size: int, is_file: bool, _changed: tuple[int, int]
) -> Definition | DefinitionProblem:
    """The definition in a file of a source; `size` and `_changed` change with it."""
    path, data = source.root / relative if relative else source.root, b""
    try:
        if not is_file:
            raise FrontmatterInvalid(0, "it is not a file")
        if not _is_inside(source, path):
            raise FrontmatterInvalid(0, OUTSIDE)
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        if size > FILE_BYTES:
            raise FrontmatterInvalid(0, f"it has {size:,} bytes, the limit is {FILE_BYTES:,}")
        return _define(source, relative or path.name, path, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line, why = error.object.count(b"\n", 0, error.start) + 1, "it is not text in UTF-8"
    except FrontmatterInvalid as error:
        line, why = error.line, error.why
    except (OSError, RuntimeError, ValueError) as error:
        line, why = 0, f"it can't be read: {getattr(error, 'strerror', None) or error}"
    own = _OWN_NAME.search(data, 0, FRONTMATTER_BYTES)
    says = own[1].decode("utf-8", "replace").strip(" \t\"'") if own else ""
    names = {":".join(_parts_of_name(source, relative or path.name, one)) for one in ("", says)}
    return DefinitionProblem(path=path, line=line, why=why, names=sorted(names))


def _is_inside(source: DefinitionSource, path: Path) -> bool:
    """Whether a path lies in the folder that the files of a source have to lie in, when links are followed."""
    return path.resolve().is_relative_to((source.within or source.root).resolve())


def _define(source: DefinitionSource, relative: str, path: Path, text: str) -> Definition:
    """The definition that a text is. Raises: FrontmatterInvalid: it has no usable name, or lacks a description."""
    found = parse_frontmatter(text)
    if (null := text.find("\0")) >= 0:
        raise FrontmatterInvalid(text.count("\n", 0, null) + 1, "it has a NUL character, which no text has")
    parts = _parts_of_name(source, relative, found.fields.get("name", ""))
    for part in parts:
        if not is_name(part):
            raise FrontmatterInvalid(found.lines.get("name", 0), f"the name {part!r:.80} can't be used: {NAME_RULE}")
    if source.kind != "commands" and not found.fields.get("description"):
        raise FrontmatterInvalid(1, "the field `description` is missing, which says when it is to be used")
    return Definition(
        kind=source.kind,
        name=":".join(parts),
        layer=source.layer,
        path=path,
        plugin=source.plugin,
        fields=found.fields,
        body=found.body,
        notes=[
            f"line {found.lines[name]}: {name!r:.60} is not known here, and has no effect"
            for name in found.fields
            if name not in FIELDS_OF[source.kind]
        ],
    )


def _parts_of_name(source: DefinitionSource, relative: str, own: str = "") -> Sequence[str]:
    """The parts of the name of the definition in a file of a source; `own`: the field `name` of the file."""
    *folders, file = name_form(relative).split("/")
    stem = file[:-3] if file.lower().endswith(".md") else file
    if source.kind == "skills":
        own_folder = source.root if source.root.name != file else source.root.parent
        stem, folders = (folders or [name_form(own_folder.name)])[-1], []
    if source.kind != "commands" and own:
        stem = name_form(own)
    inner = [*folders, stem] if source.kind == "commands" or source.plugin else [stem]
    return [source.plugin, *inner] if source.plugin else inner


@functools.lru_cache(maxsize=8)
def read_flags(text: str) -> Sequence[Definition | DefinitionProblem]:
    """The helpers in the setting `PERDURE_HELPERS`, JSON as Claude Code's `--agents` has it: name -> an object with
    `description`, `prompt` and the fields of a file. They are not to be changed."""
    if not text:
        return []
    try:
        shape = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [DefinitionProblem(path=FLAGS, line=getattr(error, "lineno", 1), why=f"it is not JSON: {error}")]
    if not isinstance(shape, dict):
        return [DefinitionProblem(path=FLAGS, line=1, why="it is not an object from names to helpers")]
    return [_define_flag(name, value) for name, value in shape.items()]


def _define_flag(name: str, value: Any) -> Definition | DefinitionProblem:
    """The helper of this name in the setting, or what is wrong with it."""
    try:
        if not is_name(name := name_form(name)):
            raise FrontmatterInvalid(1, f"the name {name!r:.80} can't be used: {NAME_RULE}")
        if not isinstance(value, Mapping) or not isinstance(body := value.get("prompt", ""), str):
            raise FrontmatterInvalid(1, f"{name}: give an object with texts `description` and `prompt`")
        rest = {key: one for key, one in value.items() if key != "prompt"}
        fields = typed_fields(rest) | {"name": name}
        if not fields.get("description"):
            raise FrontmatterInvalid(1, f"{name}: the field `description` is missing")
    except FrontmatterInvalid as error:
        return DefinitionProblem(path=FLAGS, line=error.line, why=error.why)
    unknown = [key for key in rest if snake_case(key) not in FIELDS_OF["agents"]]
    return Definition(
        kind="agents",
        name=name,
        layer="flags",
        path=None,
        fields=fields,
        body=body.strip(),
        notes=[f"{key!r:.60} is not known here, and has no effect" for key in unknown],
    )
