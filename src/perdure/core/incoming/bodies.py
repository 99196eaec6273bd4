"""The body of an answer from outside, unpacked and read no further than a limit.

HTTP clients unpack a piece at a time whatever it becomes: a thousand times its size, and where it was packed twice, a
million times.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable, AsyncIterator

from perdure.core.errors import BodyUnreadable, DataTooLarge

ACCEPT_ENCODING = "gzip, deflate"
"""What `unpack` can unpack; to be sent with every request."""

ZLIB_HEADER_BYTES = 2
PIECE_BYTES = 1 << 20
"""Pieces that were unpacked are no longer than this."""


async def unpack(raw: AsyncIterable[bytes], encoding: str, size_bytes: int) -> AsyncIterator[bytes]:
    """The pieces of a body as they were before they were packed.

    Args:
        raw: the pieces as they came.
        encoding: the `Content-Encoding` of the answer; empty if there was none.
    Raises: DataTooLarge: at the end, when the body goes on after `size_bytes`, which were given; BodyUnreadable.
    """
    unpacker = _unpacker(encoding)
    bytes_left = size_bytes
    async for data in raw:
        pending = True
        while pending:
            # One byte more than is left: that it is there tells that the body is too long.
            most = min(bytes_left + 1, PIECE_BYTES)
            piece, data = (data[:most], data[most:]) if unpacker is None else unpacker.unpack(data, most)
            if len(piece) > bytes_left:
                yield piece[:bytes_left]
                raise DataTooLarge(f"larger than {size_bytes:,} bytes")
            bytes_left -= len(piece)
            pending = bool(data) or len(piece) == most  # what came may be all used up before all of it was given
            if piece:
                yield piece
        if unpacker is not None and unpacker.ended:
            return  # what may follow would be kept and never looked at


async def read_body(raw: AsyncIterable[bytes], encoding: str, size_bytes: int) -> bytes:
    """The whole body, unpacked. Raises: DataTooLarge, BodyUnreadable."""
    return b"".join([piece async for piece in unpack(raw, encoding, size_bytes)])


class _Unpacker:
    """gzip or zlib, or the bare deflate that some servers send for the latter."""

    def __init__(self, *, zlib_or_raw: bool) -> None:
        self._object = zlib.decompressobj(zlib.MAX_WBITS | (0 if zlib_or_raw else 16))
        self._format_unknown = zlib_or_raw
        self._head = b""

    @property
    def ended(self) -> bool:
        return self._object.eof

    def unpack(self, data: bytes, most: int) -> tuple[bytes, bytes]:
        """At most so many bytes of it, and what is left of `data`. Raises: BodyUnreadable."""
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
    """Raises: BodyUnreadable: packed in a way that was not asked for."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Unpacker(zlib_or_raw=False)
        case "deflate":
            return _Unpacker(zlib_or_raw=True)
        case other:
            raise BodyUnreadable(f"it came packed as {other[:40]!r}, which was not asked for and is not unpacked")
