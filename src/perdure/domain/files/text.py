"""The text of files: split into stored parts, read as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perdure.core.files import PART_CHARS, FilePart
from perdure.core.ids import FileId
from perdure.storage.tx import Tx

PAGE_PARTS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, from 1, without its line feed; `cut`: only its beginning was read."""

    number: int
    text: str
    cut: bool = False


def parts_of(text: str) -> Iterator[FilePart]:
    """Yield the text in parts that end with a line, or inside a line that is longer than a part."""
    offset, line, char, seq = 0, 1, 0, 0
    while offset < len(text):
        end = offset + PART_CHARS
        if end < len(text) and (feed := text.rfind("\n", offset, end)) >= 0:
            end = feed + 1
        piece = text[offset:end]
        yield FilePart(seq=seq, first_line=line, first_char=char, text=piece)
        feeds = piece.count("\n")
        line, char = line + feeds, (0 if feeds else char) + len(piece) - (piece.rfind("\n") + 1)
        offset, seq = offset + len(piece), seq + 1


def read_lines(tx: Tx, file_id: FileId, first: int, last: int, *, max_chars: int) -> Iterator[Line]:
    """Yield lines `first` to `last` until `max_chars`; the last line may be cut there."""
    number, pending, chars_left = 0, "", max_chars
    for part in _parts(tx, file_id, first):
        number = number or part.first_line
        *whole, rest = part.text.split("\n")
        for line_end in whole:
            text, pending = pending + line_end, ""
            if number >= first:
                if len(text) > chars_left:
                    yield Line(number, text[:chars_left], cut=True)
                    return
                yield Line(number, text)
                chars_left -= len(text) + 1
            number += 1
            if number > last:
                return
        pending = pending + rest if number >= first else ""  # the line goes on in the next part
        if len(pending) > chars_left:
            yield Line(number, pending[:chars_left], cut=True)
            return
    if pending:
        yield Line(number, pending)


def read_text(tx: Tx, file_id: FileId, *, max_chars: int) -> str:
    """Return the first `max_chars` characters of the text."""
    pieces: list[str] = []
    size = 0
    for part in _parts(tx, file_id, 1):
        pieces.append(part.text)
        size += len(part.text)
        if size >= max_chars:
            break
    return "".join(pieces)[:max_chars]


def _parts(tx: Tx, file_id: FileId, from_line: int) -> Iterator[FilePart]:
    """Yield the stored parts from the one with line `from_line` on."""
    after = -1
    while page := tx.files.parts(file_id, from_line=from_line, after_seq=after, limit=PAGE_PARTS):
        yield from page
        after = page[-1].seq
