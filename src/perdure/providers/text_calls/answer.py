"""One answer of a model while it streams: what of it is shown at once, what is held back, and what is wrong with it."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field, replace

from perdure.core.messages import SEND_MESSAGE, Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelProgress, ModelReply
from perdure.core.text.json_strings import StringMember, compact_json
from perdure.providers.text_calls.clean import Cleaner, Piece
from perdure.providers.text_calls.request import Asked
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
        muted: nothing of it is shown while it streams: the person has read the words of the one before.
        calls: those that are run.
        problem: why the answer can't be taken as it is, in words for the model.
    """

    asked: Asked
    cleaner: Cleaner
    muted: bool = False
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    in_text: bool = False
    """Whether the calls stood in the text."""
    reply: ModelReply = field(default_factory=lambda: ModelReply(parts=()))
    scanner: Scanner = field(init=False)
    _speeches: dict[int, Speech] = field(default_factory=dict)
    _raw: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scanner = Scanner(self.asked.sights)

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
    ) -> AsyncIterator[ModelDelta | ModelProgress]:
        """The deltas that are shown while the answer comes; then all else is known."""
        async for piece in pieces:
            if isinstance(piece, ModelReply):
                self.reply = piece
            elif not isinstance(piece, ModelDelta) or piece.kind == "reasoning":
                yield piece
            elif piece.kind == "text":
                self._raw.append(piece.text)
                for delta in self._show(self.cleaner.read(piece.text)):
                    yield delta
            elif not self.muted:
                for delta in self._call(piece):
                    yield delta
        if not self._raw:  # of a model that does not stream
            self._raw = [part.text for part in self.reply.parts if isinstance(part, Text)]
            for delta in self._show(self.cleaner.read(self.raw)):
                yield delta
        for delta in self._show(self.cleaner.read(final=True)):
            yield delta
        if (rest := self.scanner.read(final=True)) and not self.muted:
            yield ModelDelta("text", rest)
        self._judge()
        if not self.problem and not self.muted:
            for speech in self._speeches.values():
                for delta in speech.deltas:
                    yield delta

    def _show(self, pieces: Iterable[Piece]) -> Iterator[ModelDelta]:
        """The deltas for cleaned pieces."""
        for kind, text in pieces:
            if kind == "stray":
                self.scanner = Scanner(self.asked.sights)
                continue
            shown = self.scanner.read(text) if kind == "text" else text
            if shown and not self.muted:
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
        scanner, asked = self.scanner, self.asked
        real = [part for part in self.reply.parts if isinstance(part, ToolCall)]
        if real:
            self.calls = tuple(call for one in real if (call := self._spoken(one)) is not None)
            self.problem = "" if self.calls else BROKEN
            return
        calls = [one.call for one in scanner.found if one.call is not None]
        problems = [problem for call in calls if (problem := asked.problem_of(call))]
        kinds = {one.kind for one in scanner.found}
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
            broken = [one.name for one in scanner.found if one.name and one.name not in asked.tools]
            self.problem = asked.unknown(broken[0]) if broken else BROKEN if "broken" in kinds else AROUND

    def _spoken(self, call: ToolCall) -> ToolCall | None:
        """A real call; one of `send_message` without the calls and envelopes that its message holds, None if nothing
        is left of it."""
        if not (speech := call.speech):
            return call
        scanner = Scanner(self.asked.sights)
        scanner.read(speech)
        scanner.read(final=True)
        if not scanner.found:
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
        for at, call in enumerate(self.calls if self.in_text or self.muted else ()):
            yield ModelDelta("tool_name", call.name, at, call.call_id)
            yield ModelDelta("tool_arguments", call.arguments, at, call.call_id)

    def reasoning(self) -> tuple[Part, ...]:
        """The thoughts, those from tags last."""
        own = [part for part in self.reply.parts if isinstance(part, Reasoning)]
        thought = self.cleaner.thoughts.strip()
        return (*own, Reasoning(thought)) if thought else tuple(own)
