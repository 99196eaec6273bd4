"""Long things made short, and foreign text made safe to show. Pure functions of text; no terminal here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from perdure.core.messages import ToolCall, ToolResult
from perdure.core.passages import Passage
from perdure.core.text.words import stems
from perdure.domain.tools.specs import FILE_TOOLS

__all__ = [
    "call_line",
    "diff_lines",
    "fold",
    "found_spans",
    "local_time",
    "outcome",
    "place",
    "places_read",
    "snippet",
    "visible",
]

ARGUMENT_CHARS = 60
OUTCOME_CHARS = 80
SNIPPET_CHARS = 160

DiffMark = Literal["+", "-", " ", "…"]

# Whatever an agent, a tool or a file says must not be able to move the cursor, rename the window or colour the screen.
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_CONTROLS |= {0x7F: "␡"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
# These turn the order of what stands behind them, up to the end of the line.
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}

# As `domain.files.tools` begins what it shows of a file.
_PLACE = re.compile(
    r"^(?P<path>\S[^\n]{0,300}?)"
    r"(?:: lines (?P<lines>\d+-\d+)(?: of \d+)?(?:, (?P<page>pages? [\d-]+))?|:(?P<line>\d+)$)",
    re.MULTILINE,
)
_WORD = re.compile(r"\w+")


def visible(text: str) -> str:
    """`text` with control characters as symbols, and those that turn its direction written out; line breaks and tabs
    stay."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def fold(text: str, chars: int) -> str:
    """`text` on one line of at most so many characters; … stands for what was left out."""
    line = " ".join(text[: chars * 8].split())  # a bound on the work, for texts of megabytes
    return line if len(line) <= chars and len(text) <= chars * 8 else f"{line[: chars - 1]}…"


def local_time(at: datetime) -> str:
    """Date and minute where this machine is."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def place(passage: Passage) -> str:
    """Where a passage is from: file and lines, or an archive."""
    source = passage.source
    if "file_name" not in source:
        return "archive"
    page = f" (page {source['page']})" if source.get("page") else ""
    return f"{source['file_name']}:{source.get('first_line')}-{source.get('last_line')}{page}"


def call_line(call: ToolCall) -> str:
    """A call as a person would write it: leading texts bare, the rest by name, long ones folded."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name}({fold(call.arguments, ARGUMENT_CHARS)})"
    shown: list[str] = []
    bare = True
    for name, value in arguments.items():
        bare = bare and isinstance(value, str)
        shown.append(_value(value) if bare else f"{name}={_value(value)}")
    return f"{call.name}({', '.join(shown)})"


def outcome(result: ToolResult) -> str:
    """What came of a call, in a few words."""
    if result.status == "error":
        return f"error: {fold(result.text.removeprefix('Error: '), OUTCOME_CHARS * 2)}"
    if places := places_read(result):
        return fold(", ".join(places), OUTCOME_CHARS * 2)
    try:
        value = json.loads(result.text)
    except ValueError:
        return fold(result.text, OUTCOME_CHARS) or "ok"
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        value = value["results"]
    if isinstance(value, list):
        return f"{len(value)} result{'' if len(value) == 1 else 's'}"
    return "ok" if isinstance(value, dict) else fold(result.text, OUTCOME_CHARS)


def places_read(result: ToolResult) -> list[str]:
    """Which lines of which files a result shows: `docs/plan.pdf:17-18 (page 2)`; none where it is no file's."""
    places: dict[str, None] = {}
    if result.name not in FILE_TOOLS or result.status == "error":
        return []
    for one in _PLACE.finditer(result.text[:200_000]):
        page = f" ({one['page']})" if one["page"] else ""
        places[f"{one['path']}:{one['lines'] or one['line']}{page}"] = None
    return list(places)


def diff_lines(diff: str) -> Iterator[tuple[DiffMark, str]]:
    """(mark, text) of each line of a unified diff without file headers; a gap between two places is one `…`."""
    header = ""
    for number, line in enumerate(diff.split("\n")):
        mark, text = line[:1], line[1:]
        if mark == "@":
            header = line
            if number:
                yield "…", ""
        elif mark == "-" and text == "" and header.startswith("@@ -1 +"):
            continue  # the block was empty: an empty text counts as one empty line
        elif mark == "+" and text == "" and header.endswith(" +1 @@"):
            continue  # the block is empty now
        elif mark in ("+", "-"):
            yield ("+" if mark == "+" else "-"), text
        else:
            yield " ", text


def snippet(text: str, query: str) -> tuple[str, list[tuple[int, int]]]:
    """The part of `text` around what was found, on one line, and where in it the found words stand."""
    spans = found_spans(text, query)
    start = max(0, spans[0][0] - SNIPPET_CHARS // 3) if spans else 0
    part = text[start : start + SNIPPET_CHARS]
    line = " ".join(visible(part).split())
    line = f"{'…' if start else ''}{line}{'…' if start + SNIPPET_CHARS < len(text) else ''}"
    return line, found_spans(line, query)


def found_spans(text: str, query: str) -> list[tuple[int, int]]:
    """(start, end) of the words in `text` that a search for `query` goes by: equal stems, or equal pairs of characters
    in scripts without spaces."""
    wanted = set(stems(query))
    pairs = {token for token in wanted if len(token) == 2 and not token.isascii()}
    spans: list[tuple[int, int]] = []
    for word in _WORD.finditer(text[:20_000]):
        start, end = word.span()
        at = [place for place in range(start, end - 1) if text[place : place + 2] in pairs]
        if at:
            for place in at:
                if spans and spans[-1][1] >= place:
                    spans[-1] = (spans[-1][0], place + 2)
                else:
                    spans.append((place, place + 2))
        elif wanted.intersection(stems(word.group())):
            spans.append((start, end))
    return spans


def _value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(fold(value, ARGUMENT_CHARS), ensure_ascii=False)
    return fold(json.dumps(value, ensure_ascii=False), ARGUMENT_CHARS)
