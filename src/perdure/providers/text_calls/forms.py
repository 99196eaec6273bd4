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
from typing import Any

from perdure.core.messages import ToolCall
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.spec import bare_name

FENCE = "```"
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = (
    *("arguments", "parameters", "args", "params", "input", "kwargs"),
    *(f"{of}_{what}" for of in ("action", "tool", "function") for what in ("input", "args", "arguments", "parameters")),
)
_HOLDERS = (
    *("tool_calls", "function_calls", "calls"),
    *("function_call", "tool_call", "function", "tool", "action", "command"),
)
_OTHER_KEYS = frozenset({"id", "type", "call_id", "tool_call_id", "index"})

_NAME = re.compile(r"[A-Za-z_][\w./:-]{0,63}")
_PARSED_CHARS = 100_000
"""Texts up to this length are read as Python: the parser takes memory for each character."""

_BROKEN_NAME = re.compile(rf"""["']?\b(?:{"|".join(NAME_KEYS)})["']?\s*:\s*["']([\w./:-]+)["']""")
_BROKEN_ARGUMENTS = re.compile(rf"""["']?\b(?:{"|".join(ARGUMENT_KEYS)})["']?\s*:""")
_BRACKET = re.compile(
    r"""\"(?:[^"\\]|\\.)*(?:"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|```|</think>|[{}\[\]()]""", re.DOTALL
)

Tools = Mapping[str, Mapping[str, Any]]
"""Name of a tool that is offered -> the schema of its arguments."""


def closing_bracket(text: str, at: int) -> tuple[int, bool]:
    """Where the first bracket from this place on is closed, and whether it is; else where fence, thoughts or text
    end."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        if found[0] in (FENCE, "</think>"):
            return found.start(), False
        if found[0] in "{[(":
            depth += 1
        elif found[0] in "}])":
            depth -= 1
            if depth <= 0:
                return found.end(), True
    return len(text), False


def read_value(text: str) -> Any:
    """The value of a JSON text, of one with line breaks in its strings or doubled braces, or of a Python literal; None:
    it is none of these."""
    if text.startswith("{{") and text.endswith("}}"):
        text = text[1:-1]
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return _literal(_parse(text))


def call_of(name: str, arguments: Any) -> ToolCall:
    """A call, still without an id; its arguments are an object, or a text that may be one."""
    return ToolCall("", name, arguments if isinstance(arguments, str) else compact_json(arguments))


def calls_in(value: Any, tools: Tools) -> tuple[ToolCall, ...]:
    """The calls that a value is; none: it is something else. An unknown tool makes a call only of an object that has
    nothing besides name and arguments."""
    if isinstance(value, list):
        each = [calls_in(item, tools) for item in value]
        return tuple(call for calls in each for call in calls) if all(each) else ()
    if not isinstance(value, Mapping):
        return ()
    for key in _HOLDERS:
        if isinstance(value.get(key), list | Mapping):
            return calls_in(value[key], tools)
    if all(bare_name(key) in tools and isinstance(item, Mapping) for key, item in value.items()):
        return tuple(call_of(bare_name(key), item) for key, item in value.items())
    key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), "")
    name = bare_name(value.get(key, ""))
    inside = next((other for other in ARGUMENT_KEYS if other in value), None)
    others = {other: item for other, item in value.items() if other not in (key, inside, *_OTHER_KEYS)}
    arguments = others if inside is None else value[inside] or {}
    if name in tools:
        return (call_of(name, arguments),)
    is_object = isinstance(arguments, Mapping) or (isinstance(arguments, str) and arguments.lstrip().startswith("{"))
    is_call = is_object and "properties" not in arguments and (inside == "arguments" or _NAME.fullmatch(name))
    return (call_of(name, arguments),) if name and is_call and inside is not None and not others else ()


def python_calls(text: str, tools: Tools, *, any_name: bool = False) -> tuple[ToolCall, ...] | None:
    """The calls that a Python expression is, also those in a list or within `print(...)`; none: it is something else.
    None: the text is no Python. With `any_name` unknown tools are calls too."""
    tree = _parse(text)
    if tree is None:
        return None
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "print" and len(tree.args) == 1:
        tree = tree.args[0]
    calls: list[ToolCall] = []
    for node in tree.elts if isinstance(tree, ast.List) else [tree]:
        name = bare_name(ast.unparse(node.func)) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not (name in tools or (any_name and _NAME.fullmatch(name))):
            return ()
        places = list(tools.get(name, {}).get("properties", ()))
        given = [*zip(places, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
        arguments = {str(key): _literal(part) for key, part in given}
        is_literal = all(arguments[str(key)] is not None or ast.unparse(part) == "None" for key, part in given)
        if not is_literal or len(arguments) < len(node.args) + len(node.keywords):
            return ()
        calls.append(call_of(name, arguments))
    return tuple(calls)


def _parse(text: str) -> ast.expr | None:
    """The expression that a text is in Python; None: it is none."""
    if len(text) > _PARSED_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that are none
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal(node: ast.expr | None) -> Any:
    """The value of a literal, as JSON can hold it; None: it is no literal."""
    try:
        value = None if node is None else ast.literal_eval(node)
        json.dumps(value, allow_nan=False)
        return value
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def looks_like_call(text: str) -> str:
    """The name in a text that begins as a call in JSON and can't be read as one; empty: it does not look like one."""
    found = _BROKEN_NAME.search(text)
    return bare_name(found[1]) if found and _BROKEN_ARGUMENTS.search(text) else ""


def quotes(text: str, call: ToolCall) -> bool:
    """Whether a text, as `squeeze` leaves it, has the name and all arguments of a call, in JSON or as Python."""
    arguments = read_value(call.arguments)
    if call.name not in text or not isinstance(arguments, Mapping) or not arguments:
        return False
    pairs = ((f'"{key}":{compact_json(value)}', f"{key}={value!r}") for key, value in arguments.items())
    return all(any(squeeze(form) in text for form in forms) for forms in pairs)


def squeeze(text: str) -> str:
    """A text without white space and escapes, and with one kind of quote: what a copy keeps of it."""
    return re.sub(r"[\s\\]+", "", text).replace("'", '"')
