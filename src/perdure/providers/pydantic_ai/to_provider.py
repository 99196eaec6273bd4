"""Our log as pydantic-ai's messages. Pure: the same request gives the same messages."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.messages import Image, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.core.text.json_strings import encodable
from perdure.providers.history import legal_arguments, mark_positions, unseen_text
from perdure.providers.pydantic_ai.from_provider import unpack
from perdure.providers.pydantic_ai.options import Dialect

if TYPE_CHECKING:
    from pydantic_ai import messages as pa

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_CALL_ID_CHAR = re.compile(r"[^A-Za-z0-9_-]")

EMPTY_RESULT = "(no output)"
"""Providers refuse an empty text."""


def to_messages(request: ModelRequest, dialect: Dialect, *, system: str) -> list[pa.ModelMessage]:
    """The messages and the tail of a request; adjacent messages of one side are joined.

    Args:
        system: the name of the provider as pydantic-ai has it; only reasoning that it signed goes back to it.
    """
    writer = _Writer(dialect, system)
    marks = mark_positions(request.messages) if dialect.cache_marks else frozenset()
    if request.opening:
        writer.engine(request.opening)
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
    """Collects the messages, and the ids that the calls have for the provider."""

    def __init__(self, dialect: Dialect, system: str) -> None:
        from pydantic_ai import messages as pa

        self.messages: list[pa.ModelMessage] = []
        self._pa, self._dialect, self._system = pa, dialect, system
        self._used_ids: set[str] = set()
        self._call_ids: dict[str, str] = {}
        self._mark_pending = False

    def say(self, message: Message) -> None:
        """Add a message of a user or the engine."""
        for part in message.parts:
            if isinstance(part, Image):
                self._add(self._pa.UserPromptPart([*self._pending_mark(), self._picture(part)]))
                continue
            if not isinstance(part, Text) or not part.text.strip():
                continue  # providers refuse an empty text
            if message.role == "system" or message.kind != "message":
                self.engine(part.text)
            else:
                self._user(part.text)

    def engine(self, text: str) -> None:
        """Add a text of the engine, in the role that the dialect has for it."""
        if self._dialect.engine_role == "user":
            self._user(text)
        else:
            self._add(self._pa.SystemPromptPart(encodable(text)))

    def answer(self, message: Message) -> None:
        """Add an answer of the model, without reasoning that another provider signed or nobody."""
        parts: list[pa.ModelResponsePart] = []
        for part in message.parts:
            match part:
                case Text(text=text) if text.strip():
                    parts.append(self._pa.TextPart(encodable(text)))
                case Reasoning():
                    if (thinking := self._thinking(part)) is not None:
                        parts.append(thinking)
                case ToolCall():
                    call_id = self._call_ids[part.call_id] = _unique_id(_legal_id(part.call_id), self._used_ids)
                    parts.append(
                        self._pa.ToolCallPart(
                            part.name, legal_arguments(part.arguments, wrapper="INVALID_JSON"), call_id
                        )
                    )
                case _:
                    pass
        if not parts:
            return
        if not self.messages:  # a conversation must begin with a user's message
            self._user(".")
        if isinstance(last := self.messages[-1], self._pa.ModelResponse):
            last.parts = [*last.parts, *parts]
        else:
            self.messages.append(self._pa.ModelResponse(parts=parts, provider_name=self._system))

    def results(self, results: Sequence[ToolResult]) -> None:
        """Add the results of tools."""
        for result in results:
            failed = result.status != "success" and self._dialect.error_results
            text = encodable(result.text) if result.text.strip() else EMPTY_RESULT
            self._add(
                self._pa.ToolReturnPart(
                    result.name,
                    [text, *map(self._picture, result.images)] if result.images else text,
                    self._call_ids.pop(result.call_id, result.call_id),
                    outcome="failed" if failed else "success",
                )
            )

    def mark(self) -> None:
        """Set a cache mark after the last part."""
        match self.messages[-1] if self.messages else None:
            case self._pa.ModelRequest(parts=parts):
                last = parts[-1]
                point = self._pa.CachePoint()
                if isinstance(last, self._pa.UserPromptPart):
                    last.content = [last.content, point] if isinstance(last.content, str) else [*last.content, point]
                else:
                    self._add(self._pa.UserPromptPart([point]))
            case self._pa.ModelResponse(parts=parts):
                # An answer takes no mark; a mark at the start of the next part counts for the answer's last part.
                self._mark_pending = not isinstance(parts[-1], self._pa.ThinkingPart)
            case _:
                pass

    def _user(self, text: str) -> None:
        """Add a text in the role of the user."""
        mark = self._pending_mark()
        self._add(self._pa.UserPromptPart([*mark, encodable(text)] if mark else encodable(text)))

    def _pending_mark(self) -> list[Any]:
        """The cache mark that the next part begins with, if there is one to set."""
        return [self._pa.CachePoint()] if self._mark_pending else []

    def _picture(self, image: Image) -> Any:
        """A picture as pydantic-ai takes it; a text where the provider takes none."""
        if not self._dialect.images:
            return unseen_text(image)
        return self._pa.BinaryContent(base64.b64decode(image.data), media_type=image.media_type)

    def _add(self, part: pa.ModelRequestPart) -> None:
        """Add a part to the last request, or to a new one after an answer."""
        self._mark_pending = False
        if self.messages and isinstance(last := self.messages[-1], self._pa.ModelRequest):
            last.parts = [*last.parts, part]
        else:
            self.messages.append(self._pa.ModelRequest(parts=[part]))

    def _thinking(self, part: Reasoning) -> pa.ThinkingPart | None:
        """Reasoning as the provider gave it; None if it did not sign it."""
        signature = unpack(part.signature)
        if signature is None or signature.provider != self._system:
            return None
        return self._pa.ThinkingPart(
            part.text,  # signed: not one byte may change
            id=signature.id,
            signature=signature.signature,
            provider_name=signature.provider,
            provider_details={"raw_content": list(signature.raw)} if signature.raw else None,
        )


def _legal_id(call_id: str) -> str:
    """The id if providers accept it, else a legal one that depends on it alone."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{_NO_CALL_ID_CHAR.sub('_', call_id)[:40] or 'call'}-{digest}"


def _unique_id(call_id: str, used: set[str]) -> str:
    """The id, with a number if the request has it already: our ids are unique only within a run."""
    unique, count = call_id, 1
    while unique in used:
        count += 1
        unique = f"{call_id[:56]}-{count}"
    used.add(unique)
    return unique
