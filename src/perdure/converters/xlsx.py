"""XLSX, read from its XML as a stream: a sheet costs what stands in it, however far apart its cells are.

For a sheet with one value in its first cell and one in its last, calamine asks for 550 GB of memory; openpyxl makes
every cell of a row up to its last one, and every row between.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import BinaryIO

from perdure.converters.archives import open_archive, read_xml, title_of
from perdure.converters.limits import Limits, Refusal
from perdure.converters.tables import markdown_table
from perdure.core.documents import Document

_DATE_FORMATS = frozenset(
    (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))
)  # built in, ECMA-376 18.8.30
_LITERALS = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_DATE_CODE = re.compile("[ymdhs]", re.IGNORECASE)
_DURATION_FORMATS = frozenset({46})
_DURATION_CODE = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_COLUMN = re.compile("[A-Z]{1,3}")
_MERGED = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7}):\$?([A-Z]{1,3})\$?([0-9]{1,7})")
_MERGED_CHARS = 200  # a longer text is not repeated in the rows below its cell
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")


def xlsx_document(name: str, file: BinaryIO, limits: Limits, progress: Callable[[int, int], None]) -> Document:
    """Each worksheet as a heading and a table whose head is its first row that is not blank; `progress` after each.

    Blank rows and columns are left out; formulas give the value last computed; dates are written as ISO 8601, durations
    as hours. A cell that is merged with others below it stands in each of their rows that holds a value.

    Raises: Refusal: damaged, a trap, too large, or no values in it.
    """
    archive, warnings = open_archive(file, limits, kind="XLSX", required="xl/workbook.xml")
    sheets, epoch = _sheets(archive)
    if len(sheets) > limits.pages:
        raise Refusal(f"it has {len(sheets):,} worksheets, the limit is {limits.pages:,}: split it")
    strings, dates = _shared_strings(archive), _time_styles(archive)
    progress(0, len(sheets))
    parts: list[str] = []
    chars = 0
    for number, (title, part) in enumerate(sheets, start=1):
        if table := _table(archive, part, strings, dates, epoch, limits):
            parts.append(f"## {' '.join(title.split())}\n\n" + "\n".join(table) + "\n")
            chars += len(parts[-1])
            limits.check_text(chars)
        else:
            warnings.append(f"worksheet {title!r} is empty")
        progress(number, len(sheets))
    if not parts:
        raise Refusal("none of its worksheets holds a value")
    return Document(name=name, kind="xlsx", text="\n".join(parts), title=title_of(archive), warnings=tuple(warnings))


def _sheets(archive: zipfile.ZipFile) -> tuple[list[tuple[str, str]], datetime]:
    """(title, part) of each worksheet in order, and the day that dates are counted from."""
    targets: dict[str, str] = {}
    titles: list[tuple[str, str]] = []
    epoch = datetime(1899, 12, 30)
    parts = set(archive.namelist())
    if "xl/_rels/workbook.xml.rels" in parts:
        for event, tag, attributes in _events(archive, "xl/_rels/workbook.xml.rels"):
            if event == "start" and tag == "Relationship" and attributes.get("Type", "").endswith("/worksheet"):
                target = attributes.get("Target", "")
                targets[attributes.get("Id", "")] = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
    for event, tag, attributes in _events(archive, "xl/workbook.xml"):
        if event == "start" and tag == "sheet":
            titles.append((attributes.get("name", ""), attributes.get("id", "")))
        elif event == "start" and tag == "workbookPr" and attributes.get("date1904") in {"1", "true"}:
            epoch = datetime(1904, 1, 1)
    return [(title, targets[key]) for title, key in titles if targets.get(key) in parts], epoch


def _shared_strings(archive: zipfile.ZipFile) -> list[str]:
    """The texts that cells refer to by number."""
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    strings: list[str] = []
    text: list[str] = []
    inside = phonetic = False
    for event, value, _ in _events(archive, "xl/sharedStrings.xml"):
        if event == "text":
            if inside and not phonetic:
                text.append(value)
        elif value == "t":
            inside = event == "start"
        elif value == "rPh":
            phonetic = event == "start"
        elif value == "si":
            if event == "end":
                strings.append("".join(text))
            text.clear()
    return strings


def _time_styles(archive: zipfile.ZipFile) -> dict[int, bool]:
    """The numbers of the cell styles that show a number as a date or time, and whether as a duration."""
    if "xl/styles.xml" not in archive.namelist():
        return {}
    codes = {code: code in _DURATION_FORMATS for code in _DATE_FORMATS}
    styles: list[int] = []
    in_cells = False
    for event, tag, attributes in _events(archive, "xl/styles.xml"):
        if tag == "cellXfs":
            in_cells = event == "start"
        elif event == "start" and tag == "numFmt" and (number := _integer(attributes.get("numFmtId"))) is not None:
            code = attributes.get("formatCode", "")
            if (duration := _DURATION_CODE.search(code)) or _DATE_CODE.search(_LITERALS.sub("", code)):
                codes[number] = duration is not None
        elif event == "start" and tag == "xf" and in_cells:
            styles.append(_integer(attributes.get("numFmtId")) or 0)
    return {at: codes[code] for at, code in enumerate(styles) if code in codes}


def _table(
    archive: zipfile.ZipFile, part: str, strings: list[str], dates: dict[int, bool], epoch: datetime, limits: Limits
) -> list[str]:
    """The lines of a worksheet's table; none: it is empty."""
    rows: dict[int, dict[int, str]] = {}
    merged: list[tuple[str, ...]] = []
    columns: set[int] = set()
    chars = 0
    row: dict[int, str] = {}
    number, column, cell, text, inside = 0, 0, dict[str, str](), list[str](), False
    for event, tag, attributes in _events(archive, part):
        if event == "text":
            if inside:
                text.append(tag)
        elif tag in {"v", "t"}:
            inside = event == "start"
        elif tag == "rPh":
            text = [] if event == "start" else text
        elif tag == "c":
            if event == "start":
                cell, text = attributes, []
                match = _COLUMN.match(attributes.get("r", ""))
                column = _column_number(match[0]) if match else column + 1
            elif value := _value("".join(text), cell, strings, dates, epoch):
                row[column] = value
                chars += len(value)
        elif tag == "mergeCell" and event == "start" and (match := _MERGED.match(attributes.get("ref", ""))):
            merged.append(match.groups())
        elif tag == "row":
            if event == "start":
                number = _integer(attributes.get("r")) or number + 1
            elif row:
                rows[number] = row
                columns.update(row)
                # A table has all columns in all rows, so a few cells that are far apart can make it huge.
                limits.check_text(chars + 3 * len(columns) * len(rows))
            row, column = {}, 0
    room = 20 * len(rows) + 1_000  # merged cells may cover each other
    for left, top, _, bottom in merged:
        column, first, last = _column_number(left), int(top), min(int(bottom), number)
        text_of_all = rows.get(first, {}).get(column, "")
        room -= max(last - first, 0)
        if text_of_all and len(text_of_all) <= _MERGED_CHARS and room > 0:
            for at in range(first + 1, last + 1):
                if at in rows:
                    rows[at].setdefault(column, text_of_all)
                    chars += len(text_of_all)
            limits.check_text(chars)
    order = sorted(columns)
    return markdown_table([row.get(column, "") for column in order] for row in rows.values())


def _value(text: str, cell: dict[str, str], strings: list[str], dates: dict[int, bool], epoch: datetime) -> str:
    """The text that a cell shows; empty if it shows none."""
    match cell.get("t", "n"):
        case "s":
            at = _integer(text)
            return _unescaped(strings[at]) if at is not None and at < len(strings) else ""
        case "b":
            return {"1": "TRUE", "0": "FALSE"}.get(text, text)
        case "n":
            try:
                number = float(text)
            except ValueError:
                return text.strip()
            if (duration := dates.get(_integer(cell.get("s")) or 0)) is not None:
                return _duration(number) if duration else _date(number, epoch) or text
            return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
        case _:
            return _unescaped(text)


def _unescaped(text: str) -> str:
    """`text` with the characters that XML can't hold, which are written as `_x000D_`."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\0", "").strip()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of characters come in pairs


def _duration(days: float) -> str:
    """Hours, minutes and seconds, more than 24 hours too."""
    seconds = round(abs(days) * 86_400)
    hours, minutes = seconds // 3_600, seconds // 60 % 60
    return f"{'-' * (days < 0)}{hours}:{minutes:02}" + (f":{seconds % 60:02}" if seconds % 60 else "")


def _date(days: float, epoch: datetime) -> str:
    """A date, a time of day, or both; empty: no calendar has it."""
    if 1 <= days < 60 and epoch.year < 1900:  # such workbooks have a 29 February 1900, which is day 60
        epoch += timedelta(days=1)
    try:
        moment = epoch + timedelta(seconds=round(days * 86_400))
    except (OverflowError, ValueError):
        return ""
    if 0 <= days < 1:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"


def _column_number(letters: str) -> int:
    """The number of a column, from 1: A is 1, AA is 27."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


def _integer(text: str | None) -> int | None:
    """The number in a text; None: it is no small whole number."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _events(archive: zipfile.ZipFile, part: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The XML events of a part."""
    for events in read_xml(archive, part, with_events=True):
        yield from events
