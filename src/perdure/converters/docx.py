"""DOCX with mammoth, by way of HTML; equations, which mammoth leaves out, as a line of text each."""

from __future__ import annotations

import io
import zipfile
from typing import BinaryIO
from xml.etree import ElementTree

from perdure.converters.archives import open_archive, title_of
from perdure.converters.html import html_to_markdown
from perdure.converters.limits import Limits, Refusal
from perdure.converters.mathml import office_formula
from perdure.core.documents import Document
from perdure.core.errors import ExtraMissing

_WITH_TEXT = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml", "word/comments.xml")


def docx_document(name: str, file: BinaryIO, limits: Limits) -> Document:
    """Headings, paragraphs, lists, tables, links and notes as Markdown; images by their description.

    Raises: Refusal: damaged, a trap, or no text in it; ExtraMissing.
    """
    archive, warnings = open_archive(file, limits, kind="DOCX", required="word/document.xml")
    try:
        import mammoth
    except ImportError as error:
        raise ExtraMissing("reading DOCX files", extra="files") from error
    unread: set[str] = set()
    file = _with_formulas_as_text(archive, unread)
    if unread:
        warnings.append(f"parts of its equations may be missing: {', '.join(sorted(unread)[:10])}")
    try:
        markup = mammoth.convert_to_html(
            file, convert_image=mammoth.images.img_element(lambda image: {"src": ""}), external_file_access=False
        ).value
    except RecursionError as error:
        raise Refusal("it is nested too deeply") from error
    except MemoryError:
        raise
    except Exception as error:  # mammoth raises whatever a broken structure leads to
        raise Refusal(f"it is damaged: {' '.join(str(error).split())[:200] or type(error).__name__}") from error
    limits.check_text(len(markup) // 4)
    text, heading = html_to_markdown(markup)
    limits.check_text(len(text))
    if not text.strip():
        raise Refusal("it holds no text: it is empty, or all of it is images")
    return Document(name=name, kind="docx", text=text, title=title_of(archive) or heading, warnings=tuple(warnings))


def _with_formulas_as_text(archive: zipfile.ZipFile, unread: set[str]) -> BinaryIO:
    """The archive with a run of text in place of each equation. Elements that are not known are added to `unread`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as copy:
        for part in archive.infolist():
            data = archive.read(part)
            if part.filename in _WITH_TEXT and b"oMath" in data:
                root = ElementTree.fromstring(data)  # `open_archive` has refused documents with entities
                word = root.tag.rpartition("}")[0] + "}"
                for parent in list(root.iter()):
                    for at, child in enumerate(parent):
                        if child.tag.rpartition("}")[2] in {"oMath", "oMathPara"}:
                            parent[at] = ElementTree.Element(f"{word}r")
                            text = ElementTree.SubElement(parent[at], f"{word}t")
                            text.text, parent[at].tail = office_formula(child, unread), child.tail
                data = ElementTree.tostring(root)
            copy.writestr(part.filename, data)
    out.seek(0)
    return out
