"""Outlines of Markdown, JSON and plain text: how good a cut before each line is, and the headings above it.

Blank lines are not in an outline. Everything here takes time linear in the text.
"""

from __future__ import annotations

import re
import threading
import warnings
from dataclasses import dataclass, field

from perdure.core.documents import Document

# How good a cut before a line is; the lowest in reach wins.
PAGE = 0  # always cut
SECTION = 1  # of the first degree; those below it are 2 and 3
DEEPEST_SECTION = 3
PARAGRAPH = 4
ITEM = 5  # of a list, a table's row
SENTENCE = 6
LINE = 7
NEVER = 9  # only without another place

TITLE_CHARS = 200
MARKUP_CHARS = 1_000  # a line that is longer is no heading, no key and no fence
PATH_DEPTH = 8

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s")
_KEY = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*:\s*[\[{]\s*$')
_SENTENCE_END = re.compile(r"""[.!?;:。！？；：…]["'”’」』）)\]]*\s*$""")
_RULER = frozenset("|:- \t")
PYTHON = (".py", ".pyi")
PYTHON_CHARS = 1_000_000  # a syntax tree takes about 100 times its text
_filters = threading.Lock()


@dataclass(slots=True)
class Outline:
    """One entry for each line that is not blank, in order.

    `numbers` count lines from 1; `starts` and `ends` are offsets in the text, without the line feed; `after_blank` says
    whether a blank line or nothing comes before; `levels` how good a cut before the line is; `paths` the headings above
    it; `headers` the head of the table whose row it is.
    """

    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    after_blank: list[bool] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)


def outline_of_lines(text: str) -> Outline:
    """Build an outline of the lines that are not blank; each begins a paragraph or continues one."""
    outline = Outline()
    offset, blank = 0, True
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not line.isspace():
            outline.lines.append(line)
            outline.numbers.append(number)
            outline.starts.append(offset)
            outline.ends.append(offset + len(line))
            outline.after_blank.append(blank)
            blank = False
        else:
            blank = True
        offset += len(line) + 1
    outline.levels = [PARAGRAPH if blank else LINE for blank in outline.after_blank]
    outline.paths = [()] * len(outline.lines)
    outline.headers = [""] * len(outline.lines)
    return outline


def text_outline(document: Document) -> Outline:
    """Build the outline of plain text: paragraphs, and lines after the end of a sentence."""
    outline = outline_of_lines(document.text)
    after_sentence = False
    for index, line in enumerate(outline.lines):
        if after_sentence and not outline.after_blank[index]:
            outline.levels[index] = SENTENCE
        after_sentence = _SENTENCE_END.search(line, max(0, len(line) - 20)) is not None
    return outline


def markdown_outline(document: Document) -> Outline:
    """Build the outline of Markdown: sections by headings, paragraphs, list items, table rows and lines of code."""
    outline = outline_of_lines(document.text)
    lines, levels, blank = outline.lines, outline.levels, outline.after_blank
    open_headings: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    fence = header = ""
    after_heading = in_list = False
    front_matter_end = _front_matter_end(outline)

    def enter(index: int, degree: int, title: str) -> tuple[str, ...]:
        """Begin a section at line `index`; return the titles of the sections that are open then."""
        while open_headings and open_headings[-1][0] >= degree:
            open_headings.pop()
        outline.paths[index] = tuple(name for _, name in open_headings)
        levels[index] = NEVER if after_heading else min(SECTION + degree - 1, DEEPEST_SECTION)
        open_headings.append((degree, title.strip()[:TITLE_CHARS]))
        return tuple(name for _, name in open_headings)

    for index, line in enumerate(lines):
        outline.paths[index] = path
        if index < front_matter_end:
            continue
        markup = line if len(line) <= MARKUP_CHARS else ""
        if fence:
            is_end = markup.strip().startswith(fence) and not markup.strip().strip(fence[0])
            levels[index] = NEVER if is_end else ITEM if blank[index] else LINE
            fence = "" if is_end else fence
            continue
        if header and not blank[index] and "|" in line:
            outline.headers[index] = header
            levels[index] = ITEM if outline.headers[index - 1] else NEVER
            continue
        header = ""
        if match := _HEADING.match(markup):
            path = enter(index, len(match[1]), (match[2] or "").rstrip("# \t"))
            after_heading, in_list = True, False
            continue
        underline = _UNDERLINE.match(markup) if index and not blank[index] and not in_list else None
        if underline and _may_be_title(outline, index):
            after_heading = index > 1 and levels[index - 1] == NEVER
            path = enter(index - 1, 1 if underline[1][0] == "=" else 2, lines[index - 1])
            levels[index], after_heading = NEVER, True
            continue
        if (
            index
            and not blank[index]
            and "|" in line
            and "-" in line
            and "|" in lines[index - 1]
            and _RULER.issuperset(line)
        ):
            header = f"{lines[index - 1]}\n{line}"
            levels[index] = NEVER
            continue
        item = _ITEM.match(line)
        if blank[index]:
            in_list = in_list and line[0] in " \t"
            levels[index] = ITEM if item or in_list else PARAGRAPH
        elif item:
            levels[index] = ITEM if len(item[1]) < 2 else SENTENCE
        in_list = in_list or item is not None
        if after_heading:
            levels[index] = NEVER
        after_heading = False
        if match := _FENCE.match(markup):
            fence = match[1]
            levels[index] = NEVER if levels[index] == NEVER else min(levels[index], ITEM)
    return outline


def _front_matter_end(outline: Outline) -> int:
    """The index of the first entry after the front matter (settings between two lines of dashes); 0: there is none."""
    if outline.numbers[:1] != [1] or outline.lines[0].rstrip() != "---":
        return 0
    return next((index + 1 for index, line in enumerate(outline.lines[1:200], start=1) if line.rstrip() == "---"), 0)


def _may_be_title(outline: Outline, index: int) -> bool:
    """Return whether the line before the underline at `index` is a paragraph of one line."""
    title = outline.lines[index - 1]
    alone = outline.after_blank[index - 1] or outline.levels[index - 1] == NEVER
    return alone and len(title) <= MARKUP_CHARS and title.lstrip()[0] not in "|>#" and not _UNDERLINE.match(title)


def json_outline(document: Document) -> Outline:
    """Build the outline of JSON: members by depth, read from their indentation."""
    outline = outline_of_lines(document.text)
    open_indents: list[int] = []  # indentation of the lines that opened what is open
    keys: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    after_opening = False
    for index, line in enumerate(outline.lines):
        text = line.lstrip()
        indent = len(line) - len(text)
        while open_indents and open_indents[-1] >= indent:
            open_indents.pop()
        if keys and keys[-1][0] >= indent:
            while keys and keys[-1][0] >= indent:
                keys.pop()
            path = tuple(key for _, key in keys[:PATH_DEPTH])
        outline.paths[index] = path
        is_end = text[0] in "]}"
        outline.levels[index] = NEVER if is_end or after_opening else min(SECTION + len(open_indents), LINE)
        after_opening = text.rstrip()[-1] in "[{"
        if after_opening and not is_end:
            open_indents.append(indent)
            if len(line) <= MARKUP_CHARS and (match := _KEY.match(line)):
                keys.append((indent, match[1][:TITLE_CHARS]))
                path = tuple(key for _, key in keys[:PATH_DEPTH])
    return outline


def code_outline(document: Document) -> Outline:
    """Build the outline of source code; languages other than Python are read by blank lines and indentation."""
    outline = outline_of_lines(document.text)
    if not (
        document.name.lower().endswith(PYTHON)
        and len(document.text) <= PYTHON_CHARS
        and _mark_python(outline, document.text)
    ):
        _mark_by_indentation(outline)
    return outline


def _mark_by_indentation(outline: Outline) -> None:
    """Rate how good a cut before each line is in a text of unknown kind, by blank lines and indentation."""
    after_end = after_lead = False  # the line before closes a block; it belongs to the next line
    for index, line in enumerate(outline.lines):
        text = line.lstrip()
        indent = len(line[: len(line) - len(text)].expandtabs(4))
        is_end = text[0] in "}])" or text.split(None, 1)[0] in {"end", "end;", "else", "fi", "done", "esac"}
        if is_end or after_lead:
            level = NEVER
        elif outline.after_blank[index] or after_end:
            level = SECTION if not indent else SECTION + 2 if indent <= 4 else PARAGRAPH if indent <= 8 else ITEM
        else:
            level = LINE if indent else ITEM
        outline.levels[index] = level
        after_end = is_end
        after_lead = text.startswith(("@", "#[", "///", "/**", "* ", "// ", "-- ")) and not text.rstrip().endswith("*/")


def _mark_python(outline: Outline, text: str) -> bool:
    """Set how good a cut before each line is, and its path, by the syntax tree; return whether the text is Python."""
    import ast

    try:
        with _filters, warnings.catch_warnings():  # invalid escapes in strings
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    place = {number: index for index, number in enumerate(outline.numbers)}
    # A blank line inside a statement (a string, a list) is no place to cut, except before a comment.
    comments = [line.lstrip().startswith("#") for line in outline.lines]
    outline.levels[:] = [
        ITEM if blank and comment else LINE for blank, comment in zip(outline.after_blank, comments, strict=True)
    ]
    todo: list[tuple[ast.AST, int, tuple[str, ...]]] = [(tree, SECTION, ())]
    while todo:
        owner, level, path = todo.pop()
        after_definition = False
        for node in ast.iter_child_nodes(owner):
            if isinstance(node, (ast.ExceptHandler, ast.match_case)):
                todo.append((node, min(level + 1, LINE), path))
            if not isinstance(node, ast.stmt):
                continue
            inner_path, first, definition = path, node.lineno, False
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                definition, inner_path = True, (*path, node.name)[:PATH_DEPTH]
                first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
                for number in range(first + 1, (node.end_lineno or first) + 1):
                    if number in place:
                        outline.paths[place[number]] = inner_path
            if first in place:
                index = _with_comment(outline, place[first])
                own = PARAGRAPH if outline.after_blank[index] else ITEM
                outline.levels[index] = min(max(level if definition or after_definition else own, level), LINE)
            todo.append((node, min(level + 2, LINE), inner_path))
            after_definition = definition
    return True


def _with_comment(outline: Outline, index: int) -> int:
    """Return the first line of the comment right above a statement, or the statement's own."""
    indent = len(outline.lines[index]) - len(outline.lines[index].lstrip())
    while index and not outline.after_blank[index]:
        above = outline.lines[index - 1]
        if not above.startswith("#", indent) or above[:indent].strip():
            break
        index -= 1
    return index
