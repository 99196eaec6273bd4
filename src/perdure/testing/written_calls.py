"""Tool calls as models write them into the text of an answer, where their server finds none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from perdure.core.models import ModelReply
from perdure.testing.scripted_model import says

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
