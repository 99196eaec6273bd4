"""The answers of pydantic-ai as our deltas, parts, usage and stop reason. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from perdure.core.errors import ModelRefused, ModelReplyEmpty, ModelReplyInvalid, ModelStreamCut
from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta
from perdure.core.runs import StopReason, Usage
from perdure.core.text.json_strings import compact_json

if TYPE_CHECKING:
    from pydantic_ai import messages as pa
    from pydantic_ai.usage import RequestUsage


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

    >>> pack(Signature(provider="anthropic", signature="EqoB"))
    '{"provider":"anthropic","signature":"EqoB"}'
    """
    fields = {name: value for name, value in asdict(signature).items() if value or name == "provider"}
    return compact_json(fields) if len(fields) > 1 else None


def unpack(text: str | None) -> Signature | None:
    """The signature in a string of `pack`; None for anything else, such as a signature of an unknown provider."""
    try:
        fields = json.loads(text or "")
        signature = Signature(**fields | {"raw": tuple(fields.get("raw", ()))})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    texts = (signature.provider, signature.id or "", signature.signature or "", *signature.raw)
    return signature if all(isinstance(text, str) for text in texts) else None


class Deltas:
    """Deltas of one answer, with numbers for its tool calls."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[int, str | None]] = {}

    def of(self, event: object) -> Iterator[ModelDelta]:
        """The deltas of a streamed event; none for events that say nothing new."""
        from pydantic_ai import messages as pa

        match event:
            case pa.PartStartEvent(index=index, part=part):
                yield from self._start(index, part)
            case pa.PartDeltaEvent(delta=pa.TextPartDelta(content_delta=text)) if text:
                yield ModelDelta("text", text)
            case pa.PartDeltaEvent(delta=pa.ThinkingPartDelta(content_delta=text)) if text:
                yield ModelDelta("reasoning", text)
            case pa.PartDeltaEvent(index=index, delta=pa.ToolCallPartDelta() as delta):
                number, call_id = self._number(index, delta.tool_call_id)
                if delta.tool_name_delta:
                    yield ModelDelta("tool_name", delta.tool_name_delta, number, call_id)
                if delta.args_delta:
                    yield ModelDelta("tool_arguments", _text(delta.args_delta), number, call_id)
            case _:
                pass

    def _start(self, index: int, part: object) -> Iterator[ModelDelta]:
        """The deltas of the beginning of a part."""
        from pydantic_ai import messages as pa

        match part:
            case pa.TextPart(content=text) if text:
                yield ModelDelta("text", text)
            case pa.ThinkingPart(content=text) if text:
                yield ModelDelta("reasoning", text)
            case pa.ToolCallPart():
                number, call_id = self._number(index, part.tool_call_id)
                yield ModelDelta("tool_name", part.tool_name, number, call_id)
                if part.args:
                    yield ModelDelta("tool_arguments", _text(part.args), number, call_id)
            case _:
                pass

    def _number(self, index: int, call_id: str | None) -> tuple[int, str | None]:
        """(number of the call, its id) of the part at this index."""
        number, earlier_id = self._calls.get(index, (len(self._calls), None))
        self._calls[index] = number, call_id or earlier_id
        return self._calls[index]


def to_parts(response: pa.ModelResponse) -> tuple[Part, ...]:
    """The parts of the answer, in order.

    Gemini signs not a thought but the piece after it, a call or a text. Such a signature stands on the reasoning right
    before that piece, on one without text if there is none: in that place pydantic-ai finds it again.
    """
    from pydantic_ai import messages as pa

    parts: list[Part] = []
    for part in response.parts:
        match part:
            case pa.ThinkingPart():
                if part.content or part.signature or part.id:
                    parts.append(Reasoning(part.content, pack(_signature(part, response))))
            case pa.TextPart() | pa.ToolCallPart():
                if (signature := (part.provider_details or {}).get("thought_signature")) is not None:
                    _sign_next(
                        parts,
                        Signature(provider=part.provider_name or response.provider_name or "", signature=signature),
                    )
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
        case _:
            pass
    is_empty = not any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts)
    if is_empty and not may_stay_empty:
        raise ModelReplyEmpty(f"{response.model_name} answered nothing: neither text nor a tool call ({reason})")
    return "end_turn"


_REFUSALS = ("refusal", "block_reason_message", "block_reason", "explanation", "category")


def _sign_next(parts: list[Part], signature: Signature) -> None:
    """Put the signature of the next piece on the last reasoning, or on an empty one."""
    last = parts[-1] if parts else None
    if isinstance(last, Reasoning) and last.signature is None:
        parts[-1] = Reasoning(last.text, pack(signature))
    else:
        parts.append(Reasoning("", pack(signature)))


def _signature(part: pa.ThinkingPart, response: pa.ModelResponse) -> Signature:
    """The signature of a reasoning part."""
    raw = (part.provider_details or {}).get("raw_content") or ()
    return Signature(
        provider=part.provider_name or response.provider_name or "",
        id=part.id,
        signature=part.signature,
        raw=tuple(raw),
    )


def _text(arguments: str | Mapping[str, object]) -> str:
    """The arguments of a call as JSON."""
    return arguments if isinstance(arguments, str) else compact_json(arguments)
