"""The history of a conversation as Letta's API shows it, turned page by page into messages to import.

The API shows a stored message as one or more of its wire's: thoughts, text and calls of an answer have one id. An
answer is taken with the results of its calls, which may come a page later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.agent_files.messages import parse_messages
from perdure.features.imports.common.values import TOO_LONG, OmissionReport
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
_KNOWN = (*_ANSWER, *_RESULTS, *_SPOKEN, *_NOT_SAID)
PICTURES = "pictures whose bytes the server does not give"
WAITING = "answers there whose calls wait for somebody: decide there, and import again"
ODD = "messages of unknown kinds"


class LettaHistory:
    """Reads one conversation page by page.

    Args:
        system: the prompt of its agent, of which compiled copies stand in the history.
        report: takes what is left out.
    Attributes:
        messages: those that are whole. Whoever stores them empties the list.
        cursor: the id of the last message of the source that is in them or was passed over; empty: none.
    """

    def __init__(self, system: str, limit_chars: int, report: OmissionReport, *, is_begun: bool = False) -> None:
        self._system, self._limit_chars, self._report, self._is_begun = system, limit_chars, report, is_begun
        self._unit: list[Object] = []
        self._at = "1970-01-02T00:00:00+00:00"
        self.messages: list[ImportedMessage] = []
        self.cursor = ""

    def take(self, page: Sequence[Object]) -> None:
        """Add a page of messages."""
        for one in page:
            if self._unit and not self._belongs(one):
                self._close()
            self._unit.append(one)

    def finish(self) -> None:
        """Take what is left at the end as whole, but an answer that waits for an approval."""
        kinds = {*map(_kind, self._unit)}
        if "approval_request_message" in kinds and not kinds & {*_RESULTS}:
            self._report.leave_out(WAITING)
        elif self._unit:
            self._close()

    def _belongs(self, one: Object) -> bool:
        """Whether a wire message is part of the same stored message as the last one, or holds results for it."""
        kind, last, kinds = _kind(one), self._unit[-1], {*map(_kind, self._unit)}
        if kind in _RESULTS:
            return bool(kinds & {*_CALLS})
        if kind == "approval_request_message" and _kind(last) == "tool_call_message":
            return True
        return kind in _ANSWER and one.get("id") == last.get("id")

    def _close(self) -> None:
        """Turn the wire messages collected so far into messages to import, and begin a new group."""
        unit, self._unit = self._unit, []
        self.cursor = str(unit[-1].get("id"))
        is_first, self._is_begun = not self._is_begun, True
        if is_first and _kind(unit[0]) == "system_message":
            return  # the prompt as it was compiled
        lines = [*self._lines(unit)]
        self._report.leave_out(ODD, sum(_kind(one) not in _KNOWN for one in unit))
        try:
            parsed = parse_messages({"messages": [{}, *lines], "system": self._system}, limit_chars=_NO_LIMIT)
        except AgentFileInvalid:
            self._report.leave_out(ODD, len(lines))
            return
        if any(len(message.text) > self._limit_chars for message in parsed.messages if message.role != "tool"):
            self._report.leave_out(TOO_LONG.format(limit=self._limit_chars), len(parsed.messages))
            return
        base = key_of(unit[0].get("id"))
        self._report.leave_out(PICTURES, parsed.images)
        self.messages += [
            replace(one, id=base if not number else f"{base} {number}") for number, one in enumerate(parsed.messages)
        ]

    def _lines(self, unit: Sequence[Object]) -> Iterator[dict[str, Any]]:
        """Yield the messages of a unit as an agent file has them."""
        answer: dict[str, Any] = {"role": "assistant", "content": [], "tool_calls": []}
        base = str(unit[0].get("id"))  # of the answer to which the calls and results belong
        for one in unit:
            at, kind = time_of(one.get("date")), _kind(one)
            self._at = at.isoformat() if at is not None else self._at
            common = {"created_at": self._at, "name": one.get("name")}
            if kind in _SPOKEN:
                yield {**common, "role": _SPOKEN[kind], "content": one.get("content")}
            elif kind == "tool_return_message":
                returns = [*map(object_in, list_in(one.get("tool_returns")))] or [one]
                yield {**common, "role": "tool", "tool_returns": [_result(each, base) for each in returns]}
            elif kind == "approval_response_message":
                yield {**common, "role": "approval", "approvals": [_result(each, base) for each in _approvals(one)]}
            elif kind in _ANSWER:
                if "created_at" not in answer:
                    answer |= common
                    yield answer  # what follows is added to it
                answer["content"] += _contents(one)
                answer["tool_calls"] += [*_calls(one, base)]


def _kind(one: Object) -> str:
    """Return the kind of a wire message."""
    return text_in(one.get("message_type"))


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
    """Return a call's id, changed if another call of the conversation has it."""
    id_ = str(value)
    return id_ if len(id_) >= _SHORT_CHARS else f"{id_}-{hash_of(base)[:8]}"


def _approvals(one: Object) -> Sequence[Object]:
    """Return the decisions that a message has, in the newer form."""
    older = {"tool_call_id": one.get("approval_request_id"), "approve": one.get("approve"), "reason": one.get("reason")}
    return [*map(object_in, list_in(one.get("approvals")))] or [older]


def _result(found: Object, base: str) -> dict[str, Any]:
    """Return a result or decision as an agent file has it."""
    kept = {name: found[name] for name in ("status", "stdout", "stderr", "approve", "reason") if name in found}
    response = {"func_response": found["tool_return"]} if "tool_return" in found else {}
    return {**kept, **response, "tool_call_id": _call_id(found.get("tool_call_id"), base)}
