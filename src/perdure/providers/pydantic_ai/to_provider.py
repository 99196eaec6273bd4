"""Our log as pydantic-ai's messages. Pure: the same request gives the same messages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.core.tools.arguments import ARGUMENTS
from perdure.providers.pydantic_ai.cache_marks import marked
from perdure.providers.pydantic_ai.dialects import Dialect
from perdure.providers.pydantic_ai.signatures import unpack

if TYPE_CHECKING:
    from pydantic_ai import messages as pa

__all__ = ["to_messages"]

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_CALL_ID_CHAR = re.compile(r"[^A-Za-z0-9_-]")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

EMPTY_RESULT = "(no output)"
"""Providers refuse an empty text."""


def to_messages(request: ModelRequest, dialect: Dialect, *, system: str) -> list[pa.ModelMessage]:
    """The messages and the tail of a request; neighbours of one side become one message.

    Args:
        system: the name of the provider as pydantic-ai has it; only reasoning that it signed goes back to it.
    """
    writer = _Writer(dialect, system)
    marks = marked(request.messages) if dialect.cache_marks else frozenset()
    for place, message in enumerate(request.messages):
        if message.role == "assistant":
            writer.answer(message)
        elif message.role == "tool":
            writer.results(message.results)
        else:
            writer.say(message)
        if place in marks:
            writer.mark()
    if request.tail:
        writer.engine(request.tail)
    return writer.messages


class _Writer:
    """Puts one message behind the other; knows under which ids the open calls went out."""

    def __init__(self, dialect: Dialect, system: str) -> None:
        from pydantic_ai import messages as pa

        self.messages: list[pa.ModelMessage] = []
        self._pa, self._dialect, self._system = pa, dialect, system
        self._taken: set[str] = set()
        self._open: dict[str, str] = {}
        self._mark_waits = False

    def say(self, message: Message) -> None:
        """Something a user or the engine said."""
        for part in message.parts:
            if not isinstance(part, Text) or not part.text.strip():
                continue  # a text without a word in it is refused
            if message.role == "system" or message.kind != "message":
                self.engine(part.text)
            else:
                self._user(part.text)

    def engine(self, text: str) -> None:
        """What the engine said, in the role that the provider has for it."""
        if self._dialect.engine_role == "user":
            self._user(text)
        else:
            self._add(self._pa.SystemPromptPart(_sendable(text)))

    def answer(self, message: Message) -> None:
        """What the model said. Reasoning of another provider, or without a signature, stays behind."""
        parts: list[pa.ModelResponsePart] = []
        for part in message.parts:
            match part:
                case Text(text=text) if text.strip():
                    parts.append(self._pa.TextPart(_sendable(text)))
                case Reasoning():
                    if (thought := self._thought(part)) is not None:
                        parts.append(thought)
                case ToolCall():
                    call_id = self._open[part.call_id] = _free(_legal_id(part.call_id), self._taken)
                    parts.append(self._pa.ToolCallPart(part.name, _legal_arguments(part.arguments), call_id))
                case _:
                    pass
        if not parts:
            return
        if not self.messages:  # a conversation begins with its user, or it is refused
            self._user(".")
        if isinstance(last := self.messages[-1], self._pa.ModelResponse):
            last.parts = [*last.parts, *parts]
        else:
            self.messages.append(self._pa.ModelResponse(parts=parts, provider_name=self._system))

    def results(self, results: Sequence[ToolResult]) -> None:
        for result in results:
            failed = result.status != "success" and self._dialect.error_results
            self._add(
                self._pa.ToolReturnPart(
                    result.name,
                    _sendable(result.text) if result.text.strip() else EMPTY_RESULT,
                    self._open.pop(result.call_id, result.call_id),
                    outcome="failed" if failed else "success",
                )
            )

    def mark(self) -> None:
        """A cache mark behind the last thing that was written."""
        match self.messages[-1] if self.messages else None:
            case self._pa.ModelRequest(parts=parts):
                last = parts[-1]
                point = self._pa.CachePoint()
                if isinstance(last, self._pa.UserPromptPart):
                    last.content = [last.content, point] if isinstance(last.content, str) else [*last.content, point]
                else:
                    self._add(self._pa.UserPromptPart([point]))
            case self._pa.ModelResponse(parts=parts):
                # An answer has no place for a mark; leading what follows, it is put on the answer's last piece.
                self._mark_waits = not isinstance(parts[-1], self._pa.ThinkingPart)
            case _:
                pass

    def _user(self, text: str) -> None:
        content: Any = _sendable(text)
        self._add(self._pa.UserPromptPart([self._pa.CachePoint(), content] if self._mark_waits else content))

    def _add(self, part: pa.ModelRequestPart) -> None:
        self._mark_waits = False
        if self.messages and isinstance(last := self.messages[-1], self._pa.ModelRequest):
            last.parts = [*last.parts, part]
        else:
            self.messages.append(self._pa.ModelRequest(parts=[part]))

    def _thought(self, part: Reasoning) -> pa.ThinkingPart | None:
        signed = unpack(part.signature)
        if signed is None or signed.provider != self._system:
            return None
        return self._pa.ThinkingPart(
            part.text,  # signed: not one byte of it may change
            id=signed.id,
            signature=signed.signature,
            provider_name=signed.provider,
            provider_details={"raw_content": list(signed.raw)} if signed.raw else None,
        )


def _sendable(text: str) -> str:
    """The text without halves of surrogate pairs: they have no place in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _legal_arguments(text: str) -> str:
    """The arguments as the text of a JSON object; what is none goes back as the one string in an object."""
    if not text.strip():
        return "{}"
    try:
        shape = parse_json(text, ARGUMENTS, parse_constant=_no_json)
    except (ValueError, RecursionError):
        shape = None
    if not isinstance(shape, dict):
        return _encode({"INVALID_JSON": _sendable(text)})
    if "\\u" in text or not text.isascii():
        return _sendable(_encode(shape))  # an escaped half of a pair, too, would be refused
    return text


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _legal_id(call_id: str) -> str:
    """The id if providers take it; else one made of it, the same every time."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{_NO_CALL_ID_CHAR.sub('_', call_id)[:40] or 'call'}-{digest}"


def _free(call_id: str, taken: set[str]) -> str:
    """The id, numbered if it was there before: ids are unique within a run, providers want them so in a request."""
    free, count = call_id, 1
    while free in taken:
        count += 1
        free = f"{call_id[:56]}-{count}"
    taken.add(free)
    return free
