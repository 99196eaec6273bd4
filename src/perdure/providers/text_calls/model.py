"""`TextCalls`: a model whose calls may come as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from perdure.core.errors import ModelError
from perdure.core.messages import Reasoning, Text
from perdure.core.models import Model, ModelDelta, ModelProgress, ModelReply, ModelRequest, ModelTraits
from perdure.providers.text_calls.answer import ENVELOPE, Answer
from perdure.providers.text_calls.request import ANSWER_CHARS, RequestFacts

NO_ANSWER = "(The model gave no answer that can be shown. Say it again in other words.)"
"""The answer if nothing else is left: the talk goes on, and the log tells what happened. After an error the same
message would mostly get the same answer again."""


class TextCalls:
    """A model whose calls in its text are real calls, and whose thoughts and marks are no text.

    Words go through as they come. What may be a call is held back until it is clear, and no call is ever shown. An
    answer with one that can't be run, or with an envelope of the engine, is asked for once more, and the model told
    why; then it is what is left of both. Only what is shown counts as output: until then a failed request may be
    tried again by `perdure.providers.retrying.Retrying` around this model.

    Args:
        traits: what is known of the model.
        learn: takes the traits that its answers show, by their names.
    """

    def __init__(self, model: Model, *, traits: Callable[[], ModelTraits], learn: Callable[..., None]) -> None:
        self.model, self._traits, self._learn = model, traits, learn

    async def aclose(self) -> None:
        """Close the model, if it can be closed."""
        if (close := getattr(self.model, "aclose", None)) is not None:
            await close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelProgress | ModelReply]:
        """Answer a request by the model. Raises: ModelError."""
        facts = RequestFacts(request)
        first = second = Answer(facts)
        async with aclosing(first.read(self.model.respond(request))) as deltas:
            async for delta in deltas:
                yield delta
        if first.problem:
            again = replace(request, tail="") if first.problem == ENVELOPE else facts.again(first.raw, first.problem)
            second = Answer(facts, is_silent=bool(first.scanner.shown.strip()))
            try:
                async with aclosing(second.read(self.model.respond(again))) as deltas:
                    async for delta in deltas:
                        yield delta
            except ModelError as error:
                error.usage += first.reply.usage
                if second.scanner.shown.strip() or not first.scanner.prose.strip():
                    raise
        text = _text(first, second)
        if unsent := text.removeprefix((first if second.is_silent else second).scanner.shown):
            yield ModelDelta("text", unsent)
        for delta in second.call_deltas():
            yield delta
        calling = "text" if second.in_text else "native" if second.calls else None
        if calling is not None and calling != self._traits().calling:
            self._learn(calling=calling)
        yield _reply(first, second, text)


def _text(first: Answer, second: Answer) -> str:
    """The words of an answer after both attempts."""
    spoken = (first if second.is_silent else second).scanner
    text = spoken.shown if second.calls and (second.in_text or second.is_silent) else spoken.prose
    if text.strip() or not (second.calls or first.problem):
        return text
    return "" if second.calls else first.scanner.prose.strip() or NO_ANSWER


def _reply(first: Answer, second: Answer, text: str) -> ModelReply:
    """The reply after both attempts, with the tokens of both; the exchange is of the newer one, and says what happened
    before."""
    reply = second.reply if second.reply.parts else first.reply
    note: dict[str, Any] = {}
    if second.in_text:
        note["calls_in_text"] = [call.name for call in second.calls.values()]
    if second is not first:
        note["asked_again"] = {"why": first.problem, "first_answer": first.raw[:ANSWER_CHARS]}
    exchange = reply.exchange
    if note and exchange is not None:
        exchange = replace(exchange, response={**exchange.response, **note})
    thought = second.scanner.thoughts.strip()
    return replace(
        reply,
        parts=(
            *(part for part in second.reply.parts if isinstance(part, Reasoning)),
            *((Reasoning(thought),) if thought else ()),
            *((Text(text),) if text else ()),
            *second.calls.values(),
        ),
        usage=reply.usage if second is first else first.reply.usage + second.reply.usage,
        exchange=exchange,
        stop_reason="end_turn" if second.in_text else reply.stop_reason,
        requests=1 if second is first else 2,
    )
