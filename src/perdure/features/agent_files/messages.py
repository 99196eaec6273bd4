"""The messages of an agent in an agent file, as an import stores them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.messages import Image, ImageLink, Part, Reasoning, Text, ToolCall, ToolResult, ToolStatus, images_of
from perdure.core.text.json_strings import json_object
from perdure.domain.conversations.copy_values import OpenCallCopy
from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage, parse_time
from perdure.server.wire.base import parse_parts
from perdure.server.wire.errors import AgentFileInvalid

_NO_RESULT = "The agent file holds no result of this call."
_COMPILED = "<memory_blocks>"
"""Stands in a compiled system message, which is also the first one of a file."""
_SPEAKERS = ("user", "assistant", "approval", "system")
_PACKED_RESULT = {"status", "message", "time"}
_PACKED_TEXT, _PACKED_MORE = {"type", "message", "time"}, {"location", "name"}
_OF_THE_ENGINE = ("heartbeat", "login", "system_alert")
"""Kinds of messages that older agents packed into JSON and that nobody wrote."""


@dataclass(frozen=True, slots=True)
class FileMessages:
    """The messages of a conversation of a file, oldest first, as they will be stored. Behind them are, in `waiting`,
    the last answer if calls of it wait for somebody, and the results of its other calls. So many `images` are left out:
    their bytes are not in the file, or no model takes them."""

    messages: Sequence[ImportedMessage] = ()
    waiting: Sequence[ImportedMessage] = ()
    images: int = 0


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of a tool call in a file; `place` is the index of the message that holds it, from 0."""

    place: int
    text: str
    status: Any = "success"
    stdout: Any = ()
    stderr: Any = ()
    images: tuple[Image, ...] = ()


def parse_messages(
    agent: Mapping[str, Any], *, limit_chars: int, open_calls: Mapping[str, OpenCallCopy] | None = None
) -> FileMessages:
    """Parse the messages of an agent, oldest first, each answer followed by the results of all its calls.

    A call without a result gets one that says so, results without a call are left out, and so are system messages that
    are only the compiled prompt. Messages are numbered as they will be stored, and a call whose id another call had
    gets another one.

    Args:
        agent: the fields of an agent in the file, of which `messages` and `system` are read.
        limit_chars: the length limit of what a person or the agent says.
        open_calls: id of a call -> how it waits for an approval or a client; only those of the last answer are used.
    Raises: AgentFileInvalid.
    """
    lines = objects(agent.get("messages"), "messages of an agent")
    results = _results_by_call(lines)
    found: list[ImportedMessage] = []
    call_ids: set[str] = set()
    images = 0
    newest = max((place for place, line in enumerate(lines) if line.get("role") in _SPEAKERS), default=-1)
    waiting_from: int | None = None  # the index in `found` of the answer whose calls wait
    for place, line in enumerate(lines):
        role, parts = line.get("role"), _parts_of(line)
        contents = [
            *_contents(line.get("content")),
            *chain(*(_contents(one.get("func_response")) for one in _returns(line))),
        ]
        images += sum(isinstance(one, dict) and one.get("type") == "image" for one in contents) - len(_images(contents))
        calls = _calls_of(line) if role in ("assistant", "approval") else []
        text = _text(parts)
        if len(text) > limit_chars and role != "tool":
            raise AgentFileInvalid(f"messages[{place}] has {len(text):,} characters, the limit is {limit_chars:,}")
        if calls:
            waiting = (open_calls or {}) if place == newest else {}
            renamed = [(call, _unused(call.call_id, call_ids)) for call in calls]
            answer = [*parts, *(_call_to_store(call, id_, waiting.get(call.call_id)) for call, id_ in renamed)]
            waiting_from = len(found) if any(call.awaits for call in answer if isinstance(call, ToolCall)) else None
            found.append(_to_imported(line, place, "assistant", answer, len(found)))
            for call, id_ in renamed:
                if waiting_from is not None and call.call_id in waiting:
                    continue
                result = _take_result(results.get(call.call_id), after=place)
                source = place if result is None else result.place
                part = _tool_result(id_, call.name, result)
                found.append(_to_imported({**lines[source], "name": call.name}, source, "tool", [part], len(found)))
        elif parts and (
            role in ("user", "assistant") or (role == "system" and place and not _is_compiled(text, agent))
        ):
            found.append(_to_imported(line, place, role, parts, len(found)))
    return FileMessages(found[:waiting_from], () if waiting_from is None else found[waiting_from:], images)


def _is_compiled(text: str, agent: Mapping[str, Any]) -> bool:
    """Whether a system message is only the agent's compiled prompt, which nobody said."""
    prompt = agent.get("system")
    return _COMPILED in text and isinstance(prompt, str) and bool(prompt.strip()) and text.startswith(prompt.strip())


def _call_to_store(call: ToolCall, call_id: str, waiting: OpenCallCopy | None) -> ToolCall:
    """A call of the file under its new id; `waiting` says what it waits for, None: for nothing."""
    if waiting is None:
        return ToolCall(call_id, call.name, call.arguments)
    loop_arguments = tuple(waiting.loop_arguments)
    return ToolCall(call_id, call.name, call.arguments, waiting.awaits, waiting.tool_digest, loop_arguments)


def objects(value: Any, what: str) -> Sequence[Mapping[str, Any]]:
    """Check that `value`, which errors name `what`, is a list of objects or null. Raises: AgentFileInvalid."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise AgentFileInvalid(f"`{what}` must be a list of objects")
    return value


def unpack_text(text: str) -> str:
    """Return what a person wrote, from a message that older agents packed into JSON; empty if nobody wrote it."""
    value = _object_in(text)
    if value.get("type") in _OF_THE_ENGINE and "time" in value:
        return ""
    is_packed = value.keys() - _PACKED_MORE == _PACKED_TEXT and value["type"] == "user_message"
    return str(value["message"]) if is_packed and isinstance(value["message"], str) else text


def _unused(id_: str, used: set[str]) -> str:
    """Return the id, with a number added if it is in `used`, and put it there."""
    number, found = 1, id_
    while found in used:
        number += 1
        found = f"{id_}-{number}"
    used.add(found)
    return found


def _take_result(results: list[_Result] | None, *, after: int) -> _Result | None:
    """Remove and return the first of a call's results that comes after message index `after`; None: there is none."""
    for index, result in enumerate(results or ()):
        if result.place > after and results is not None:
            return results.pop(index)
    return None


def _to_imported(line: Mapping[str, Any], place: int, role: Any, parts: Sequence[Part], number: int) -> ImportedMessage:
    """Return a message to store, with the name and time of `line`, which has the index `place` in the file."""
    name = line.get("name")
    return ImportedMessage(
        role=role,
        text=_text(parts),
        parts=tuple(parts),
        occurred_at=_time_of(line, place),
        name=name[:NAME_MAX_CHARS] if isinstance(name, str) and name else None,
        id=str(number),
    )


def _time_of(line: Mapping[str, Any], place: int) -> datetime:
    """When a message was sent, which has the index `place`; no zone means UTC. Raises: AgentFileInvalid: no time."""
    value = line.get("created_at")
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        if found is not None:
            return parse_time("created_at", found if found.utcoffset() is not None else found.replace(tzinfo=UTC))
    except (ValueError, InvalidInput):
        pass
    raise AgentFileInvalid(f"messages[{place}] has no time in `created_at`, such as 2026-01-06T02:05:49+00:00")


def _text(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _contents(content: Any) -> Sequence[Any]:
    """The field `content` of a message as a list, in which a text is a part of the type `text`."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _images(contents: Iterable[Any]) -> tuple[Image, ...]:
    """The images among the parts of a message that hold their bytes and are of a kind that models take."""
    found: list[Part | ImageLink] = []
    for content in contents:
        match content:
            case {"type": "image", "source": {"type": "base64"}}:
                with contextlib.suppress(InvalidInput):
                    found += parse_parts([content], "messages")
    return tuple(part for part in found if isinstance(part, Image))


def _parts_of(line: Mapping[str, Any]) -> list[Part]:
    """The texts, thoughts and images of a message of the file; a user's texts without Letta's packing."""
    parts: list[Part] = []
    for content in _contents(line.get("content")):
        match content:
            case {"type": "text", "text": str(text)}:
                said = unpack_text(text) if line.get("role") == "user" else text
                parts += [Text(said)] if said.strip() else []
            case {"type": "reasoning", "reasoning": str(text)} if text.strip():
                parts.append(Reasoning(text))
            case _:
                parts += _images([content])
    return parts


def _calls_of(line: Mapping[str, Any]) -> list[ToolCall]:
    """The calls of an answer, also of one that waited for approval."""
    calls: list[ToolCall] = []
    for call in objects(line.get("tool_calls"), "tool_calls of a message"):
        match call:
            case {"id": str(id_), "function": {"name": str(name), "arguments": str(arguments)}} if name and id_:
                calls.append(ToolCall(id_, name, arguments))
    return calls


def _returns(line: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The results of tools and the decisions about calls that a message of the file holds."""
    return [
        *objects(line.get("tool_returns"), "tool_returns of a message"),
        *objects(line.get("approvals"), "approvals of a message"),
    ]


def _results_by_call(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, list[_Result]]:
    """Map the id of each call to its results, in the order of the messages `lines`. A denied call has an error with the
    reason. Images of a message belong to its result, if it has only one."""
    found: dict[str, list[_Result]] = {}
    for place, line in enumerate(lines):
        returns = _returns(line)
        message_images: tuple[Image, ...] = ()
        if line.get("role") == "tool":
            parts = _parts_of(line)
            returns = returns or [{"tool_call_id": line.get("tool_call_id"), "func_response": _text(parts)}]
            message_images = images_of(parts) if len(returns) == 1 else ()
        for one in returns:
            response, id_ = one.get("func_response", one.get("tool_return")), one.get("tool_call_id")
            if not isinstance(id_, str):
                continue
            if one.get("approve") is False and not isinstance(response, str):
                reason = f"A person denied this call. {one.get('reason') or ''}".strip()
                result = _Result(place, reason, "error")
            elif "approve" in one and not isinstance(response, str):
                continue  # an approval, whose result is in another message
            else:
                text = response if isinstance(response, str) else _text(_parts_of({"content": response}))
                images = _images(_contents(response)) or message_images
                result = _Result(place, text, one.get("status"), one.get("stdout"), one.get("stderr"), images)
            found.setdefault(id_, []).append(result)
    return found


def _tool_result(call_id: str, name: str, result: _Result | None) -> ToolResult:
    """Return the part for a result, unwrapped from Letta's JSON; for None a part that says there is no result."""
    if result is None:
        return ToolResult(call_id, name, _NO_RESULT, "error")
    text, value = result.text, _object_in(result.text)
    succeeded = result.status in (None, "success")
    if value.keys() == _PACKED_RESULT and isinstance(value["message"], str):
        text, succeeded = value["message"], succeeded and value["status"] != "Failed"
    status: ToolStatus = "success" if succeeded else "error"
    stdout, stderr = _texts(result.stdout), _texts(result.stderr)
    return ToolResult(call_id, name, text, status, stdout, stderr, images=result.images)


def _texts(value: Any) -> tuple[str, ...]:
    """The strings in a value of a file that should be a list of them."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _object_in(text: str) -> Mapping[str, Any]:
    """The JSON object that a text is; empty if it is none."""
    return (json_object(text) if text.startswith("{") else None) or {}
