"""`TextCalls`: a model whose calls may come as text, and `StreamedAnswer`: one answer of it while it streams."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.core.errors import ModelError
from perdure.core.messages import SEND_MESSAGE, Reasoning, Text, ToolCall
from perdure.core.models import Model, ModelDelta, ModelProgress, ModelReply, ModelRequest
from perdure.core.text.json_strings import compact_json, read_string
from perdure.providers.provider import ModelSource, ModelWrapper
from perdure.providers.text_calls.request import ANSWER_CHARS, RequestFacts
from perdure.providers.text_calls.scan import Scanner

NO_ANSWER = "(The model gave no answer that can be shown. Say it again in other words.)"
"""The answer if nothing else is left: the talk goes on, and the log tells what happened. After an error the same
message would mostly get the same answer again."""
SUSPECT, BEGUN_CHARS = ("{", "[", "<", "`"), 2_000
"""What no words begin with; and how early in its arguments a `send_message` has to begin its words to be streamed."""

ENVELOPE = "It was a note of the system, not an answer."
EMPTY = "It held no answer."
BROKEN = "It was a tool call that can't be read: it is incomplete, or mixed with other text."
AROUND = "Text stood around a tool call, so the call was not run."


@dataclass(slots=True)
class StreamedAnswer:
    """One answer to a request, while it is read and after that.

    Args:
        is_silent: nothing of it is shown while it streams: the person has read the words of the first attempt.
    """

    facts: RequestFacts
    is_silent: bool = False
    reply: ModelReply = field(default_factory=lambda: ModelReply(parts=()))
    calls: dict[int, ToolCall] = field(default_factory=dict)
    """The calls that are run, by their place in the answer."""
    problem: str = ""
    """Why the answer can't be taken as it is, in words for the model."""
    in_text: bool = False
    """Whether the calls stood in the text."""
    scanner: Scanner = field(init=False)
    _held: dict[int, list[ModelDelta]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scanner = Scanner(self.facts)

    @property
    def raw(self) -> str:
        """The text as it came."""
        return "".join(part.text for part in self.reply.parts if isinstance(part, Text))

    async def read(
        self, pieces: AsyncIterator[ModelDelta | ModelProgress | ModelReply]
    ) -> AsyncGenerator[ModelDelta | ModelProgress, None]:
        """Yield the deltas that are shown while the answer comes; then all attributes are set. Closes `pieces`."""
        is_streamed = False
        try:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    self.reply = piece
                elif isinstance(piece, ModelProgress):
                    yield piece
                else:
                    is_streamed |= piece.kind == "text"
                    for delta in self._show(piece):
                        yield delta
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
        for delta in self._show(ModelDelta("text", "" if is_streamed else self.raw), final=True):
            yield delta
        self._judge()

    def _show(self, delta: ModelDelta, *, final: bool = False) -> Iterable[ModelDelta]:
        """The deltas that are shown for one of the model's."""
        if delta.kind == "text":
            shown: Iterable[ModelDelta] = self.scanner.read(delta.text, final=final)
        else:
            shown = (delta,) if delta.kind == "reasoning" else self._call(delta)
        return () if self.is_silent else shown

    def _call(self, delta: ModelDelta) -> Iterable[ModelDelta]:
        """The deltas shown for one of a real call; those of `send_message` wait until its message begins like words."""
        if delta.kind == "tool_name" and delta.text == SEND_MESSAGE:
            self._held[delta.index] = []
        held = self._held.get(delta.index)
        if held is None:
            return (delta,)
        held.append(delta)
        arguments = "".join(one.text for one in held[1:])[:BEGUN_CHARS]
        begun = (read_string(arguments, "message") or "").lstrip()[:1]
        return self._held.pop(delta.index) if begun and begun not in SUSPECT else ()

    def _judge(self) -> None:
        """After the whole answer, set `calls`, those to run, or `problem`, what is wrong with it."""
        scanner, facts = self.scanner, self.facts
        if real := [part for part in self.reply.parts if isinstance(part, ToolCall)]:
            spoken = enumerate(map(self._spoken, real))
            self.calls = {at: call for at, call in spoken if call is not None}
            self.problem = "" if self.calls else BROKEN
            return
        kinds = {one.kind for one in scanner.sightings}
        calls = [sighting.call for sighting in scanner.sightings if sighting.kind == "call"]
        if not kinds:
            is_asked = facts.request.purpose == "reply" and self.reply.stop_reason == "end_turn"
            is_asked &= not facts.request.may_stay_empty
            self.problem = EMPTY if is_asked and not scanner.prose.strip() else ""
        elif "envelope" in kinds:
            self.problem = "" if kinds == {"envelope"} and scanner.shown.strip() else ENVELOPE
        elif problem := next(filter(None, map(facts.problem_of, calls)), ""):
            self.problem = problem
        elif kinds == {"call"} and not scanner.prose.strip():
            # Like ids of providers: another answer has others.
            start = f"call_{zlib.crc32(self.raw.encode('utf-8', 'replace')):08x}"
            self.calls = {at: replace(call, call_id=f"{start}_{at}") for at, call in enumerate(calls)}
            self.in_text = True
        else:
            unknown = [name for one in scanner.sightings if (name := one.call.name) and name not in facts.tools]
            self.problem = facts.no_tool_text(unknown[0]) if unknown else BROKEN if "broken" in kinds else AROUND

    def _spoken(self, call: ToolCall) -> ToolCall | None:
        """A call as it is run: `send_message` without calls and envelopes in its text; None: nothing is left."""
        scanner = Scanner(self.facts)
        scanner.read(call.speech or "", final=True)
        if not scanner.sightings:
            return call
        if not (words := scanner.prose.strip()):
            return None
        return replace(call, arguments=compact_json({**json.loads(call.arguments), "message": words}))

    def call_deltas(self) -> Iterator[ModelDelta]:
        """The deltas of calls that were not shown while they came."""
        for at, call in self.calls.items():
            if self.in_text or self.is_silent or at in self._held:
                yield ModelDelta("tool_name", call.name, at, call.call_id)
                yield ModelDelta("tool_arguments", call.arguments, at, call.call_id)


class TextCalls(ModelWrapper):
    """A model whose calls in its text are real calls, and whose thoughts and marks are no text.

    Words go through as they come. What may be a call is held back until it is clear, and no call is ever shown. An
    answer with one that can't be run, or with an envelope of the engine, is asked for once more, and the model told
    why; then it is what is left of both. Only what is shown counts as output: until then a failed request may be
    tried again by `perdure.providers.retrying.Retrying` around this model.
    """

    def __init__(self, model: Model, source: ModelSource) -> None:
        super().__init__(model)
        self._source = source

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelProgress | ModelReply]:
        """Answer a request by the model. Raises: ModelError."""
        facts = RequestFacts(request)
        first = second = StreamedAnswer(facts)
        async with aclosing(first.read(self.model.respond(request))) as deltas:
            async for delta in deltas:
                yield delta
        if first.problem:
            again = replace(request, tail="") if first.problem == ENVELOPE else facts.retry(first.raw, first.problem)
            second = StreamedAnswer(facts, is_silent=bool(first.scanner.shown.strip()))
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
        if calling is not None and self._source.traits().calling is None:  # what is known changes by a trial only
            self._source.learn(calling=calling, by_trial=False)
        yield _reply(first, second, text)


def _text(first: StreamedAnswer, second: StreamedAnswer) -> str:
    """Return the words of an answer after both attempts; `second` is `first` if there was only one."""
    spoken = (first if second.is_silent else second).scanner
    text = spoken.shown if second.calls and (second.in_text or second.is_silent) else spoken.prose
    if second.is_silent and not second.calls and (added := second.scanner.prose.strip()) not in text:
        text += "\n\n"[len(text) - len(text.rstrip("\n")) :] + added  # what is left of both
    if text.strip() or not (second.calls or first.problem):
        return text
    return "" if second.calls else first.scanner.prose.strip() or NO_ANSWER


def _reply(first: StreamedAnswer, second: StreamedAnswer, text: str) -> ModelReply:
    """Return the reply after both attempts, with the tokens of both and the newer exchange, noting the first."""
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
