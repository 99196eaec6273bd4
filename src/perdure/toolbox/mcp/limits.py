"""Limit the messages of MCP servers before the SDK parses them, which has no limits of its own.

The SDK reads a child's lines through the codec of this module, and HTTP through `pinned.PinnedTransport`.
"""

from __future__ import annotations

import codecs

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json

ANSWER = JsonLimits(size_bytes=16 << 20)
"""The limits of one message of a server. A listing of 1,000 tools with large schemas has a few MB."""

LINES = "perdure-json-lines"
"""The codec for a child's output: UTF-8, whole lines only; a line over the limits becomes `TOO_LARGE`."""

TOO_LARGE = "perdure: too large"


def is_too_large(message: object) -> bool:
    """Whether a message is the SDK's error about a line that was replaced by `TOO_LARGE`."""
    return isinstance(message, Exception) and TOO_LARGE in str(message)


class _Lines(codecs.IncrementalDecoder):
    """Decodes whole lines only. A reader that joined the parts itself would need quadratic time."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._parts: list[bytes] = []
        self._size = 0

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]  # bytes are all it gets
        *lines, rest = bytes(data).split(b"\n")
        text = [self._end_line(line) for line in lines]
        self._append(rest)
        if final and self._parts:
            text.append(self._end_line(b""))
        return "".join(text)

    def reset(self) -> None:
        self._parts, self._size = [], 0

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > ANSWER.size_bytes:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end_line(self, end: bytes) -> str:
        """The line that ends here, or `TOO_LARGE`."""
        self._append(end)
        line, size = b"".join(self._parts), self._size
        self.reset()
        try:
            if size > ANSWER.size_bytes:
                raise DataTooLarge
            check_json(line, ANSWER)
        except DataTooLarge:
            return TOO_LARGE + "\n"
        return line.decode("utf-8", self.errors) + "\n"


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != LINES:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=_Lines, name=LINES)


codecs.register(_find_codec)
