"""Lines of a search (`path:line:text`), grouped by file; and JSON lines, as a table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from perdure.context.tool_output.constants import SURE_SHARE_JSON
from perdure.context.tool_output.family import Family
from perdure.context.tool_output.json_document import parse_json
from perdure.context.tool_output.json_style import STYLES, find_style
from perdure.context.tool_output.records import columns_of, is_table, rows_of
from perdure.context.tool_output.shorten import Room, shorten_table
from perdure.context.tool_output.table import TABLE_NOTE, Columns, read, write


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of a text as a table, their style, and whether a newline ends the text."""

    table: Columns
    style: int
    end: bool


class NdjsonFamily(Family):
    name = "ndjson"
    note = TABLE_NOTE
    sure_share = SURE_SHARE_JSON

    def parse(self, text: str) -> Objects | None:
        if text[:1] != "{":
            return None
        lines = text.split("\n")
        end = not lines[-1]
        if end:
            lines.pop()
        try:
            rows = parse_json(f"[{','.join(lines)}]")
        except (ValueError, RecursionError):
            return None
        if len(rows) != len(lines) or not is_table(rows):
            return None
        style = find_style(rows[0], lines[0])
        return None if style is None else Objects(columns_of(rows), style, end)

    def encode(self, parsed: Objects) -> str:
        head = f"{len(parsed.table)} rows, style {parsed.style}{int(parsed.end)}"
        return "\n".join([head, *write(parsed.table, keep_order=True)])

    def decode(self, body: str) -> str:
        lines = iter(body.split("\n"))
        count, _, style = next(lines).partition(" rows, style ")
        encode = json.JSONEncoder(**STYLES[int(style[0])]).encode
        return "\n".join(map(encode, rows_of(read(lines, int(count))))) + "\n" * int(style[1])

    def shorten(self, parsed: Objects, room: Room) -> str | None:
        return "\n".join(shorten_table(parsed.table, room) or ()) or None


# The hour of a time stamp is no path: `2026-11-27T10:00:00Z`, `[10:00:00]`, `[27/Nov/2026:10:00:00`.
_STAMP = r"\W?(?:\d{1,4}[-/.]?(?:\d\d|[A-Za-z]{3})[-/.]?\d{2,4}(?:[T_]\d\d)?|\d{1,2}):\d\d[:-]"
_HIT = re.compile(rf"(?!{_STAMP})(?P<path>[^\s:]+):(?P<rest>\d+[:-].*)")


class SearchFamily(Family):
    name = "search"
    note = "the lines below `= path` are of that file"

    def parse(self, text: str) -> Any | None:
        lines = text.split("\n")
        hits = [_HIT.fullmatch(line) for line in lines]
        found = sum(hit is not None for hit in hits)
        if found < 5 or found < 0.6 * len(lines) or any(line.startswith("= ") for line in lines):
            return None
        return lines, hits

    def encode(self, parsed: Any) -> str | None:
        out, path = [], None
        for line, hit in zip(*parsed, strict=True):
            if hit is None:
                if path is not None:
                    out.append("= ")
                path = None
                out.append(line)
                continue
            if hit["path"] != path:
                path = hit["path"]
                out.append(f"= {path}")
            out.append(hit["rest"])
        return "\n".join(out)

    def decode(self, body: str) -> Any:
        out, path = [], ""
        for line in body.split("\n"):
            if line.startswith("= "):
                path = line[2:]
            else:
                out.append(f"{path}:{line}" if path else line)
        return "\n".join(out)
