"""The kind of a file by its name and its first bytes, which must fit each other; and which names are safe."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from perdure.core.documents import FileKind
from perdure.core.errors import FileNameInvalid, FileTypeUnsupported
from perdure.core.text.tables import read_table
from perdure.features.files.converters.limits import FileUnreadable

HEAD_BYTES = 4_096
"""How much of a file `kind_of` needs."""

_TABLES = read_table(__file__)
SUFFIXES: Mapping[FileKind, Sequence[str]] = _TABLES["suffixes"]
"""Kind -> the endings of its files' names."""

_KINDS = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes}

_BINARY_KINDS = frozenset({"pdf", "docx", "xlsx"})

_OTHERS = {suffix: what for what, suffixes in _TABLES["others"].items() for suffix in suffixes}

_SIGNATURES = [(bytes.fromhex(first), what) for first, what in _TABLES["signatures"].items()]

NAME_BYTES = 255  # the limit of file systems
PATH_PARTS = 32
_DRIVE = re.compile(r"[A-Za-z]:")
# Characters that turn the reading direction: `exe.txt` can be shown for a name that ends with `.exe`.
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def kind_of(name: str, head: bytes) -> FileKind:
    """Return the kind of a file by its name and first bytes; without a known ending it is text, or a PDF.

    Raises: FileTypeUnsupported: such files are not converted; FileUnreadable: the first bytes don't fit the name.
    """
    suffix = PurePosixPath(name.lower()).suffix
    format_name = _format_of(head)
    kind = _KINDS.get(suffix)
    if kind is None:
        if suffix in _OTHERS:
            raise _unsupported(name, f"it is {_OTHERS[suffix]}")
        if format_name == "a PDF":
            return "pdf"
        if format_name:
            raise _unsupported(name, f"it is {format_name}")
        return "text"
    if not head and kind in _BINARY_KINDS:
        raise FileUnreadable("the file is empty")
    if kind == "pdf" and format_name != "a PDF":
        raise FileUnreadable(f"it is not a PDF: {_beginning(format_name)}")
    if kind in {"docx", "xlsx"} and format_name != "a ZIP archive":
        if format_name.startswith("an Office file"):
            raise FileUnreadable(f"it is {format_name}: save it as {kind.upper()}, without a password")
        raise FileUnreadable(f"it is no {kind.upper()}: {_beginning(format_name)}")
    if format_name and kind not in _BINARY_KINDS:
        raise FileUnreadable(f"its name ends with {suffix}, but it begins like {format_name}: give it its right name")
    return kind


def _format_of(head: bytes) -> str:
    """The format that the first bytes tell; empty: none that is known here."""
    # Mail programs and web servers put lines before a PDF; readers take it within the first kilobyte.
    if head.startswith(b"%PDF-") or (b"%PDF-" in head[:1024] and b"\0" in head):
        return "a PDF"
    return next((label for signature, label in _SIGNATURES if head.startswith(signature)), "")


def _beginning(format_name: str) -> str:
    """How a file begins whose first bytes have this format, for messages; empty: an unknown one."""
    return f"it begins like {format_name}" if format_name else "it does not begin like one"


def _unsupported(name: str, format_name: str) -> FileTypeUnsupported:
    """Return the error for a file that can't be converted; `format_name`: what it is, such as "it is an image"."""
    return FileTypeUnsupported(
        name,
        found=format_name,
        supported=("text", "Markdown", "HTML", "CSV", "JSON", "source code", "PDF", "DOCX", "XLSX"),
    )


def safe_path(path: str) -> str:
    """`path` below a folder, such as `src/app.py`, composed (NFC), without blanks around its parts.

    Raises: FileNameInvalid: it is absolute, has a drive, a backslash, `..` or more than 32 parts, nothing is left of
        it, a part is longer than 255 bytes, or it holds NUL, control characters, halves of characters or characters
        that turn the reading direction.
    """
    for character in path:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _DIRECTION_MARKS:
            raise FileNameInvalid(path, f"it holds the character U+{ord(character):04X}")
    normal = unicodedata.normalize("NFC", path).strip()  # some characters become a drive's letter only now
    if normal.startswith("/"):
        raise FileNameInvalid(path, "it is not below a folder: leave out what comes before")
    if "\\" in normal:
        raise FileNameInvalid(path, "it holds a backslash: write folders with /")
    parts = [part for part in map(str.strip, normal.split("/")) if part not in ("", ".")]
    if len(parts) > PATH_PARTS:
        raise FileNameInvalid(path, f"it is {len(parts)} folders deep, the limit is {PATH_PARTS}")
    for part in parts or [""]:
        if _DRIVE.match(part):
            raise FileNameInvalid(path, "it names a drive: leave out what comes before")
        if part == "..":
            raise FileNameInvalid(path, "`..` is not allowed in it: give a path below the folder")
        if not part.strip("."):
            raise FileNameInvalid(path, "no file is called so: give it a name")
        if len(part.encode()) > NAME_BYTES:
            raise FileNameInvalid(path, f"it has {len(part.encode())} bytes, the limit is {NAME_BYTES}")
    return "/".join(parts)
