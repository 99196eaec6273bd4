"""Answers of others' HTTP clients, which read and parse whatever comes: their bodies are bounded before they see them.

It needs `httpx2`, so it is imported where a client of that kind is made.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

import httpx2

from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.incoming.bodies import read_body, unpack
from perdure.core.incoming.json_limits import JsonLimits, check_json

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
    """Replace the body of a response, of which nothing was read yet, by one that is unpacked and checked as it comes.

    Reading it raises `httpx2.StreamError`, or `httpx2.SSEError` for a stream of events.

    Args:
        whole: the limits of a body that is no stream of events. Those of JSON count for each body that begins as JSON
            does, whatever its type says: clients parse it all the same.
        event: the limits of one event of a stream. Its brackets are counted in texts too: what is text is not known
            before the event is whole. So twice as many are let through.
        total_bytes: the limit of a whole stream.
        refused: is called with the reason before an error is raised.
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
    """The body of a stream of events, unpacked and checked as it is read; `limits` are those of one event."""

    error = httpx2.SSEError
    total_bytes = ENDLESS

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the stream piece by piece. Raises: DataTooLarge: also for one event past its limits; BodyUnreadable."""
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
