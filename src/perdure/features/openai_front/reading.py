"""An answer of OpenAI's chat API, read while it comes, and passed on in the shape of the responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from perdure.core.errors import ModelError, ModelReplyInvalid
from perdure.core.ids import MessageId
from perdure.core.models import ModelDelta, ModelReply
from perdure.core.runs import Failure
from perdure.core.text.json_strings import json_object
from perdure.features.openai_front.answers import AnswerEnd, items_of_reply
from perdure.features.openai_front.responses import ResponseWriter
from perdure.providers.openai_chat.stream import AnswerReader
from perdure.server.wire.sse import DONE, data_line

STREAM = "text/event-stream"


class AnswerObserver:
    """Reads an answer beside its way to a program. `failure`: why it can't be read; None: it can."""

    def __init__(self, who: str) -> None:
        """Read an answer of `who`, the model's name for errors."""
        self.reader = AnswerReader(
            who, lambda one: ModelReplyInvalid(f"{who}: {one.get('message', one) if isinstance(one, Mapping) else one}")
        )
        self.failure: ModelError | None = None

    def feed(self, piece: bytes) -> list[str]:
        """The texts in a piece of its bytes; an empty piece is the end."""
        if self.failure is not None:
            return []
        try:
            deltas = self.reader.feed(piece) if piece else self.reader.end()
        except ModelError as error:
            self.failure = error
            return []
        return [delta.text for delta in deltas if isinstance(delta, ModelDelta) and delta.kind == "text"]

    @property
    def is_whole(self) -> bool:
        """Whether it is there to its end."""
        return self.failure is None and self.reader.complete

    def reply(self) -> ModelReply:
        """The answer at its end. Raises: ModelError."""
        if self.failure is not None:
            raise self.failure
        return self.reader.reply(may_stay_empty=True)

    @property
    def text(self) -> str:
        """The text of the answer so far, also of a refusal."""
        message = self.reader.partial_answer()["message"]
        return str(message["content"] or message.get("refusal", ""))


class UsageFilter:
    """Removes the chunk that has only token counts from a stream, for a client that has not asked for it."""

    def __init__(self) -> None:
        self._line = b""

    def feed(self, piece: bytes) -> bytes:
        """The whole lines up to here; an empty piece is the end."""
        *lines, self._line = (self._line + (piece or b"\n" * bool(self._line))).split(b"\n")
        return b"".join([line + b"\n" for line in lines if not self._is_usage(line)])

    @staticmethod
    def _is_usage(line: bytes) -> bool:
        if b'"usage"' not in line or not line.startswith(b"data:"):
            return False
        shape = json_object(line[5:]) or {}
        return not shape.get("choices") and bool(shape.get("usage"))


class ResponseTranslator:
    """Passes an answer of the chat API on in the shape of the responses API. `message_id`: of its text."""

    def __init__(self, writer: ResponseWriter, message_id: MessageId, model: str) -> None:
        self._writer, self._message_id, self._reading = writer, message_id, AnswerObserver(model)

    async def whole(self, pieces: AsyncIterator[bytes]) -> dict[str, Any]:
        """The whole answer. Raises: ModelError: it is none."""
        async for piece in pieces:
            self._reading.feed(piece)
        self._reading.feed(b"")
        reply = self._reading.reply()
        return self._writer.whole(items_of_reply(reply, self._message_id), AnswerEnd(reply.stop_reason, reply.usage))

    async def events(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events of a stream, as it comes."""
        yield _lines(self._writer.begin())
        async for piece in pieces:
            if lines := _lines(self._read(piece)):
                yield lines
        rest: list[Any] = [*self._read(b"")]
        try:
            rest += self._writer.last(self._reading.reply(), self._message_id)
        except ModelError as error:
            rest += self._writer.end(AnswerEnd("error", failure=Failure(kind=error.kind, message=str(error))))
        yield _lines(rest) + DONE

    def _read(self, piece: bytes) -> Iterator[Any]:
        for text in self._reading.feed(piece):
            yield from self._writer.piece(self._message_id.partition("-")[2], text)


def _lines(events: Iterable[Any]) -> bytes:
    """Return events with their names as `text/event-stream`."""
    return b"".join([b"event: %b\n%b" % (event["type"].encode(), data_line(event)) for event in events])
