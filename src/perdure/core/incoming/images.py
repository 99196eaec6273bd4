"""What kind of picture some bytes are."""

from __future__ import annotations

_STARTS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def image_type_of(data: bytes) -> str | None:
    """The media type of a picture by its first bytes; None: it is none of `messages.IMAGE_TYPES`."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)
