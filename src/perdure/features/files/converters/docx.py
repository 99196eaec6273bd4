"""DOCX with mammoth, by way of HTML; equations, which mammoth leaves out, as a line of text each."""

from __future__ import annotations

import io
import re
import zipfile
from typing import BinaryIO
from xml.etree import ElementTree

from perdure.core.documents import Document
from perdure.core.errors import ExtraMissing
from perdure.features.files.converters.archives import open_archive, title_of
from perdure.features.files.converters.html import html_to_markdown
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits
from perdure.features.files.converters.mathml import office_formula
from perdure.features.files.converters.numbering import Numbering, with_numbers

_WITH_TEXT = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_CHANGES = re.compile(rb"[<:](?:oMath|ruby|dstrike|position)\b")
_ASIDE = re.compile(r"word/(header|footer|comment)s?\d*\.xml")


def docx_document(name: str, file: BinaryIO, limits: ReadLimits) -> Document:
    """Headings, paragraphs, lists, tables, links and notes as Markdown; images by their description.

    Raises: FileUnreadable: damaged, a trap, or no text in it; ExtraMissing.
    """
    archive, warnings = open_archive(file, limits, kind="DOCX", required="word/document.xml")
    try:
        import mammoth
    except ImportError as error:
        raise ExtraMissing("reading DOCX files", extra="files") from error
    file = _for_mammoth(archive, warnings)
    try:
        markup = mammoth.convert_to_html(
            file, convert_image=mammoth.images.img_element(lambda image: {"src": ""}), external_file_access=False
        ).value
    except RecursionError as error:
        raise FileUnreadable("it is nested too deeply") from error
    except MemoryError:
        raise
    except Exception as error:  # mammoth raises whatever a broken structure leads to
        raise FileUnreadable(f"it is damaged: {' '.join(str(error).split())[:200] or type(error).__name__}") from error
    limits.check_text(len(markup) // 4)
    text, heading = html_to_markdown(with_numbers(markup))
    limits.check_text(len(text))
    if not text.strip():
        raise FileUnreadable("it holds no text: it is empty, or all of it is images")
    return Document(name=name, kind="docx", text=text, title=title_of(archive) or heading, warnings=tuple(warnings))


def _for_mammoth(archive: zipfile.ZipFile, warnings: list[str]) -> BinaryIO:
    """Return the archive with text in place of what the library mammoth leaves out, and warnings of what is lost."""
    out = io.BytesIO()
    unknown: set[str] = set()
    numbering = Numbering(archive)
    with zipfile.ZipFile(out, "w") as copy:
        for part in archive.infolist():
            if part.filename.startswith(("word/media/", "word/embeddings/")):
                continue  # large, and never opened
            data = archive.read(part)
            if part.filename in _WITH_TEXT and (numbering.lists or _CHANGES.search(data)):
                root = ElementTree.fromstring(data)  # `open_archive` has refused documents with entities
                numbering.mark(root)
                for parent in list(root.iter()):
                    for at, child in enumerate(parent):
                        parent[at] = _readable(child, root.tag.rpartition("}")[0] + "}", unknown)
                data = ElementTree.tostring(root)
            elif (match := _ASIDE.fullmatch(part.filename)) and re.search(rb"<w:t[ >]", data):
                warnings.append(f"its {match[1]}s were left out")
            copy.writestr(part.filename, data)
    if unknown:
        warnings.append(f"parts of its equations may be missing: {', '.join(sorted(unknown)[:10])}")
    warnings[:] = dict.fromkeys(warnings)
    out.seek(0)
    return out


def _readable(element: ElementTree.Element, word: str, unknown: set[str]) -> ElementTree.Element:
    """An element in a form that mammoth reads: equations and readings of characters as text, every strike as one line,
    text that is raised or lowered. `word` is the document's namespace; `unknown` gets the names of unknown elements."""
    name, text = element.tag.rpartition("}")[2], ElementTree.Element(f"{word}t")
    height = element.get(f"{word}val", "0")
    match name:
        case "oMath" | "oMathPara":
            run = ElementTree.Element(f"{word}r")
            text.text = office_formula(element, unknown)
            run.append(text)
            return run
        case "ruby":
            base, reading = (
                "".join(one.text or "" for part in element.iter(f"{word}{half}") for one in part.iter(f"{word}t"))
                for half in ("rubyBase", "rt")
            )
            text.text = f"{base}({reading})"
            return text
        case "dstrike":
            return ElementTree.Element(f"{word}strike", element.attrib)
        case "position" if height != "0":
            script = "subscript" if height.startswith("-") else "superscript"
            return ElementTree.Element(f"{word}vertAlign", {f"{word}val": script})
    return element
