"""What a file may cost, and the refusal of one that would cost more."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "Refused"]


class Refused(Exception):
    """This file gives no text; its message is the reason. Outside it is a `ConversionFailed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may cost.

    Args:
        file_bytes: its size as uploaded.
        pages: of a PDF; worksheets of a workbook.
        text_chars: the text that is made of it.
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
    memory_bytes: int = 1_500_000_000

    def check_text(self, chars: int) -> None:
        """Raises: Refused: so much text is more than the limit."""
        if chars > self.text_chars:
            raise Refused(f"it holds more than {self.text_chars:,} characters of text, the limit: split it")
