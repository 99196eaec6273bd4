"""The bodies of requests to OpenAI's responses API, in the shape of its chat API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from perdure.core.errors import InvalidInput
from perdure.core.ids import PREFIXES, MessageId
from perdure.features.openai_front.bodies import AnswerOptions
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import JsonObject, MaxItems, Name

RESPONSE, MESSAGE = "resp_", "msg_"
_PASSED = (
    *("temperature", "top_p", "parallel_tool_calls", "user", "metadata", "service_tier", "safety_identifier"),
    *("prompt_cache_key", "top_logprobs"),
)
"""Fields that both APIs have."""
_ECHOED = (*_PASSED, "instructions", "previous_response_id", "max_output_tokens", "max_tool_calls", "truncation")
"""Fields that the answer shows again."""


class TextForm(WireRequest):
    """The form of the answer."""

    format: JsonObject | None = None
    verbosity: str | None = None


class ResponseRequest(AnswerOptions):
    """A request to an agent, or to a model with memory (`memory/HANDLE`). `conversation` is a conversation's id or any
    name of one; with `previous_response_id` the request goes on behind that answer."""

    input: str | Annotated[list[JsonObject], MaxItems("imports_per_request")]
    instructions: str | None = None
    previous_response_id: Name | None = None
    conversation: str | JsonObject | None = None
    store: bool | None = None
    text: TextForm | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    safety_identifier: str | None = None
    prompt_cache_key: Name | None = None
    truncation: str | None = None

    @property
    def conversation_name(self) -> str:
        """The conversation that it names; empty: none. Raises: InvalidInput: it names an answer, too."""
        named = self.conversation if isinstance(self.conversation, str) else (self.conversation or {}).get("id")
        if self.previous_response_id and named:
            raise InvalidInput("previous_response_id and conversation: give one of them")
        return str(named or "")

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The items of the input."""
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input

    @property
    def references(self) -> Sequence[MessageId]:
        """The messages of earlier answers that it names by their ids."""
        names = [str(item.get("id", "")) for item in self.items if item.get("type") == "item_reference"]
        return [message_id_of(name) for name in names if name.startswith(MESSAGE)]

    def chat(self, known: Mapping[MessageId, str]) -> dict[str, Any]:
        """The body of the same request to the chat API. `known`: the texts of `references`. Raises: InvalidInput."""
        form = self.text.format if self.text is not None else None
        if form is not None and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": {k: v for k, v in form.items() if k != "type"}}
        choice = self.tool_choice
        fields = {
            "tools": [_nested(tool) for tool in self.tools or ()] or None,
            "tool_choice": choice if choice is None or isinstance(choice, str) else _nested(choice),
            "response_format": form,
            "reasoning_effort": (self.reasoning or {}).get("effort"),
            "max_completion_tokens": self.max_output_tokens,
            "verbosity": None if self.text is None else self.text.verbosity,
            **({"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}),
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return self.non_null(*_PASSED) | given | {"model": self.model, "messages": self._messages(known)}

    def _messages(self, known: Mapping[MessageId, str]) -> list[dict[str, Any]]:
        """The messages that the items are. Raises: InvalidInput."""
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        for place, one in enumerate(self.items):
            kind, role = one.get("type", "message"), one.get("role")
            if kind == "message" and role in ("user", "assistant", "system", "developer"):
                content = _content(one.get("content"), place)
                if role == "assistant" and not isinstance(content, str):
                    content = "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
                messages.append({"role": role, "content": content})
            elif kind == "item_reference":
                messages.append({"role": "assistant", "content": known.get(message_id_of(str(one.get("id", ""))), "")})
            elif kind in ("function_call", "custom_tool_call"):
                if not messages or not messages[-1].get("tool_calls"):  # calls of one answer are one message
                    messages.append({"role": "assistant", "content": None, "tool_calls": []})
                messages[-1]["tool_calls"].append(_call(one))
            elif kind in ("function_call_output", "custom_tool_call_output"):
                content = _content(one.get("output"), place)
                messages.append({"role": "tool", "tool_call_id": str(one.get("call_id") or ""), "content": content})
            elif kind != "reasoning":
                raise InvalidInput(f"input.{place}: an item of the type {kind!r:.60} is not taken")
        return messages

    def echo(self, **shown: Any) -> dict[str, Any]:
        """What a `Response` shows of the request."""
        if self.tools:
            tools = [{"parameters": None, "strict": None, "type": "function", **tool} for tool in self.tools]
            shown |= {"tools": tools, "tool_choice": self.tool_choice or "auto"}
        if self.text is not None:
            shown["text"] = {"format": {"type": "text"}} | self.text.non_null()
        if self.reasoning is not None:
            shown["reasoning"] = {"effort": None, "summary": None} | self.reasoning
        return {**self.non_null(*_ECHOED), "model": self.model, "store": self.store is not False, **shown}


def _content(content: Any, place: int) -> str | list[dict[str, Any]]:
    """A message's content as the chat API has it. Raises: InvalidInput: it is neither a text nor a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(one, Mapping) for one in content):
        raise InvalidInput(f"input.{place}: a content is {content!r:.80}: give a text or a list of parts")
    return [_part(one) for one in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text")}
        case "input_image":
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": part.get("image_url"), **detail}}
        case "input_file":
            names = ("file_data", "filename", "file_id", "file_url")
            return {"type": "file", "file": {name: part[name] for name in names if part.get(name)}}
        case _:
            return dict(part)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """A call as the chat API has it."""
    call = {"id": str(item.get("call_id") or ""), "type": "function"}
    if item["type"] == "function_call":
        return call | {"function": {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}}
    return call | {"type": "custom", "custom": {"name": item.get("name"), "input": item.get("input") or ""}}


def _nested(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool, or a choice of one, as the chat API has it: a function's fields stand under its kind."""
    kind = str(tool.get("type", "function"))
    if kind not in ("function", "custom"):
        return dict(tool)
    return {"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}


def message_id_of(item_id: str) -> MessageId:
    """The message of an item, or of an answer that is one."""
    return MessageId(f"{PREFIXES['message']}-{item_id.removeprefix(MESSAGE).removeprefix(RESPONSE)}")
