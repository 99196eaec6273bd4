"""HTML as Markdown: headings, paragraphs, lists, tables, links, code; without what is not text or not content.

Mark-up that carries meaning is kept as signs: `10^6`, `a_1`, `~~struck out~~`, numbers of lists, `漢(かん)`, formulas.

Menus, footers, scripts, forms and hidden parts are left out. Where a page marks its main part and that is a good part
of it, nothing else is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from perdure.core.documents import Document
from perdure.core.text.markup import strip_unreadable
from perdure.features.files.converters.charset import decode
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.mathml import Formula
from perdure.features.files.converters.numbering import list_form, number_text, whole_number
from perdure.features.files.converters.tables import has_outlier_rows, markdown_table


def _tags(*names: str) -> frozenset[str]:
    """The names of tags in these texts, which have spaces between them."""
    return frozenset(tag for group in names for tag in group.split())


_NEVER_CONTENT = _tags("script style noscript template svg canvas iframe object audio video select datalist")
_NOT_CONTENT = _tags("nav footer aside button dialog menu")
_BLOCKS = _tags(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure",
    "footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol p pre section summary table tbody td",
    "tfoot th thead tr ul",
)
_VOID = _tags("area base br col embed hr img input link meta source track wbr")
_INLINE = _tags("a del s strike sup sub rt rp span font b strong em i u small big ins mark label")
_MARKS = {"del": "~~", "s": "~~", "strike": "~~", "sup": "^", "sub": "_", "rt": "(", "rp": "-", "a": "["}
_QUOTES = {"code": "`", "kbd": "`", "samp": "`", "q": '"'}
_STYLES = {"line-through": "~~", "vertical-align:super": "^", "vertical-align:sub": "_"}
_ENDS = {  # of blocks whose end may be left out, what ends them
    **dict.fromkeys(("td", "th"), _tags("td th tr tbody tfoot")),
    **{"tr": _tags("tr tbody tfoot"), "li": _tags("li"), "dt": _tags("dt dd"), "dd": _tags("dt dd"), "p": _BLOCKS},
}
_HIDDEN_STYLE = re.compile("display:none|visibility:hidden")
_CLASS = re.compile(r"\.([\w-]+)\s*(?:,|$)")
_LANGUAGE = re.compile(r"(?:language|lang|highlight)-([\w+#-]{1,30})")
_LINKS = re.compile(r"(?:https?://|mailto:|/(?!/)|\.{0,2}/|[\w-]+[/.])", re.IGNORECASE)
_LOOKS_LIKE_MARKUP = re.compile(r"(#{1,6}\s|```|~~~)")

MAIN_CHARS = 200
MAIN_SHARE = 0.2
LINK_CHARS = 500
INDENT_DEPTH = 8
MARKS_OPEN = 16
SPAN_CHARS = 200  # a longer text is not repeated in the rows that its cell spans
BREAK = "\x1e"  # a <br> within a paragraph; parsed text has none of these three characters
OPEN, CLOSE = "\x02", "\x03"  # around what is raised or lowered, until it is known what follows it
_OWN = re.compile(f"[{OPEN}{CLOSE}{BREAK}]")
_FRACTION = re.compile(rf"(?<![^\W\d])(\d?)\^{OPEN}(\d+){CLOSE}[/⁄∕]_{OPEN}(\d+){CLOSE}")
_NEEDS_NO_BRACKETS = re.compile(rf"{OPEN}([+\-−–]?\d+(?!{CLOSE}\d)|\w(?!{CLOSE}\w)){CLOSE}")
IS_NO_POWER = re.compile(r"\[.*\](?:\(.*\))?|st|nd|rd|th|TM|SM|[*†‡§®™]+", re.DOTALL)


def html_to_markdown(markup: str) -> tuple[str, str]:
    """The content of a page as Markdown, and its title; empty: it has none."""
    classes = _classes(markup)
    markup = strip_unreadable(markup)
    page = _PageParser(classes, leave_out=_NEVER_CONTENT | _NOT_CONTENT)
    page.read(markup)
    if not page.blocks:  # an unclosed menu takes the whole page with it
        page = _PageParser(classes, leave_out=_NEVER_CONTENT)
        page.read(markup)
    return page.markdown(), page.title[:200]


@dataclass(slots=True)
class _TableCell:
    """A cell of a table: its blocks, and how many columns and rows it spans; no rows: a group of rows begins."""

    columns: int = 1
    rows: int = 1
    blocks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenList:
    """An open list: the number of its next item, None without numbers; its form; and where a count down to 1 begins."""

    number: int | None = None
    step: int = 1
    form: str = ""
    first_block: int | None = None


class _PageParser(HTMLParser):
    """The blocks of text of a page; `classes`: name of a class -> its style, `leave_out`: tags that hold no content."""

    def __init__(self, classes: Mapping[str, str], *, leave_out: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.blocks: list[tuple[str, bool, bool]] = []  # text, is a list's item, is in the main part
        self._leave_out = leave_out
        self._skipped: tuple[str, int] | None = None  # tag, how often it is open
        self._in_title = False
        self._main = 0
        self._inline: list[str] = []
        # Of each open link or other mark its tag, its sign, where in _inline its text begins, its address.
        self._marks: list[tuple[str, str, int, str]] = []
        self._struck: tuple[str, int, int] | None = None  # tag of a struck-out block, depth, how often it is open
        self._formula: Formula | None = None
        self._heading = 0
        self._lists: list[_OpenList] = []
        self._item = ""  # the mark of the item whose first block is still to come
        self._quotes = 0
        self._classes = classes
        self._pre: str | None = None  # the language of the code we are in
        self._tables: list[list[list[_TableCell]] | None] = []  # of each open one its rows; None: for the layout only

    def read(self, markup: str) -> None:
        """Parse the page into blocks."""
        self.feed(markup)
        self.close()
        self._end_formula()
        self._end_block()
        while self._tables:
            self._end_table()
        while self._lists:
            self._end_list()

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
        """Begin a block, list, table, link or mark, or skip an element."""
        attributes = {key: value or "" for key, value in attrs}
        tag = self._local(tag)
        if tag == "title" and not self.title:
            self._in_title = True
        if self._skipped is not None:
            if tag == self._skipped[0]:
                self._skipped = (tag, self._skipped[1] + 1)
            return
        if self._formula is not None:
            self._formula.start(tag, attributes)
            return
        styles = [attributes.get("style", "")]
        styles += (self._classes[name] for name in attributes.get("class", "").split() if name in self._classes)
        style = "".join(";".join(styles).lower().split())
        is_hidden = "hidden" in attributes or attributes.get("aria-hidden") == "true" or _HIDDEN_STYLE.search(style)
        in_sentence = tag == "button" and any(part.strip() for part in self._inline[-8:])
        if tag not in _VOID and ((tag in self._leave_out and not in_sentence) or is_hidden):
            self._skipped = (tag, 1)
            return
        if tag in _BLOCKS:
            self._end_block()
            self._follow_strike(tag, 1)
            if self._struck is None and "line-through" in style:
                self._struck = (tag, len(self._lists) + len(self._tables), 1)
        match tag:
            case "main":
                self._main += 1
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading = int(tag[1])
                self._dissolve_table()
            case "math":
                self._formula = Formula(attributes)
            case "ul" | "ol" | "menu":
                self._lists.append(self._list(attributes) if tag == "ol" else _OpenList())
            case "li":
                self._begin_item(attributes)
            case "dt" | "summary":
                self._item = ""
            case "blockquote":
                self._quotes += 1
            case "pre":
                self._pre = _code_language(attributes)
            case "code" | "kbd" | "samp" if self._pre is not None:
                self._pre = self._pre or _code_language(attributes)
            case "code" | "kbd" | "samp" | "q":
                self._inline.append(_QUOTES[tag])
            case "input" if attributes.get("type", "").lower() in {"checkbox", "radio"}:
                self._inline.append("[x] " if "checked" in attributes else "[ ] ")
            case "br":
                self._inline.append("\n" if self._pre is not None else BREAK)
            case "hr" if not self._open_rows():
                self._add_block("---", item=False)
            case "img" if attributes.get("alt", "").strip():
                self._inline.append(f"[image: {attributes['alt'].strip()}]")
            case _ if tag in _INLINE:
                if tag in {"rt", "rp"}:  # the end of the one before may be left out
                    self._end_mark("rt", "rp")
                sign = _MARKS.get(tag) or next((sign for name, sign in _STYLES.items() if name in style), "")
                if sign == "~~" and (self._struck or any(mark[1] == "~~" for mark in self._marks)):
                    sign = ""  # struck out once is enough
                # Each mark's end puts its text together: more that are open would do it for the same text.
                mark = (tag, sign, len(self._inline), attributes.get("href", "").strip())
                self._marks = [*self._marks[1 - MARKS_OPEN :], mark]
            case "table":
                self._dissolve_table()
                self._tables.append([])
            case "tr" | "thead" | "tbody" | "tfoot":
                if (rows := self._open_rows()) is not None:
                    rows += [[]] if tag == "tr" else [[_TableCell(rows=0)], []]
            case "td" | "th":
                if (rows := self._open_rows()) is not None:
                    if not rows:
                        rows.append([])
                    columns, height = (whole_number(attributes.get(name)) for name in ("colspan", "rowspan"))
                    # A height of 0 is down to the last row.
                    rows[-1].append(_TableCell(max(columns or 1, 1), 65_534 if height == 0 else max(height or 1, 1)))

    def _local(self, tag: str) -> str:
        """The name of a tag; those of formulas may stand in a namespace."""
        return tag.rpartition(":")[2] if tag.endswith(":math") or self._formula is not None else tag

    def handle_endtag(self, tag: str) -> None:
        """End what the start tag began."""
        tag = self._local(tag)
        if tag == "title":
            self._in_title = False
        if self._skipped is not None:
            if tag == self._skipped[0]:
                self._skipped = (tag, self._skipped[1] - 1) if self._skipped[1] > 1 else None
            return
        if self._formula is not None:
            if tag == "math" or tag in _BLOCKS:
                self._end_formula()
            else:
                self._formula.end(tag)
        if tag in _BLOCKS:
            self._end_block()
        match tag:
            case "main":
                self._main = max(self._main - 1, 0)
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading = 0
            case "ul" | "ol" | "menu" if self._lists:
                self._end_list()
            case "li":
                self._item = ""
            case "blockquote":
                self._quotes = max(self._quotes - 1, 0)
            case "pre":
                self._pre = None
            case "code" | "kbd" | "samp" | "q" if self._pre is None or tag == "q":
                self._inline.append(_QUOTES[tag])
            case _ if tag in _INLINE:
                self._end_mark(tag)
            case "ruby":
                self._end_mark("rt", "rp")
            case "table" if self._tables:
                self._end_table()
        if tag in _BLOCKS:
            self._follow_strike(tag, -1)

    def handle_data(self, data: str) -> None:
        """Add text to the title, formula or line."""
        if self._in_title:
            self.title = " ".join(f"{self.title} {data}".split())[:200]
        elif self._skipped is None and self._formula is not None:
            self._formula.data(data)
        elif self._skipped is None:
            self._inline.append(_OWN.sub(" ", data))

    def _follow_strike(self, tag: str, change: int) -> None:
        """Track whether struck-out text is open: `change` is 1 after an opening block tag, -1 after a closing one."""
        if self._struck is not None:
            name, depth, count = self._struck
            below = len(self._lists) + len(self._tables) - depth
            count += change if tag == name and name not in _ENDS else 0
            is_over = not count or below < 0 or (below == 0 and tag in _ENDS.get(name, ()))
            self._struck = None if is_over else (name, depth, count)

    def _end_formula(self) -> None:
        """Put the open formula into the text."""
        if self._formula is not None:
            self._inline.append(_OWN.sub(" ", self._formula.text()))
            self._formula = None

    def _end_mark(self, *tags: str) -> None:
        """Close the last open emphasis of these tags, and put its sign around what it encloses."""
        at = next((at for at in range(len(self._marks) - 1, -1, -1) if self._marks[at][0] in tags), None)
        if at is not None:
            self._show(*self._marks.pop(at)[1:])

    def _show(self, sign: str, start: int, address: str) -> None:
        """Show the text from the place `start` of `_inline` on with the sign of its mark; `address`: of a link."""
        whole = "".join(self._inline[start:])
        text = whole.strip(f" \t\n\r{BREAK}")
        in_page = any(mark[3].startswith("#") for mark in self._marks)  # a number that leads to a note
        if sign == "[":
            label = " ".join(text.replace(BREAK, " ").split())
            if label and self._pre is None and len(address) <= LINK_CHARS and _LINKS.match(address):
                text = f"[{label}]({address.replace(' ', '%20')})"
            elif label and address.startswith("#") and any(mark[1] == "^" for mark in self._marks):
                text = f"[{label.strip('[]')}]"
            else:
                return
        elif not text or not sign:
            return
        elif sign == "-":
            text = ""
        elif sign == "~~":
            text = f"~~{text}~~"
        elif sign == "(":
            text = f"({text})"
        elif sign == "^" and in_page:
            text = f"[{text.strip('[]')}]"
        elif not IS_NO_POWER.fullmatch(text):
            text = f"{sign}{OPEN}{text}{CLOSE}"
        before, after = whole[:1].isspace() and sign in {"~~", "["}, whole[-1:].isspace()
        self._inline[start:] = [f"{' ' * before}{text}{' ' * after}"]

    def _end_block(self) -> None:
        """Make a block, or a part of a table's cell, of the text since the last one."""
        for _, sign, start, address in reversed(self._marks):
            if sign != "[":
                self._show(sign, start, address)
        if self._struck is not None and not any(mark[1] == "~~" for mark in self._marks):
            self._show("~~", 0, "")
        text = _FRACTION.sub(lambda found: f"{found[1]} {found[2]}/{found[3]}".lstrip(), "".join(self._inline))
        text = _NEEDS_NO_BRACKETS.sub(r"\1", text).replace(OPEN, "(").replace(CLOSE, ")")
        self._inline.clear()
        # What is struck out may go on in the next block; what is raised is at most a few words.
        self._marks = [(tag, sign, 0, address) for tag, sign, _, address in self._marks if sign in {"~~", "[", ""}]
        rows = self._open_rows()
        if rows and rows[-1]:
            if text.strip():
                number = "" if self._item == "- " else self._item
                rows[-1][-1].blocks.append(number + text.replace(BREAK, " "))
                self._item = ""
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

    def _list(self, attributes: dict[str, str]) -> _OpenList:
        """A numbered list, which counts as its attributes say."""
        start = whole_number(attributes.get("start"))
        form = list_form(attributes) or "1"
        if "reversed" not in attributes:
            return _OpenList(1 if start is None else start, 1, form)
        # Only the end of the list tells how many items it has; the depth bounds how often a block is changed.
        counted = start is None and len(self._lists) < INDENT_DEPTH and not self._open_rows()
        return _OpenList(start or 0, -1, form, len(self.blocks) if counted else None)

    def _begin_item(self, attributes: dict[str, str]) -> None:
        """Set the mark of the item that begins."""
        number, self._item = whole_number(attributes.get("value")), "- "
        if self._lists and (inner := self._lists[-1]).number is not None:
            inner.number = inner.number if number is None else number
            form = list_form(attributes) or inner.form
            shown = (
                f"{OPEN}{inner.number}:{form}{CLOSE}"
                if inner.first_block is not None
                else number_text(inner.number, form)
            )
            self._item = "- " if form == "none" else attributes.get("data-number", f"{shown}.") + " "
            inner.number += inner.step

    def _end_list(self) -> None:
        """End the innermost list; one that counts down to 1 gets its numbers."""
        inner = self._lists.pop()
        self._item = ""
        if inner.first_block is not None:
            mark = re.compile(rf"{OPEN}(-?\d+):([^{CLOSE}]*){CLOSE}")
            count = -(inner.number or 0)
            self.blocks[inner.first_block :] = [
                (mark.sub(lambda found: number_text(count + int(found[1]), found[2]), text, count=1), item, main)
                for text, item, main in self.blocks[inner.first_block :]
            ]

    def _open_rows(self) -> list[list[_TableCell]] | None:
        """The rows of the open table; None: none is open, or it is there for the layout only."""
        return self._tables[-1] if self._tables else None

    def _dissolve_table(self) -> None:
        """Turn the open table, which is there for the layout only, into blocks of the page."""
        rows = self._open_rows()
        if rows is not None:
            self._tables[-1] = None
            for cell in (cell for row in rows for cell in row):
                for text in cell.blocks:
                    self._add_block(" ".join(text.split()), item=False)

    def _end_table(self) -> None:
        """Add the open table as a Markdown table, or its rows as paragraphs."""
        rows = _grid(self._tables.pop() or ())
        rows = [row for row in rows if any(row)]
        if rows and (max(map(len, rows)) == 1 or has_outlier_rows(rows)):
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


def _grid(table: Sequence[Sequence[_TableCell]]) -> list[list[str]]:
    """The rows of a table with every cell in its column: the first of the columns that a cell spans has its text, and
    so has each row. As many cells as `has_outlier_rows` allows are filled up; then a cell spans itself only."""
    room = 20 * sum(map(len, table)) + 1_000
    rows: list[list[str]] = []
    below: dict[int, tuple[int, str]] = {}  # column -> how many more rows its cell spans, text
    for cells in table:
        if cells and not cells[0].rows:  # a new group of rows, into which no cell reaches
            below = {}
            continue
        row: list[str] = []
        room -= len(below)
        spanned = below if room > 0 else {}
        below = {at: (left - 1, text) for at, (left, text) in spanned.items() if left > 1}
        blanks = 0
        for cell in cells:
            row += [""] * blanks
            while len(row) in spanned:
                row.append(spanned[len(row)][1])
            text = " ".join(cell.blocks)
            blanks = min(cell.columns, max(room, 1)) - 1
            room -= blanks
            if cell.rows > 1 and room > 0:
                repeated = text if len(text) <= SPAN_CHARS else ""
                below |= {len(row) + at: (cell.rows - 1, "" if at else repeated) for at in range(blanks + 1)}
                room -= blanks
            row.append(text)
        if cells:
            for at in sorted(at for at in spanned if at >= len(row)):
                row += [""] * (at - len(row)) + [spanned[at][1]]
        rows.append(row)
    return rows


def _classes(markup: str) -> Mapping[str, str]:
    """The style of each class of a page that carries meaning, by its style sheets, or by its usual name."""
    classes = dict.fromkeys(("line-through", "strikethrough"), "line-through")
    for sheet in re.split("<style", markup, flags=re.IGNORECASE)[1:]:
        for rule in sheet.partition("</")[0].split("}"):
            selectors, _, style = rule.rpartition("{")
            if any(name in "".join(style.lower().split()) for name in _STYLES):
                classes |= dict.fromkeys(_CLASS.findall(selectors), style)
    return classes


def _code_language(attributes: dict[str, str]) -> str:
    """The language of code by the class of its element; empty: none is named."""
    match = _LANGUAGE.search(attributes.get("class", ""))
    return match[1] if match else ""


def html_document(name: str, data: bytes, limits: ReadLimits) -> Document:
    """The document of a page. Raises: FileUnreadable: it is not text, more than the limit, or has no content."""
    limits.check_text(len(data) // 8)  # markup is seldom more than half
    markup, charset_warning = decode(data)
    text, title = html_to_markdown(markup)
    limits.check_text(len(text))
    warnings = [charset_warning] if charset_warning else []
    if not text.strip():
        warnings.append("the page holds no text" if markup.strip() else "the file is empty")
    return Document(name=name, kind="html", text=text, title=title, warnings=tuple(warnings))
