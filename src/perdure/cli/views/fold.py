"""Shorten texts, and make text from elsewhere safe to show. Pure functions; no terminal here."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from perdure.core.messages import ToolCall, ToolResult
from perdure.core.passages import Passage
from perdure.core.text.reprs import plural as plural
from perdure.core.text.words import stems
from perdure.core.tools.memory_specs import FILE_TOOLS

ARGUMENT_CHARS = 60
OUTCOME_CHARS = 80
SNIPPET_CHARS = 160

# Text of an agent, a tool or a file must not move the cursor, rename the window or colour the screen.
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_CONTROLS |= {0x7F: "␡"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
# These reverse the direction of the text after them, up to the end of the line.
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}

# As `domain.files.tools` begins what it shows of a file.
_PLACE = re.compile(
    r"^(?P<path>\S[^\n]{0,300}?)"
    r"(?:: lines (?P<lines>\d+-\d+)(?: of \d+)?(?:, (?P<page>pages? [\d-]+))?|:(?P<line>\d+)$)",
    re.MULTILINE,
)
_WORD = re.compile(r"\w+")


def visible(text: str) -> str:
    """`text` with control characters as symbols and direction marks as \\uXXXX; line breaks and tabs stay."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def fold(text: str, chars: int) -> str:
    """`text` on one line of at most `chars` characters; … marks a cut."""
    line = " ".join(text[: chars * 8].split())  # limits the work on texts of megabytes
    return line if len(line) <= chars and len(text) <= chars * 8 else f"{line[: chars - 1]}…"


def local_time(at: datetime) -> str:
    """Date and minute in this machine's time zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def place(passage: Passage) -> str:
    """Where a passage is from: file and lines, or an archive."""
    source = passage.source
    if "file_name" not in source:
        return "archive"
    page = f" (page {source['page']})" if source.get("page") else ""
    return f"{source['file_name']}:{source.get('first_line')}-{source.get('last_line')}{page}"


def call_line(call: ToolCall) -> str:
    """A call as code: one leading text by position, the rest by name, long values folded."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name}({fold(call.arguments, ARGUMENT_CHARS)})"
    # Models write arguments in any order: of two texts only the names tell which replaces which.
    is_plain = sum(isinstance(value, str) for value in arguments.values()) == 1
    parts = [
        _value_text(value) if is_plain and place == 0 and isinstance(value, str) else f"{name}={_value_text(value)}"
        for place, (name, value) in enumerate(arguments.items())
    ]
    return f"{call.name}({', '.join(parts)})"


def outcome(result: ToolResult) -> str:
    """The result of a call in a few words."""
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
        return plural(len(value), "result")
    return "ok" if isinstance(value, dict) else fold(result.text, OUTCOME_CHARS)


def places_read(result: ToolResult) -> list[str]:
    """The places of files in a result, such as `docs/plan.pdf:17-18 (page 2)`; none for other tools."""
    places: dict[str, None] = {}
    if result.name not in FILE_TOOLS or result.status == "error":
        return []
    for match in _PLACE.finditer(result.text[:200_000]):
        page = f" ({match['page']})" if match["page"] else ""
        places[f"{match['path']}:{match['lines'] or match['line']}{page}"] = None
    return list(places)


def snippet(text: str, query: str) -> tuple[str, list[tuple[int, int]]]:
    """The part of `text` around the first match, on one line, and the spans of the matches in it."""
    spans = match_spans(text, query)
    start = max(0, spans[0][0] - SNIPPET_CHARS // 3) if spans else 0
    part = text[start : start + SNIPPET_CHARS]
    line = " ".join(visible(part).split())
    line = f"{'…' if start else ''}{line}{'…' if start + SNIPPET_CHARS < len(text) else ''}"
    return line, match_spans(line, query)


def match_spans(text: str, query: str) -> list[tuple[int, int]]:
    """(start, end) of each match of `query` in `text`: words of equal stem, or equal pairs of characters in scripts
    without spaces."""
    tokens = set(stems(query))
    pairs = {token for token in tokens if len(token) == 2 and not token.isascii()}
    spans: list[tuple[int, int]] = []
    for word in _WORD.finditer(text[:20_000]):
        start, end = word.span()
        starts = [at for at in range(start, end - 1) if text[at : at + 2] in pairs]
        if starts:
            for at in starts:
                if spans and spans[-1][1] >= at:
                    spans[-1] = (spans[-1][0], at + 2)
                else:
                    spans.append((at, at + 2))
        elif tokens.intersection(stems(word.group())):
            spans.append((start, end))
    return spans


def _value_text(value: Any) -> str:
    """An argument as code, folded."""
    if isinstance(value, str):
        return json.dumps(fold(value, ARGUMENT_CHARS), ensure_ascii=False)
    return fold(json.dumps(value, ensure_ascii=False), ARGUMENT_CHARS)
