"""The adapter of `perdure/extractive`: what `plan` decides becomes the answer of a model, streamed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator

from perdure.core.messages import Part, Text, ToolCall, ToolDecision
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.extractive.phrases import NOTICE
from perdure.providers.extractive.plan import Scene, calls_of, reply_of
from perdure.providers.extractive.sentences import CJK, clean

__all__ = ["ExtractiveModel"]

CHARS_PER_TOKEN = 4

_PIECE = re.compile(rf"\s*[{CJK}]|\s*[^\s{CJK}]+|\s+")


class ExtractiveModel:
    """No language model: a deterministic program that uses the tools a language model would.

    The answer is a function of the request alone, so that a run, a demo or a test repeats exactly, without a key.
    """

    handle = "perdure/extractive"

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas, text word by word, then the one reply. It raises nothing, whatever the request holds."""
        # It can't summarise: nothing is no summary, and then the engine extracts what has to stay.
        parts = answer_to(request) if request.purpose == "reply" else ()
        for delta in deltas_of(parts):
            yield delta
        usage = Usage(input_tokens=_tokens_of(request), output_tokens=sum(map(_length, parts)) // CHARS_PER_TOKEN)
        yield ModelReply(parts=parts, usage=usage, stop_reason="end_turn")


def answer_to(request: ModelRequest) -> tuple[Part, ...]:
    """Either the tool calls that come next, or, when none are left to make, the text of the reply."""
    scene = Scene(request)
    if calls := calls_of(scene):
        return tuple(
            ToolCall(_call_id(scene, index), name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))
            for index, (name, arguments) in enumerate(calls)
        )
    return (Text(clean(_with_notice(reply_of(scene), scene))),)


def deltas_of(parts: tuple[Part, ...]) -> Iterator[ModelDelta]:
    """The parts in pieces: text by words, Chinese by characters; of a call its name, then its arguments."""
    index = 0
    for part in parts:
        if isinstance(part, Text):
            yield from (ModelDelta("text", piece[0]) for piece in _PIECE.finditer(part.text))
        elif isinstance(part, ToolCall):
            yield ModelDelta("tool_name", part.name, index, part.call_id)
            yield ModelDelta("tool_arguments", part.arguments, index, part.call_id)
            index += 1


def _with_notice(reply: str, scene: Scene) -> str:
    """The reply; the first of a conversation tells what is answering."""
    said = (message.text for message in scene.request.messages if message.role == "assistant")
    if any(notice in text for text in said for notice in NOTICE.values()):
        return reply
    return f"{reply}\n\n{NOTICE[scene.language]}"


def _call_id(scene: Scene, index: int) -> str:
    seed = f"{len(scene.request.messages)}\n{scene.turn.texts[-1]}"
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:12]}_{index}"


def _tokens_of(request: ModelRequest) -> int:
    """A rough count, as for any text: characters by four."""
    messages = sum(_length(part) for message in request.messages for part in message.parts)
    tools = sum(len(str(dict(tool))) for tool in request.tools)
    return (len(request.system) + messages + tools + len(request.tail)) // CHARS_PER_TOKEN


def _length(part: Part) -> int:
    if isinstance(part, ToolCall):
        return len(part.name) + len(part.arguments)
    return 0 if isinstance(part, ToolDecision) else len(part.text)
