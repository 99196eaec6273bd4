"""Pure functions from our log to pydantic-ai's messages, and from its answers to our parts and usage."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelRefused, ModelReplyEmpty, ModelReplyInvalid, ModelStreamCut
from perdure.core.messages import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelRequest
from perdure.core.runs import StopReason, Usage
from perdure.core.text.json_strings import compact_json, encodable
from perdure.providers.history import legal_arguments, turn_start, unseen_text
from perdure.providers.pydantic_ai.options import Dialect

if TYPE_CHECKING:
    from pydantic_ai import messages as pa
    from pydantic_ai.usage import RequestUsage


_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_CALL_ID_CHAR = re.compile(r"[^A-Za-z0-9_-]")

EMPTY_RESULT = "(no output)"
"""Providers refuse an empty text."""


def to_messages(request: ModelRequest, dialect: Dialect, *, system: str) -> list[pa.ModelMessage]:
    """The messages and the tail of a request; adjacent messages of one side are joined.

    Args:
        system: the name of the provider as pydantic-ai has it; only reasoning that it signed goes back to it.
    """
    writer = _MessageWriter(dialect, system)
    marks = (turn_start(request.messages) - 1, len(request.messages) - 1) if dialect.cache_marks else ()
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


class _MessageWriter:
    """Collects the messages, and the ids that the calls have for the provider."""

    def __init__(self, dialect: Dialect, system: str) -> None:
        from pydantic_ai import messages as pa

        self.messages: list[pa.ModelMessage] = []
        self._pa, self._dialect, self._system = pa, dialect, system
        self._used_ids: set[str] = set()
        self._call_ids: dict[str, str] = {}
        self._mark_pending = False

    def say(self, message: Message) -> None:
        """Add the texts and pictures of a message of a person or the engine."""
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
        """Add an answer of the model; of its reasoning only what this provider has signed."""
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
                    arguments = legal_arguments(part.arguments, wrapper="INVALID_JSON")
                    parts.append(self._pa.ToolCallPart(part.name, arguments, call_id))
        if not parts:
            return
        if not self.messages:  # a conversation must begin with a user's message
            self._user(".")
        if isinstance(last := self.messages[-1], self._pa.ModelResponse):
            last.parts = [*last.parts, *parts]
        else:
            self.messages.append(self._pa.ModelResponse(parts=parts, provider_name=self._system))

    def results(self, results: Sequence[ToolResult]) -> None:
        """Add the results of tools, under the ids that their calls have for the provider."""
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
        """Put a cache mark after the last part."""
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

    def _user(self, text: str) -> None:
        mark = self._pending_mark()
        self._add(self._pa.UserPromptPart([*mark, encodable(text)] if mark else encodable(text)))

    def _pending_mark(self) -> list[Any]:
        """Return the cache mark to put before the next part, if there is one."""
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
    """Return the id if providers accept it, else a legal one derived from it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Signed or encrypted reasoning. A provider refuses the signatures of others, so it names the provider.

    Args:
        provider: the name under which pydantic-ai keeps it.
        id: the provider's id of the reasoning item, or its mark for redacted reasoning.
        raw: reasoning texts that a provider sends beside the summary, and wants back.
    """

    provider: str
    id: str | None = None
    signature: str | None = None
    raw: tuple[str, ...] = ()


def pack(signature: Signature) -> str | None:
    """The string for the log; None if there is nothing to send back.

    >>> pack(Signature(provider="anthropic", signature="EqoB")) '{"provider":"anthropic","signature":"EqoB"}'
    """
    fields = {name: value for name, value in asdict(signature).items() if value or name == "provider"}
    return compact_json(fields) if len(fields) > 1 else None


def unpack(text: str | None) -> Signature | None:
    """The signature in a string that `pack` made; None for any other text, such as a bare signature of a provider."""
    try:
        fields = json.loads(text or "")
        signature = Signature(**fields | {"raw": tuple(fields.get("raw", ()))})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    texts = (signature.provider, signature.id or "", signature.signature or "", *signature.raw)
    return signature if all(isinstance(text, str) for text in texts) else None


class AnswerDeltas:
    """Deltas of one answer, with numbers for its tool calls."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[int, str | None]] = {}

    def of(self, event: object) -> Iterator[ModelDelta]:
        """The deltas of a streamed event; none for events that say nothing new."""
        from pydantic_ai import messages as pa

        match event:
            case (
                pa.PartStartEvent(part=pa.TextPart(content=text))
                | pa.PartDeltaEvent(delta=pa.TextPartDelta(content_delta=text))
            ) if text:
                yield ModelDelta("text", text)
            case (
                pa.PartStartEvent(part=pa.ThinkingPart(content=text))
                | pa.PartDeltaEvent(delta=pa.ThinkingPartDelta(content_delta=text))
            ) if text:
                yield ModelDelta("reasoning", text)
            case (
                pa.PartStartEvent(
                    index=index, part=pa.ToolCallPart(tool_call_id=call_id, tool_name=name, args=arguments)
                )
                | pa.PartDeltaEvent(
                    index=index,
                    delta=pa.ToolCallPartDelta(tool_call_id=call_id, tool_name_delta=name, args_delta=arguments),
                )
            ):
                number, earlier_id = self._calls.get(index, (len(self._calls), None))
                self._calls[index] = number, call_id or earlier_id
                if name:
                    yield ModelDelta("tool_name", name, *self._calls[index])
                if arguments:
                    yield ModelDelta("tool_arguments", _text(arguments), *self._calls[index])


def to_parts(response: pa.ModelResponse) -> tuple[Part, ...]:
    """The parts of the answer, in order.

    Gemini signs not a thought but the piece after it, a call or a text. Such a signature stands on the reasoning right
    before that piece, on one without text if there is none: in that place pydantic-ai finds it again.
    """
    from pydantic_ai import messages as pa

    parts: list[Part] = []
    for part in response.parts:
        match part:
            case pa.ThinkingPart(content=text, id=id_, signature=signed):
                if text or signed or id_:
                    raw = tuple((part.provider_details or {}).get("raw_content") or ())
                    provider = part.provider_name or response.provider_name or ""
                    signature = Signature(provider=provider, id=id_, signature=signed, raw=raw)
                    parts.append(Reasoning(text, pack(signature)))
            case pa.TextPart() | pa.ToolCallPart():
                if (signed := (part.provider_details or {}).get("thought_signature")) is not None:
                    provider = part.provider_name or response.provider_name or ""
                    packed, last = pack(Signature(provider=provider, signature=signed)), parts[-1] if parts else None
                    if isinstance(last, Reasoning) and last.signature is None:
                        parts[-1] = Reasoning(last.text, packed)
                    else:
                        parts.append(Reasoning("", packed))
                if isinstance(part, pa.ToolCallPart):
                    parts.append(ToolCall(part.tool_call_id, part.tool_name, _text(part.args) if part.args else "{}"))
                elif part.content:
                    parts.append(Text(part.content))
            case _:
                pass  # calls of the provider's own tools, which we never request
    return tuple(parts)


def to_usage(usage: RequestUsage) -> Usage:
    """Tokens; input counts those read from and written to the cache too, output those of the reasoning."""
    details = usage.details
    reasoning = usage.output_reasoning_tokens or details.get("reasoning_tokens") or details.get("thoughts_tokens") or 0
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=reasoning,
    )


def to_stop_reason(response: pa.ModelResponse, parts: tuple[Part, ...], *, may_stay_empty: bool = False) -> StopReason:
    """Why the answer ended.

    Raises:
        ModelStreamCut: it has no end.
        ModelRefused: the model or a filter declined.
        ModelReplyInvalid: the provider calls it broken.
        ModelReplyEmpty: it ended as it should, and has neither text nor a call.
    """
    details = response.provider_details or {}
    reason = str(details.get("finish_reason") or response.finish_reason or "")
    if not reason and "block_reason" not in details:
        raise ModelStreamCut(f"the answer of {response.model_name} stopped before its end")
    match response.finish_reason:
        case "content_filter":
            why = next((str(details[name]) for name in _REFUSALS if details.get(name)), reason)
            raise ModelRefused(f"{response.model_name} declined to answer: {why[:500]}")
        case "error":
            raise ModelReplyInvalid(f"{response.model_name} ended its answer with {reason}: ask again")
        case "length":
            return "max_tokens_exceeded"
    is_empty = not any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts)
    if is_empty and not may_stay_empty:
        raise ModelReplyEmpty(f"{response.model_name} answered nothing: neither text nor a tool call ({reason})")
    return "end_turn"


_REFUSALS = ("refusal", "block_reason_message", "block_reason", "explanation", "category")


def _text(arguments: str | Mapping[str, object]) -> str:
    """The arguments of a call as JSON."""
    return arguments if isinstance(arguments, str) else compact_json(arguments)
