"""How much of what an MCP server sends is read: checked before the SDK parses it, which knows no limits of its own.

The SDK reads a child's lines through a codec that is named to it, and HTTP through a transport; both are ours.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator

import httpx2

from perdure.core.bodies import read_body, unpacked
from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.json_limits import JsonLimits, check_json

__all__ = ["ANSWER", "LINES", "TOO_LARGE", "bounded", "is_too_large"]

ANSWER = JsonLimits(size_bytes=16 << 20)
"""One message of a server. A model sees a millionth of it; a listing of 1,000 tools with large schemas has a few MB."""

EVENT_BRACKETS = 2 * ANSWER.containers
"""In one event of a stream, those in texts among them: what is text is not known before the event is whole."""

LINES = "perdure-json-lines"
"""The codec to read a child's output with: UTF-8, a line at a time; one that passes a limit becomes `TOO_LARGE`."""

TOO_LARGE = "perdure: too large"

_EVENT_END = re.compile(rb"\n\n|\r\r|\r\n\r\n")


def is_too_large(message: object) -> bool:
    """Whether what the SDK could not parse is a line that was left out."""
    return isinstance(message, Exception) and TOO_LARGE in str(message)


class _Lines(codecs.IncrementalDecoder):
    """Whole lines only: putting them together is not left to who reads them, in time that grows with their square."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._held: list[bytes] = []
        self._size = 0

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]  # bytes are all it gets
        *lines, rest = bytes(data).split(b"\n")
        text = [self._line(line) for line in lines]
        self._hold(rest)
        if final and self._held:
            text.append(self._line(b""))
        return "".join(text)

    def reset(self) -> None:
        self._held, self._size = [], 0

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > ANSWER.size_bytes:
            self._held.clear()
        elif part:
            self._held.append(part)

    def _line(self, end: bytes) -> str:
        self._hold(end)
        line, size = b"".join(self._held), self._size
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


def bounded(response: httpx2.Response) -> httpx2.Response:
    """The same response, whose body is unpacked and checked as it comes. Reading it raises `httpx2.StreamError`, or
    `httpx2.SSEError` for a stream of events, which the SDK tells who waits for the answer."""
    kind = response.headers.get("content-type", "").lower()
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    encoding = response.headers.get("content-encoding", "")
    headers = [
        (name, value)
        for name, value in response.headers.raw
        if not encoding or name.lower() not in (b"content-encoding", b"content-length")
    ]
    body = _Events(stream, encoding) if kind.startswith("text/event-stream") else _Whole(stream, encoding, kind)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class _Whole(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str, kind: str) -> None:
        self._inner, self._encoding, self._is_json = inner, encoding, kind.startswith("application/json")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            body = await read_body(self._inner, self._encoding, ANSWER.size_bytes)
            if self._is_json:
                check_json(body, ANSWER)
        except (DataTooLarge, BodyUnreadable) as error:
            raise httpx2.StreamError(f"its answer is not read: {error}") from error
        yield body

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str) -> None:
        self._inner, self._encoding = inner, encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = brackets = 0
        before = b""
        try:
            async for piece in unpacked(self._inner, self._encoding, 1 << 62):  # a stream may go on for days
                for number, part in enumerate(_EVENT_END.split(before + piece)):
                    size, brackets = (size, brackets) if number == 0 else (0, 0)
                    size += len(part)
                    brackets += part.count(b"[") + part.count(b"{")
                    if size > ANSWER.size_bytes or brackets > EVENT_BRACKETS:
                        raise DataTooLarge(f"an event of more than {ANSWER.size_bytes:,} bytes or too many brackets")
                before = piece[-3:]  # an end may be cut; what is counted twice is little
                yield piece
        except (DataTooLarge, BodyUnreadable) as error:
            raise httpx2.SSEError(f"its answer is not read: {error}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()
