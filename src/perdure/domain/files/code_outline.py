"""The outline of source code: cuts at definitions, then at blank lines, the less indented the better."""

from __future__ import annotations

import threading
import warnings

from perdure.core.documents import Document
from perdure.domain.files.document_outline import (
    ITEM,
    LINE,
    NEVER,
    PARAGRAPH,
    PATH_DEPTH,
    SECTION,
    Outline,
    outline_of_lines,
)

PYTHON = (".py", ".pyi")
PYTHON_CHARS = 1_000_000  # a syntax tree takes about 100 times its text

_filters = threading.Lock()


def code_outline(document: Document) -> Outline:
    """Build the outline of source code: definitions, members, statements.

    Other languages than Python are read by blank lines and indentation.
    """
    outline = outline_of_lines(document.text)
    if not (
        document.name.lower().endswith(PYTHON)
        and len(document.text) <= PYTHON_CHARS
        and _mark_python(outline, document.text)
    ):
        _mark_any(outline)
    return outline


def _mark_any(outline: Outline) -> None:
    """Mark the outline by blank lines and indentation."""
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
    """Mark the outline by the syntax tree; return whether the text is Python."""
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
