"""Lines of a search (`path:line:text`), grouped by file; JSON lines, as a table; and CSV and other delimited text.

CSV is parsed by the standard library and written back byte for byte.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.features.compression.constants import ROWS_LEAST, SURE_SHARE_JSON
from perdure.features.compression.json_document import STYLES, columns_of, find_style, is_table, parse_json, rows_of
from perdure.features.compression.shorten import Family, TokenRoom, shorten_table
from perdure.features.compression.table import TABLE_NOTE, Columns, dump, read, write, write_texts

DELIMITERS = ("\t", ",", ";", "|")
SAMPLE_LINES = 20
_DECIMAL = re.compile(r"\d,\d")
_TIME = re.compile(r"\d:\d\d")


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How a text is delimited; `quoting` is a constant of `csv`, and `end` says whether a newline ends the text."""

    delimiter: str
    quoting: Any
    newline: str
    end: bool

    def write(self, rows: Iterable[Sequence[str]]) -> str:
        """Return rows as a text in this style."""
        if self.quoting == csv.QUOTE_NONE:
            return self.newline.join(map(self.delimiter.join, rows)) + self.newline * self.end
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=self.delimiter, quoting=self.quoting, lineterminator=self.newline).writerows(rows)
        return out.getvalue() if self.end else out.getvalue().removesuffix(self.newline)


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A delimited text: the names of its first line, and its other lines as rows of cells."""

    names: list[str]
    rows: list[list[str]]
    style: CsvStyle

    @property
    def columns(self) -> Columns:
        """The table by columns, in whose cells numbers need no quotes."""
        return Columns(self.names, [write_texts(column) for column in zip(*self.rows, strict=True)])


def parse_csv(text: str) -> CsvTable | None:
    """Return the table of a delimited text that `CsvStyle.write` would write back byte for byte; None: it is none."""
    newline = "\r\n" if "\r\n" in text[:2000] else "\n"
    head = text[:20_000].split(newline)[:SAMPLE_LINES]
    if len(head) <= ROWS_LEAST:
        return None
    for delimiter in sorted(DELIMITERS, key=head[0].count, reverse=True):
        width = head[0].count(delimiter)
        if width == 0 or (width == 1 and delimiter == "," and all(map(_DECIMAL.search, head[:-1]))):
            continue  # the comma is that of an amount
        if sum(line.count(delimiter) >= width for line in head[:-1]) < len(head) - 1:
            continue
        quotes = '"' in text
        if not quotes:
            rows = [line.split(delimiter) for line in text.removesuffix(newline).split(newline)]
        else:
            try:
                rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
            except csv.Error:
                continue
        if len(rows) <= ROWS_LEAST or len(set(map(len, rows))) != 1 or len(set(rows[0])) < len(rows[0]):
            continue
        if any(map(_TIME.search, rows[0])) or any(row[0] == rows[0][0] for row in rows[1:]):
            return None  # lines of a log: no head names a time, or stands in the rows again
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL) if quotes else (csv.QUOTE_NONE,):
            style = CsvStyle(delimiter, quoting, newline, text.endswith(newline))
            if style.write(rows) == text:
                return CsvTable(rows[0], rows[1:], style)
    return None


class CsvFamily(Family):
    """Comma-separated values, and texts with other delimiters."""

    name = "csv"
    note = TABLE_NOTE

    def parse(self, text: str) -> CsvTable | None:
        return parse_csv(text)

    def encode(self, parsed: CsvTable) -> str:
        """Return the number of rows and the style in a line, and then the table."""
        style = parsed.style
        head = f"{len(parsed.rows)} rows, {dump([style.delimiter, style.quoting, style.newline, style.end])}"
        return "\n".join([head, *write(parsed.columns, keep_order=True)])

    def decode(self, body: str) -> str:
        """Return the text from which `encode` made this form."""
        lines = iter(body.split("\n"))
        count, _, style = next(lines).partition(" rows, ")
        table = read(lines, int(count))
        columns = [[json.loads(cell) if cell[:1] == '"' else cell for cell in cells] for cells in table.cells]
        return CsvStyle(*json.loads(style)).write([table.names, *zip(*columns, strict=True)])

    def shorten(self, parsed: CsvTable, room: TokenRoom) -> str | None:
        """Return the shortened table; None: nearly all rows are always shown."""
        return "\n".join(shorten_table(parsed.columns, room) or ()) or None


@dataclass(frozen=True, slots=True)
class Objects:
    """JSON lines as a table, the number of their style in `STYLES`, and whether a newline ends the text."""

    table: Columns
    style: int
    end: bool


class NdjsonFamily(Family):
    """Lines of which each is one JSON object, all written in the same style."""

    name = "ndjson"
    note = TABLE_NOTE
    sure_share = SURE_SHARE_JSON

    def parse(self, text: str) -> Objects | None:
        """Return the objects of the lines; None: a line is no object, or is written in another style."""
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
        """Return the lines from which `encode` made this form."""
        lines = iter(body.split("\n"))
        count, _, style = next(lines).partition(" rows, style ")
        encode = json.JSONEncoder(**STYLES[int(style[0])]).encode
        return "\n".join(map(encode, rows_of(read(lines, int(count))))) + "\n" * int(style[1])

    def shorten(self, parsed: Objects, room: TokenRoom) -> str | None:
        """Return the shortened table of the objects; None: nearly all rows are always shown."""
        return "\n".join(shorten_table(parsed.table, room) or ()) or None


# The hour of a time stamp is no path: `2026-11-27T10:00:00Z`, `[10:00:00]`, `[27/Nov/2026:10:00:00`.
_STAMP = r"\W?(?:\d{1,4}[-/.]?(?:\d\d|[A-Za-z]{3})[-/.]?\d{2,4}(?:[T_]\d\d)?|\d{1,2}):\d\d[:-]"
_HIT = re.compile(rf"(?!{_STAMP})(?P<path>[^\s:]+):(?P<rest>\d+[:-].*)")


class SearchFamily(Family):
    """Output of a search tool, `path:line:text`, grouped by file; other lines may be mixed in."""

    name = "search"
    note = "the lines below `= path` are of that file"

    def parse(self, text: str) -> tuple[list[str], list[re.Match[str] | None]] | None:
        """Return the lines, and for each how it matches `_HIT`; None: too few do."""
        lines = text.split("\n")
        hits = [_HIT.fullmatch(line) for line in lines]
        found = sum(hit is not None for hit in hits)
        if found < 5 or found < 0.6 * len(lines) or any(line.startswith("= ") for line in lines):
            return None
        return lines, hits

    def encode(self, parsed: tuple[list[str], list[re.Match[str] | None]]) -> str:
        """Return the lines without their paths; a line `= path` (`= ` for none) names the path of those that follow."""
        out: list[str] = []
        path = ""
        for line, hit in zip(*parsed, strict=True):
            above, path = path, hit["path"] if hit else ""
            if path != above:
                out.append(f"= {path}")
            out.append(hit["rest"] if hit else line)
        return "\n".join(out)

    def decode(self, body: str) -> str:
        """Return the text from which `encode` made the lines."""
        out, path = [], ""
        for line in body.split("\n"):
            if line.startswith("= "):
                path = line[2:]
            else:
                out.append(f"{path}:{line}" if path else line)
        return "\n".join(out)
