"""Convert text files: text, Markdown, source code, CSV and JSON."""

from __future__ import annotations

import re

from perdure.core.documents import Document, FileKind
from perdure.features.files.converters.charset import decode
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.tables import csv_to_markdown

LONG_LINE_CHARS = 2_000
INDENT_DEPTH = 40  # deeper values stay on their line, or indentation would outgrow the text

_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(\S.{0,300})$", re.MULTILINE)


def plain_document(name: str, kind: FileKind, data: bytes, limits: ReadLimits) -> Document:
    """The document of the bytes of a text file. Raises: FileUnreadable: it is not text, or more than the limit."""
    limits.check_text(len(data) // 4)  # no encoding has more bytes for a character
    text, charset_warning = decode(data)
    limits.check_text(len(text))
    warnings = [charset_warning] if charset_warning else []
    title = ""
    if not text.strip():
        warnings.append("the file is empty")
    elif kind == "csv":
        text, table_warning = csv_to_markdown(text, tabs=name.lower().endswith(".tsv"))
        warnings += [table_warning] if table_warning else []
    elif kind == "json" and max(map(len, text.split("\n"))) > LONG_LINE_CHARS:
        text = json_in_lines(text)
        warnings.append("its lines were long, so members were put on lines of their own")
    elif kind == "markdown" and (match := _HEADING.search(text, 0, 10_000)):
        title = match[1].strip("# \t")[:200]
    limits.check_text(len(text))
    return Document(name=name, kind=kind, text=text, title=title, warnings=tuple(warnings))


def json_in_lines(text: str) -> str:
    """`text` with each member on a line of its own, indented by two spaces; no token is changed, valid or not.

    Values within 40 others stay on one line. Without recursion, in linear time: nothing is parsed into objects.
    """
    out: list[str] = []
    depth = 0
    after_bracket = False  # the token before was an opening bracket
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "}]":
            depth = max(depth - 1, 0)
            if not after_bracket and depth < INDENT_DEPTH:
                out.append("\n" + "  " * depth)
        elif after_bracket and depth <= INDENT_DEPTH:
            out.append("\n" + "  " * depth)
        if token == ",":
            out.append(",\n" + "  " * depth if depth <= INDENT_DEPTH else ", ")
        elif token == ":":
            out.append(": ")
        else:
            out.append(token)
        after_bracket = token in "{["
        depth += after_bracket
        if depth == 0 and token in "}]" and token:
            out.append("\n")
    return "".join(out).rstrip("\n") + "\n"
