"""Open DOCX and XLSX files, which are ZIP archives of XML, after a check for traps."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

from perdure.features.files.converters.limits import FileUnreadable, ReadLimits

_NESTED = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd")
_NESTED_NAMES = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst", ".tar", ".jar")
# Files that Office embeds, such as the workbook behind a chart. They are never opened.
_EMBEDDED = re.compile(r"(?:word|xl|ppt)/embeddings/[^/]+\.(?:xlsx|xlsm|xlsb|docx|pptx|bin)")
_SMALL_BYTES = 1_000_000  # a part that unpacks to less does no harm


def open_archive(file: BinaryIO, limits: ReadLimits, *, kind: str, required: str) -> tuple[zipfile.ZipFile, list[str]]:
    """Open the ZIP archive in `file` and check it; return it, and warnings about what of it is not read.

    Every name is inside, no part is packed by more than the ratio, encrypted, or an archive itself, all parts together
    are within the limits, and no XML declares entities. A part never unpacks to more than its directory entry says.

    Args:
        kind: the kind it should be, for messages.
        required: the part that every file of this kind has.

    Raises: FileUnreadable: a check fails, or it is no archive.
    """
    try:
        archive = zipfile.ZipFile(file)
        parts = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise FileUnreadable(f"it is damaged: no {kind} can be opened ({error})") from error
    if len(parts) > limits.archive_members:
        raise FileUnreadable(f"it has {len(parts):,} parts, the limit is {limits.archive_members:,}")
    unpacked, packed = sum(part.file_size for part in parts), sum(part.compress_size for part in parts)
    if unpacked > limits.archive_bytes:
        raise FileUnreadable(f"it would unpack to {unpacked:,} bytes, the limit is {limits.archive_bytes:,}")
    _check_ratio("it", unpacked, packed, limits)
    warnings = []
    for part in parts:
        _check_name(part.orig_filename)
        if part.flag_bits & 1:
            raise FileUnreadable("it is encrypted: save it without a password")
        _check_ratio(f"its part {part.filename[:80]!r}", part.file_size, part.compress_size, limits)
        if _is_archive(archive, part):
            if not _EMBEDDED.fullmatch(part.filename):
                raise FileUnreadable(f"it holds another archive, {part.filename[:80]!r}: unpack it first")
            warnings.append(f"the embedded file {part.filename!r} was left out")
    if required not in archive.namelist():
        raise FileUnreadable(f"it is no {kind}: it has no part {required!r}")
    for part in parts:
        if part.filename.endswith((".xml", ".rels")):
            for _ in read_xml(archive, part.filename):
                pass
    return archive, warnings


def _check_ratio(subject: str, unpacked: int, packed: int, limits: ReadLimits) -> None:
    """Check how much a packed part grows. Raises: FileUnreadable."""
    if unpacked > _SMALL_BYTES and unpacked > packed * limits.archive_ratio:
        raise FileUnreadable(
            f"{subject} unpacks to {unpacked:,} bytes from {packed:,}, more than {limits.archive_ratio} times:"
            " such files are made to fill the memory"
        )


def _check_name(name: str) -> None:
    """Check that the name of a part leads nowhere else. Raises: FileUnreadable."""
    if (
        not name
        or name.startswith("/")
        or "\\" in name
        or "\0" in name
        or re.match("[A-Za-z]:", name)
        or ".." in name.split("/")
    ):
        raise FileUnreadable(f"its part {name[:80]!r} would lie outside of it: such files are made to do harm")


def _is_archive(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    """Whether a part is itself an archive, by its name or its first bytes. Raises: FileUnreadable."""
    if part.filename.lower().endswith(_NESTED_NAMES):
        return True
    try:
        with archive.open(part) as stream:
            return stream.read(8).startswith(_NESTED)
    except Exception as error:  # a part's header may be wrong in any way
        raise FileUnreadable(f"it is damaged: its part {part.filename[:80]!r} can't be read ({error})") from error


XmlEvent = tuple[str, str, dict[str, str]]
"""(`start` | `end` | `text`, local name or text, attributes by local name)"""

_PIECE_BYTES = 65_536


def read_xml(archive: zipfile.ZipFile, name: str, *, with_events: bool = False) -> Iterator[list[XmlEvent]]:
    """The events of one part, piece by piece as it is unpacked; empty lists without `with_events`, which is faster.

    Raises: FileUnreadable: it is no XML, declares a document type (through which entities could unfold), or is damaged.
    """
    events: list[XmlEvent] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        """Raise the error for a document type, through which entities could unfold."""
        raise FileUnreadable(f"its part {name[:80]!r} declares a document type: no Office program writes that")

    def local(tag: str) -> str:
        """Return the tag's name without its namespace."""
        return tag.rpartition(" ")[2]

    parser.StartDoctypeDeclHandler = refuse
    if with_events:
        parser.StartElementHandler = lambda tag, attributes: events.append(
            ("start", local(tag), {local(key): value for key, value in attributes.items()})
        )
        parser.EndElementHandler = lambda tag: events.append(("end", local(tag), {}))
        parser.CharacterDataHandler = lambda text: events.append(("text", text, {}))
    try:
        with archive.open(name) as part:
            while piece := part.read(_PIECE_BYTES):
                parser.Parse(piece, False)
                yield events
                events.clear()
        parser.Parse(b"", True)
        yield events
    except FileUnreadable:
        raise
    except Exception as error:  # zlib, checksums, encodings, XML: all of them mean the same
        raise FileUnreadable(f"it is damaged: its part {name[:80]!r} can't be read ({error})") from error


def title_of(archive: zipfile.ZipFile) -> str:
    """The title in the properties; empty: there is none."""
    if "docProps/core.xml" not in archive.namelist():
        return ""
    inside, title = False, ""
    for events in read_xml(archive, "docProps/core.xml", with_events=True):
        for event, value, _ in events:
            if event == "text":
                title += value if inside else ""
            elif value == "title":
                inside = event == "start"
    return " ".join(title.split())[:200]
