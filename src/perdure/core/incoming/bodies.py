"""Bodies of HTTP answers, decompressed up to a size limit.

HTTP clients decompress a piece at a time whatever its size becomes: a thousand times larger, and a million times where
it was compressed twice.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable

import httpx2

from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json

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


ENDLESS = 1 << 62

_BEFORE_JSON = b" \t\r\n\0\xef\xbb\xbf\xff\xfe"
"""White space, and what else may stand before the first bracket in one of the encodings that `json.loads` knows."""

_EVENT_END = re.compile(rb"\n\n|\r\r|\r\n\r\n")


def bound_body(
    response: httpx2.Response,
    *,
    whole: JsonLimits,
    event: JsonLimits,
    total_bytes: int = ENDLESS,
    refused: Callable[[str], None] = lambda why: None,
) -> None:
    """Have the body of a response, of which nothing was read, unpacked and checked as it comes.

    Reading it raises `httpx2.StreamError`, or `httpx2.SSEError` for a stream of events.

    Args:
        whole: of a body that is no stream; what JSON may hold counts where it begins as JSON does, whatever type it
            says it is: clients parse it all the same.
        event: of one event of a stream. Its brackets are counted in texts too: what is text is not known before the
            event is whole. So twice as many are let through.
        total_bytes: of a stream.
        refused: is told why, before it is raised.
    """
    kind, encoding = response.headers.get("content-type", "").lower(), response.headers.get("content-encoding", "")
    inner = response.stream
    assert isinstance(inner, httpx2.AsyncByteStream)
    if encoding:
        del response.headers["content-encoding"]
        response.headers.pop("content-length", None)
    if "charset" in kind:  # brackets are counted in UTF-8, so it must be read as nothing else
        response.headers["content-type"] = kind.partition(";")[0]
    if kind.startswith("text/event-stream"):
        response.stream = events = _BoundedEvents(inner, encoding, event, refused)
        events.total_bytes = total_bytes
    else:
        response.stream = _BoundedStream(inner, encoding, whole, refused)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, unpacked and checked as it is read."""

    error: type[Exception] = httpx2.StreamError

    def __init__(
        self, inner: httpx2.AsyncByteStream, encoding: str, limits: JsonLimits, refused: Callable[[str], None]
    ) -> None:
        self._inner, self._encoding, self._limits, self._refused = inner, encoding, limits, refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces():
                yield piece
        except (DataTooLarge, BodyUnreadable) as error:
            self._refused(str(error))
            raise self.error(f"its answer is not read: {error}") from error

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the whole body at once. Raises: DataTooLarge, BodyUnreadable."""
        body = await read_body(self._inner, self._encoding, self._limits.size_bytes)
        if body.lstrip(_BEFORE_JSON)[:1] in (b"[", b"{"):
            check_json(body, self._limits)
        yield body

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedEvents(_BoundedStream):
    """The same of a stream of events, piece by piece; the limits are those of one event."""

    error = httpx2.SSEError
    total_bytes = ENDLESS

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the stream. Raises: DataTooLarge, BodyUnreadable."""
        size = brackets = 0
        before = b""
        async for piece in unpack(self._inner, self._encoding, self.total_bytes):
            text = before + piece
            for number, part in enumerate(_EVENT_END.split(text)):
                size, brackets = (size, brackets) if number == 0 else (0, 0)
                size += len(part)
                brackets += part.count(b"[") + part.count(b"{")
                if size > self._limits.size_bytes or brackets > 2 * self._limits.containers:
                    limit = f"{self._limits.size_bytes:,} bytes or {self._limits.containers:,} arrays and objects"
                    raise DataTooLarge(f"an event of more than {limit}")
            before = text[len(text.rstrip(b"\r\n")) :][-3:]  # an end may be cut, even between any two bytes
            yield piece
