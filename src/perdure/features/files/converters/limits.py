"""The limits of a conversion, and the refusal of a file."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.tools.sandbox import READING_BYTES


class FileUnreadable(Exception):
    """The file can't be converted; the message is the reason. Callers of this package see a `ConversionFailed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The limits of one conversion.

    Args:
        file_bytes: its size as uploaded.
        pages: of a PDF; worksheets of a workbook.
        text_chars: of the text.
        archive_members: parts of a DOCX or XLSX, which are ZIP archives.
        archive_bytes: all its parts together, unpacked.
        archive_ratio: unpacked to packed bytes, of the whole and of each part above 1 MB: a bomb has about 1,000.
        cpu_s, wall_s: seconds of the child process.
        memory_bytes: address space of the child process.
    """

    file_bytes: int = 50_000_000
    pages: int = 2_000
    text_chars: int = 10_000_000
    archive_members: int = 5_000
    archive_bytes: int = 300_000_000
    archive_ratio: int = 200
    cpu_s: float = 60.0
    wall_s: float = 180.0
    memory_bytes: int = READING_BYTES

    @property
    def answer_bytes(self) -> int:
        """How long the answer of a reader may be: the longest text, and 1 MiB for all else."""
        return 4 * self.text_chars + (1 << 20)

    def check_text(self, chars: int) -> None:
        """Check the length of a text. Raises: FileUnreadable: it is over the limit."""
        if chars > self.text_chars:
            raise FileUnreadable(f"it holds more than {self.text_chars:,} characters of text, the limit: split it")
