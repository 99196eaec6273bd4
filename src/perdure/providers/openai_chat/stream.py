"""Parse an answer from bytes to deltas and the reply: a state machine without I/O.

An answer is a stream of server-sent events or one JSON object, whatever the request says: servers ignore `stream`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from perdure.core.errors import ModelError, ModelRefused, ModelReplyEmpty, ModelReplyInvalid, ModelStreamCut
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelProgress, ModelReply
from perdure.core.runs import StopReason, Usage
from perdure.core.text.json_strings import encodable
from perdure.providers.loops import loop_start
from perdure.providers.masking import EVENT, WHOLE, mask_text
from perdure.providers.openai_chat.tool_calls import ToolCalls, is_object, string_of

PREVIEW_CHARS = 200
PREVIEW_OF_CHARS = 20_000
ANSWER_CHARS = 2_000_000
"""The most characters of text, reasoning and arguments in one answer: four times what any model writes."""

SSE_FIELDS = ("data", "event", "id", "retry")

_LENGTH = frozenset({"length", "max_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "safety", "refusal", "recitation", "sensitive"})
_ABORTED = frozenset({"abort", "error", "insufficient_system_resource"})

ErrorFactory = Callable[[Any], ModelError]
"""Turns the error object of an answer into a typed error."""


class AnswerReader:
    """Reads one answer: `feed` it the body as it comes, `end` it, then take the `reply`.

    Args:
        who: the model and its address, for messages.
        error_of: makes the error of an error object in the answer.
        mask: masks secrets in quoted text; servers and proxies repeat the key.
    """

    def __init__(self, who: str, error_of: ErrorFactory, mask: Callable[[str], str] = mask_text) -> None:
        self._who, self._error_of, self._mask = who, error_of, mask
        self._sse = SseDecoder()
        self._is_json: bool | None = None
        self._body: list[bytes] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: ToolCalls | None = None
        self._logprobs: dict[str, list[dict[str, Any]]] = {}
        self._token_ids: list[int] = []
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._chars = 0
        self.events = 0
        """How many events have come, or pieces of an answer that is not streamed."""
        self.finish_reason: str | None = None
        self.id = ""
        self.model = ""
        self.done = False
        """Whether the answer has ended."""

    @property
    def complete(self) -> bool:
        """Whether the answer is complete, even if the connection breaks now."""
        return self.done or self.finish_reason is not None

    @property
    def usage(self) -> Usage:
        """The tokens that the server has counted so far; 0 for counts that it leaves out."""
        usage = self._usage
        prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        cache_writes = ("cache_write_tokens", "cache_creation_input_tokens")
        return Usage(
            input_tokens=_count(usage, "prompt_tokens"),
            output_tokens=_count(usage, "completion_tokens"),
            # OpenAI's name, then DeepSeek's own
            cached_input_tokens=_count(prompt, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
            cache_write_tokens=_count(prompt, *cache_writes) or _count(usage, *reversed(cache_writes)),
            reasoning_tokens=_count(completion, "reasoning_tokens"),
        )

    @property
    def speeds(self) -> tuple[float, float] | None:
        """The tokens that llama.cpp has read and written in a second; None: nobody says."""
        speeds = [self._timings.get(f"{name}_per_second") for name in ("prompt", "predicted")]
        read, written = (speed if isinstance(speed, int | float) and 0 < speed < 1e9 else None for speed in speeds)
        return None if read is None or written is None else (float(read), float(written))

    def feed(self, chunk: bytes) -> list[ModelDelta | ModelProgress]:
        """The deltas that this chunk of the body brings.

        Raises: ModelError: an error object; ModelReplyInvalid: what can't be read.
        """
        if self._is_json is None:
            start = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if not start:
                return []  # servers keep a connection alive with white space
            self._is_json = start in (b"{", b"[")
        if self._is_json:
            self._body.append(chunk)
            self.events += 1
            return []
        return [delta for data in self._sse.feed(chunk) for delta in self._event(data)]

    def end_loop(self, *, is_read: bool) -> None:
        """End an answer before the text that it repeats, with a note that it is cut."""
        for pieces in (self._text, self._reasoning):
            if (start := loop_start(whole := "".join(pieces))) is not None:
                pieces[:] = [whole[:start]]
        self.finish_reason, self.done = "length" if self._calls or (is_read and self._text) else "stop", True

    def end(self) -> list[ModelDelta | ModelProgress]:
        """The last deltas, after the end of the body.

        Raises: ModelStreamCut: it ended before the answer did; ModelError, ModelReplyInvalid.
        """
        if self._is_json:
            return self._parse_whole(b"".join(self._body).removeprefix(b"\xef\xbb\xbf"))
        deltas: list[ModelDelta | ModelProgress] = []
        for data in self._sse.end():
            try:
                deltas += self._event(data)
            except ModelReplyInvalid:
                break  # the last event is cut, and so is the answer
        if not self.complete:
            if self._sse.strays and not self.id and not (self._text or self._calls):
                raise ModelReplyInvalid(
                    f"{self._who} answered with something that is not an answer of the chat API: is the address right?"
                )
            raise ModelStreamCut(f"{self._who} stopped in the middle of its answer")
        return deltas

    def reply(self, *, may_stay_empty: bool = False) -> ModelReply:
        """The whole answer. Raises: ModelRefused, ModelReplyEmpty."""
        if self.finish_reason in _FILTERED or "".join(self._refusal).strip():
            refusal = self._mask("".join(self._refusal)).strip()
            raise ModelRefused(
                f"{self._who} declined to answer ({self._shown_finish_reason}): {refusal}"
                if refusal
                else f"the answer of {self._who} was stopped by a filter ({self._shown_finish_reason})"
            )
        if self.finish_reason in _ABORTED:
            raise ModelStreamCut(f"{self._who} gave its answer up: {self._shown_finish_reason}")
        stop: StopReason = "max_tokens_exceeded" if self.finish_reason in _LENGTH else "end_turn"
        calls = self._calls.calls if self._calls else ()
        if stop == "max_tokens_exceeded":
            # A call with incomplete arguments must not run.
            calls = tuple(call for call in calls if call.name and is_object(call.arguments))
        kinds = ((Reasoning, self._reasoning), (Text, self._text))
        parts: list[Part] = [kind(text) for kind, pieces in kinds if (text := encodable("".join(pieces)))]
        parts += (ToolCall(call.call_id, call.name, encodable(call.arguments)) for call in calls)
        if stop == "end_turn" and not calls and not encodable("".join(self._text)).strip() and not may_stay_empty:
            thought = " but reasoning" if parts else ""
            raise ModelReplyEmpty(f"{self._who} answered nothing{thought}: neither text nor a tool call")
        return ModelReply(parts=tuple(parts), usage=self.usage, stop_reason=stop)

    def partial_answer(self) -> dict[str, Any]:
        """The answer so far, in the shape of an answer that is not streamed."""
        message: dict[str, Any] = {"content": encodable("".join(self._text))}
        if self._reasoning:
            message["reasoning"] = encodable("".join(self._reasoning))
        if self._refusal:
            message["refusal"] = encodable("".join(self._refusal))
        if self._calls:
            message["tool_calls"] = [
                {"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in self._calls.calls
            ]
        facts = {"id": self.id, "model": self.model, "finish_reason": self.finish_reason}
        return {**facts, "message": message, "usage": dict(self._usage)}

    def token_facts(self) -> dict[str, Any]:
        """What the server sent about the answer's tokens, if it did: `logprobs` in OpenAI's shape, `token_ids`."""
        facts: dict[str, Any] = {}
        if self._logprobs:
            facts["logprobs"] = {name: self._logprobs.get(name) for name in ("content", "refusal")}
        if self._token_ids:
            facts["token_ids"] = self._token_ids
        return facts

    @property
    def _shown_finish_reason(self) -> str:
        """The finish reason for error messages, with secrets masked."""
        return self._mask(str(self.finish_reason))

    def _preview(self, text: str) -> str:
        """The beginning of a text for error messages, with secrets masked."""
        # Masked before the cut: half a key would not be found.
        return self._mask(text[:PREVIEW_OF_CHARS])[:PREVIEW_CHARS]

    def _event(self, data: str) -> list[ModelDelta | ModelProgress]:
        """The deltas of one server-sent event. Raises: ModelError."""
        self.events += 1
        if data.strip() == "[DONE]":
            self.done = True
            return []
        if self.done or not data.strip():
            return []
        return self._chunk(self._parse_object(data, EVENT), whole=False)

    def _parse_whole(self, body: bytes) -> list[ModelDelta | ModelProgress]:
        """The deltas of an answer that is not streamed: one for each part."""
        text = body.decode("utf-8", "replace")
        if not text.rstrip().endswith(("}", "]")):
            raise ModelStreamCut(f"{self._who} stopped in the middle of its answer")
        deltas = self._chunk(self._parse_object(text, WHOLE), whole=True)
        self.finish_reason = self.finish_reason or "stop"  # nothing follows
        self.done = True
        return deltas

    def _parse_object(self, text: str, limits: JsonLimits) -> Mapping[str, Any]:
        """The JSON object that this text is. Raises: ModelReplyInvalid."""
        try:
            value = parse_json(text, limits)
        except ValueError as error:
            raise ModelReplyInvalid(
                f"{self._who} answered what can't be read ({error}): {self._preview(text)!r}"
            ) from error
        if not isinstance(value, dict):
            raise ModelReplyInvalid(f"{self._who} answered with no JSON object: {self._preview(text)!r}")
        return value

    def _chunk(self, chunk: Mapping[str, Any], *, whole: bool) -> list[ModelDelta | ModelProgress]:
        """The deltas of one chunk of a stream, or of a `whole` answer. Raises: ModelError."""
        if error := chunk.get("error"):
            raise self._error_of(error)
        choices = chunk.get("choices")
        if chunk.get("object") == "error" or (choices is None and ("detail" in chunk or "message" in chunk)):
            raise self._error_of(chunk)
        self.id = self.id or string_of(chunk.get("id"))
        self.model = self.model or string_of(chunk.get("model"))
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage  # some servers send growing counts with every chunk
        if isinstance(timings := chunk.get("timings"), dict):
            self._timings = timings
        if choices is None and whole:
            raise ModelReplyInvalid(f"{self._who} answered without choices: {self._preview(str(dict(chunk)))}")
        if not isinstance(choices, list):
            return []
        first = (one for one in choices if isinstance(one, dict) and one.get("index", 0) in (0, None))
        choice: Mapping[str, Any] = next(first, {})
        if error := choice.get("error"):
            raise self._error_of(error)
        message = choice.get("message") if whole else choice.get("delta") or choice.get("message")
        deltas = self._message(message, whole=whole) if isinstance(message, dict) else []
        self._tokens(choice)
        if reason := choice.get("finish_reason"):
            self.finish_reason = str(reason).lower()
        return [*_progress(chunk.get("prompt_progress")), *deltas]

    def _tokens(self, choice: Mapping[str, Any]) -> None:
        """Take in what a choice says about its tokens."""
        logprobs, ids = choice.get("logprobs"), choice.get("token_ids")
        logprobs = logprobs if isinstance(logprobs, dict) else {}
        for name in ("content", "refusal"):
            if isinstance(entries := logprobs.get(name), list):
                found = [_logprob(entry, top=True) for entry in entries]
                self._logprobs.setdefault(name, []).extend(filter(None, found))
        if isinstance(ids, list):
            self._token_ids += [one for one in ids if type(one) is int]

    def _message(self, message: Mapping[str, Any], *, whole: bool) -> list[ModelDelta]:
        """The deltas of a message or of a piece of one. Raises: ModelReplyInvalid: over a limit."""
        deltas: list[ModelDelta] = []
        thought, text = _content(message.get("content"))
        # Servers that send both fields send the same in both.
        thought = string_of(message.get("reasoning_content")) or string_of(message.get("reasoning")) or thought
        self._check_size(thought, text)
        if thought:
            self._reasoning.append(thought)
            deltas.append(ModelDelta("reasoning", thought))
        if text:
            self._text.append(text)
            deltas.append(ModelDelta("text", text))
        if refusal := string_of(message.get("refusal")):
            self._check_size(refusal)
            self._refusal.append(refusal)
        for fragment in _fragments(message):
            if self._calls is None:
                # Ids that we make differ between answers, so that a run does not mix up results.
                self._calls = ToolCalls(f"call_{zlib.crc32(self.id.encode('utf-8', 'replace')):08x}")
            try:
                call_deltas = self._calls.add(fragment, whole=whole)
            except ValueError as error:
                raise ModelReplyInvalid(f"{self._who} gave an answer that is not read: {error}") from error
            self._check_size(*(delta.text for delta in call_deltas))
            deltas += call_deltas
        return deltas

    def _check_size(self, *texts: str) -> None:
        """Add the texts to the size of the answer. Raises: ModelReplyInvalid: it is too large."""
        self._chars += sum(map(len, texts))
        if self._chars > ANSWER_CHARS:
            raise ModelReplyInvalid(f"{self._who} gave an answer of more than {ANSWER_CHARS:,} characters")


def _progress(report: Any) -> Iterator[ModelProgress]:
    """Yield what llama.cpp reports of a prompt that it reads, if this is such a report."""
    if not isinstance(report, dict):
        return
    total, cached, read, time_ms = (report.get(name) for name in ("total", "cache", "processed", "time_ms"))
    if not (_is_count(total) and _is_count(cached) and _is_count(read) and _is_count(time_ms)):
        return
    new, waited_s = read - cached, time_ms / 1000
    left_s = (total - read) * waited_s / new if new > 0 and waited_s > 0 else None
    yield ModelProgress(
        stage="reading", waited_s=waited_s, read_tokens=int(read), total_tokens=int(total), left_s=left_s
    )


def _is_count(value: Any) -> TypeGuard[float]:
    """Whether the value is a number, 0 or more."""
    return isinstance(value, int | float) and 0 <= value < 1e12


def _logprob(entry: Any, *, top: bool) -> dict[str, Any] | None:
    """A token with the logarithm of its probability, with `top` also the likeliest tokens there; None if it is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return None
    logprob, data = entry.get("logprob"), entry.get("bytes")
    if not isinstance(logprob, int | float) or not math.isfinite(logprob):
        return None
    is_bytes = isinstance(data, list) and all(type(one) is int for one in data)
    shape = {"token": encodable(entry["token"]), "logprob": float(logprob), "bytes": data if is_bytes else None}
    if top:
        others = entry.get("top_logprobs")
        found = [_logprob(other, top=False) for other in others] if isinstance(others, list) else []
        shape["top_logprobs"] = list(filter(None, found))
    return shape


def _count(usage: Any, *names: str) -> int:
    """Return the first count above 0 under one of these names, else 0."""
    for value in map(usage.get, names) if isinstance(usage, dict) else ():
        if isinstance(value, (int, float)) and 1 <= value < 2**53:
            return int(value)
    return 0


def _content(content: Any) -> tuple[str, str]:
    """The (reasoning, text) in the `content` field of a message: a text or, with Mistral, a list of parts."""
    if isinstance(content, str):
        return "", content
    if not isinstance(content, list):
        return "", ""
    thought, text = "", ""
    for part in content:
        if isinstance(part, dict):
            text += string_of(part.get("text"))
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else _content(inner)[1]
    return thought, text


def _fragments(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message or delta; the older API's single call is one of them."""
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    fragments = [fragment for fragment in calls if isinstance(fragment, dict)] if isinstance(calls, list) else []
    if isinstance(function := message.get("function_call"), dict):
        fragments.append({"index": 0, "function": function})
    return fragments


class SseDecoder:
    """Parses server-sent events (WHATWG HTML, section 9.2): `feed` it bytes, it returns the data of whole events.

    `strays` counts lines that are no field: an answer of nothing else is no event stream.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of the unfinished line; joined once, at its end
        self._data: list[str] = []
        self.strays = 0

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that this chunk completes, in order."""
        if self._rest and not (b"\n" in chunk or b"\r" in chunk or self._rest[-1].endswith(b"\r")):
            self._rest.append(chunk)
            return []
        text = b"".join((*self._rest, chunk))
        # A CR at the end may be half of a CRLF, so the next chunk decides.
        held = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(held)]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")  # lines are cut before they are decoded: no character is torn
        self._rest = [rest + held] if rest or held else []
        return [data for line in lines if (data := self._line(line)) is not None]

    def end(self) -> list[str]:
        """Return the data of the last event if no empty line ended it; it may be incomplete."""
        last_line = b"".join(self._rest)
        self._rest = []
        events = (self._line(last_line.rstrip(b"\r")), self._line(b""))
        return [data for data in events if data is not None]

    def _line(self, line: bytes) -> str | None:
        """Take in a line; return the event's data if the line ends an event."""
        if line.startswith(b":"):
            return None
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.decode("utf-8", "replace").removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif not any(field.startswith(name) for field in SSE_FIELDS):  # the last line may be cut within the name
            self.strays += 1
        return None
