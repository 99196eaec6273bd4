"""Bodies of HTTP answers, decompressed up to a size limit.

HTTP clients decompress a piece at a time whatever its size becomes: a thousand times larger, and a million times where
it was compressed twice. `image_type_of` says what kind of picture some bytes are.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable, AsyncIterator

from perdure.core.errors import BodyUnreadable, DataTooLarge

ACCEPT_ENCODING = "gzip, deflate"
"""The encodings that `unpack` reads; every request sends this header."""

ZLIB_HEADER_BYTES = 2
PIECE_BYTES = 1 << 20
"""The longest piece that `unpack` yields: it bounds the memory of one read."""


async def unpack(raw: AsyncIterable[bytes], encoding: str, size_bytes: int) -> AsyncIterator[bytes]:
    """Yield the decompressed pieces of a body.

    Args:
        raw: the pieces as received.
        encoding: the `Content-Encoding` of the answer; empty if there was none.
    Raises: DataTooLarge: after `size_bytes`, if the body is longer; BodyUnreadable.
    """
    unpacker = _unpacker(encoding)
    bytes_left = size_bytes
    async for data in raw:
        pending = True
        while pending:
            # One byte more than is left shows that the body is too long.
            most = min(bytes_left + 1, PIECE_BYTES)
            piece, data = (data[:most], data[most:]) if unpacker is None else unpacker.unpack(data, most)
            if len(piece) > bytes_left:
                yield piece[:bytes_left]
                raise DataTooLarge(f"larger than {size_bytes:,} bytes")
            bytes_left -= len(piece)
            pending = bool(data) or len(piece) == most
            if piece:
                yield piece
        if unpacker is not None and unpacker.ended:
            return  # the decompressor would store what follows


async def read_body(raw: AsyncIterable[bytes], encoding: str, size_bytes: int) -> bytes:
    """Return the whole body, decompressed. Raises: DataTooLarge, BodyUnreadable."""
    return b"".join([piece async for piece in unpack(raw, encoding, size_bytes)])


class _Unpacker:
    """A decompressor of gzip, or of zlib and the raw deflate that some servers send for it."""

    def __init__(self, *, zlib_or_raw: bool) -> None:
        self._object = zlib.decompressobj(zlib.MAX_WBITS | (0 if zlib_or_raw else 16))
        self._format_unknown = zlib_or_raw
        self._head = b""

    @property
    def ended(self) -> bool:
        return self._object.eof

    def unpack(self, data: bytes, most: int) -> tuple[bytes, bytes]:
        """Decompress `data` to at most `most` bytes; return them and the rest of `data`. Raises: BodyUnreadable."""
        if self._format_unknown:
            self._head = data = self._head + data
            if len(data) < ZLIB_HEADER_BYTES:
                return b"", b""
        try:
            try:
                piece = self._object.decompress(data, most)
            except zlib.error:
                if not self._format_unknown:
                    raise
                self._object = zlib.decompressobj(-zlib.MAX_WBITS)
                piece = self._object.decompress(data, most)
        except zlib.error as error:
            raise BodyUnreadable(f"it can't be unpacked: {error}") from error
        self._format_unknown = False
        return piece, self._object.unconsumed_tail


def _unpacker(encoding: str) -> _Unpacker | None:
    """Return the decompressor of this `Content-Encoding`; None: the body is plain. Raises: BodyUnreadable."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Unpacker(zlib_or_raw=False)
        case "deflate":
            return _Unpacker(zlib_or_raw=True)
        case other:
            raise BodyUnreadable(f"its encoding is {other[:40]!r}; only {ACCEPT_ENCODING} can be read")


_STARTS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def image_type_of(data: bytes) -> str | None:
    """Return the media type of a picture by its first bytes; None: it is none of `messages.IMAGE_TYPES`."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)
