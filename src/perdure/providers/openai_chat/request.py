"""Build the body of a chat request. Equal requests give equal bytes.

A budget of reasoning tokens (`ModelOptions.max_reasoning_tokens`) has a field with OpenRouter only. For models that
reason on OpenAI's own hosts it is sent as an effort, unless one is set: up to 1024 tokens are "low", up to 8192
"medium", more "high". Everywhere else it is left out: a server that does not know the field would refuse the request.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from perdure.core.errors import ModelRequestRefused
from perdure.core.messages import (
    Image,
    Message,
    MessageKind,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    images_of,
    text_of,
)
from perdure.core.models import ModelOptions, ModelRequest, ReasoningEffort
from perdure.core.text.json_strings import encodable
from perdure.providers.answer_schemas import with_schema_in_prompt
from perdure.providers.history import legal_arguments, put_words_first, turn_start, unseen_text
from perdure.providers.openai_endpoint import Dialect

NAME_CHARS_MAX = 64
CALL_ID_CHARS_MAX = 40  # OpenAI refuses longer ones; another provider may have given them

_EFFORTS: Sequence[tuple[int, ReasoningEffort]] = ((1024, "low"), (8192, "medium"))

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

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
    """The body of a request as bytes, and its fields for the trace, with the numbers of messages and tools only."""

    data: bytes
    fields: Mapping[str, Any]


def build_body(request: ModelRequest, *, model: str, dialect: Dialect, stream: bool) -> Body:
    """The body of a chat request.

    The order is system prompt, messages, tail. As in the log, nothing comes between a call and its result.

    Args:
        model: the name the server knows, without the provider.
    Raises: ModelRequestRefused: options that JSON can't hold.
    """
    if dialect.json_answers != "schema":
        form = {"type": "json_object"} if dialect.json_answers == "object" else None
        request = with_schema_in_prompt(request, response_format=form)
    messages = _messages(request, dialect)
    if dialect.cache_marks:
        earlier = replace(request, messages=request.messages[: turn_start(request.messages)], tail="")
        _mark(messages, _messages(earlier, dialect))
    # The caller's own fields come last and win.
    options = _options(request, dialect, stream=stream) | dict(request.options.extra)
    lists: dict[str, list[Any]] = {"messages": messages}
    if request.tools:
        lists["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
    try:
        text = _encode({"model": model, **lists, **options})
    except (TypeError, ValueError, RecursionError):
        _check_options(options)
        raise
    data = encodable(text).encode()
    counts = {"messages": len(messages), "tools": len(request.tools)}
    return Body(data, {"model": model, **options, **counts})


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises: ModelRequestRefused: an option that JSON can't hold."""
    for name, value in options.items():
        try:
            _encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelRequestRefused(
                f"the model option {name!r} can't be sent: {error}; give what JSON can hold"
            ) from error


def wire_messages(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    """A message of the log as messages of the chat API: none if it is empty, one for each tool result."""
    kind = _ROLES.get((message.role, message.kind))
    match kind:
        case "assistant":
            return _assistant(message, dialect)
        case "tool":
            return [
                {"role": "tool", "tool_call_id": _call_id(result.call_id), "content": result.text}
                for result in message.parts
                if isinstance(result, ToolResult)
            ]
        case _:
            return [{"role": kind or dialect.engine_role, "content": _content(message.parts, dialect)}]


@functools.lru_cache(maxsize=64)
def _in_words(dialect: Dialect) -> Dialect:
    """The dialect of a request `in_words`."""
    return replace(dialect, engine_role="user", parts=False)


def _messages(request: ModelRequest, dialect: Dialect) -> list[dict[str, Any]]:
    """All messages of a request; adjacent user messages are one where roles must alternate."""
    shapes: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
    pictures: list[Image] = []
    history: Sequence[Message] = request.messages
    tail = request.tail
    if request.in_words:
        dialect, history, tail = _in_words(dialect), put_words_first(history, tail), ""
    if request.opening:
        shapes.append({"role": dialect.engine_role, "content": request.opening})
    takes_users = dialect.user_after_tool
    for message in history:
        role, parts = message.role, message.parts
        # Nearly all of a history, which is sent with every request, is such a text.
        if takes_users and message.kind == "message" and role != "tool" and len(parts) == 1 and not pictures:
            part = parts[0]
            if type(part) is Text and part.text and role != "system":
                shapes.append({"role": role, "content": part.text})
                continue
        if role != "tool" and pictures:
            _add(shapes, [_pictures_of_results(pictures, dialect)], dialect)
            pictures = []
        _add(shapes, wire_messages(message, dialect), dialect, engine=(role, message.kind) not in _ROLES)
        if role == "tool":
            pictures += images_of(parts)
    if pictures:
        _add(shapes, [_pictures_of_results(pictures, dialect)], dialect)
    if tail:
        _add(shapes, [{"role": dialect.engine_role, "content": tail}], dialect, engine=True)
    shapes = [_as_text(shape) for shape in shapes] if dialect.calls_as_text else shapes
    roles = [shape["role"] for shape in shapes]
    if dialect.engine_role != "user" or ("user", "user") not in pairwise(roles):
        return shapes
    messages: list[dict[str, Any]] = []
    for role, group in groupby(shapes, key=itemgetter("role")):
        same = list(group)
        if role == "user" and len(same) > 1:
            same = [{"role": role, "content": _join_contents([shape["content"] for shape in same], dialect)}]
        messages += same
    return messages


def _add(
    shapes: list[dict[str, Any]], added: Sequence[dict[str, Any]], dialect: Dialect, *, engine: bool = False
) -> None:
    """Append messages; where no user may follow a tool's result, a text of the `engine` becomes part of the result."""
    if dialect.user_after_tool or not (added and shapes and (added[0]["role"], shapes[-1]["role"]) == ("user", "tool")):
        shapes += added
    elif engine and isinstance(added[0]["content"], str):
        shapes[-1] |= {"content": f"{shapes[-1]['content']}\n\n{added[0]['content']}"}
    else:
        shapes += [{"role": "assistant", "content": "."}, *added]


def _content(parts: Sequence[Part], dialect: Dialect) -> str | list[dict[str, Any]]:
    """The content of a user's message: a text, or texts and pictures in order."""
    if not images_of(parts):
        return text_of(parts)
    if not dialect.images:
        return "\n".join(unseen_text(part) if isinstance(part, Image) else text_of((part,)) for part in parts)
    return [_picture(part) if isinstance(part, Image) else {"type": "text", "text": text_of((part,))} for part in parts]


def _picture(image: Image) -> dict[str, Any]:
    address = {"url": f"data:{image.media_type};base64,{image.data}"}
    return {"type": "image_url", "image_url": address | ({"detail": image.detail} if image.detail else {})}


def _pictures_of_results(images: Sequence[Image], dialect: Dialect) -> dict[str, Any]:
    """The pictures in results of tools, as a message after all of these: in the API a result holds only text."""
    parts: list[Part] = [Text("The tools above returned these images, in this order:"), *images]
    return {"role": "user", "content": _content(parts, dialect)}


def _join_contents(contents: Sequence[str | list[dict[str, Any]]], dialect: Dialect) -> str | list[dict[str, Any]]:
    """The contents of adjacent messages as one, with a part for each text; the later ones begin with an empty line,
    because some templates put parts side by side."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents) and not dialect.parts:
        return "\n\n".join(texts)
    parts: list[dict[str, Any]] = []
    for content in contents:
        gap = "\n\n" if parts and parts[-1]["type"] == "text" else ""
        parts += [{"type": "text", "text": f"{gap}{content}"}] if isinstance(content, str) else content
    return parts


def _mark(messages: list[dict[str, Any]], earlier: Sequence[Mapping[str, Any]]) -> None:
    """Set cache marks after the system text, and after the last text before the newest turn: the next request reads the
    cache up to there, whatever this turn adds.

    Args:
        messages: of the whole request.
        earlier: of the request without its newest turn. One that goes on in that turn is not marked.
    """
    # A tool's result takes no mark.
    texts = [
        place
        for place, message in enumerate(earlier)
        if message["content"]
        and isinstance(message["content"], str)
        and message["role"] in ("user", "assistant")
        and message == messages[place]
    ]
    system = [0] if earlier and earlier[0]["role"] == "system" else []
    for place in (*system, *texts[-1:]):
        part = {"type": "text", "text": messages[place]["content"], "cache_control": {"type": "ephemeral"}}
        messages[place] = messages[place] | {"content": [part]}


def _assistant(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    """An answer of the model in the API's shape; an empty list if it has neither text nor calls."""
    text = "".join([part.text for part in message.parts if isinstance(part, Text)])
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
    if not text and not calls:
        return []  # servers refuse an empty message
    shape: dict[str, Any] = {"role": "assistant", "content": text or None}
    if dialect.reasoning_back:
        thought = "\n".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if thought:
            shape[dialect.reasoning_back] = thought
    if calls:
        shape["tool_calls"] = calls
    return [shape]


def _call(call: ToolCall) -> dict[str, Any]:
    # Servers refuse the whole request for an illegal name, which a model can have invented.
    name = _NOT_IN_NAMES.sub("_", call.name)[:NAME_CHARS_MAX] or "unnamed"
    return {
        "id": _call_id(call.call_id),
        "type": "function",
        "function": {"name": name, "arguments": legal_arguments(call.arguments, wrapper="_unparsed")},
    }


def _as_text(shape: dict[str, Any]) -> dict[str, Any]:
    """A message with its calls as text, in a form that is read as calls; a result as what a user says."""
    if shape["role"] == "tool":
        return {"role": "user", "content": f"Result of the call:\n{shape['content']}"}
    calls = [call["function"] for call in shape.get("tool_calls", ())]
    written = [f'{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}' for call in calls]
    others = {name: value for name, value in shape.items() if name != "tool_calls"}
    return others | {"content": "\n".join(filter(None, (shape["content"], *written)))} if calls else shape


def _call_id(call_id: str) -> str:
    """The id of a call, or a digest if it is too long for servers."""
    if len(call_id) <= CALL_ID_CHARS_MAX:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _options(request: ModelRequest, dialect: Dialect, *, stream: bool) -> dict[str, Any]:
    """The fields besides messages and tools, in a fixed order; unset options are left out."""
    options = request.options
    fields: dict[str, Any] = {}
    if request.tools:  # servers refuse a choice among no tools
        fields["tool_choice"] = _tool_choice(options, dialect)
        fields["parallel_tool_calls"] = options.parallel_tool_calls
    fields["response_format"] = options.response_format
    if dialect.temperature or request.purpose == "reply":  # of what a person sets, the server says what is wrong
        fields["temperature"] = options.temperature
    fields["top_p"] = options.top_p
    fields[dialect.output_limit] = options.max_output_tokens
    fields |= _reasoning(options, dialect)
    if options.logprobs and dialect.logprobs:
        fields["logprobs"] = True
        fields["top_logprobs"] = options.top_logprobs
    if options.token_ids and dialect.token_ids:
        fields["return_token_ids"] = True
    fields["stream"] = stream
    fields["stream_options"] = {"include_usage": True} if stream else None
    fields["return_progress"] = True if stream and dialect.reports_progress else None
    return {name: value for name, value in fields.items() if value is not None}


def _tool_choice(options: ModelOptions, dialect: Dialect) -> Any:
    """The choice; None for the default of servers.

    Where a choice among several tools is not possible, any call is required. Sending only those tools would change the
    start of the prompt, and so lose the cache of the whole history.
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
    """The field that limits reasoning, under the dialect's name."""
    if dialect.reasoning == "effort":
        effort = options.reasoning_effort
        if effort is None and dialect.budget_as_effort and (budget := options.max_reasoning_tokens) is not None:
            effort = next((word for most, word in _EFFORTS if budget <= most), "high")
        return {"reasoning_effort": effort}
    if options.max_reasoning_tokens is not None:  # OpenRouter takes one of the two
        return {"reasoning": {"max_tokens": options.max_reasoning_tokens}}
    return {"reasoning": {"effort": options.reasoning_effort}} if options.reasoning_effort else {}
