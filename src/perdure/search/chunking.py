"""Split documents into chunks by their structure: pure, deterministic, in time linear in the text.

Every line that is not blank is in exactly one chunk, in order; a line that is longer than a chunk is cut into pieces.
The headings and the table head above a chunk stand beside its text, not in it.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.core.documents import Chunk, Document
from perdure.core.errors import InvalidInput
from perdure.search import document_outline

_OUTLINES = {
    **dict.fromkeys(("markdown", "html", "docx", "xlsx", "csv"), document_outline.markdown_outline),
    **dict.fromkeys(("text", "pdf"), document_outline.text_outline),
    "json": document_outline.json_outline,
    "code": document_outline.code_outline,
}

# Where a long line is cut, the best first.
_CUTS = (
    re.compile(r"""[。！？…][”’」』）]*|[.!?]["'”’)\]]*\s"""),
    re.compile(r"[，、；：]|[,;:]\s"),
    re.compile(r"\s"),
)
_JOINERS = "\u200d\ufe0e\ufe0f"


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The length of chunks in characters: about `target`, never more than `most`, the head of a table included.

    Raises: InvalidInput: a target below 40, or more than `most`.
    """

    target: int = 1_200
    most: int = 2_000

    def __post_init__(self) -> None:
        if not 40 <= self.target <= self.most:
            raise InvalidInput(
                f"chunks of {self.target} to {self.most} characters can't be made:"
                " the target is at least 40, and not more than the most"
            )

    @property
    def least(self) -> int:
        """The length below which a chunk is not cut, even at a better place."""
        return self.target // 3


def chunks(document: Document, *, sizes: ChunkSizes | None = None) -> Sequence[Chunk]:
    """Return the chunks of `document`, in order; none for a document without text.

    A cut prefers pages, then sections, definitions or members, paragraphs, items and rows, sentences, lines. It lies
    between a third of the target and the target, or, where only sentences or lines can be cut, up to the most.
    """
    sizes = sizes or ChunkSizes()
    outline = _OUTLINES[document.kind](document)
    _mark_pages(outline, document.page_starts)
    return list(_pack(outline, document, sizes))


def _mark_pages(outline: document_outline.Outline, page_starts: Sequence[int]) -> None:
    """Mark the first entry of each page as a place to cut."""
    pages = [bisect_right(page_starts, number) for number in outline.numbers] if page_starts else []
    for index in range(1, len(pages)):
        if pages[index] != pages[index - 1]:
            outline.levels[index] = document_outline.PAGE


def _pack(outline: document_outline.Outline, document: Document, sizes: ChunkSizes) -> Iterator[Chunk]:
    """Yield the chunks: entries of an outline, packed up to the sizes, with the header and headings above them."""
    text, starts, ends, numbers = document.text, outline.starts, outline.ends, outline.numbers

    def chunk(first: int, last: int, start: int, end: int, header: str) -> Chunk:
        """Make the chunk of the lines `first` to `last`, with the text from `start` to `end`."""
        page = bisect_right(document.page_starts, numbers[first]) or None
        return Chunk(
            text=text[start:end],
            first_line=numbers[first],
            last_line=numbers[last],
            page=page,
            headings=outline.paths[first],
            header=header,
        )

    index = 0
    while index < len(numbers):
        if ends[index] - starts[index] > sizes.most:
            for start, end in _pieces(text, starts[index], ends[index], sizes):
                yield chunk(index, index, start, end, "")
            index += 1
            continue
        header = outline.headers[index]
        if len(header) > sizes.most // 4 or ends[index] - starts[index] + len(header) + 1 > sizes.most:
            header = ""
        header_chars = len(header) + 1 if header else 0
        after = _end_of_chunk(
            outline, index, max(sizes.target - header_chars, sizes.least), sizes.most - header_chars, sizes.least
        )
        yield chunk(index, after - 1, starts[index], ends[after - 1], header)
        index = after


def _end_of_chunk(outline: document_outline.Outline, first: int, target: int, most: int, least: int) -> int:
    """Return the index of the entry behind the best chunk that begins with entry `first`. `target`, `most`, `least`:
    the characters of a chunk, see `ChunkSizes`."""
    levels, ends, start, count = outline.levels, outline.ends, outline.starts[first], len(outline.levels)
    best, best_level, fallback = 0, document_outline.NEVER + 1, first + 1
    for after in range(first + 1, count + 1):
        size = ends[after - 1] - start
        if size > most or (size > target and best_level <= document_outline.ITEM):
            break
        level = document_outline.PAGE if after == count else levels[after]
        if level == document_outline.PAGE and (size <= target or best_level > document_outline.ITEM):
            return after
        if size <= target:
            fallback = after
            if size >= least and level <= best_level:
                best, best_level = after, level
        elif level < best_level:
            best, best_level = after, level
    return best or fallback


def _pieces(text: str, start: int, end: int, sizes: ChunkSizes) -> Iterator[tuple[int, int]]:
    """Yield the pieces of one long line as offsets: cut at sentences, else commas, else spaces, else anywhere."""
    while end - start > sizes.most:
        cut = _cut(text, start + sizes.least, start + sizes.target)
        if not text[start:cut].isspace():
            yield start, cut
        start = cut
    if not text[start:end].isspace():
        yield start, end


def _cut(text: str, low: int, high: int) -> int:
    """Return the last good place to cut between two offsets, else one between characters."""
    for pattern in _CUTS:
        cut = 0
        for match in pattern.finditer(text, low, high):
            cut = match.end()
        if cut:
            return cut
    for cut in range(high, max(low, high - 16), -1):  # not between a character and its accent
        inside = unicodedata.combining(text[cut]) or text[cut] in _JOINERS or text[cut - 1] == _JOINERS[0]
        if not inside:
            return cut
    return high
