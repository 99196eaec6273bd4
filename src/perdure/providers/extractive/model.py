"""The adapter of `perdure/extractive`: what `plan` decides becomes the answer of a model, streamed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable

from perdure.core.messages import Part, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.extractive.phrases import NOTICE
from perdure.providers.extractive.plan import Step, calls_of, reply_of
from perdure.providers.extractive.sentences import CJK, clean

CHARS_PER_TOKEN = 4

_PIECE = re.compile(rf"\s*[{CJK}]|\s*[^\s{CJK}]+|\s+")  # a word, or one Chinese character


class ExtractiveModel:
    """No language model: a deterministic program that uses the tools a language model would.

    The answer is a function of the request alone, so that a run, a demo or a test repeats exactly, without a key.
    """

    handle = "perdure/extractive"

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas, text word by word, then the one reply. It raises nothing, whatever the request holds."""
        # It can't summarise: nothing is no summary, and then the engine extracts what has to stay.
        parts = answer_to(request) if request.purpose == "reply" else ()
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall):
                yield ModelDelta("tool_name", part.name, index, part.call_id)
                yield ModelDelta("tool_arguments", part.arguments, index, part.call_id)
            elif isinstance(part, Text):
                for piece in _PIECE.finditer(part.text):
                    yield ModelDelta("text", piece[0])
        read = [request.system, request.tail, *map(str, request.tools)]
        for message in request.messages:
            read += [message.text, *(result.text for result in message.results)]
        usage = Usage(input_tokens=_tokens(read), output_tokens=_tokens(map(str, parts)))
        yield ModelReply(parts=parts, usage=usage, stop_reason="end_turn")


def answer_to(request: ModelRequest) -> tuple[Part, ...]:
    """Either the tool calls that come next, or, when none are left to make, the text of the reply."""
    step = Step(request)
    if calls := calls_of(step):
        seed = f"{len(request.messages)}\n{step.turn.texts[-1]}"
        call_id = f"call_{hashlib.sha256(seed.encode()).hexdigest()[:12]}"
        return tuple(
            ToolCall(f"{call_id}_{index}", name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))
            for index, (name, arguments) in enumerate(calls)
        )
    reply = reply_of(step)
    if not any(
        NOTICE["en"] in one.text or NOTICE["zh"] in one.text for one in request.messages if one.role == "assistant"
    ):
        reply = f"{reply}\n\n{NOTICE[step.language]}"  # the first of a conversation tells what is answering
    return (Text(clean(reply)),)


def _tokens(texts: Iterable[str]) -> int:
    """A rough count, as for any text: characters by four."""
    return sum(map(len, texts)) // CHARS_PER_TOKEN
