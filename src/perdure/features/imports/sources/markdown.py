"""Markdown: the files of a folder, a passage for each section."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from perdure.core.errors import InvalidInput
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Omission, SourceItem, SourceMemory
from perdure.features.imports.sources.kinds import missing_file
from perdure.features.imports.sources.plain import join_all, key_of, time_of

EMPTY, OTHERS = "files without a text", "files of other kinds"
FILE_BYTES = 16 << 20

_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_DATE = re.compile(r"^(?:date|created|created_at|updated)\s*:\s*[\"']?([^\"'\r\n]+)", re.MULTILINE | re.IGNORECASE)
_TITLE = re.compile(r"^title\s*:\s*[\"']?([^\"'\r\n]+)", re.MULTILINE | re.IGNORECASE)
_TAGS = re.compile(
    r"^tags\s*:[ \t]*(?:\[([^\]\r\n]*)\]|((?:\r?\n[ \t]*-[ \t]*.+)+)|(.*))", re.MULTILINE | re.IGNORECASE
)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_HEADING_CHARS = 500
"""A longer one is text, for every section below it repeats it."""
_FENCE = re.compile(r"[ \t]*(```|~~~)")


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the sections of the files. Raises: InvalidInput."""
    if not (names := files.find("*.md", "*.markdown", "*.txt")):
        raise missing_file(files.label, "file of Markdown (*.md)")
    yield Omission(OTHERS, len(files.find("*")) - len(names))
    for name in names:
        data = files.read(name, FILE_BYTES)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InvalidInput(f"{name}: line {line:,}, byte {error.start + 1:,} is not UTF-8") from error
        head = _FRONTMATTER.match(text)
        fields = head[1] if head else ""
        date, title = _DATE.search(fields), _TITLE.search(fields)
        sections = _sections(text[head.end() :] if head else text, title[1].strip() if title else "")
        found = [(path, body) for path, body in sections if body]
        if not found:
            yield Omission(EMPTY)
        seen: Counter[str] = Counter()
        for path, body in found:
            place = " > ".join(path)
            seen[place] += 1
            yield SourceMemory(
                id=key_of(f"{files.identity(name, body)}\n{place}\n{seen[place]}"),
                text=join_all([place, body]),
                created_at=(date and time_of(date[1])) or files.modified_at(name),
                tags=tuple(_tags(fields)),
                metadata={"file": PurePosixPath(name).as_posix()},
            )


def _tags(fields: str) -> Sequence[str]:
    """Return the tags in a frontmatter, as a list of YAML in either form."""
    if (found := _TAGS.search(fields)) is None:
        return []
    words = re.split(r"[,\n]", found[1] or found[2] or found[3] or "")
    return [tag for word in words if (tag := word.strip().lstrip("-#").strip(" \"'\r"))]


def _sections(text: str, title: str) -> Iterator[tuple[Sequence[str], str]]:
    """Yield (headings from the outermost to its own, text) of the sections."""
    path: list[tuple[int, str]] = [(0, title)] if title else []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        heading = None if fence or len(line) > _HEADING_CHARS else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield [name for _, name in path], "\n".join(lines).strip()
        lines = []
        level = len(heading[1])
        path = [*(one for one in path if one[0] < level), (level, heading[2].rstrip(" \t").rstrip("#").strip(" \t"))]
    yield [name for _, name in path], "\n".join(lines).strip()
