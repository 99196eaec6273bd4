"""Lines of JSON objects, as one table; written back byte for byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from perdure.context.tool_output.constants import SURE_SHARE_JSON
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


class NdjsonFamily:
    name = "ndjson"
    note = TABLE_NOTE
    repeats = True
    sure_share = SURE_SHARE_JSON

    def parse(self, text: str) -> Objects | None:
        if text[:1] != "{":
            return None
        lines = text.split("\n")
        end = not lines[-1]
        if end:
            lines.pop()
        try:
            rows = json.loads(f"[{','.join(lines)}]")
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

    def equals(self, text: str, parsed: Objects, decoded: Any) -> bool:
        return bool(text == decoded)

    def shorten(self, parsed: Objects, room: Room) -> str | None:
        short = shorten_table(parsed.table, room)
        return None if short is None else "\n".join(short)
