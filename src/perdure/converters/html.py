"""HTML as Markdown: headings, paragraphs, lists, tables, links, code; without what is not text or not content.

Menus, footers, scripts, forms and hidden parts are left out. Where a page marks its main part and that is a good part
of it, nothing else is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from perdure.converters.charset import decode
from perdure.converters.limits import Limits
from perdure.converters.tables import has_outlier_rows, markdown_table
from perdure.core.documents import Document
from perdure.core.text.markup import strip_unreadable


def _tags(*names: str) -> frozenset[str]:
    """The names in these texts."""
    return frozenset(tag for group in names for tag in group.split())


_NEVER_CONTENT = _tags("script style noscript template svg math canvas iframe object audio video select datalist")
_NOT_CONTENT = _tags("nav footer aside button dialog menu")
_BLOCKS = _tags(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure",
    "footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol p pre section summary table tbody td",
    "tfoot th thead tr ul",
)
_VOID = _tags("area base br col embed hr img input link meta source track wbr")
_LISTS = {"ul": "- ", "ol": "1. ", "menu": "- "}
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
_LANGUAGE = re.compile(r"(?:language|lang|highlight)-([\w+#-]{1,30})")
_LINKS = re.compile(r"(?:https?://|mailto:|/(?!/)|\.{0,2}/|[\w-]+[/.])", re.IGNORECASE)
_LOOKS_LIKE_MARKUP = re.compile(r"(#{1,6}\s|```|~~~)")

MAIN_CHARS = 200
MAIN_SHARE = 0.2
LINK_CHARS = 500
INDENT_DEPTH = 8
LINKS_OPEN = 8
BREAK = "\x1e"  # a <br> within a paragraph; parsed text has no such character


def html_to_markdown(markup: str) -> tuple[str, str]:
    """The content of a page as Markdown, and its title; empty: it has none."""
    markup = strip_unreadable(markup)
    page = _Page(leave_out=_NEVER_CONTENT | _NOT_CONTENT)
    page.read(markup)
    if not page.blocks:  # an unclosed menu takes the whole page with it
        page = _Page(leave_out=_NEVER_CONTENT)
        page.read(markup)
    return page.markdown(), page.title[:200]


class _Page(HTMLParser):
    def __init__(self, *, leave_out: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.blocks: list[tuple[str, bool, bool]] = []  # text, is a list's item, is in the main part
        self._leave_out = leave_out
        self._skipped: tuple[str, int] | None = None  # tag, how often it is open
        self._in_title = False
        self._main = 0
        self._inline: list[str] = []
        self._links: list[tuple[int, str]] = []  # where in _inline its text begins, address
        self._heading = 0
        self._lists: list[str] = []
        self._item = ""  # the mark of the item whose first block is still to come
        self._quotes = 0
        self._pre: str | None = None  # the language of the code we are in
        # Of each open table its rows, of each row its cells, of each cell its blocks; None: for the layout only.
        self._tables: list[list[list[list[str]]] | None] = []

    def read(self, markup: str) -> None:
        """Parse the page into blocks."""
        self.feed(markup)
        self.close()
        self._end_block()
        while self._tables:
            self._end_table()

    def markdown(self) -> str:
        """The blocks of the main part as Markdown, or all where that is small."""
        main = [block for block in self.blocks if block[2]]
        main_chars, chars = (sum(len(text) for text, _, _ in blocks) for blocks in (main, self.blocks))
        blocks = main if main_chars >= max(MAIN_CHARS, MAIN_SHARE * chars) else self.blocks
        out: list[str] = []
        after_item = False
        for text, item, _ in blocks:
            if out:
                out.append("\n" if item and after_item else "\n\n")
            out.append(text)
            after_item = item
        return "".join(out) + "\n" if out else ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        if tag == "title" and not self.title:
            self._in_title = True
        if self._skipped is not None:
            if tag == self._skipped[0]:
                self._skipped = (tag, self._skipped[1] + 1)
            return
        if tag not in _VOID and (tag in self._leave_out or _is_hidden(attributes)):
            self._skipped = (tag, 1)
            return
        if tag in _BLOCKS:
            self._end_block()
        match tag:
            case "main":
                self._main += 1
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading = int(tag[1])
                self._dissolve_table()
            case "ul" | "ol" | "menu":
                self._lists.append(_LISTS[tag])
            case "li":
                self._item = self._lists[-1] if self._lists else "- "
            case "dt" | "summary":
                self._item = ""
            case "blockquote":
                self._quotes += 1
            case "pre":
                self._pre = _code_language(attributes)
            case "code" if self._pre is not None:
                self._pre = self._pre or _code_language(attributes)
            case "code" | "kbd" | "samp":
                self._inline.append("`")
            case "br":
                self._inline.append("\n" if self._pre is not None else BREAK)
            case "hr" if not self._open_rows():
                self._add_block("---", item=False)
            case "img" if attributes.get("alt", "").strip():
                self._inline.append(f"[image: {attributes['alt'].strip()}]")
            case "a":
                # Each link's end puts its text together: more that are open would do it for the same text.
                self._links = [*self._links[1 - LINKS_OPEN :], (len(self._inline), attributes.get("href", "").strip())]
            case "table":
                self._dissolve_table()
                self._tables.append([])
            case "tr":
                if (rows := self._open_rows()) is not None:
                    rows.append([])
            case "td" | "th":
                if (rows := self._open_rows()) is not None:
                    if not rows:
                        rows.append([])
                    rows[-1].append([])

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped is not None:
            if tag == self._skipped[0]:
                self._skipped = (tag, self._skipped[1] - 1) if self._skipped[1] > 1 else None
            return
        if tag in _BLOCKS:
            self._end_block()
        match tag:
            case "main":
                self._main = max(self._main - 1, 0)
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading = 0
            case "ul" | "ol" | "menu" if self._lists:
                self._lists.pop()
                self._item = ""
            case "li":
                self._item = ""
            case "blockquote":
                self._quotes = max(self._quotes - 1, 0)
            case "pre":
                self._pre = None
            case "code" | "kbd" | "samp" if self._pre is None:
                self._inline.append("`")
            case "a":
                self._end_link()
            case "table" if self._tables:
                self._end_table()

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = " ".join(f"{self.title} {data}".split())[:200]
        elif self._skipped is None:
            self._inline.append(data.replace(BREAK, " "))

    def _end_link(self) -> None:
        """Put a link in place of its text."""
        if not self._links:
            return
        start, address = self._links.pop()
        label = " ".join("".join(self._inline[start:]).replace(BREAK, " ").split())
        if label and self._pre is None and len(address) <= LINK_CHARS and _LINKS.match(address):
            before = " " if self._inline[start][:1].isspace() else ""
            self._inline[start:] = [f"{before}[{label}]({address.replace(' ', '%20')})"]

    def _end_block(self) -> None:
        """Make a block, or a part of a table's cell, of the text since the last one."""
        text = "".join(self._inline)
        self._inline.clear()
        self._links = [(0, address) for _, address in self._links[-LINKS_OPEN:]]
        rows = self._open_rows()
        if rows and rows[-1]:
            if text.strip():
                rows[-1][-1].append(text.replace(BREAK, " "))
            return
        if self._pre is not None:
            code = text.strip("\n")
            if code.strip():
                fence = "```" if "```" not in code else "~~~~~~"
                self._add_block(f"{fence}{self._pre}\n{code}\n{fence}", item=False)
            return
        lines = [" ".join(line.split()) for line in text.split(BREAK)]
        lines = [f"\\{line}" if _LOOKS_LIKE_MARKUP.match(line) else line for line in lines if line and line != "``"]
        if not lines:
            return
        if self._heading:
            self._add_block(f"{'#' * self._heading} {' '.join(lines)}", item=False)
            self.title = self.title or " ".join(lines)
        else:
            self._add_block("\n".join(lines), item=bool(self._lists))

    def _open_rows(self) -> list[list[list[str]]] | None:
        """The rows of the open table; None: none is open, or it is there for the layout only."""
        return self._tables[-1] if self._tables else None

    def _dissolve_table(self) -> None:
        """Turn the open table, which is there for the layout only, into blocks of the page."""
        rows = self._open_rows()
        if rows is not None:
            self._tables[-1] = None
            for cell in (cell for row in rows for cell in row):
                for text in cell:
                    self._add_block(" ".join(text.split()), item=False)

    def _end_table(self) -> None:
        """Add the open table as a Markdown table, or its rows as paragraphs."""
        rows = [[" ".join(cell) for cell in row] for row in self._tables.pop() or ()]
        rows = [row for row in rows if any(row)]
        if rows and max(map(len, rows)) == 1:
            for row in rows:
                self._add_block(" ".join(row[0].split()), item=False)
        elif rows and has_outlier_rows(rows):
            for row in rows:
                self._add_block(" ".join(" ".join(row).split()), item=False)
        elif rows:
            self._add_block("\n".join(markdown_table(rows)), item=False)

    def _add_block(self, text: str, *, item: bool) -> None:
        """Add a block, with the marks of the list and the quotes around it."""
        if self._lists:
            indent = "  " * min(len(self._lists) - 1, INDENT_DEPTH)
            first = indent + (self._item or "  ")
            rest = indent + "  "
            text = "\n".join((rest if at else first) + line for at, line in enumerate(text.split("\n")))
            self._item = ""
        if self._quotes:
            quote = "> " * min(self._quotes, INDENT_DEPTH)
            text = "\n".join(quote + line for line in text.split("\n"))
        self.blocks.append((text, item, self._main > 0))


def _is_hidden(attributes: dict[str, str]) -> bool:
    """Whether an element is not shown."""
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or _HIDDEN_STYLE.search(attributes.get("style", "").lower()) is not None
    )


def _code_language(attributes: dict[str, str]) -> str:
    """The language of code by the class of its element; empty: none is named."""
    match = _LANGUAGE.search(attributes.get("class", ""))
    return match[1] if match else ""


def html_document(name: str, data: bytes, limits: Limits) -> Document:
    """The document of a page. Raises: Refusal: it is not text, more than the limit, or has no content."""
    limits.check_text(len(data) // 8)  # markup is seldom more than half
    markup, charset_warning = decode(data)
    text, title = html_to_markdown(markup)
    limits.check_text(len(text))
    warnings = [charset_warning] if charset_warning else []
    if not text.strip():
        warnings.append("the page holds no text" if markup.strip() else "the file is empty")
    return Document(name=name, kind="html", text=text, title=title, warnings=tuple(warnings))
