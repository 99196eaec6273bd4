"""Convert PDF with pypdf: pure Python, so a damaged file costs only time and memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

from perdure.core.documents import Document
from perdure.core.errors import ExtraMissing
from perdure.features.files.converters.columns import SCALE, in_columns
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
PAGES_MAX = 20
COLUMNS_PAGES = 50
"""After so many pages without columns none are looked for, which costs as much as reading the page."""


def pdf_document(name: str, file: BinaryIO, limits: ReadLimits, progress: Callable[[int, int], None]) -> Document:
    """The text of each page by columns, a blank line between pages; one for an empty page. `progress` after each.

    Raises: FileUnreadable: damaged, encrypted, too long, or no page has text; ExtraMissing.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError
    except ImportError as error:
        raise ExtraMissing("reading PDF files", extra="files") from error
    try:
        reader = PdfReader(file)
        # Many files are encrypted without a password, only to say what may be done with them.
        if reader.is_encrypted and not reader.decrypt(""):
            raise FileUnreadable("it is encrypted: save it without a password")
        total = len(reader.pages)
    except (FileUnreadable, MemoryError):
        raise
    except DependencyError as error:
        raise ExtraMissing("reading encrypted PDF files", extra="files") from error
    except Exception as error:  # pypdf raises whatever a broken structure leads to
        raise FileUnreadable(f"it is damaged: {' '.join(str(error).split())[:200] or type(error).__name__}") from error
    if total > limits.pages:
        raise FileUnreadable(f"it has {total:,} pages, the limit is {limits.pages:,}: split it")
    progress(0, total)
    texts: list[str] = []
    starts: list[int] = []
    unreadable: list[int] = []
    line, chars = 1, 0
    last_look = COLUMNS_PAGES  # the last page where columns are looked for
    for number in range(1, total + 1):
        try:
            page = reader.pages[number - 1]
            text = _tidy(page.extract_text())
            if number <= last_look:
                with suppress(Exception):  # a text in any order is better than none
                    layout = page.extract_text(
                        extraction_mode="layout", layout_mode_space_vertically=False, layout_mode_scale_weight=SCALE
                    )
                    if (read := in_columns(text, _tidy(layout))) != text:
                        text, last_look = read, number + COLUMNS_PAGES
        except MemoryError:
            raise
        except Exception:  # one page may be broken while the others are not
            unreadable.append(number)
            text = ""
        text += "\n\n" if text and number < total else "\n"
        starts.append(line)
        texts.append(text)
        line += text.count("\n")
        chars += len(text)
        limits.check_text(chars)
        progress(number, total)
    whole = "".join(texts)
    empty = [number for number, text in enumerate(texts, start=1) if text.isspace() and number not in unreadable]
    if not whole.strip():
        if unreadable:
            raise FileUnreadable(f"it is damaged: none of its {total:,} pages can be read")
        raise FileUnreadable(
            f"none of its {total:,} pages holds text: they may be scanned images."
            " Run text recognition (OCR) on it first"
        )
    warnings = []
    if empty:
        warnings.append(f"no text on {_pages(empty)} of {total:,}: what stands there may be an image")
    if unreadable:
        warnings.append(f"damaged and left out: {_pages(unreadable)} of {total:,}")
    return Document(
        name=name, kind="pdf", text=whole, page_starts=tuple(starts), title=_title(reader), warnings=tuple(warnings)
    )


def _tidy(text: str) -> str:
    """Return `text` without control characters but line feeds, lone surrogates, and repeated blank lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    text = _CONTROLS.sub("", text)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    lines = (line.rstrip() for line in text.split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n")


def _title(reader: object) -> str:
    """The title in the properties of a `PdfReader`; empty: there is none."""
    try:
        return _tidy(" ".join(str(reader.metadata.title or "").split()))[:200]  # type: ignore[attr-defined]
    except Exception:  # there may be none, or it may be broken: neither matters
        return ""


def _pages(numbers: Sequence[int]) -> str:
    """The numbers of pages, for messages."""
    listed = ", ".join(map(str, numbers[:PAGES_MAX])) + (", ..." if len(numbers) > PAGES_MAX else "")
    return f"page {listed}" if len(numbers) == 1 else f"pages {listed}"
