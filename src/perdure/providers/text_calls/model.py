"""`TextCalls`: a model whose calls may come as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from perdure.core.errors import ModelError
from perdure.core.messages import Text
from perdure.core.models import Model, ModelDelta, ModelProgress, ModelReply, ModelRequest, ModelTraits
from perdure.providers.text_calls.answer import Answer
from perdure.providers.text_calls.clean import Cleaner, without_marks
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
        if request.purpose != "reply":
            async for piece in self.model.respond(request):
                yield _cleaned(piece) if isinstance(piece, ModelReply) else piece
            return
        facts = RequestFacts(request)
        first = second = Answer(facts, Cleaner(facts.person))
        async with aclosing(first.read(self.model.respond(request))) as deltas:
            async for delta in deltas:
                yield delta
        if first.problem:
            again = replace(request, tail="") if first.is_envelope else facts.again(first.raw, first.problem)
            second = Answer(facts, Cleaner(facts.person), is_silent=bool(first.scanner.shown.strip()))
            try:
                async with aclosing(second.read(self.model.respond(again))) as deltas:
                    async for delta in deltas:
                        yield delta
            except ModelError as error:
                error.usage += first.reply.usage
                if second.scanner.shown.strip() or not first.scanner.prose.strip():
                    raise
        text, unsent = _text(first, second)
        if unsent:
            yield ModelDelta("text", unsent)
        for delta in second.call_deltas():
            yield delta
        calling = "text" if second.in_text else "native" if second.calls else None
        if calling is not None and self._traits().calling is None:  # what is known changes by a trial only
            self._learn(calling=calling)
        yield _reply(first, second, text)


def _text(first: Answer, second: Answer) -> tuple[str, str]:
    """The words of an answer after both attempts, and those of them that were not shown yet."""
    before, after = first.scanner, second.scanner
    if second is first or not second.is_silent:
        if after.prose.strip() or second.calls:
            return ("", "") if second.in_text else (after.prose, after.rest)
        if second is first and not first.problem:  # cut before it came to words
            return after.prose, ""
        left = before.prose.strip() or NO_ANSWER
        return left, left
    return (before.shown, "") if second.calls else (before.prose, before.rest)


def _reply(first: Answer, second: Answer, text: str) -> ModelReply:
    """The reply after both attempts, with the tokens of both; the exchange is of the newer one, and says what happened
    before."""
    reply = second.reply if second.reply.parts else first.reply
    said = (Text(text),) if text else ()
    parts = (*second.reasoning(), *said, *second.calls)
    note: dict[str, Any] = {}
    if second.in_text:
        note["calls_in_text"] = [call.name for call in second.calls]
    if second is not first:
        note["asked_again"] = {"why": first.problem, "first_answer": first.raw[:ANSWER_CHARS]}
    exchange = reply.exchange
    if note and exchange is not None:
        exchange = replace(exchange, response={**exchange.response, **note})
    usage = reply.usage if second is first else first.reply.usage + second.reply.usage
    stop_reason = "end_turn" if second.in_text else reply.stop_reason
    requests = 1 if second is first else 2
    return replace(reply, parts=parts, usage=usage, exchange=exchange, stop_reason=stop_reason, requests=requests)


def _cleaned(reply: ModelReply) -> ModelReply:
    """A reply that goes into no log, without thoughts and marks in its text."""
    parts = (replace(part, text=without_marks(part.text)) if isinstance(part, Text) else part for part in reply.parts)
    return replace(reply, parts=tuple(parts))
