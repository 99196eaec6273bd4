"""An answer of OpenAI's chat API, read while it comes, and passed on in the shape of the responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from perdure.core.errors import ModelReplyInvalid
from perdure.core.runs import NO_USAGE, Failure, StopReason, Usage
from perdure.features.openai_front.answers import data_line
from perdure.features.openai_front.responses import ResponseHead, ResponseParts, call_item, text_item
from perdure.server.wire.sse import DONE

STREAM = "text/event-stream"


class AnswerReader:
    """Reads an answer from its bytes; what can't be read is left out.

    Attributes:
        text, calls, usage: up to here; calls as (id, name, arguments).
        reason: why it ended; empty: it has not.
        failure: what the provider says in place of the rest.
        is_done: the end of a stream was read.
    """

    def __init__(self, kind: str) -> None:
        self.is_stream = kind.startswith(STREAM)
        self.usage: Usage = NO_USAGE
        self.reason = ""
        self.failure = ""
        self.is_done = False
        self._rest = bytearray()
        self._texts: list[str] = []
        self._calls: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def calls(self) -> list[list[str]]:
        return [call for _, call in sorted(self._calls.items())]

    @property
    def is_whole(self) -> bool:
        """Whether it is there to its end."""
        return bool(self.reason) and not self.failure

    def read(self, piece: bytes) -> list[tuple[bytes, str, bool]]:
        """Read a piece of its bytes; return (line, text, whether it holds nothing but tokens) for each whole line of a
        stream. The end is an empty piece."""
        self._rest += piece
        if not self.is_stream:
            if not piece:
                self._take(bytes(self._rest))
            return []
        *lines, rest = self._rest.split(b"\n")
        if not piece and rest:
            lines.append(rest)
            rest = bytearray()
        self._rest = rest
        return [(bytes(line), *self._take(bytes(line).removeprefix(b"data:"))) for line in lines]

    def _take(self, data: bytes) -> tuple[str, bool]:
        """Read a chunk, or a whole answer; return (its text, whether it holds nothing but tokens)."""
        if (data := data.strip()) == b"[DONE]":
            self.is_done, self.reason = True, self.reason or "stop"
        if not data.startswith(b"{"):
            return "", False
        try:
            shape = json.loads(data)
        except ValueError:
            return "", False
        self.usage = _usage_of(shape.get("usage")) or self.usage
        if isinstance(error := shape.get("error"), Mapping):
            self.failure = str(error.get("message", error))
        choice: Mapping[str, Any] = next(iter(shape.get("choices") or ()), {})
        if not choice:
            return "", bool(shape.get("usage"))
        said = choice.get("delta") or choice.get("message") or {}
        text = one if isinstance(one := said.get("content"), str) else ""
        self._texts += [text] if text else []
        for place, call in enumerate(said.get("tool_calls") or ()):
            own, about = self._calls.setdefault(call.get("index", place), ["", "", ""]), call.get("function") or {}
            own[0], own[1] = own[0] or call.get("id") or "", own[1] or about.get("name") or ""
            own[2] += about.get("arguments") or ""
        self.reason = choice.get("finish_reason") or self.reason or ("" if self.is_stream else "stop")
        return text, False


def _usage_of(shape: Any) -> Usage | None:
    """The tokens that an answer names; None: it names none."""
    if not isinstance(shape, Mapping):
        return None
    cached, thought = shape.get("prompt_tokens_details") or {}, shape.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=shape.get("prompt_tokens") or 0,
        output_tokens=shape.get("completion_tokens") or 0,
        cached_input_tokens=cached.get("cached_tokens") or 0,
        reasoning_tokens=thought.get("reasoning_tokens") or 0,
    )


class AsResponse:
    """Passes an answer of the chat API on in the shape of the responses API. `message_id`: of its text."""

    def __init__(self, head: ResponseHead, message_id: str, kind: str) -> None:
        self._head, self._message_id, self._reader = head, message_id, AnswerReader(kind)

    async def whole(self, pieces: AsyncIterator[bytes]) -> dict[str, Any]:
        """The whole answer. Raises: ModelReplyInvalid: it is none."""
        async for piece in pieces:
            self._reader.read(piece)
        self._reader.read(b"")
        reason, failure = self._end
        if failure is not None:
            raise ModelReplyInvalid(failure.message)
        text = [text_item(self._message_id, self._reader.text)] if self._reader.text else []
        return self._head.shape([*text, *self._calls], reason=reason, usage=self._reader.usage)

    async def events(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events of a stream, as it comes."""
        parts = ResponseParts(self._head)
        for event in parts.begin():
            yield _event_lines(event)
        async for piece in pieces:
            for event in self._read(parts, piece):
                yield _event_lines(event)
        for event in (*self._read(parts, b""), *self._last(parts)):
            yield _event_lines(event)
        yield DONE

    def _read(self, parts: ResponseParts, piece: bytes) -> Iterator[dict[str, Any]]:
        for _, text, _ in self._reader.read(piece):
            if text:
                yield from parts.piece(self._message_id, text)

    def _last(self, parts: ResponseParts) -> Iterator[dict[str, Any]]:
        yield from parts.close()
        for item in self._calls:
            yield from parts.call(item)
        reason, failure = self._end
        yield from parts.end(reason, failure=failure, usage=self._reader.usage)

    @property
    def _calls(self) -> list[dict[str, Any]]:
        id_ = self._message_id.partition("-")[2]
        return [call_item(f"{id_}_{place}", *call) for place, call in enumerate(self._reader.calls)]

    @property
    def _end(self) -> tuple[StopReason, Failure | None]:
        """Why the answer has ended."""
        if not self._reader.is_whole:
            return "error", Failure(kind="llm_error", message=self._reader.failure or "the answer broke off")
        return ("max_tokens_exceeded" if self._reader.reason == "length" else "end_turn"), None


def _event_lines(event: Mapping[str, Any]) -> bytes:
    """An event with its name, as `text/event-stream` has it."""
    return b"event: %b\n%b" % (event["type"].encode(), data_line(event))
