"""Documents, the text of files, and the chunks of them that are stored for search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FileKind = Literal["text", "markdown", "code", "csv", "json", "html", "pdf", "docx", "xlsx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of one file.

    Args:
        name: the file's name, `notes/plan.md`.
        kind: the format of the file.
        text: its lines, each ended by a line feed; no carriage return, no NUL, no lone surrogate. HTML, DOCX, XLSX and
            CSV have become Markdown; all others have the lines they had.
        page_starts: the first line of each page, from 1, ascending; empty where there are no pages.
        title: the title in the file; empty: none.
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
        """The number of pages; 0: this kind of file has none."""
        return len(self.page_starts)

    @property
    def line_count(self) -> int:
        """The number of lines, including a last one without a line feed."""
        return self.text.count("\n") + (bool(self.text) and not self.text.endswith("\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a document: whole lines, or a piece of one line that is longer than a chunk may be.

    Args:
        text: the exact text.
        first_line, last_line: both from 1 and both included; neither is blank.
        page: the page of its first line, from 1; None: no pages.
        headings: the headings above it, the outermost first; of code, the definitions; without one that begins the
            text.
        header: the head of its table, if it begins inside one, as two lines of Markdown; else empty.
    """

    text: str
    first_line: int
    last_line: int
    page: int | None = None
    headings: tuple[str, ...] = ()
    header: str = ""

    @property
    def text_in_context(self) -> str:
        """The text below its headings and table head, as it is embedded and shown."""
        return "\n".join(part for part in (" > ".join(self.headings), self.header, self.text) if part)
