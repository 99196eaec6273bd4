"""Check the names of uploaded files, so that they are safe to store and to show."""

from __future__ import annotations

import re
import unicodedata

from perdure.core.errors import FileNameInvalid

NAME_BYTES = 255  # the limit of file systems
PATH_PARTS = 32

_DRIVE = re.compile(r"[A-Za-z]:")
# Characters that turn the reading direction: `exe.txt` can be shown for a name that ends with `.exe`.
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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
