"""The history of a conversation as Letta's API shows it, turned page by page into messages to import.

The API shows a stored message as one or more of its wire's: thoughts, text and calls of an answer have one id. An
answer is taken with the results of its calls, which may come a page later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.agent_files.messages import parse_messages
from perdure.features.imports.letta.client import Object
from perdure.features.imports.sources.plain import hash_of, key_of, list_in, object_in, text_in, time_of
from perdure.server.wire.errors import AgentFileInvalid

_NO_LIMIT = 1 << 40
_SHORT_CHARS = 12
"""Call ids below this length are counted anew in each answer by some models: they get a part of their message's id."""
_ANSWER = ("reasoning_message", "assistant_message", "tool_call_message", "approval_request_message")
_CALLS = ("tool_call_message", "approval_request_message")
_RESULTS = ("tool_return_message", "approval_response_message")
_SPOKEN = {"system_message": "system", "user_message": "user"}
_NOT_SAID = ("hidden_reasoning_message", "event_message", "summary_message", "ping")


@dataclass(slots=True)
class HistoryPart:
    """Messages that are whole. `cursor`: the id of the last one of the source that is in them or was passed over;
    empty: none. What was left out: so many `images`, messages that are `too_long`, and `odd` ones; `waiting` answers
    have calls that wait for somebody."""

    messages: list[ImportedMessage] = field(default_factory=list)
    cursor: str = ""
    images: int = 0
    too_long: int = 0
    odd: int = 0
    waiting: int = 0

    def __iadd__(self, other: HistoryPart) -> HistoryPart:
        """Add the messages that follow."""
        self.messages += other.messages
        self.cursor = other.cursor or self.cursor
        for name in ("images", "too_long", "odd", "waiting"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class LettaHistory:
    """Reads one conversation. `system`: the prompt of its agent, of which compiled copies stand in the history."""

    def __init__(self, system: str, limit_chars: int, *, is_begun: bool = False) -> None:
        self._system, self._limit_chars, self._is_begun = system, limit_chars, is_begun
        self._unit: list[Object] = []
        self._at = "1970-01-02T00:00:00+00:00"

    def take(self, page: Sequence[Object]) -> HistoryPart:
        """Take a page in, and return what is whole now."""
        batch = HistoryPart()
        for one in page:
            if self._unit and not self._belongs(one):
                self._close(batch)
            self._unit.append(one)
        return batch

    def finish(self) -> HistoryPart:
        """Return what is left at the end: all, but an answer that waits for an approval."""
        batch = HistoryPart()
        kinds = {*map(_kind, self._unit)}
        if "approval_request_message" in kinds and not kinds & {*_RESULTS}:
            batch.waiting = 1
        elif self._unit:
            self._close(batch)
        return batch

    def _belongs(self, one: Object) -> bool:
        """Whether a message of the wire is of the same stored message as the last one, or holds results of it."""
        kind, last, kinds = _kind(one), self._unit[-1], {*map(_kind, self._unit)}
        if kind in _RESULTS:
            return bool(kinds & {*_CALLS})
        if kind == "approval_request_message" and _kind(last) == "tool_call_message":
            return True
        return kind in _ANSWER and one.get("id") == last.get("id")

    def _close(self, batch: HistoryPart) -> None:
        """Turn the messages that belong together into those of an import, and begin anew."""
        unit, self._unit = self._unit, []
        batch.cursor = str(unit[-1].get("id"))
        is_first, self._is_begun = not self._is_begun, True
        if is_first and _kind(unit[0]) == "system_message":
            return  # the prompt as it was compiled
        lines = [*self._lines(unit)]
        batch.odd += sum(_is_odd(one) for one in unit)
        try:
            parsed = parse_messages({"messages": [{}, *lines], "system": self._system}, limit_chars=_NO_LIMIT)
        except AgentFileInvalid:
            batch.odd += len(lines)
            return
        if any(len(one.text) > self._limit_chars for one in parsed.messages if one.role != "tool"):
            batch.too_long += len(parsed.messages)
            return
        base = key_of(unit[0].get("id"))
        batch.images += parsed.images
        batch.messages += [
            replace(one, id=base if not number else f"{base} {number}") for number, one in enumerate(parsed.messages)
        ]

    def _lines(self, unit: Sequence[Object]) -> Iterator[dict[str, Any]]:
        """Yield the messages of a unit as an agent file has them."""
        answer: dict[str, Any] = {"role": "assistant", "content": [], "tool_calls": []}
        for one in unit:
            at = time_of(one.get("date"))
            self._at = at.isoformat() if at is not None else self._at
            common = {"created_at": self._at, "name": one.get("name")}
            match _kind(one):
                case "system_message" | "user_message" as kind:
                    yield {**common, "role": _SPOKEN[kind], "content": one.get("content")}
                case "tool_return_message":
                    yield {
                        **common,
                        "role": "tool",
                        "tool_returns": [_result(one, self._base(unit), each) for each in _returns(one)],
                    }
                case "approval_response_message":
                    yield {
                        **common,
                        "role": "approval",
                        "approvals": [_result(one, self._base(unit), each) for each in _approvals(one)],
                    }
                case kind if kind in _ANSWER:
                    if "created_at" not in answer:
                        answer |= common
                        yield answer  # what follows is added to it
                    answer["content"] += _contents(one)
                    answer["tool_calls"] += [*_calls(one, self._base(unit))]

    @staticmethod
    def _base(unit: Sequence[Object]) -> str:
        """Return the id of the answer to which the calls and results of a unit belong."""
        return str(unit[0].get("id"))


def _kind(one: Object) -> str:
    """Return of which kind a message of the wire is."""
    return text_in(one.get("message_type"))


def _is_odd(one: Object) -> bool:
    """Whether a message is of a kind that no version of the API is known to have."""
    return _kind(one) not in (*_ANSWER, *_RESULTS, *_SPOKEN, *_NOT_SAID)


def _contents(one: Object) -> Sequence[Any]:
    """Return thoughts and texts of a part of an answer."""
    if _kind(one) == "reasoning_message":
        return [{"type": "reasoning", "reasoning": text_in(one.get("reasoning"))}]
    content = one.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list_in(content)


def _calls(one: Object, base: str) -> Iterator[dict[str, Any]]:
    """Yield the calls of a part of an answer."""
    found = one.get("tool_calls")
    for call in found if isinstance(found, list) and found else [found or one.get("tool_call")]:
        fields = object_in(call)
        if fields.get("tool_call_id"):
            function = {"name": text_in(fields.get("name")), "arguments": str(fields.get("arguments") or "{}")}
            yield {"id": _call_id(fields["tool_call_id"], base), "type": "function", "function": function}


def _call_id(value: Any, base: str) -> str:
    """Return the id of a call, so that no other one of the conversation has it."""
    id_ = str(value)
    return id_ if len(id_) >= _SHORT_CHARS else f"{id_}-{hash_of(base)[:8]}"


def _returns(one: Object) -> Sequence[Mapping[str, Any]]:
    """Return the results that a message has."""
    return [*map(object_in, list_in(one.get("tool_returns")))] or [one]


def _approvals(one: Object) -> Sequence[Mapping[str, Any]]:
    """Return the decisions that a message has, in the newer form."""
    older = {"tool_call_id": one.get("approval_request_id"), "approve": one.get("approve"), "reason": one.get("reason")}
    return [*map(object_in, list_in(one.get("approvals")))] or [older]


def _result(one: Object, base: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result or decision as an agent file has it."""
    kept = {name: found[name] for name in ("status", "stdout", "stderr", "approve", "reason") if name in found}
    response = {"func_response": found["tool_return"]} if "tool_return" in found else {}
    return {**kept, **response, "tool_call_id": _call_id(found.get("tool_call_id"), base)}
