"""Files as text with lines, and the chunks that are stored and found of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Chunk", "Document", "FileKind"]

FileKind = Literal["text", "markdown", "code", "csv", "json", "html", "pdf", "docx", "xlsx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of one file.

    Args:
        name: what the file is called, `notes/plan.md`.
        kind: what it was before it was text.
        text: its lines, each ended by a line feed; no carriage return, no NUL, no lone surrogate. HTML, DOCX, XLSX and
            CSV have become Markdown; all others have the lines they had.
        page_starts: the first line of each page, from 1, ascending; empty where there are no pages.
        title: what the file says it is called; empty: it does not say.
        warnings: what was left out or guessed, a sentence each.
    """

    name: str
    kind: FileKind
    text: str
    page_starts: tuple[int, ...] = ()
    title: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def pages(self) -> int:
        """How many pages; 0: this kind has none."""
        return len(self.page_starts)

    @property
    def line_count(self) -> int:
        """How many lines, a last one without a line feed included."""
        return self.text.count("\n") + (bool(self.text) and not self.text.endswith("\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a document: whole lines, or a piece of one line that is longer than a chunk may be.

    Args:
        text: what stands there, to the letter.
        first_line, last_line: where, both from 1 and both included; neither is blank.
        page: the page of its first line, from 1; None: no pages.
        headings: the headings it stands under, the outermost first; of code, the definitions. One that the text itself
            begins with is not among them.
        header: the head of the table in whose middle it begins, as two lines of Markdown; else empty.
    """

    text: str
    first_line: int
    last_line: int
    page: int | None = None
    headings: tuple[str, ...] = ()
    header: str = ""

    @property
    def text_in_context(self) -> str:
        """The text below the headings and the table head that it belongs to: what is embedded and shown alone."""
        return "\n".join(part for part in (" > ".join(self.headings), self.header, self.text) if part)
