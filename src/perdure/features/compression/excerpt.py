"""Any text shortened to a budget: the pieces that matter most, in their order, with counts of what is left out.

A piece is a line, a part of a long line, or a value of a JSON document. No kind of text needs a rule of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from perdure.features.compression.constants import CONTEXT_LINES, EDGE_ROWS, FEW_PIECES, FEW_SHARE, OUTLINE, PART_LIMITS
from perdure.features.compression.interest import tells_error
from perdure.features.compression.lines import parse_lines, standouts
from perdure.features.compression.shorten import TokenRoom

_NUMBER = re.compile(r"\d+")
_LETTERS = re.compile(r"(?<!\w)[^\W\d_]{4,}(?!\w)")
_SPACES = re.compile(r"[ \t]+")
# Where a long line is parted, the best place first: between tags, values, sentences, words.
_ENDS = ("><", "},", ";", ". ", ", ", ",", " ")
_EMPTY = frozenset(("null", "0", "false", '""', "[]", "{}"))
GAP_CHARS = "[… 1,000 left out]\n"
MISSES = 50
"""After so many pieces in a row that do not fit, no smaller one is looked for."""


@dataclass(frozen=True, slots=True)
class ExcerptPiece:
    """A part of the original; its name is a line or row (`17`), a value (`items[3].name`) or a place (`17:401`)."""

    name: str
    text: str

    @property
    def tells_error(self) -> bool:
        """Whether its text tells of an error, or its name does and its text is more than an empty value."""
        return tells_error(self.text) or (tells_error(self.name) and self.text not in _EMPTY)


def part_line(name: str, line: str, limit: int) -> Iterator[ExcerptPiece]:
    """Yield a line of this name as pieces of at most `limit` characters, cut where words and values end."""
    start = 0
    while len(line) - start > limit:
        least, most = start + limit // 2, start + limit
        ends = (line.rfind(end, least, most) + 1 for end in _ENDS)
        stop = next((end for end in ends if end), most)
        yield ExcerptPiece(f"{name}:{start + 1}", line[start:stop])
        start = stop
    yield ExcerptPiece(f"{name}:{start + 1}" if start else name, line[start:])


def excerpt(pieces: Sequence[ExcerptPiece], room: TokenRoom) -> str:
    """Return as many pieces as the room holds, in their order, with counts of those left out between them. The first
    error, both ends, other errors and unusual pieces take precedence."""
    least, most = PART_LIMITS
    sample = "\n".join([piece.text[:most] for piece in pieces[:MISSES]])
    limit = max(least, min(most, room.tokens * len(sample) // (8 * room.count(sample) + 1)))
    parts: list[ExcerptPiece] = []
    follows: set[int] = set()  # parts that go on in the line of the part before
    for piece in pieces:
        if len(piece.text) <= 2 * limit:
            parts.append(piece)
            continue
        first = len(parts)
        parts += part_line(piece.name, piece.text, limit)
        follows.update(range(first + 1, len(parts)))
    chosen: set[int] = set()
    gap = room.count(GAP_CHARS)
    left_tokens, misses = room.tokens - gap, 0
    for number in _by_worth(parts, follows):
        size = room.count(f"{_piece_line(parts[number])}\n") + (0 if {number - 1, number + 1} & chosen else gap)
        if size <= left_tokens:
            chosen.add(number)
            left_tokens, misses = left_tokens - size, 0
        else:
            misses += 1
            if misses == MISSES:
                break
    return _write(parts, chosen, follows)


def _piece_line(piece: ExcerptPiece) -> str:
    """Return a piece on one line, with its name."""
    return f"{piece.name}| {piece.text}" if piece.name else piece.text


def _write(parts: Sequence[ExcerptPiece], chosen: set[int], follows: set[int]) -> str:
    """Return the chosen parts in order, with counts of the others; those in `follows` go on in the line before."""
    out: list[str] = []
    before = -1
    for number in (*sorted(chosen), len(parts)):
        if number > before + 1:
            out.append(f"\n[… {number - before - 1} left out]")
        if number < len(parts):
            goes_on = number in follows and before == number - 1
            out.append(parts[number].text if goes_on else f"\n{_piece_line(parts[number])}")
        before = number
    return "".join(out)[1:]


def _by_worth(parts: Sequence[ExcerptPiece], follows: set[int]) -> Iterable[int]:
    """Return the numbers of the parts, the most important first: the first error and the ends; one error of each form,
    with neighbours that continue its line (`follows`); parts of unusual form; then all, from both ends inward."""
    parsed = parse_lines(_SPACES.sub(" ", "\n".join(map(_piece_line, parts))), least_rows=FEW_PIECES)
    solid = [number for number, part in enumerate(parts) if part.text.strip()]
    commonness = _commonness(parsed.lines)
    forms = {n: _NUMBER.sub("0", parts[n].text) for n in solid if parts[n].tells_error}
    counts = Counter(forms.values())
    errors = sorted(dict.fromkeys(_inward(list(forms))), key=lambda n: (counts[forms[n]], commonness[n]))
    firsts = [*{forms[n]: n for n in reversed(errors)}.values()][::-1]
    broken = [[near for near in _error_neighbours(n, forms) if max(near, n) in follows] for n in firsts]
    novel = sorted((n for n in solid if n not in parsed.template_of), key=lambda n: commonness[n])
    odd = standouts(parsed)
    few = max(FEW_PIECES, int(FEW_SHARE * len(parts)))
    strange = [n for pair in zip_longest(novel[:few], odd[:few]) for n in pair if n is not None]
    near = [n + away for n in firsts for away in range(-CONTEXT_LINES, CONTEXT_LINES + 1)]
    ends = [*solid[:EDGE_ROWS], *solid[-EDGE_ROWS:]]
    outline = [n for n in solid if OUTLINE.match(parts[n].text)]
    groups = (
        *(firsts[:1], *broken[:1], solid[:1], solid[-1:], firsts, *broken, strange[:EDGE_ROWS], ends, strange),
        *(errors, near, odd, outline, novel, _inward(range(len(parts)))),
    )
    return dict.fromkeys(n for group in groups for n in group if 0 <= n < len(parts))


def _error_neighbours(number: int, errors: Collection[int]) -> Iterator[int]:
    """Yield the parts that belong to an error: those after it up to one without error, then those before."""
    for step in (1, -1):
        at = number + step
        while at in errors:
            yield at
            at += step
        yield at


def _inward(numbers: Sequence[int]) -> Iterator[int]:
    """Yield the numbers from both ends inward; the middle one may come twice."""
    for at in range((len(numbers) + 1) // 2):
        yield numbers[at]
        yield numbers[-1 - at]


def _commonness(lines: Sequence[str]) -> list[int]:
    """Return for each line how many lines have its rarest word; for a line without words the maximum."""
    words = [set(_LETTERS.findall(line)) for line in lines]
    counts = Counter(chain.from_iterable(words))
    return [min((counts[word] for word in own), default=len(lines)) for own in words]
