"""One answer of a model while it streams: what of it is shown at once, what is held back, and what is wrong with it."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field, replace

from perdure.core.messages import SEND_MESSAGE, Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelProgress, ModelReply
from perdure.core.text.json_strings import StringMember, compact_json
from perdure.providers.text_calls.clean import Cleaner, Piece
from perdure.providers.text_calls.request import RequestFacts
from perdure.providers.text_calls.scan import Scanner

SUSPECT = ("{", "[", "<", "`")
ENVELOPE = "It was a note of the system, not an answer."
EMPTY = "It held no answer."
BROKEN = "It was a tool call that can't be read: it is incomplete, or mixed with other text."
AROUND = "Text stood around a tool call, so the call was not run."


@dataclass(slots=True)
class Speech:
    """A call of `send_message`, whose deltas wait until its message is clear to be words."""

    deltas: list[ModelDelta]
    member: StringMember = field(default_factory=lambda: StringMember("message"))
    begun: str = ""


@dataclass(slots=True)
class Answer:
    """One answer to a request.

    Args:
        is_silent: nothing of it is shown while it streams: the person has read the words of the one before.
        calls: those that are run.
        problem: why the answer can't be taken as it is, in words for the model.
    """

    facts: RequestFacts
    cleaner: Cleaner
    is_silent: bool = False
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    in_text: bool = False
    """Whether the calls stood in the text."""
    reply: ModelReply = field(default_factory=lambda: ModelReply(parts=()))
    scanner: Scanner = field(init=False)
    _speeches: dict[int, Speech] = field(default_factory=dict)
    _raw: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scanner = Scanner(self.facts.sights)

    @property
    def raw(self) -> str:
        """The text as it came."""
        return "".join(self._raw)

    @property
    def is_envelope(self) -> bool:
        """Whether the answer copies an envelope."""
        return self.problem == ENVELOPE

    async def read(
        self, pieces: AsyncIterator[ModelDelta | ModelProgress | ModelReply]
    ) -> AsyncGenerator[ModelDelta | ModelProgress, None]:
        """The deltas that are shown while the answer comes; then all else is known. It closes `pieces`."""
        try:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    self.reply = piece
                elif isinstance(piece, ModelDelta):
                    for delta in self._take(piece):
                        yield delta
                else:
                    yield piece
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
        if not self._raw:  # of a model that does not stream
            self._raw = [part.text for part in self.reply.parts if isinstance(part, Text)]
            for delta in self._show(self.cleaner.read(self.raw)):
                yield delta
        for delta in self._show(self.cleaner.read(final=True)):
            yield delta
        if (rest := self.scanner.read(final=True)) and not self.is_silent:
            yield ModelDelta("text", rest)
        self._judge()
        if not self.problem and not self.is_silent:
            for speech in self._speeches.values():
                for delta in speech.deltas:
                    yield delta

    def _take(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        """The deltas that are shown for one of the model's."""
        if delta.kind == "text":
            self._raw.append(delta.text)
            yield from self._show(self.cleaner.read(delta.text))
        elif not self.is_silent:
            yield from (delta,) if delta.kind == "reasoning" else self._call(delta)

    def _show(self, pieces: Iterable[Piece]) -> Iterator[ModelDelta]:
        """The deltas for cleaned pieces."""
        for kind, text in pieces:
            if kind == "stray":
                self.scanner = Scanner(self.facts.sights)
                continue
            shown = self.scanner.read(text) if kind == "text" else text
            if shown and not self.is_silent:
                yield ModelDelta("text" if kind == "text" else "reasoning", shown)

    def _call(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        """The deltas of a real call; of `send_message` only when its message begins as words."""
        if delta.kind == "tool_name" and delta.text == SEND_MESSAGE:
            self._speeches[delta.index] = Speech([delta])
            return
        speech = self._speeches.get(delta.index)
        if speech is None:
            yield delta
            return
        speech.deltas.append(delta)
        speech.begun = (speech.begun + speech.member.read(delta.text)).lstrip()[:1]
        if speech.begun and speech.begun not in SUSPECT:
            yield from self._speeches.pop(delta.index).deltas

    def _judge(self) -> None:
        """Find the calls that are run, or what is wrong."""
        scanner, facts = self.scanner, self.facts
        real = [part for part in self.reply.parts if isinstance(part, ToolCall)]
        if real:
            self.calls = tuple(call for one in real if (call := self._spoken(one)) is not None)
            self.problem = "" if self.calls else BROKEN
            return
        calls = [one.call for one in scanner.sightings if one.call is not None]
        problems = [problem for call in calls if (problem := facts.problem_of(call))]
        kinds = {one.kind for one in scanner.sightings}
        if not kinds:
            if not scanner.prose.strip() and self.reply.stop_reason == "end_turn":
                self.problem = EMPTY
        elif "envelope" in kinds:
            self.problem = "" if kinds == {"envelope"} and scanner.shown.strip() else ENVELOPE
        elif problems:
            self.problem = problems[0]
        elif scanner.is_calls:
            # Like ids of providers: another answer has others.
            start = f"call_{zlib.crc32(self.raw.encode('utf-8', 'replace')):08x}"
            self.calls = tuple(ToolCall(f"{start}_{at}", call.name, call.json) for at, call in enumerate(calls))
            self.in_text = True
        else:
            broken = [one.name for one in scanner.sightings if one.name and one.name not in facts.tools]
            self.problem = facts.unknown(broken[0]) if broken else BROKEN if "broken" in kinds else AROUND

    def _spoken(self, call: ToolCall) -> ToolCall | None:
        """A real call; one of `send_message` without the calls and envelopes that its message holds, None if nothing
        is left of it."""
        if not (speech := call.speech):
            return call
        scanner = Scanner(self.facts.sights)
        scanner.read(speech)
        scanner.read(final=True)
        if not scanner.sightings:
            return call
        if not scanner.prose.strip():
            return None
        arguments = compact_json({**json.loads(call.arguments), "message": scanner.prose.strip()})
        for spoken in self._speeches.values():
            if spoken.deltas[0].call_id == call.call_id:
                spoken.deltas[1:] = [replace(spoken.deltas[0], kind="tool_arguments", text=arguments)]
        return replace(call, arguments=arguments)

    def call_deltas(self) -> Iterator[ModelDelta]:
        """The deltas of calls that were not shown while they came."""
        for at, call in enumerate(self.calls if self.in_text or self.is_silent else ()):
            yield ModelDelta("tool_name", call.name, at, call.call_id)
            yield ModelDelta("tool_arguments", call.arguments, at, call.call_id)

    def reasoning(self) -> tuple[Part, ...]:
        """The thoughts, those from tags last."""
        own = [part for part in self.reply.parts if isinstance(part, Reasoning)]
        thought = self.cleaner.thoughts.strip()
        return (*own, Reasoning(thought)) if thought else tuple(own)
