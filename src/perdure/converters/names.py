"""Check the names of uploaded files, so that they are safe to store and to show."""

from __future__ import annotations

import re
import unicodedata

from perdure.core.errors import FileNameInvalid

NAME_BYTES = 255  # the limit of file systems
PATH_PARTS = 32

_DRIVES = re.compile(r"(?:\s*[A-Za-z]:)+")
# Characters that turn the reading direction: `exe.txt` can be shown for a name that ends with `.exe`.
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def safe_name(name: str) -> str:
    """The last part of `name`, without folders or drive, composed (NFC).

    Raises: FileNameInvalid: nothing is left, it is `.` or `..`, it holds NUL, control characters, halves of characters
        or characters that turn the reading direction, or it is longer than 255 bytes.
    """
    return _part(name, _without_drives(re.split(r"[/\\]", _check_characters(name))[-1]))


def safe_path(path: str) -> str:
    """`path` below a folder, such as `src/app.py`, each part as by `safe_name`.

    Raises: FileNameInvalid: as there; or it is absolute, has a drive, a backslash or `..`, or more than 32 parts.
    """
    normal = _check_characters(path)
    if normal.startswith("/"):
        raise FileNameInvalid(path, "it is not below a folder: leave out what comes before")
    if "\\" in normal:
        raise FileNameInvalid(path, "it holds a backslash: write folders with /")
    parts = [part.strip() for part in normal.split("/")]
    parts = [part for part in parts if part not in ("", ".")]
    if any(_DRIVES.match(part) for part in parts):
        raise FileNameInvalid(path, "it names a drive: leave out what comes before")
    if len(parts) > PATH_PARTS:
        raise FileNameInvalid(path, f"it is {len(parts)} folders deep, the limit is {PATH_PARTS}")
    return "/".join(_part(path, part) for part in parts) if parts else _part(path, "")


def _without_drives(part: str) -> str:
    match = _DRIVES.match(part)
    return part[match.end() :] if match else part


def _check_characters(name: str) -> str:
    for character in name:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _DIRECTION_MARKS:
            raise FileNameInvalid(name, f"it holds the character U+{ord(character):04X}")
    return unicodedata.normalize("NFC", name).strip()  # some characters become a drive's letter only now


def _part(whole: str, part: str) -> str:
    part = part.strip()
    if part == "..":
        raise FileNameInvalid(whole, "`..` is not allowed in it: give a path below the folder")
    if not part.strip("."):
        raise FileNameInvalid(whole, "no file is called so: give it a name")
    if len(part.encode()) > NAME_BYTES:
        raise FileNameInvalid(whole, f"it has {len(part.encode())} bytes, the limit is {NAME_BYTES}")
    return part
