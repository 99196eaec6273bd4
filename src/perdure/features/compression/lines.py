"""Lines of text by their form: logs, reports of tests and builds. A form that repeats has a template.

%1 = Nov 20 {} node7 kubelet: probe succeeded pod={} %1*2 03:00:00 web-7 :01 web-0 a line without a template
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from perdure.features.compression.constants import (
    CONTEXT_LINES,
    EDGE_ROWS,
    RARE_SIGMAS,
    TEMPLATE_CHARS,
    TEMPLATE_LINES,
    VARIED_SHARE,
)
from perdure.features.compression.interest import (
    change_points,
    is_sequence,
    mean_and_deviation,
    numbers_of,
    odd_rows,
    outliers,
    rare_rows,
    tells_error,
)
from perdure.features.compression.shorten import Family, TokenRoom
from perdure.features.compression.table import BOUNDARIES, with_above

_WORD = re.compile(r"[^\s=:,;\"'()\[\]{}<>|/]+")
_SPACES = re.compile(r"\s+")
SLOT = "{}"


@dataclass(slots=True, eq=False)
class LineTemplate:
    """The form of some lines: its text, with `{}` where they differ.

    Attributes:
        rows: the numbers of these lines, from 0, in order.
        cells: number of a line -> its texts for the slots, in order.
    """

    text: str
    rows: list[int] = field(default_factory=list)
    cells: dict[int, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Lines:
    """The lines of a text, and number of a line, from 0, -> its template, if it has one."""

    lines: list[str]
    templates: list[LineTemplate]
    template_of: dict[int, LineTemplate]


def parse_lines(text: str, *, least_rows: int = 0) -> Lines:
    """Return a text's lines with their templates. `least_rows`: about how many lines a template has at least."""
    lines = text.split("\n")
    skeletons = _WORD.sub("\0", text).split("\n")
    groups: dict[str, list[int]] = defaultdict(list)
    for number, skeleton in enumerate(skeletons):
        groups[skeleton].append(number)
    templates: list[LineTemplate] = []
    template_of: dict[int, LineTemplate] = {}
    for skeleton, rows in groups.items():
        if len(rows) < TEMPLATE_LINES or "\0" not in skeleton or SLOT in skeleton:
            continue
        words = [_WORD.findall(lines[row]) for row in rows]
        words_of = dict(zip(rows, words, strict=True))
        for picked in _by_constant_words(rows, words, least_rows):
            template = _template(skeleton, picked, words_of, saves=not least_rows)
            if template is not None:
                templates.append(template)
                for row in template.rows:
                    template_of[row] = template
    templates.sort(key=lambda template: template.rows[0])
    return Lines(lines, templates, template_of)


def _by_constant_words(rows: list[int], words: list[list[str]], least_rows: int) -> list[list[int]]:
    """Split lines of one skeleton, with their words, into groups that share the words which are no parameters. With
    `least_rows` above 0 only as far as groups have so many lines on average."""
    candidates = []
    for position, column in enumerate(zip(*words, strict=True)):
        distinct = set(column)
        if len(distinct) > 1 and len(distinct) <= VARIED_SHARE * len(rows) and not any(map(_DIGIT.search, distinct)):
            candidates.append((len(distinct), position))
    fixed, count = [], least_rows
    for size, position in sorted(candidates) if least_rows else candidates:
        count *= size
        if count <= len(rows):
            fixed.append(position)
    parts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, row_words in zip(rows, words, strict=True):
        parts[tuple(row_words[position] for position in fixed)].append(row)
    return list(parts.values())


_DIGIT = re.compile(r"\d")


def _template(skeleton: str, rows: list[int], words: dict[int, list[str]], *, saves: bool) -> LineTemplate | None:
    """Return the template of lines of one skeleton; None: they are too few, or share too little.

    Args:
        skeleton: such a line with a zero byte in place of each word.
        rows: the numbers of the lines.
        words: number of a line -> its words.
        saves: whether the template has to save `TEMPLATE_CHARS`.
    """
    if len(rows) < TEMPLATE_LINES:
        return None
    columns = list(zip(*(words[row] for row in rows), strict=True))
    varies = [len(set(column)) > 1 for column in columns]
    separators = skeleton.split("\0")
    # Parameters with no space between them are one: 03:00:00.
    text = separators[0]
    slots: list[list[tuple[str, int]]] = []
    for position, column in enumerate(columns):
        joined = position > 0 and varies[position] and varies[position - 1] and separators[position] in (":", "/")
        if joined:
            slots[-1].append((separators[position], position))
        else:
            if position:
                text += separators[position]
            if varies[position]:
                slots.append([("", position)])
                text += SLOT
            else:
                text += column[0]
    text += separators[-1]
    if text.count(SLOT) != len(slots):
        return None
    cells = {
        row: ["".join(before + words[row][position] for before, position in slot) for slot in slots] for row in rows
    }
    # A run of spaces is one token.
    saved = (len(_SPACES.sub(" ", text)) - 4 - 3 * len(slots)) * (len(rows) - 1)
    if saves and saved < TEMPLATE_CHARS:
        return None
    return LineTemplate(text, rows, cells)


def _without_shared_start(cell: str, above: str) -> str:
    """Return a cell without what it shares with the one above, up to the last `:` or `/`."""
    for boundary in BOUNDARIES:
        head = cell.rpartition(boundary)[0]
        if head and head == above.rpartition(boundary)[0]:
            return cell[len(head) :]
    return cell


_ROW = re.compile(r"%(\d+)(?: (.*)|\*(\d+))", re.DOTALL)


def _fill(pieces: list[str], cells: list[str]) -> str:
    """Return the line of a template, given as the texts around its slots, with these cells."""
    return pieces[0] + "".join(
        cell + piece for cell, piece in zip(cells, pieces[1:], strict=bool(cells and pieces[1:]))
    )


def shown_lines(parsed: Lines) -> set[int]:
    """The numbers of the lines that are always shown: the ends, errors, lines without a template, unusual values."""
    lines = parsed.lines
    shown = {*range(min(EDGE_ROWS, len(lines))), *range(max(0, len(lines) - EDGE_ROWS), len(lines))}
    for number, line in enumerate(lines):
        if tells_error(line):
            near = range(max(0, number - CONTEXT_LINES), min(len(lines), number + CONTEXT_LINES + 1))
            shown |= {other for other in near if other == number or other not in parsed.template_of}
        elif number not in parsed.template_of:
            shown.add(number)
    for template in parsed.templates:
        shown |= {template.rows[0], template.rows[-1]}
    return shown.union(standouts(parsed))


def standouts(parsed: Lines) -> list[int]:
    """Return the numbers of lines with a rare value, or an outlier, of their template; the strongest first."""
    strength: dict[int, float] = {}
    for template in parsed.templates:
        for column in zip(*(template.cells[row] for row in template.rows), strict=True):
            numbers = numbers_of(column)
            found = dict.fromkeys(rare_rows(column), RARE_SIGMAS) | dict.fromkeys(
                odd_rows(column, numbers), 2 * RARE_SIGMAS
            )
            if numbers and not is_sequence(list(numbers.values())):
                mean, deviation = mean_and_deviation(numbers.values())
                for row in outliers(numbers) | change_points(numbers):
                    found[row] = max(found.get(row, 0.0), abs(numbers[row] - mean) / deviation)
            for row, sigmas in found.items():
                strength[template.rows[row]] = max(strength.get(template.rows[row], 0.0), sigmas)
    return sorted(strength, key=lambda line: (-strength[line], line))


class LinesFamily(Family):
    """Lines, by the templates of those that repeat a form."""

    name = "lines"
    note = "%n stands for line form n with its {} filled; a cell that begins with : or / goes on from the cell above"

    def parse(self, text: str) -> Lines | None:
        """Return the lines with their templates, if there are enough lines; else None."""
        return parse_lines(text) if text.count("\n") >= TEMPLATE_LINES else None

    def encode(self, parsed: Lines) -> str | None:
        """The templates, then the lines; consecutive lines of one template share a head. None: there is no template."""
        if not parsed.templates:
            return None
        numbers = {id(template): number for number, template in enumerate(parsed.templates, start=1)}
        written = [f"{len(numbers)} templates"]
        written += [f"%{numbers[id(template)]} = {template.text}" for template in parsed.templates]
        for template, run in groupby(range(len(parsed.lines)), parsed.template_of.get):
            rows = list(run)
            if template is None:
                lines = (parsed.lines[row] for row in rows)
                written += [f"%{line}" if line.startswith("%") else line for line in lines]
                continue
            cells = [template.cells[row] for row in rows]
            if len(rows) == 1:
                written.append(f"%{numbers[id(template)]} {' '.join(cells[0])}")
                continue
            written.append(f"%{numbers[id(template)]}*{len(rows)}")
            pairs = pairwise([[""] * len(cells[0]), *cells])
            written += [" ".join(map(_without_shared_start, here, above)) for above, here in pairs]
        return "\n".join(written)

    def decode(self, body: str) -> str:
        """Return the text from which `encode` made the lines."""
        lines = iter(body.split("\n"))
        count = int(next(lines).split(" ")[0])
        templates = [next(lines).partition(" = ")[2].split(SLOT) for _ in range(count)]
        out: list[str] = []
        for line in lines:
            match = _ROW.fullmatch(line)
            if match is None:
                out.append(line.removeprefix("%"))
                continue
            pieces = templates[int(match[1]) - 1]
            if match[3] is None:
                out.append(_fill(pieces, match[2].split(" ")))
                continue
            above = [""] * (len(pieces) - 1)
            for _ in range(int(match[3])):
                above = list(map(with_above, above, next(lines).split(" ")))
                out.append(_fill(pieces, above))
        return "\n".join(out)

    def shorten(self, parsed: Lines, room: TokenRoom) -> str | None:
        """Return the lines that are always shown, as `number| text` counted from 1, with a count of those left out
        between them; None: it would save too little."""
        shown = shown_lines(parsed)
        if len(shown) > 0.8 * len(parsed.lines):
            return None
        out: list[str] = []
        left_out: Counter[str] = Counter()
        for number, line in enumerate(parsed.lines):
            if number in shown:
                if left_out:
                    out.append(_left_out_line(left_out))
                    left_out.clear()
                out.append(f"{number + 1}| {line}")
            else:
                left_out[parsed.template_of[number].text if number in parsed.template_of else ""] += 1
        if left_out:
            out.append(_left_out_line(left_out))
        return "\n".join(out)


def _left_out_line(left_out: Counter[str]) -> str:
    """Return a line that counts the lines left out; `left_out`: template -> how many, with "" for lines without one."""
    top = "; ".join(
        f"{count} like: {text.strip()}" if text else f"{count} others" for text, count in left_out.most_common(3)
    )
    more = sum(left_out.values()) - sum(count for _, count in left_out.most_common(3))
    return f"[… {sum(left_out.values())} lines: {top}{f'; {more} others' if more else ''}]"
