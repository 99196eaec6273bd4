"""Convert DOCX: mammoth makes HTML of it."""

from __future__ import annotations

from typing import BinaryIO

from perdure.converters.archives import open_archive, read_xml, title_of
from perdure.converters.html import html_to_markdown
from perdure.converters.limits import Limits, Refusal
from perdure.core.documents import Document
from perdure.core.errors import ExtraMissing


def docx_document(name: str, file: BinaryIO, limits: Limits) -> Document:
    """Headings, paragraphs, lists, tables, links and notes as Markdown; images by their description.

    Raises: Refusal: damaged, a trap, or no text in it; ExtraMissing.
    """
    archive, warnings = open_archive(file, limits, kind="DOCX", required="word/document.xml")
    try:
        import mammoth
    except ImportError as error:
        raise ExtraMissing("reading DOCX files", extra="files") from error
    parts = read_xml(archive, "word/document.xml", with_events=True)
    if any(tag == "oMath" for events in parts for _, tag, _ in events):
        warnings.append("its equations were left out")
    file.seek(0)
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
