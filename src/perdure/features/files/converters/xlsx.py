"""XLSX, read from its XML as a stream: a sheet costs what stands in it, however far apart its cells are.

For a sheet with one value in its first cell and one in its last, calamine asks for 550 GB of memory; openpyxl makes
every cell of a row up to its last one, and every row between.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import BinaryIO

from perdure.core.documents import Document
from perdure.features.files.converters.archives import open_archive, read_xml, title_of
from perdure.features.files.converters.html import IS_NO_POWER, SPAN_CHARS
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits
from perdure.features.files.converters.mathml import group
from perdure.features.files.converters.numbering import whole_number
from perdure.features.files.converters.tables import markdown_table

_DATE_FORMATS = frozenset(
    (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))
)  # built in, ECMA-376 18.8.30
_LITERALS = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_DATE_CODE = re.compile("[ymdhs]", re.IGNORECASE)
_DURATION_CODE = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_COLUMN = re.compile("[A-Z]{1,3}")
_MERGED = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7}):\$?([A-Z]{1,3})\$?([0-9]{1,7})")
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")


def xlsx_document(name: str, file: BinaryIO, limits: ReadLimits, progress: Callable[[int, int], None]) -> Document:
    """Each worksheet as a heading and a table whose head is its first row that is not blank; `progress` after each.

    Blank rows and columns are left out; formulas give the value last computed; dates are written as ISO 8601, durations
    as hours. A cell that is merged with others below it stands in each of their rows that holds a value.

    Raises: FileUnreadable: damaged, a trap, too large, or no values in it.
    """
    archive, warnings = open_archive(file, limits, kind="XLSX", required="xl/workbook.xml")
    sheets, epoch = _sheets(archive)
    if len(sheets) > limits.pages:
        raise FileUnreadable(f"it has {len(sheets):,} worksheets, the limit is {limits.pages:,}: split it")
    strings, styles = _shared_strings(archive), _styles(archive)
    progress(0, len(sheets))
    parts: list[str] = []
    chars = 0
    for number, (title, part) in enumerate(sheets, start=1):
        if table := _table(archive, part, strings, styles, epoch, limits):
            parts.append(f"## {' '.join(title.split())}\n\n" + "\n".join(table) + "\n")
            chars += len(parts[-1])
            limits.check_text(chars)
        else:
            warnings.append(f"worksheet {title!r} is empty")
        progress(number, len(sheets))
    if not parts:
        raise FileUnreadable("none of its worksheets holds a value")
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
    runs = _TextRuns()
    for event, tag, attributes in _events(archive, "xl/sharedStrings.xml"):
        runs.take(event, tag, attributes)
        if (event, tag) == ("end", "si"):
            strings.append(runs.text())
    return strings


class _TextRuns:
    """The text of a cell from its runs: signs for what is struck out, raised or lowered, no readings of characters."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sign, self._inside, self._phonetic = "", False, False

    def take(self, event: str, tag: str, attributes: dict[str, str]) -> None:
        """Read an event of the XML."""
        value = attributes.get("val", "1")
        match event, tag:
            case "text", text if self._inside and not self._phonetic:
                mark = self._sign if text.strip() and not IS_NO_POWER.fullmatch(text) else ""
                self._parts.append(f"~~{text}~~" if mark == "~~" else f"{mark}{group(text)}" if mark else text)
            case _, "t" | "v":
                self._inside = event == "start"
            case _, "rPh":
                self._phonetic = event == "start"
            case _, "r":
                self._sign = ""
            case "start", "strike" if value not in {"0", "false"}:
                self._sign = "~~"
            case "start", "vertAlign":
                self._sign = self._sign or {"superscript": "^", "subscript": "_"}.get(value, "")

    def text(self) -> str:
        """The text since the last call."""
        text = "".join(self._parts)
        self._parts, self._sign = [], ""
        return text


@dataclass(frozen=True, slots=True)
class _CellStyle:
    """How a cell is shown: its number as a date, a duration or in percent, with so many digits, or struck out."""

    is_date: bool = False
    is_duration: bool = False
    is_percent: bool = False
    digits: int = 0
    is_struck: bool = False


def _styles(archive: zipfile.ZipFile) -> list[_CellStyle]:
    """The styles of cells, by their number."""
    if "xl/styles.xml" not in archive.namelist():
        return []
    codes = {code: _CellStyle(is_date=True, is_duration=code == 46) for code in _DATE_FORMATS}
    codes |= dict.fromkeys((9, 10), _CellStyle(is_percent=True))
    strikes: list[bool] = []
    styles: list[_CellStyle] = []
    room = ""
    for event, tag, attributes in _events(archive, "xl/styles.xml"):
        if tag in {"fonts", "cellXfs"}:
            room = tag if event == "start" else ""
        elif event == "end":
            continue
        elif tag == "numFmt" and (number := whole_number(attributes.get("numFmtId"))) is not None:
            code = attributes.get("formatCode", "")
            duration = _DURATION_CODE.search(code) is not None
            signs = _LITERALS.sub("", code)
            date = duration or _DATE_CODE.search(signs) is not None
            codes[number] = _CellStyle(date, duration, "%" in signs, len(code) if re.fullmatch("0{2,20}", code) else 0)
        elif tag == "font" and room == "fonts":
            strikes.append(False)
        elif tag == "strike" and room == "fonts" and attributes.get("val") not in {"0", "false"}:
            strikes[-1:] = [True]
        elif tag == "xf" and room == "cellXfs":
            number, font = (whole_number(attributes.get(name)) or 0 for name in ("numFmtId", "fontId"))
            styles.append(replace(codes.get(number, _CellStyle()), is_struck=font < len(strikes) and strikes[font]))
    return styles


def _table(
    archive: zipfile.ZipFile,
    part: str,
    strings: list[str],
    styles: list[_CellStyle],
    epoch: datetime,
    limits: ReadLimits,
) -> list[str]:
    """The lines of a worksheet's table; none: it is empty."""
    rows: dict[int, dict[int, str]] = {}
    merged: list[tuple[str, ...]] = []
    columns: set[int] = set()
    chars = 0
    row: dict[int, str] = {}
    number, column, cell, runs = 0, 0, dict[str, str](), _TextRuns()
    for event, tag, attributes in _events(archive, part):
        runs.take(event, tag, attributes)
        if event == "text":
            continue
        if tag == "c":
            if event == "start":
                cell = attributes
                runs.text()
                match = _COLUMN.match(attributes.get("r", ""))
                column = _column_number(match[0]) if match else column + 1
            elif value := _value(runs.text(), cell, strings, styles, epoch):
                row[column] = value
                chars += len(value)
        elif tag == "mergeCell" and event == "start" and (match := _MERGED.match(attributes.get("ref", ""))):
            merged.append(match.groups())
        elif tag == "row":
            if event == "start":
                number = whole_number(attributes.get("r")) or number + 1
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
        if text_of_all and len(text_of_all) <= SPAN_CHARS and room > 0:
            for at in range(first + 1, last + 1):
                if at in rows:
                    rows[at].setdefault(column, text_of_all)
                    chars += len(text_of_all)
            limits.check_text(chars)
    order = sorted(columns)
    return markdown_table([row.get(column, "") for column in order] for row in rows.values())


def _value(text: str, cell: dict[str, str], strings: list[str], styles: list[_CellStyle], epoch: datetime) -> str:
    """The text that a cell shows, empty if none: `text` is its content, `cell` its attributes in the XML."""
    at, index = whole_number(cell.get("s")) or 0, whole_number(text)
    style = styles[at] if at < len(styles) else _CellStyle()
    match cell.get("t", "n"):
        case "s":
            value = _unescaped(strings[index]) if index is not None and index < len(strings) else ""
        case "b":
            value = {"1": "TRUE", "0": "FALSE"}.get(text, text)
        case "n":
            value = _number(text, style, epoch)
        case _:
            value = _unescaped(text)
    return f"~~{value}~~" if style.is_struck and value and "~~" not in value else value


def _number(text: str, style: _CellStyle, epoch: datetime) -> str:
    """A number, date or duration as its style shows it; another text as it is."""
    try:
        number = float(text)
    except ValueError:
        return text.strip()
    if style.is_date:
        return _duration(number) if style.is_duration else _date(number, epoch) or text
    if style.is_percent:
        return f"{number * 100:.15g}%"
    is_whole = number.is_integer() and abs(number) < (1e15 if "E" in text.upper() else 1e30)
    # The text of a whole number may have more digits than a float keeps.
    return str(int(Decimal(text))).zfill(style.digits) if is_whole else repr(number)


def _unescaped(text: str) -> str:
    """`text` with the characters that XML can't hold, which are written as `_x000D_`."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\0", "").strip()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of characters come in pairs


def _duration(days: float) -> str:
    """A duration as hours, which may be above 24, minutes and seconds, such as `30:15:05`."""
    seconds = round(abs(days) * 86_400)
    hours, minutes = seconds // 3_600, seconds // 60 % 60
    return f"{'-' * (days < 0)}{hours}:{minutes:02}" + (f":{seconds % 60:02}" if seconds % 60 else "")


def _date(days: float, epoch: datetime) -> str:
    """The date, time of day or both that are `days` after `epoch`; empty: no calendar has it."""
    if 1 <= days < 60 and epoch.year < 1900:  # such workbooks have a 29 February 1900, which is day 60
        epoch += timedelta(days=1)
    try:
        moment = epoch + timedelta(seconds=round(days * 86_400))
    except (OverflowError, ValueError):
        return ""
    if 0 <= days < 1 and (days or epoch.year < 1904):
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"


def _column_number(letters: str) -> int:
    """The number of a column, from 1: A is 1, AA is 27."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


def _events(archive: zipfile.ZipFile, part: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The XML events of a part."""
    for events in read_xml(archive, part, with_events=True):
        yield from events
