"""What a request says about the answer to it: what may be called, what is a quotation, what the person asks to see."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from perdure.core.errors import InvalidArguments
from perdure.core.messages import ToolCall, unlogged_message
from perdure.core.models import ModelRequest
from perdure.core.tools.arguments import parse_arguments
from perdure.core.tools.loops import HEARTBEAT, THINKING
from perdure.providers.text_calls.forms import Tools, quotes, squeeze

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
    """A request, and what it says about the answer to it."""

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

    @property
    def _is_ordered(self) -> bool:
        """Whether the answer is a summary, or has a form that was asked for: then it is taken as it is."""
        return self.request.purpose != "reply" or self.request.options.response_format is not None

    @cached_property
    def wants_data(self) -> bool:
        """Whether the person asks for data or code, so that an object with an unknown name is no call."""
        return self.wants_code and bool(_ORDER.search(self.person))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The types of the envelopes that are looked for in the answer."""
        engine = [one.text for one in self.request.messages if one.kind != "message" or one.role == "system"]
        kinds = ENVELOPES.union(*(_IN_REQUEST.findall(text) for text in (*engine, self.request.tail)))
        return frozenset(kind for kind in kinds if kind not in self.person and not self._is_ordered)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The line that begins the tail in words: an answer that begins with it is a copy."""
        line = self.request.tail.partition("\n")[0]
        return (line,) if self.request.in_words and line.endswith(":") else ()

    @cached_property
    def _quotable(self) -> str:
        """All that was said in the request, by the model too, and what tools and memory say, as `squeeze` leaves it."""
        said = (one.text for one in self.request.messages)
        # A base prompt may hold an example of a call; what is kept in memory stands behind it.
        memory = _MEMORY.search(self.request.system)
        system = self.request.system[memory.start() :] if memory else ""
        return "\n".join(map(squeeze, (system, *said, self.request.tail)))

    def is_quoted(self, text: str, *calls: ToolCall) -> bool:
        """Whether a text, or one of the calls that it is, stands in what the model has read."""
        return bool(text and squeeze(text) in self._quotable) or any(quotes(self._quotable, call) for call in calls)

    def problem_of(self, call: ToolCall) -> str:
        """Why a call can't be run, in words for the model; empty: it can."""
        choice = self.request.options.tool_choice
        if choice == "none":
            return "No tool may be called now."
        if call.name not in self.tools or (isinstance(choice, tuple) and call.name not in choice):
            return self.unknown(call.name)
        schema = self.tools[call.name]
        required = [name for name in schema.get("required", ()) if name not in (THINKING, HEARTBEAT)]
        try:
            parse_arguments(call.name, {**schema, "required": required}, call.arguments)
        except InvalidArguments as error:
            return str(error)
        return ""

    def unknown(self, name: str) -> str:
        """That there is no such tool, in words for the model."""
        choice = self.request.options.tool_choice
        names = sorted(choice if isinstance(choice, tuple) else self.tools)
        return f"There is no tool {name!r} now; there are: {', '.join(names[:LISTED_NAMES]) or 'none'}."

    def again(self, answer: str, problem: str) -> ModelRequest:
        """The request once more, with the answer and what is wrong with it."""
        # Small models answer what they read last, so that is the person's message again.
        said = self.person[:PERSON_CHARS]
        ways = "in plain words, or with one call alone" if self.tools else "in plain words"
        told = f"Nobody saw that. {problem} Answer {ways}:\n\n{said}"
        added = (
            unlogged_message("assistant", answer[:ANSWER_CHARS].strip() or "(nothing)"),
            unlogged_message("user", told),
        )
        return replace(self.request, messages=(*self.request.messages, *added))
