"""Blocks, notes and skills as Markdown files with frontmatter, and such files read back.

The layout is that of Letta Code's memory file system: blocks in `system/LABEL.md` with the fields `description`,
`limit` and `read_only`, skills in `skills/NAME/SKILL.md`. Notes are in `notes`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.blocks import Block
from perdure.features.memory_git.values import FileKind, PushRefused
from perdure.features.notes.values import Note
from perdure.features.plugins.frontmatter import FrontmatterInvalid, parse_frontmatter

SYSTEM, NOTES, SKILLS, SKILL_FILE = "system/", "notes/", "skills/", "/SKILL.md"
PATH_BYTES, TITLE_CHARS = 400, 50
_PLAIN = re.compile(r"[^\W\d_][\w .,;/()'+-]*", re.ASCII)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_BAD_IN_PATH = re.compile(r'[\x00-\x1f\x7f"\\:*?<>|]')
_FIELDS: Mapping[FileKind, frozenset[str]] = {
    "block": frozenset({"description", "limit", "read_only"}),
    "note": frozenset({"kind", "tags"}),
    "skill": frozenset({"name", "description", "layer"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A file of a push: its frontmatter's fields, the line of each, and the text behind it."""

    path: str
    fields: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str

    def refuse(self, field: str, why: str) -> PushRefused:
        """The error that a field of the frontmatter, or without one the text, can't be used."""
        return refuse_file(self.path, why, self.lines.get(field, 1))

    def text(self, field: str) -> str | None:
        """Return the value of a field; None: it is missing or empty. Raises: PushRefused: it is no text."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, (str, int, float)):
            raise self.refuse(field, f"`{field}` is no text: put it into quotation marks")
        return None if value is None else str(value).strip() or None


def refuse_file(path: str, why: str, line: int = 0) -> PushRefused:
    """The error that a file of a push can't be taken."""
    return PushRefused("the memory can't be changed so", [f"{path}{f':{line}' if line else ''}: {why}"])


def digest_of(data: bytes) -> str:
    """A text by which two contents of a file are told apart."""
    return hashlib.sha256(data).hexdigest()[:32]


def kind_of(path: str) -> FileKind:
    """What a file at this path stands for."""
    if path.startswith(SYSTEM):
        return "block"
    if path.startswith(NOTES) and path.count("/") == 1:
        return "note"
    return "skill" if path.startswith(SKILLS) and path.endswith(SKILL_FILE) and path.count("/") == 2 else "file"


def path_problem(path: str) -> str:
    """Return why a file can't have this path; empty: it can."""
    if len(path.encode("utf-8", "replace")) > PATH_BYTES or _BAD_IN_PATH.search(path):
        return "its name is too long, or has characters that not every system takes"
    if any(not part or part.startswith(".") or part != part.strip() for part in path.split("/")):
        return "a name that is empty, or begins with a dot or a space, is not allowed"
    return "" if path.endswith(".md") else "only Markdown files (*.md) are memory"


def path_of_label(label: str) -> str:
    """The file of a block with this label. No label has a `%`, so `label_of_path` finds it again."""
    parts = label.split("/")
    for at, part in enumerate(parts):
        if not part:
            parts[at] = "%"
        elif part.startswith("."):
            parts[at] = f"%2E{part[1:]}"
        elif at < len(parts) - 1 and part.endswith(".md"):  # a folder of this name could be in the place of a file
            parts[at] = f"{part[:-3]}%2Emd"
    return f"{SYSTEM}{'/'.join(parts)}.md"


def label_of_path(path: str) -> str:
    """The label of the block in a file."""
    parts = path.removeprefix(SYSTEM).removesuffix(".md").split("/")
    return "/".join("" if part == "%" else part.replace("%2E", ".") for part in parts)


def note_path(note: Note) -> str:
    """The file of a note that has none yet."""
    words = re.sub(r"\W+", "-", note.title.lower())[:TITLE_CHARS].strip("-_")
    return f"{NOTES}{words or 'note'}-{note.id.removeprefix('passage-')[:8]}.md"


def skill_path(name: str) -> str:
    """The file of a skill."""
    return f"{SKILLS}{name}{SKILL_FILE}"


def block_file(block: Block, value: str) -> bytes:
    """A version of a block as a file."""
    fields: dict[str, Any] = {"description": block.description or placeholder(block.label), "limit": block.limit_chars}
    return _join(fields | ({"read_only": True} if block.read_only else {}), value)


def placeholder(label: str) -> str:
    """The description of a file whose block has none: programs ask for one."""
    return f"Memory block {label}"


def note_file(note: Note) -> bytes:
    """A note as a file."""
    return _join({"kind": note.kind} | ({"tags": ", ".join(note.tags)} if note.tags else {}), note.text)


def skill_file(name: str, layer: str, description: str, text: str) -> bytes:
    """A version of a skill as a file."""
    return _join({"name": name, "description": description} | ({} if layer == "L3" else {"layer": layer}), text)


def read_file(path: str, text: str) -> FileText:
    """Return a file's fields and text. Raises: PushRefused: its frontmatter is unreadable or has an unknown field."""
    head, body = _split(text)
    try:
        parsed = parse_frontmatter(head)
    except FrontmatterInvalid as error:
        raise refuse_file(path, error.why, error.line) from None
    known = _FIELDS[kind_of(path)]
    file = FileText(path=path, fields=parsed.fields, lines=parsed.lines, body=body)
    for name in parsed.fields:
        if name not in known:
            raise file.refuse(name, f"unknown field `{name}`: such a file has {', '.join(sorted(known))}")
    return file


def _join(fields: Mapping[str, Any], body: str) -> bytes:
    """A Markdown file with these fields; `_split` gives back the same text behind them."""
    lines = [f"{name}: {_scalar(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", *([body, ""] if body else [])]).encode("utf-8", "replace")


def _split(text: str) -> tuple[str, str]:
    """Return (frontmatter with its lines `---`, the text behind it) of a file."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    end = re.search(r"\n---[ \t]*(?:\n|\Z)", text) if re.match(r"---[ \t]*\n", text) else None
    if end is None:
        return (text if text.startswith("---\n") else ""), text.removesuffix("\n")
    return text[: end.end()], text[end.end() :].removeprefix("\n").removesuffix("\n")


def _scalar(value: Any) -> str:
    """A value of a frontmatter as YAML that also simple readers understand."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    line = " ".join(value.split())
    is_plain = _PLAIN.fullmatch(line) is not None and line.lower() not in _WORDS
    return line if is_plain else json.dumps(line, ensure_ascii=False)
