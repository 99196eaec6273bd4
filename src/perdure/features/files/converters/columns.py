"""Pages in columns, which pypdf reads line across line, column by column; tables and other pages stay as they are.

pypdf's layout mode puts text where it stands on the page, in characters of one width: a gutter is where many lines
begin anew behind a gap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import median

_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
LINES_MIN = 6
"""So many lines of both columns tell columns from anything else."""
WORDS_MIN, CHARS_MIN = 4, 20  # of a column's usual line; Chinese has no spaces between words
FULL = 0.7  # of the longest lines: a line of running text is no shorter but at a paragraph's end
INDENT_MAX = 4
MOST = 1_000  # lines, and characters of one: more are no page, and would be divided for long
SCALE = 1.6
"""How many times wider than its letters a line is laid out, so that it never reaches into the next column."""

_ENDS = (".", "!", "?", ":", ";", "。", "！", "？")

_Row = tuple[str, str]  # what stands left and right of a gutter


def in_columns(plain: str, layout: str) -> str:
    """`plain`, column by column if `layout` shows columns that it reads across.

    Args:
        plain: the text of a page, in any order.
        layout: the same text, every line where it stands.
    """
    lines = layout.split("\n")
    if max(map(len, lines)) > MOST or len(lines) > MOST:
        return plain
    places = [at for at, letter in enumerate(plain) if not letter.isspace()]
    letters = "".join(plain.split())
    text = "\n".join(_with_plain_spaces(plain, letters, places, line) for line in _reading_order(lines, letters))
    return text if Counter("".join(text.split())) == Counter(letters) else plain


def _with_plain_spaces(plain: str, letters: str, places: Sequence[int], line: str) -> str:
    """Return `line` with the spaces of the plain text, as the layout lacks narrow ones. `letters`: the plain text
    without spaces; `places`: the index of each letter in it."""
    wanted = "".join(line.split())
    at = letters.find(wanted)
    return line if at < 0 else " ".join(plain[places[at] : places[at + len(wanted) - 1] + 1].split())


def _reading_order(lines: Sequence[str], letters: str) -> list[str]:
    """The lines column by column; empty: there are no columns. `letters`: the plain text without spaces."""
    starts = Counter(gap.end() for line in lines for gap in _GAP.finditer(line))
    for start in (*(start for start, _ in starts.most_common(3)), 0):
        rows = [_split_at(line, start) for line in lines]
        if start and starts[start] < 0.6 * sum(row is not None and all(row) for row in rows):
            continue  # words that happen to stand below each other
        out: list[str] = []
        found = False
        for _, group in groupby(zip(rows, lines, strict=True), lambda pair: pair[0] is None):
            block = list(group)
            sides = [row for row, _ in block if row is not None]
            if sides and _is_prose(sides) and _is_read_across(sides, letters):
                found = True
                for side in ([left for left, _ in sides], [right for _, right in sides]):
                    out += _reading_order(side, letters) or side
            else:
                out += [line for _, line in block]
        if found:
            return [line for line in out if line.strip()]
    return []


def _split_at(line: str, start: int) -> _Row | None:
    """The text before and behind the gutter that ends at `start`, or the only gap if 0; None: text is across it."""
    gaps = list(_GAP.finditer(line))
    if not start:  # lines that are drawn in one go are laid out with as many spaces as fit, whatever their letters
        gaps = [gap for gap in gaps if gap.end() - gap.start() > 2]
        return (line[: gaps[0].start()], line[gaps[0].end() :]) if len(gaps) == 1 else None
    gap = next((gap for gap in gaps if start - 1 <= gap.end() <= start + INDENT_MAX), None)
    if gap is not None:
        return line[: gap.start()], line[gap.end() :]
    crosses = line[max(start - 2, 0) : start].strip() or len(line.strip()) * SCALE > start
    return None if crosses else (line[:start].rstrip(), line[start:])


def _is_prose(rows: Sequence[_Row]) -> bool:
    """Whether two columns are running text: full lines that don't end in the same rows. Cells of a table are short, or
    begin and end in the same rows."""
    last = max((at for at, (left, right) in enumerate(rows) if left and right), default=0)
    rows = rows[: last + 1]
    both = sum(bool(left and right) for left, right in rows)
    if both < LINES_MIN or both < 0.8 * len(rows):
        return False
    begins: list[set[int]] = []  # of each column the lines behind a short one
    for side in ([left for left, _ in rows], [right for _, right in rows]):
        texts = [" ".join(text.split()) for text in side]
        lengths = sorted(map(len, filter(None, texts)))
        full = FULL * lengths[len(lengths) * 3 // 4]
        words = [word for text in texts for word in text.split()]
        cells = Counter(gap.end() for text in side for gap in _GAP.finditer(text) if gap.start() > INDENT_MAX)
        if (
            sum(length >= full for length in lengths) < 0.6 * len(lengths)
            or (median(len(text.split()) for text in texts if text) < WORDS_MIN and median(lengths) < CHARS_MIN)
            or sum(any(map(str.isdigit, word)) for word in words) > 0.3 * len(words)
            or any(
                count > 0.5 * len(rows) and not _is_prose([row for text in side if (row := _split_at(text, at))])
                for at, count in cells.most_common(1)
            )
        ):
            return False
        ends = (len(text) < full or text.endswith(_ENDS) for text in texts)
        begins.append({at for at, end in enumerate(ends, start=1) if end and at < len(rows)})
    together = len(begins[0] & begins[1])
    return together < 2 or together < 0.6 * min(map(len, begins))


def _is_read_across(rows: Sequence[_Row], letters: str) -> bool:
    """Whether most lines of the left column go on with that of the right one in `letters`, those of the plain text."""
    pairs = ["".join(f"{left}{right}".split()) for left, right in rows if left and right]
    return sum(pair in letters for pair in pairs) > 0.5 * len(pairs)
