"""Tell calls and envelopes from prose while an answer streams.

What can't be one is shown at once. From the first that may be one on, the text is held back until that is clear; behind
one, until the answer ends. Nothing is looked for in code: in a fence of something else, and between backticks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from perdure.core.tools.spec import bare_name
from perdure.providers.text_calls.forms import (
    FENCE,
    TextCall,
    Tools,
    calls_in,
    closing_bracket,
    looks_like_call,
    python_calls,
    read_value,
)

HELD_CHARS = 200_000
"""An object that is longer is data."""

ANNOUNCEMENT_CHARS = 300
"""Behind more prose than this, what calls an unknown tool is an example of something, not an attempt."""

_PREFIXES = ("", "functions.", "default_api.")
_LABELS = ("action:", "action input:", "tool:", "tool call:", "tool input:", "function call:", "input:", "arguments:")

_ONLY_AROUND_CALLS = re.compile(
    r"</?(?:tool_?calls?|function_?calls?|tool_code)>|\[/?TOOL_CALLS?\]|```tool_code"
    r"|<\|/?(?:python_tag|tool\w*)\|?>|<｜/?tool▁[^｜<>]*｜>",
    re.IGNORECASE,
)
_AROUND = re.compile(
    rf"{_ONLY_AROUND_CALLS.pattern}|</?(?:tools?|calls?)>|</?(?:function|invoke)\b[^>\n]*>|<｜[^｜<>]*｜>|\[(?:ARGS|CALL_ID)\]"
    rf"|(?:{'|'.join(_LABELS)}|function(?=<｜))|`{{3,}}(?:[\w+-]*(?=[\s{{\[<`]|$))?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[\s,;]+|`(?!`)")
_NAMED_TAG = re.compile(r"<(?:function|invoke|tool_call)(?:=|\s+name=)[\"']?([\w./:-]+)[\"']?\s*>")
_ARGUMENT = re.compile(
    r"\s*(?:<parameter(?:=|\s+name=)[\"']?(?P<name>[\w-]+)[\"']?\s*>(?P<value>.*?)</parameter>"
    r"|<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<item>.*?)</arg_value>)",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_][\w./-]*(?::\d+)?")
_VALUE = re.compile(r"[{\[][\s{\[]*(?=[\"'}]|\Z)|\[\s*(?=[A-Za-z_])")
_BEGUN = re.compile(
    r"<(?:[/|｜a-z][^>\n]{0,98})?\Z|<(?:parameter|arg_key).*\Z|\[/?[A-Z_]{0,10}\Z|`{1,2}\Z|`{3,}[\w+-]*\Z",
    re.DOTALL | re.IGNORECASE,
)
"""What more text may make a tag, a mark or a fence."""
_SUSPECT = re.compile(r"[`{\[<]|(?<=\n)[ \t]*[A-Za-z_]")
_SUSPECT_AT_START = re.compile(rf"\A[ \t]*[A-Za-z_]|{_SUSPECT.pattern}")
_TYPE = re.compile(r"""\{+\s*["']type["']\s*:\s*["'](\w+)["']""")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A call or an envelope in an answer; a `broken` call can't be read, or stands in other code."""

    kind: Literal["call", "broken", "envelope"]
    name: str = ""
    call: TextCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sights:
    """What is looked for in an answer.

    Args:
        tools: what is offered; without any, no calls are looked for.
        unknown: whether what calls an unknown tool counts as a call.
        kinds: the types of envelopes.
        is_quoted: whether a text, and the call that it is if it can be read, is a quotation: then it is shown.
    """

    tools: Tools
    unknown: bool = True
    kinds: frozenset[str] = frozenset()
    is_quoted: Callable[[str, TextCall | None], bool] = lambda text, call: False


class _Unclear(Exception):
    """What a text holds depends on what follows."""


@dataclass(slots=True)
class _Span:
    """Reads the calls and envelopes at the beginning of a text, with all that stands around and between them.

    Args:
        unknown: whether what calls an unknown tool counts.
        final: whether nothing follows.
    """

    text: str
    sights: Sights
    unknown: bool
    final: bool
    found: list[Sighting] = field(default_factory=list)
    at: int = 0
    """How far it goes; if nothing was found, so much is prose."""
    code: str = ""
    """The mark that ends the code which it opens."""
    _name: str = ""  # of the call whose arguments come next

    def read(self, *, starts_line: bool, is_first: bool) -> None:
        """Read up to the first thing that is no part of it. Raises: _Unclear: more text may make it one."""
        while self.at < len(self.text):
            self._wait_if(bool(_BEGUN.match(self.text, self.at)))
            if not self._around(is_first):
                is_value = bool(_VALUE.match(self.text, self.at))
                if not (self._value() if is_value else self._word()):
                    break
        else:
            self._wait_if(True)
        rest = self.text[self.at :]
        if self.found and self.code == FENCE and rest:
            self.at += rest.find(FENCE) + len(FENCE) if FENCE in rest else len(rest)
            self.found.append(Sighting("broken", self.found[0].name))
        is_alone = starts_line and not self.found and bool(self.sights.tools)
        if is_alone and _ONLY_AROUND_CALLS.search(self.text[: self.at]):
            self.found.append(Sighting("broken"))

    def _wait_if(self, is_unclear: bool) -> None:
        """Ask for more text, if something is unclear and nothing was found yet."""
        if is_unclear and not self.final and not self.found:
            raise _Unclear

    def _around(self, is_first: bool) -> bool:
        """Read a tag, a mark, a label, a fence, or what stands between calls."""
        if self.sights.tools and (named := _NAMED_TAG.match(self.text, self.at)):
            return self._named(bare_name(named[1]), named.end())
        around = _AROUND.match(self.text, self.at)
        if around is None and (self.at or is_first):
            around = _BETWEEN.match(self.text, self.at)
        if around is None:
            return False
        if around[0].startswith("`"):
            self.code = "" if self.code else FENCE if around[0].startswith(FENCE) else "`"
        self.at = around.end()
        return True

    def _named(self, name: str, end: int) -> bool:
        """Read the name of a tool, and the arguments in tags behind it."""
        arguments = {}
        while argument := _ARGUMENT.match(self.text, end):
            key, value = argument["name"] or argument["key"], argument["value"] or argument["item"] or ""
            read = read_value(value.strip())
            arguments[key.strip()] = value.strip("\n") if read is None or isinstance(read, str) else read
            end = argument.end()
        self.at, self._name = end, name
        if arguments:
            self._keep("", (TextCall(name, arguments),))
        return True

    def _value(self) -> bool:
        """Read an object or a list, as JSON or as Python writes it."""
        text, at = self.text, self.at
        begun = _VALUE.match(text, at)
        if begun is None:
            return False
        self._wait_if(begun.end() == len(text))
        if word := _WORD.match(text, begun.end()):  # a list of Python calls
            self._wait_if(self._may_be_name(begun.end()))
            if bare_name(word[0]) not in self.sights.tools or not text.startswith("(", word.end()):
                return False
        end, is_closed = closing_bracket(text, at)
        self._wait_if(not is_closed and len(text) - at < HELD_CHARS)
        raw = text[at:end]
        value = read_value(raw) if is_closed else None
        items = value if isinstance(value, list) and value else [value]
        kinds = [str(one.get("type")) if isinstance(one, Mapping) else "" for one in items]
        if value is None and (kind := _TYPE.match(raw)):
            kinds = [kind[1]]
        calls = calls_in(value, self.sights.tools) or python_calls(raw, self.sights.tools) or ()
        if not calls and self._name and isinstance(value, Mapping):
            calls = (TextCall(self._name, value),)
        if self.sights.kinds.issuperset(kinds):
            self.found.append(Sighting("envelope"))
        elif not self._keep(raw, calls) and (value is not None or not self._keep_broken(raw, looks_like_call(raw))):
            self.at = self.at if self.found else end
            return False
        self.at = end
        return True

    def _word(self) -> bool:
        """Read a Python call, or the name of a tool before its arguments."""
        text, tools = self.text, self.sights.tools
        word = _WORD.match(text, self.at)
        if word is None or not tools:
            return False
        any_name = self.at > 0 and self.unknown
        self._wait_if(self._may_be_name(self.at) or (any_name and word.end() == len(text)))
        name, is_call = bare_name(word[0]), text.startswith("(", word.end())
        if not is_call:
            return name in tools and self._named(name, word.end())
        if name not in tools and name != "print" and not any_name:
            return False
        end, is_closed = closing_bracket(text, word.end())
        behind = text[end:].lstrip(" \t;")
        self._wait_if(not is_closed or not behind)
        if is_closed and behind and behind[0] not in "\n\r<`]":
            return False  # a mention in a sentence
        raw = text[self.at : end]
        calls = python_calls(raw, tools, any_name=any_name) if is_closed else None
        if not (self._keep_broken(raw, name if name in tools else "") if calls is None else self._keep(raw, calls)):
            return False
        self.at = end
        return True

    def _may_be_name(self, at: int) -> bool:
        """Whether more text may make a label, or the name of a tool, of the text from this place on."""
        begun = self.text[at:].lower()
        names = (f"{prefix}{name}".lower() for prefix in _PREFIXES for name in self.sights.tools)
        return any(name.startswith(begun) for name in (*_LABELS, "print", *names))

    def _keep(self, raw: str, calls: tuple[TextCall, ...]) -> bool:
        """Keep calls, if all count and none is a quotation."""
        if not all(self._counts(call.name) and not self.sights.is_quoted(raw, call) for call in calls):
            return False
        self.found += [Sighting("call", call.name, call) for call in calls]
        self._name = ""
        return bool(calls)

    def _keep_broken(self, raw: str, name: str) -> bool:
        """Keep what looks like a call of this name, if it counts and is no quotation."""
        if not name or not self._counts(name) or self.sights.is_quoted(raw, None):
            return False
        self.found.append(Sighting("broken", name))
        return True

    def _counts(self, name: str) -> bool:
        """Whether what has this name may be a call."""
        return name in self.sights.tools or (self.unknown and bool(self.sights.tools))


@dataclass(slots=True)
class Scanner:
    """Takes the pieces of an answer, and returns what of them is shown. When all have come, calls and envelopes are its
    `sightings`; the prose behind the first of them waits in `rest`."""

    sights: Sights
    sightings: list[Sighting] = field(default_factory=list)
    _shown: list[str] = field(default_factory=list)
    _rest: list[str] = field(default_factory=list)
    _text: str = ""  # not decided yet
    _next_look: int = 0  # how long it has to be for another look
    _code: str = ""  # the mark that ends the code before it
    _chars: int = 0  # of the prose before it
    _starts_line: bool = True

    @property
    def shown(self) -> str:
        """The prose before what was found."""
        return "".join(self._shown)

    @property
    def rest(self) -> str:
        """The prose behind the first thing that was found."""
        return "".join(self._rest)

    @property
    def prose(self) -> str:
        """All that is neither call nor envelope."""
        return self.shown + self.rest

    def read(self, piece: str = "", *, final: bool = False) -> str:
        """The text that is clear to be shown after this piece. `final`: nothing follows, so all is clear."""
        if not self.sights.tools and not self.sights.kinds:
            self._shown.append(piece)
            return piece
        before = len(self._shown)
        self._text += piece
        while self._text and (final or len(self._text) >= self._next_look):
            if prose := self._prose_chars(final):
                self._release(prose)
                continue
            if self._code:
                break
            unknown = self.sights.unknown and self._chars < ANNOUNCEMENT_CHARS
            span = _Span(self._text, self.sights, unknown, final)
            try:
                span.read(starts_line=self._starts_line, is_first=not self._chars)
            except _Unclear:
                self._next_look = len(self._text) * 17 // 16  # a look at a long text takes time
                break
            if not span.found:
                code = span.code or ("`" if not span.at and self._text[0] == "`" else "")
                self._release(span.at or 1)
                self._code = code
            elif final:
                self.sightings += span.found
                self._text, self._starts_line = self._text[span.at :], True
            else:
                self._next_look = sys.maxsize  # no more is shown before the end
        return "".join(self._shown[before:])

    def _prose_chars(self, final: bool) -> int:
        """How many characters at the beginning are prose or code, whatever follows."""
        text = self._text
        if not self._code:
            suspect = (_SUSPECT_AT_START if self._starts_line else _SUSPECT).search(text)
            return len(text) if suspect is None else suspect.end() - 1
        ends = (self._code, "\n") if self._code == "`" else (self._code,)
        places = [text.find(end) + len(end) for end in ends if end in text]
        return min(places, default=len(text) if final else len(text.rstrip("`")))

    def _release(self, chars: int) -> None:
        """Decide that so much of the text is no call: it is shown, unless it follows one."""
        text, self._text = self._text[:chars], self._text[chars:]
        line = text.rpartition("\n")[2]
        self._starts_line = not line.strip() and (self._starts_line or "\n" in text)
        if self._code and text.endswith(("`", "\n") if self._code == "`" else self._code):
            self._code = ""
        (self._rest if self.sightings else self._shown).append(text)
        self._chars += len(text.strip())
