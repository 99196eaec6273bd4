"""Source code, diffs and Markdown: read as text, so shortened only when they are very long, to their outline.

What is shown: headings, definitions, constants, changed lines, lines of errors, and the first and last lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.context.tool_output.constants import EDGE_ROWS, ERROR
from perdure.context.tool_output.family import Family
from perdure.context.tool_output.shorten import Room

_DIFF = re.compile(r"(?m)^(?:diff --git |--- \S|@@ -\d+)")
_CHANGE = re.compile(r"[+-]|@@|diff |commit |index |Author:|rename |new file|deleted file")
_CODE = re.compile(
    r"(?m)^[^\S\n]*(?:def |class |async def |import |from \S+ import |function |export |const |func |fn |pub |package "
    r"|#include |public |private |struct |impl |type \w+ |interface |module )"
)
_OUTLINE = re.compile(
    r"\s*(?:def|class|async|import|from|function|export|func|fn|pub|package|#include|public|private|struct|impl|type"
    r"|interface|module|enum|trait|@\w)\b|\s*(?:const |let |var |static )?[A-Z][A-Z0-9_]{2,}\b.*=|\S.*=[^=]|#|//|\"\"\""
)
_HEADING = re.compile(r"#{1,6} |\|.*\||[=-]{3,}$")


@dataclass(frozen=True, slots=True)
class Prose:
    """Lines, and which of them are the outline."""

    lines: list[str]
    outline: frozenset[int]


class ProseFamily(Family):
    name = "outline"
    repeats = False

    def parse(self, text: str) -> Prose | None:
        lines = text.split("\n")
        if len(lines) < 20:
            return None
        if len(_DIFF.findall(text)) >= 3:
            pattern = _CHANGE
        elif len(_CODE.findall(text)) * 12 >= len(lines):
            pattern = _OUTLINE
        elif sum(line.startswith("#") for line in lines) >= 3:
            pattern = _HEADING
        else:
            return None
        edges = {*range(EDGE_ROWS), *range(len(lines) - EDGE_ROWS, len(lines))}
        shown = {n for n, line in enumerate(lines) if pattern.match(line) or ERROR.search(line)}
        return Prose(lines, frozenset(shown | edges))

    def shorten(self, parsed: Prose, room: Room) -> str | None:
        out: list[str] = []
        left = 0
        for number, line in enumerate(parsed.lines):
            if number not in parsed.outline:
                left += 1
                continue
            if left:
                out.append(f"[… lines {number - left + 1}..{number}]")
                left = 0
            out.append(line)
        return "\n".join(out)
