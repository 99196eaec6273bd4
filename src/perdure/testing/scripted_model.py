"""A model that answers from a script, also with tool calls written into the text."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from perdure.core.errors import ModelError
from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage

Line = ModelReply | ModelError | Callable[[ModelRequest], ModelReply]
"""One answer: a reply, an error, or a function of the request."""


def says(text: str, *, usage: Usage | None = None) -> ModelReply:
    """A reply of text, which ends the run."""
    return ModelReply(parts=(Text(text),), usage=usage or Usage(input_tokens=10, output_tokens=2))


def calls(name: str, *further_calls: ToolCall, call_id: str = "", **arguments: Any) -> ModelReply:
    """A reply with a tool call, followed by `further_calls`. The model fills in an empty id."""
    call = ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
    return ModelReply(parts=(call, *further_calls), usage=Usage(input_tokens=10, output_tokens=5))


def thinks(thought: str, reply: ModelReply) -> ModelReply:
    """The reply with reasoning before it."""
    return replace(reply, parts=(Reasoning(thought), *reply.parts))


def fails(message: str = "the provider is down", *, kind: str = "llm_error") -> ModelError:
    """An error in place of a reply."""
    return ModelError(message, kind=kind)


class ScriptedModel:
    """`Model` that answers each request with the next line of its script, and with `otherwise` after the last.

    `requests` holds the requests for an answer, `summary_requests` those for a summary, `extraction_requests` those for
    facts, in order. Requests for a summary get `summarises`; without it they fail, and the engine makes an extract
    instead. Requests for facts get `extracts`; without it they find none.
    """

    def __init__(
        self,
        *script: Line,
        otherwise: Line | None = None,
        summarises: Line | None = None,
        extracts: Line | None = None,
    ) -> None:
        self._script = list(script)
        self._otherwise = otherwise if otherwise is not None else says("OK.")
        self._summarises = summarises if summarises is not None else fails("the script has no summary")
        self._extracts = extracts if extracts is not None else says('{"entities": [], "facts": [], "certain": true}')
        self.requests: list[ModelRequest] = []
        self.extraction_requests: list[ModelRequest] = []
        self.summary_requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            self.summary_requests.append(request)
            line = self._summarises
        elif request.purpose == "extraction":
            self.extraction_requests.append(request)
            line = self._extracts
        else:
            self.requests.append(request)
            line = self._script.pop(0) if self._script else self._otherwise
        if isinstance(line, ModelError):
            raise line
        reply = line if isinstance(line, ModelReply) else line(request)
        reply = replace(reply, parts=_with_ids(reply.parts, len(self.requests)))
        for delta in _deltas(reply.parts):
            yield delta
        yield reply


def _with_ids(parts: Sequence[Part], answer: int) -> tuple[Part, ...]:
    """The parts, with an id for each call that has none."""
    return tuple(
        replace(part, call_id=f"call_{answer}_{index}") if isinstance(part, ToolCall) and not part.call_id else part
        for index, part in enumerate(parts)
    )


def _deltas(parts: Sequence[Part]) -> list[ModelDelta]:
    """The pieces in which the parts are streamed."""
    deltas: list[ModelDelta] = []
    call = 0
    for part in parts:
        match part:
            case Text(text=text):
                deltas += [ModelDelta("text", piece) for piece in re.findall(r"\S*\s*", text) if piece]
            case Reasoning(text=text):
                deltas.append(ModelDelta("reasoning", text))
            case ToolCall():
                deltas.append(ModelDelta("tool_name", part.name, call, part.call_id))
                deltas.append(ModelDelta("tool_arguments", part.arguments, call, part.call_id))
                call += 1
            case _:
                pass
    return deltas


_Form = Callable[[str, Mapping[str, Any]], str]


def _object(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    return json.dumps({"name": name, key: dict(arguments)}, ensure_ascii=False)


def _python(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _openai(name: str, arguments: Mapping[str, Any]) -> str:
    function = {"name": name, "arguments": json.dumps(dict(arguments))}
    return json.dumps({"tool_calls": [{"type": "function", "function": function}]})


CALL_FORMS: Final[Mapping[str, _Form]] = {
    "fence": lambda name, arguments: f"```json\n{_object(name, arguments)}\n```",
    "tag": lambda name, arguments: f"<tool_call>\n{_object(name, arguments)}\n</tool_call>",
    "bare": _object,
    "prose before": lambda name, arguments: f"Sure! I'll store that.\n\n{_object(name, arguments)}",
    "list": lambda name, arguments: f"[{_object(name, arguments)}]",
    "openai": _openai,
    "parameters": lambda name, arguments: _object(name, arguments, "parameters"),
    "arguments as a string": lambda name, arguments: json.dumps(
        {"name": name, "arguments": json.dumps(dict(arguments))}
    ),
    "python": _python,
    "tool_code": lambda name, arguments: f"```tool_code\n{_python(name, arguments)}\n```",
    "mistral": lambda name, arguments: f"[TOOL_CALLS][{_object(name, arguments)}]",
    "python_tag": lambda name, arguments: f"<|python_tag|>{_object(name, arguments, 'parameters')}",
    "missing brace": lambda name, arguments: f"```json\n{_object(name, arguments)[:-1]}\n```",
}
"""Name of a form -> the text of a call in it. Two calls in two fences are two texts of "fence"."""


def writes_call(form: str, name: str, **arguments: Any) -> ModelReply:
    """An answer whose text is a call in one of `CALL_FORMS`."""
    return says(CALL_FORMS[form](name, arguments))
