"""Read the calls that a piece of text is: JSON of many shapes, or Python. Pure functions.

Models that were trained on other people's formats, or whose server knows no format of theirs, write their calls into
the answer: as OpenAI's objects, with `parameters` for `arguments`, in lists, as Python calls, with braces doubled.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.text.json_strings import compact_json
from perdure.core.tools.spec import bare_name

NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name", "call")
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "input", "action_input", "kwargs", "params"),
    *(f"{what}_{name}" for what in ("tool", "function") for name in ("input", "arguments", "args", "parameters")),
)
_LIST_KEYS = ("tool_calls", "function_calls", "calls")
_CALL_KEYS = ("function_call", "tool_call", "function", "tool", "action", "command")
_OTHER_KEYS = frozenset({"id", "type", "call_id", "tool_call_id", "index"})

_NAME = re.compile(r"[A-Za-z_][\w./:-]{0,63}")
_EVALUATED_CHARS = 100_000
"""Texts up to this length are read as Python: the parser takes memory for each character."""

_BROKEN_NAME = re.compile(rf"""["']?\b(?:{"|".join(NAME_KEYS)})["']?\s*:\s*["']([\w./:-]+)["']""")
_BROKEN_ARGUMENTS = re.compile(rf"""["']?\b(?:{"|".join(ARGUMENT_KEYS)})["']?\s*:""")
_TYPE = re.compile(r"""\{+\s*["']type["']\s*:\s*["'](\w+)["']""")

Tools = Mapping[str, Mapping[str, Any]]
"""Name of a tool that is offered -> the schema of its arguments."""


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call as its text has it: `arguments` is an object, or a text that may be one."""

    name: str
    arguments: Any

    @property
    def json(self) -> str:
        """The arguments as JSON, if they are any."""
        return self.arguments if isinstance(self.arguments, str) else compact_json(self.arguments)


def read_value(text: str) -> Any:
    """The value of a JSON text, of one with line breaks in its strings or doubled braces, or of a Python literal; None:
    it is none of these."""
    doubled = (text[1:-1],) if text.startswith("{{") and text.endswith("}}") else ()
    for one in (text, *doubled):
        try:
            return json.loads(one, strict=False)
        except (ValueError, RecursionError):
            continue
    tree = _parse(doubled[0] if doubled else text)
    return None if tree is None else _literal(tree)


def calls_in(value: Any, tools: Tools) -> tuple[TextCall, ...]:
    """The calls that a value is; none: it is something else. An unknown tool makes a call only of an object that has
    nothing besides name and arguments."""
    if isinstance(value, list):
        each = [calls_in(item, tools) for item in value]
        return tuple(call for calls in each for call in calls) if all(each) else ()
    if not isinstance(value, Mapping):
        return ()
    for key in _LIST_KEYS:
        if isinstance(value.get(key), list):
            return calls_in(value[key], tools)
    for key in _CALL_KEYS:
        if isinstance(value.get(key), Mapping):
            return calls_in(value[key], tools)
    if value and all(bare_name(key) in tools and isinstance(item, Mapping) for key, item in value.items()):
        return tuple(TextCall(bare_name(key), item) for key, item in value.items())
    named = (key for key in NAME_KEYS if isinstance(value.get(key), str))
    return next((_named_call(value, key, tools) for key in named), ())


def _named_call(value: Mapping[str, Any], key: str, tools: Tools) -> tuple[TextCall, ...]:
    """The call that an object with a name under this key is."""
    name = bare_name(value[key])
    inside = next((other for other in ARGUMENT_KEYS if other in value and other != key), None)
    others = value.keys() - {key, inside} - _OTHER_KEYS
    if inside is None:
        return (
            (TextCall(name, {other: item for other, item in value.items() if other in others}),)
            if name in tools
            else ()
        )
    arguments = {} if value[inside] is None else value[inside]
    if name in tools:
        return (TextCall(name, arguments),)
    is_named = inside == "arguments" or _NAME.fullmatch(name)
    is_object = isinstance(arguments, Mapping) or (isinstance(arguments, str) and arguments.lstrip()[:1] in ("", "{"))
    is_schema = isinstance(arguments, Mapping) and "properties" in arguments
    return (TextCall(name, arguments),) if is_named and is_object and not is_schema and not others else ()


def python_calls(text: str, tools: Tools, *, any_name: bool = False) -> tuple[TextCall, ...]:
    """The calls that a Python expression is, also those in a list or within `print(...)`; none: it is something else.

    Args:
        any_name: unknown tools are calls too.
    """
    tree = _parse(text)
    while isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "print":
        tree = tree.args[0] if len(tree.args) == 1 else None
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    calls = [_python_call(node, tools, any_name) for node in nodes]
    return tuple(call for call in calls if call is not None) if calls and all(calls) else ()


def _python_call(node: ast.expr | None, tools: Tools, any_name: bool) -> TextCall | None:
    """The call that a node is, if its arguments are literals."""
    if not isinstance(node, ast.Call):
        return None
    name = bare_name(ast.unparse(node.func))
    if name not in tools and not (any_name and _NAME.fullmatch(name)):
        return None
    arguments: dict[str, Any] = {}
    places = list(tools.get(name, {}).get("properties", ()))
    if len(node.args) > len(places):
        return None
    for key, part in (*zip(places, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)):
        value = _literal(part)
        if value is None and not (isinstance(part, ast.Constant) and part.value is None):
            return None
        arguments |= {key: value} if key is not None else value if isinstance(value, dict) else {}
    return TextCall(name, arguments)


def is_python(text: str) -> bool:
    """Whether a text is an expression in Python."""
    return _parse(text) is not None


def _parse(text: str) -> ast.expr | None:
    """The expression that a text is in Python; None: it is none."""
    if len(text) > _EVALUATED_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that are none
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal(node: ast.expr) -> Any:
    """The value of a literal, as JSON can hold it; None: it is no literal."""
    try:
        value = ast.literal_eval(node)
        json.dumps(value, allow_nan=False)
        return value
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def looks_like_call(text: str) -> str:
    """The name in a text that begins as a call in JSON and can't be read as one; empty: it does not look like one."""
    found = _BROKEN_NAME.search(text)
    return bare_name(found[1]) if found and _BROKEN_ARGUMENTS.search(text) else ""


def type_of(text: str) -> str:
    """The `type` that a JSON object begins with; empty: it does not begin so."""
    found = _TYPE.match(text)
    return found[1] if found else ""


def quotes(text: str, call: TextCall) -> bool:
    """Whether a text, as `squeeze` leaves it, has the name and all arguments of a call, in JSON or as Python."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else read_value(call.json)
    if call.name not in text or not isinstance(arguments, Mapping) or not arguments:
        return False
    pairs = ((f'"{key}":{compact_json(value)}', f"{key}={value!r}") for key, value in arguments.items())
    return all(any(squeeze(form) in text for form in forms) for forms in pairs)


def squeeze(text: str) -> str:
    """A text without white space and escapes, and with one kind of quote: what a copy keeps of it."""
    return re.sub(r"[\s\\]+", "", text).replace("'", '"')
