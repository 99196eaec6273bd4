"""HTML pages, shortened to their text, without tags, scripts and styles. Without loss they are lines as any other."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from perdure.core.text.markup import strip_unreadable
from perdure.features.compression.constants import PART_LIMITS
from perdure.features.compression.excerpt import ExcerptPiece, excerpt
from perdure.features.compression.interest import tells_error
from perdure.features.compression.shorten import Family, TokenRoom

_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<\?xml[^>]*>\s*<!doctype html)", re.IGNORECASE)
_BREAKS = frozenset(
    tag
    for group in ("p div br hr tr li dt dd h1 h2 h3 h4 h5 h6", "table section article pre ul ol dl title")
    for tag in group.split()
)
_UNREAD = frozenset(("script", "style", "template"))
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")


class _Reader(HTMLParser):
    """Collects the text of an HTML page, and counts tags and skipped text; call `end_line` at the end.

    Attributes:
        lines: the text, a line for each paragraph, row or heading.
        unread_chars: the characters of scripts and styles.
    """

    def __init__(self) -> None:
        """Start with no text; `_unread` is the open tag whose content is skipped, such as `script`."""
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.tags = self.links = self.unread_chars = 0
        self._line: list[str] = []
        self._unread = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Count a tag; end the line at a block, part the cells of a table, and skip scripts and styles."""
        self.tags += 1
        self.links += tag == "a" and any(name == "href" for name, _ in attrs)
        if tag in _UNREAD:
            self._unread = tag
        elif tag in _BREAKS:
            self.end_line()
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        """End what a start tag skips, or the line of a block."""
        if tag == self._unread:
            self._unread = ""
        elif tag in _BREAKS:
            self.end_line()

    def handle_data(self, data: str) -> None:
        """Add text to the line, or count it if it is skipped."""
        if self._unread:
            self.unread_chars += len(data)
            return
        first, *others = data.split("\n")
        self._line.append(first)
        for line in others:
            self.end_line()
            self._line.append(line)

    def end_line(self) -> None:
        """Add the text since the last break to the page as a line."""
        line = _SPACES.sub(" ", "".join(self._line)).strip(" |")
        self._line = []
        if line:
            self.lines.append(line)


class HtmlFamily(Family):
    """HTML pages, which are shortened to their text."""

    name = "html"

    def parse(self, text: str) -> str | None:
        """Return the text if it is an HTML page; else None."""
        return text if _PAGE.match(text) else None

    def shorten(self, parsed: str, room: TokenRoom) -> str:
        """Return a page's text after a line of counts; errors are kept also where scripts hold them."""
        page = _Reader()
        markup = strip_unreadable(parsed)
        page.feed(markup)
        page.close()
        page.end_line()
        page.unread_chars += max(0, len(parsed) - len(markup))
        omitted = (
            f"left out: {page.tags} tags ({page.links} links), {page.unread_chars:,} characters of scripts and styles"
        )
        lines = (_SPACES.sub(" ", line).strip() for line in parsed.split("\n") if "<" not in line and tells_error(line))
        page.lines += [line for line in dict.fromkeys(lines) if len(line) <= PART_LIMITS[1] and line not in page.lines]
        head, text = f"the text of the page; {omitted}\n", "\n".join(page.lines)
        if room.count(head + text) > room.tokens:
            room = replace(room, tokens=room.tokens - room.count(head))
            text = excerpt([ExcerptPiece("", line) for line in page.lines], room)
        return head + text
