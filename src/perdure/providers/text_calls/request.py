"""What a request says about the answer to it: what may be called, what is a quotation, what the person asks to see;
and the calls that a piece of text is: JSON of many shapes, or Python. Pure functions.

Models that were trained on other people's formats, or whose server knows no format of theirs, write their calls into
the answer: as OpenAI's objects, with `parameters` for `arguments`, in lists, as Python calls, with braces doubled.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from perdure.core.errors import InvalidArguments
from perdure.core.loops import HEARTBEAT, THINKING
from perdure.core.messages import ToolCall, unlogged_message
from perdure.core.models import ModelRequest
from perdure.core.specs import bare_name
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.arguments import parse_arguments

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


def closing_bracket(text: str, start: int) -> tuple[int, bool]:
    """(Where the first bracket from `start` on is closed, True), or (where fence, thoughts or text end, False)."""
    depth = 0
    for found in _BRACKET.finditer(text, start):
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
    """Return the value of JSON, also with raw line breaks or doubled braces, or of a Python literal; None: neither."""
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
    """Return the calls in a Python expression, also inside a list or `print(...)`; empty: there are none. None: it is
    no Python. With `any_name`, calls of unknown tools count too."""
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
        given = [*zip(places, node.args, strict=False), *((keyword.arg, keyword.value) for keyword in node.keywords)]
        arguments = {str(key): _literal(part) for key, part in given}
        is_literal = all(arguments[str(key)] is not None or ast.unparse(part) == "None" for key, part in given)
        if not is_literal or len(arguments) < len(node.args) + len(node.keywords):
            return ()
        calls.append(call_of(name, arguments))
    return tuple(calls)


def _parse(text: str) -> ast.expr | None:
    """Return the syntax tree of a text that is a Python expression; None: it is none."""
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
    """Return the tool name in a text that begins like a JSON call but can't be read as one; else empty."""
    found = _BROKEN_NAME.search(text)
    return bare_name(found[1]) if found and _BROKEN_ARGUMENTS.search(text) else ""


def quotes(text: str, call: ToolCall) -> bool:
    """Whether a `compact` text has the name and all arguments of a call, in JSON or as Python."""
    arguments = read_value(call.arguments)
    if call.name not in text or not isinstance(arguments, Mapping) or not arguments:
        return False
    pairs = ((f'"{key}":{compact_json(value)}', f"{key}={value!r}") for key, value in arguments.items())
    return all(any(compact(form) in text for form in forms) for forms in pairs)


def compact(text: str) -> str:
    """A text without white space and escapes, and with one kind of quote: what a copy keeps of it."""
    return re.sub(r"[\s\\]+", "", text).replace("'", '"')


ENVELOPES = frozenset({"context_status", "memory_delta", "heartbeat", "system_alert", "system_message", "hook_context"})
"""Types of envelopes that nobody means as data of their own; those in the request count too."""

_IN_REQUEST = re.compile(r'\{"type": "([a-z_]+)"')
_CALL = re.compile(r"(?:function|tool)[ _-]?call|aufruf|chiamata|调用|呼び出", re.IGNORECASE)
_DATA = re.compile(r"yaml|\bxml\b|schema|config|payload|конфиг|配置", re.IGNORECASE)
_CODE = re.compile(
    r"\b(?:cod(?:e|es|ing)\b|s[ck]ript|command|fun[ck]ti?on|fun[cz]i[oó]n|fonction|função|program|exampl|exempl|ejemplo"
    r"|esempio|код)|python|snippet|befehl|syntax|beispiel|código|codice|скрипт|функци|пример"
    r"|代码|命令|程序|脚本|函数|例|コード|関数|スクリプト|プログラム",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\b(?:show|give|need|want|(?:i'd|would) like|write|print|return|answer|output|convert|make|format|create|generate"
    r"|display|explain|quote|repeat|example|how|(?:as|in|als|en|como|come) (?:json|yaml|code)|zeig|gib|brauche|schreib"
    r"|mach|beispiel|wie|muestra|dame|escribe|ejemplo|cómo|montre|donne|écris|exemple|comment|mostra|dammi|scrivi"
    r"|esempio|покажи|дай|напиши|пример|как)"
    r"|示例|例|怎么|如何|显示|展示|给|写|输出|生成|見せ|書い|出力",
    re.IGNORECASE,
)
"""What people say who ask to see data, code or a call."""
_MEMORY = re.compile(r"^(?:Your notes:|<(?:memory_blocks|directories|available_skills|context_engine)>)$", re.MULTILINE)
"""What begins the part of a system text that is not its author's."""
ANSWER_CHARS, PERSON_CHARS = 2_000, 4_000
LISTED_NAMES = 30


@dataclass(frozen=True)
class RequestFacts:
    """A request, and what it tells about how its answer has to be read."""

    request: ModelRequest

    @cached_property
    def tools(self) -> Tools:
        """The tools that are offered, by name, with the schemas of their arguments."""
        return {str(tool["name"]): tool.get("parameters") or {} for tool in self.request.tools}

    @cached_property
    def person(self) -> str:
        """What the person said last; of a request for a summary nothing."""
        said = (one.text for one in reversed(self.request.messages) if (one.role, one.kind) == ("user", "message"))
        return next(said, "") if self.request.purpose == "reply" else ""

    @cached_property
    def seeks(self) -> bool:
        """Whether calls are looked for: not if the person asks to see one or data, nor in an answer that is no talk."""
        said, orders = self.person, _ORDER.search(self.person)
        # A plain word, such as `remember`, names a tool only if it is written as one.
        names = [form for tool in self.tools for form in ((tool,) if "_" in tool else (f"{tool}(", f"`{tool}`"))]
        is_about_calls = bool(_CALL.search(said)) or any(name in said for name in names)
        shows = "json" in said.lower() or (orders and _DATA.search(said))
        return not (shows or self._is_ordered or (is_about_calls and (orders or re.search("[?？]", said))))

    @property
    def sought(self) -> Tools:
        """The tools whose calls are looked for."""
        return self.tools if self.seeks else {}

    @cached_property
    def wants_code(self) -> bool:
        """Whether the person speaks of code or examples, so that a call in Python is no call: in doubt nothing runs."""
        return bool(_CODE.search(self.person))

    @cached_property
    def any_name(self) -> bool:
        """Whether an object with an unknown name is a call: not if the person asks for data or code."""
        return self.seeks and not (self.wants_code and _ORDER.search(self.person))

    @property
    def _is_ordered(self) -> bool:
        """Whether the answer is a summary, or has a form that was asked for: then it is taken as it is."""
        return self.request.purpose != "reply" or self.request.options.response_format is not None

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The types of the envelopes that are looked for in the answer."""
        engine = [one.text for one in self.request.messages if one.kind != "message" or one.role == "system"]
        kinds = ENVELOPES.union(*(_IN_REQUEST.findall(text) for text in (*engine, self.request.tail)))
        return frozenset(kind for kind in kinds if kind not in self.person and not self._is_ordered)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The first line of the request's tail, if the tail is in words: an answer that begins with it is a copy."""
        line = self.request.tail.partition("\n")[0]
        return (line,) if self.request.in_words and line.endswith(":") else ()

    @cached_property
    def _quotable(self) -> str:
        """All texts in the request, made `compact`: those of users, the model, tools and memory."""
        said = (message.text for message in self.request.messages)
        # A base prompt may hold an example of a call; what is kept in memory stands behind it.
        memory = _MEMORY.search(self.request.system)
        system = self.request.system[memory.start() :] if memory else ""
        return "\n".join(map(compact, (system, *said, self.request.tail)))

    def is_quoted(self, text: str, *calls: ToolCall) -> bool:
        """Return whether a text, or one of the calls that it is, was in the model's input."""
        return bool(text and compact(text) in self._quotable) or any(quotes(self._quotable, call) for call in calls)

    def problem_of(self, call: ToolCall) -> str:
        """Why a call can't be run, in words for the model; empty: it can."""
        choice = self.request.options.tool_choice
        if choice == "none":
            return "No tool may be called now."
        if call.name not in self.tools or (isinstance(choice, tuple) and call.name not in choice):
            return self.no_tool_text(call.name)
        schema = self.tools[call.name]
        required = [name for name in schema.get("required", ()) if name not in (THINKING, HEARTBEAT)]
        try:
            parse_arguments(call.name, {**schema, "required": required}, call.arguments)
        except InvalidArguments as error:
            return str(error)
        return ""

    def no_tool_text(self, name: str) -> str:
        """Return the text for the model that no tool has this name, and which tools there are."""
        choice = self.request.options.tool_choice
        names = sorted(choice if isinstance(choice, tuple) else self.tools)
        return f"There is no tool {name!r} now; there are: {', '.join(names[:LISTED_NAMES]) or 'none'}."

    def retry(self, answer: str, problem: str) -> ModelRequest:
        """The request with the answer that can't be taken and its problem, in words, added as two messages."""
        # Small models answer what they read last, so that is the person's message again.
        said = self.person[:PERSON_CHARS]
        ways = "in plain words, or with one call alone" if self.tools else "in plain words"
        correction = f"Nobody saw that. {problem} Answer {ways}:\n\n{said}"
        added = (
            unlogged_message("assistant", answer[:ANSWER_CHARS].strip() or "(nothing)"),
            unlogged_message("user", correction),
        )
        return replace(self.request, messages=(*self.request.messages, *added))
