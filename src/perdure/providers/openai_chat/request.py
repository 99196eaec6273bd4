"""From a `ModelRequest` to the bytes of a request body: a pure function. Equal requests give equal bytes.

A budget of reasoning tokens (`ModelOptions.max_reasoning_tokens`) has a field with OpenRouter only. For models that
reason on OpenAI's own hosts it is sent as an effort, unless one is set: up to 1024 tokens are "low", up to 8192
"medium", more "high". Everywhere else it is left out: a server that does not know the field would refuse the request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perdure.core.errors import ModelRequestRefused
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, MessageKind, Reasoning, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelOptions, ModelRequest, ReasoningEffort
from perdure.core.tools.arguments import ARGUMENTS
from perdure.providers.openai_chat.endpoint import Dialect
from perdure.providers.openai_chat.fragments import Fragments

__all__ = ["Body", "body_of", "wire_messages"]

NAME_CHARS_MAX = 64
CALL_ID_CHARS_MAX = 40  # OpenAI refuses longer ones; another provider may have given them

_EFFORTS: Sequence[tuple[int, ReasoningEffort]] = ((1024, "low"), (8192, "medium"))

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

_USER_START = b'{"role":"user","content":"'
_STRING_END = b'"}'
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

# Who speaks, for the wire. All else, of whatever role in the log, is said by the engine: memory deltas, heartbeats,
# summaries, alerts, and system messages after the first. It gets the dialect's `engine_role`, as does the tail.
_ROLES: Mapping[tuple[Role, MessageKind], Role] = {
    ("user", "message"): "user",
    ("assistant", "message"): "assistant",
    ("tool", "message"): "tool",
}


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes, and what stands in them besides messages and tools, of which it has the counts."""

    data: bytes
    fields: Mapping[str, Any]


def body_of(request: ModelRequest, *, model: str, dialect: Dialect, stream: bool, fragments: Fragments) -> Body:
    """The body of a chat request.

    System prompt, messages, tail; nothing stands between a call and its result, because nothing does in the log.

    Args:
        model: the name the server knows, without the provider.
        fragments: what was encoded for earlier requests of this dialect.
    Raises: ModelRequestRefused: options that JSON can't hold.
    """
    messages = list(_message_pieces(request, dialect, fragments))
    if dialect.cache_marks:
        earlier = replace(request, messages=request.messages[: _turn_start(request.messages)], tail="")
        _mark(messages, list(_message_pieces(earlier, dialect, fragments)))
    fields = {"model": model} | _options(request, dialect, stream=stream)
    encoded: dict[str, bytes] = {name: _field(name, value) for name, value in fields.items()}
    lists = {"messages": b"[%b]" % b",".join(messages)}
    if request.tools:
        lists["tools"] = fragments.of(("tools", id(request.tools)), request.tools, _tools)[0]
    # What stands in `extra` is the caller's own wish, and comes last: it wins over everything else.
    extra = {name: _field(name, value) for name, value in request.options.extra.items()}
    whole = {"model": encoded.pop("model")} | lists | encoded | extra
    data = b"{%b}" % b",".join(b"%b:%b" % (_bytes(name), value) for name, value in whole.items())
    counts = {"messages": len(messages), "tools": len(request.tools)}
    return Body(data, fields | dict(request.options.extra) | counts)


def wire_messages(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    """One message of the log in the chat API's shape: none if it says nothing, one for each of several results."""
    match _ROLES.get((message.role, message.kind)):
        case "assistant":
            return _assistant(message, dialect)
        case "tool":
            return [
                {"role": "tool", "tool_call_id": _call_id(result.call_id), "content": result.text}
                for result in message.parts
                if isinstance(result, ToolResult)
            ]
        case role:
            return [{"role": role or dialect.engine_role, "content": message.text}]


def _message_pieces(request: ModelRequest, dialect: Dialect, fragments: Fragments) -> Iterator[bytes]:
    """Each message's JSON. Neighbours that speak as the user are one message where templates want roles to alternate:
    `Dialect.engine_role`."""
    joining = dialect.engine_role == "user"
    encode = partial(_encoded, dialect=dialect)
    waiting: list[bytes] = []  # messages of the user that stand side by side
    if request.system:
        yield _bytes({"role": "system", "content": request.system})
    for message in request.messages:
        for piece in fragments.of(message.id, message, encode):
            if joining and piece.startswith(_USER_START):
                waiting.append(piece)
                continue
            if waiting:
                yield _joined(waiting)
                waiting.clear()
            yield piece
    if request.tail:
        tail = _bytes({"role": dialect.engine_role, "content": request.tail})
        if not joining:
            yield tail
            return
        waiting.append(tail)
    if waiting:
        yield _joined(waiting)


def _turn_start(messages: Sequence[Message]) -> int:
    """Where the newest turn begins: the last thing a user said, with what the engine said right before it."""
    said = (place for place, one in enumerate(messages) if (one.role, one.kind) == ("user", "message"))
    start = max(said, default=0)
    while start > 0 and messages[start - 1].role in ("user", "system"):
        start -= 1
    return start


def _mark(pieces: list[bytes], earlier: Sequence[bytes]) -> None:
    """Say "cache up to here" behind the system text, and behind the last text before the newest turn: from there the
    next request reads, whatever this turn adds.

    Args:
        pieces: of the whole request.
        earlier: of the request without its newest turn. One that goes on in that turn is not marked.
    """
    if earlier and (system := _marked(earlier[0], ("system",))) is not None:
        pieces[0] = system
    for place in range(len(earlier) - 1, -1, -1):
        if pieces[place] == earlier[place] and (text := _marked(earlier[place], ("user", "assistant"))) is not None:
            pieces[place] = text
            return


def _marked(piece: bytes, roles: Sequence[str]) -> bytes | None:
    """The message with a mark on its text; None if it is of no such role (a tool's result takes text only), or silent
    beside its calls."""
    message = json.loads(piece)
    text = message["content"]
    if message["role"] not in roles or not text:
        return None
    part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    return _bytes(message | {"content": [part]})


def _joined(pieces: Sequence[bytes]) -> bytes:
    """User messages as one, an empty line between their texts: spliced, not decoded."""
    if len(pieces) == 1:
        return pieces[0]
    texts = (piece[len(_USER_START) : -len(_STRING_END)] for piece in pieces)
    return _USER_START + rb"\n\n".join(texts) + _STRING_END


def _encoded(message: Message, *, dialect: Dialect) -> tuple[bytes, ...]:
    return tuple(map(_bytes, wire_messages(message, dialect)))


def _assistant(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
    if not text and not calls:
        return []  # an answer that broke off; servers refuse a message that says nothing
    shape: dict[str, Any] = {"role": "assistant", "content": text or None}
    if dialect.reasoning_back:
        thought = "\n".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if thought:
            shape[dialect.reasoning_back] = thought
    if calls:
        shape["tool_calls"] = calls
    return [shape]


def _call(call: ToolCall) -> dict[str, Any]:
    # The model may have invented a name that the server's own rules forbid; its error result tells it which one it was.
    name = _NOT_IN_NAMES.sub("_", call.name)[:NAME_CHARS_MAX] or "unnamed"
    return {
        "id": _call_id(call.call_id),
        "type": "function",
        "function": {"name": name, "arguments": _arguments(call.arguments)},
    }


def _call_id(call_id: str) -> str:
    if len(call_id) <= CALL_ID_CHARS_MAX:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _arguments(text: str) -> str:
    """The arguments as they were written, if they are a JSON object; none are an empty one.

    Servers parse the arguments of earlier calls, and refuse the whole request when they can't: one broken call would
    make an agent unusable for ever. So whatever else the model wrote goes back inside an object that says so.
    """
    if not text.strip():
        return "{}"
    try:
        value = parse_json(text, ARGUMENTS, parse_constant=_no_number)
        usable = isinstance(value, dict)
        if usable and "\\u" in text:
            _encode(value).encode()  # an escaped lone surrogate is JSON, but no text
    except (ValueError, RecursionError):
        usable = False
    return text if usable else _encode({"_unparsed": text})


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def _tools(tools: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    return (_bytes([{"type": "function", "function": dict(tool)} for tool in tools]),)


def _options(request: ModelRequest, dialect: Dialect, *, stream: bool) -> dict[str, Any]:
    """The fields besides messages and tools, in a fixed order; what is not wished for is left out."""
    options = request.options
    fields: dict[str, Any] = {}
    if request.tools:  # servers refuse a choice among no tools
        fields["tool_choice"] = _tool_choice(options, dialect)
        fields["parallel_tool_calls"] = options.parallel_tool_calls
    fields["response_format"] = options.response_format
    fields["temperature"] = options.temperature
    fields["top_p"] = options.top_p
    fields[dialect.output_limit] = options.max_output_tokens
    fields |= _reasoning(options, dialect)
    fields["stream"] = stream
    fields["stream_options"] = {"include_usage": True} if stream else None
    return {name: value for name, value in fields.items() if value is not None}


def _tool_choice(options: ModelOptions, dialect: Dialect) -> Any:
    """The choice; None where it is what servers do by themselves.

    Where a choice among several can't be asked for, at least one call is. Offering only those tools instead would
    change the beginning of the prompt, and the whole history would be read anew.
    """
    match options.tool_choice:
        case "auto" | ():
            return None
        case "required" | "none" as word:
            return word
        case (name,):
            return _function(name)
        case names:
            if not dialect.allowed_tools:
                return "required"
            allowed = {"mode": "required", "tools": [_function(name) for name in names]}
            return {"type": "allowed_tools", "allowed_tools": allowed}


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _reasoning(options: ModelOptions, dialect: Dialect) -> dict[str, Any]:
    if dialect.reasoning == "effort":
        effort = options.reasoning_effort
        if effort is None and dialect.budget_as_effort and (budget := options.max_reasoning_tokens) is not None:
            effort = next((word for most, word in _EFFORTS if budget <= most), "high")
        return {"reasoning_effort": effort}
    if options.max_reasoning_tokens is not None:  # OpenRouter takes one of the two
        return {"reasoning": {"max_tokens": options.max_reasoning_tokens}}
    return {"reasoning": {"effort": options.reasoning_effort}} if options.reasoning_effort else {}


def _field(name: str, value: Any) -> bytes:
    try:
        return _bytes(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelRequestRefused(
            f"the model option {name!r} can't be sent: {error}; give what JSON can hold"
        ) from error


def _bytes(value: Any) -> bytes:
    """JSON as UTF-8. A half of a surrogate pair is no character and can't be sent: it becomes U+FFFD."""
    text = _encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
