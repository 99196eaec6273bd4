"""Tell calls and envelopes from prose while an answer streams: what can't be one is shown at once, the rest is held
back until it is clear. However the stream is cut, the same text is shown.

A span is what may be calls, from its first character on: tags and fences, and objects or Python calls between them. It
is shown if no call stands in it. Nothing is looked for in code: in a fence of something else, and between backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.tools.spec import bare_name
from perdure.providers.text_calls.forms import (
    TextCall,
    Tools,
    calls_in,
    is_python,
    looks_like_call,
    python_calls,
    read_value,
    type_of,
)

FENCE = "```"
HELD_CHARS = 200_000
"""More than this is held back of nothing: it is data."""

TAG_CHARS = 100
PREFIXES = ("", "functions.", "default_api.")
ANNOUNCEMENT_CHARS = 300
"""Behind more prose than this, what calls an unknown tool is an example of something, not an attempt."""

_TAG = re.compile(
    r"</?(?:tool_?calls?|function_?calls?|tools?|functions?|tool_code|tool_use|calls?|invoke|parameters?|args)>"
    r"|<\|/?(?:python_tag|tool\w*|function\w*|plugin|action_\w+|call)\|?>|<｜[^｜<>]*｜>",
    re.IGNORECASE,
)
_NAMED_TAG = re.compile(
    r"<(?:function|invoke|tool|tool_call|call)\s*(?:=|\s(?:name|tool)=)\s*[\"']?([\w./:-]+)[\"']?\s*>"
)
_PARAMETER = re.compile(
    r"<(parameter|param|arg)\s*(?:=|\sname=)\s*[\"']?(?P<name>[\w-]+)[\"']?\s*>(?P<value>.*?)</\1>"
    r"|<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<item>.*?)</arg_value>|<(?P<own>(?!arg_key>)[\w-]+)>(?P<text>.*?)</(?P=own)>",
    re.DOTALL,
)
_PARAMETER_GROUPS = ("name", "key", "own"), ("value", "item", "text")
_PARAMETER_START = re.compile(r"<(?:parameter|param|arg)[ =]|<arg_key>")
_CERTAIN = re.compile(r"</?tool_?calls?>|\[/?TOOL_CALLS?\]|<\|/?(?:python_tag|tool\w*)\|?>|<｜/?tool▁", re.IGNORECASE)
"""Tags and marks that stand around calls only."""
_MARKS = ("[TOOL_CALLS]", "[/TOOL_CALLS]", "[TOOL_CALL]", "[/TOOL_CALL]", "[ARGS]", "[CALL_ID]")
_LABELS = (
    *("action input:", "tool name:", "tool input:", "tool call:"),
    *("function call:", "function<｜", "arguments:", "input:"),
)
_LABEL = re.compile(
    r"(?:action(?: input)?|tool(?: name| input| call)?|function(?: call)?|arguments|input)(?::|(?=<｜))", re.IGNORECASE
)
_FENCE_HEAD = re.compile(r"`{3,}(?:[\w+-]*(?=[\s{\[<`]|$))?")
_WORD = re.compile(r"[A-Za-z_][\w./-]*(?::\d+)?")
_SUSPECT = re.compile(r"[`{\[<]|(?<=\n)[ \t]*[A-Za-z_]")
_SUSPECT_AT_START = re.compile(rf"\A[ \t]*[A-Za-z_]|{_SUSPECT.pattern}")


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


@dataclass(frozen=True, slots=True)
class _Token:
    """What stands at a place of the text, and where it ends."""

    kind: Literal["wrap", "name", "parameter", "sightings", "data", "other", "unclear"]
    end: int = 0
    sightings: tuple[Sighting, ...] = ()
    name: str = ""
    value: Any = None


_OTHER = _Token("other")
_UNCLEAR = _Token("unclear")


@dataclass(slots=True)
class _Brackets:
    """Looks for the bracket that closes the one at `start`; it remembers how far it came."""

    start: int
    at: int
    single_quotes: bool
    depth: int = 0
    quote: str = ""

    def end(self, text: str, *, fenced: bool) -> int | None:
        """The place behind it; negative: a fence closes first; None: neither has come."""
        while self.at < len(text):
            char = text[self.at]
            if self.quote:
                self.at += char == "\\"
                self.quote = "" if char == self.quote else self.quote
            elif char == '"' or (char == "'" and self.single_quotes):
                self.quote = char
            elif char in "{[(":
                self.depth += 1
            elif char in "}])":
                if self.depth <= 1:
                    return self.at + 1  # and again, if asked again
                self.depth -= 1
            elif char == "`" and fenced:
                return -self.at
            self.at += 1
        return None


@dataclass(slots=True)
class Scanner:
    """Takes the pieces of an answer, and returns what of them is shown. Calls and envelopes are its `sightings`; all
    prose behind the first of them waits in `rest`."""

    sights: Sights
    sightings: list[Sighting] = field(default_factory=list)
    _shown: list[str] = field(default_factory=list)
    _rest: list[str] = field(default_factory=list)
    _chars: int = 0  # of both
    _text: str = ""  # not decided yet
    _mode: Literal["prose", "fence", "quote", "dropped"] = "prose"
    _starts_line: bool = True
    # Of the span at the beginning of the text:
    _at: int = 0
    _items: list[Sighting] = field(default_factory=list)
    _name: str = ""
    _parameters: dict[str, Any] = field(default_factory=dict)
    _fences: int = 0
    _brackets: _Brackets | None = None

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

    @property
    def is_calls(self) -> bool:
        """Whether the whole answer is calls that can be read."""
        return bool(self.sightings) and not self.prose.strip() and all(one.kind == "call" for one in self.sightings)

    def read(self, piece: str = "", *, final: bool = False) -> str:
        """The text that is clear to be shown after this piece. `final`: nothing follows, so all is clear."""
        if not self.sights.tools and not self.sights.kinds:
            self._shown.append(piece)
            return piece
        before = len(self._shown)
        self._text += piece
        while self._text:
            if not self._at:
                if free := self._free_chars(final):
                    self._release(free)
                    continue
                if self._mode != "prose":
                    break
            token = self._token(final)
            if token.kind == "unclear":
                break
            if token.kind in ("other", "data"):
                self._end_span(token.end)
            else:
                self._take(token)
        return "".join(self._shown[before:])

    def _free_chars(self, final: bool) -> int:
        """How many characters at the beginning belong to no span."""
        text = self._text
        match self._mode:
            case "prose":
                suspect = (_SUSPECT_AT_START if self._starts_line else _SUSPECT).search(text)
                return len(text) if suspect is None else suspect.end() - 1
            case "quote":
                ends = [at for at in (text.find("`"), text.find("\n")) if at >= 0]
                return min(ends) + 1 if ends else len(text)
            case _:
                at = text.find(FENCE)
                if at >= 0:
                    return at + len(FENCE)
                return len(text) if final else len(text.rstrip("`"))

    def _release(self, chars: int) -> None:
        """Decide that so much of the text is no call: it is shown, unless it follows one."""
        text, self._text = self._text[:chars], self._text[chars:]
        line = text.rpartition("\n")[2]
        self._starts_line = not line.strip() and (self._starts_line or "\n" in text)
        if self._mode == "dropped":
            self._mode = "prose" if text.endswith(FENCE) else "dropped"
            return
        if self._mode == "prose":
            fences = text.count(FENCE)
            single = text.replace(FENCE, "").count("`")
            self._mode = "fence" if fences % 2 else "quote" if single % 2 else "prose"
        elif text.endswith(FENCE if self._mode == "fence" else ("`", "\n")):
            self._mode = "prose"
        (self._rest if self.sightings else self._shown).append(text)
        self._chars += len(text)

    def _take(self, token: _Token) -> None:
        """Add a token to the span."""
        text = self._text[self._at : token.end]
        self._at, self._brackets = token.end, None
        match token.kind:
            case "sightings":
                self._items += token.sightings
                self._name, self._parameters = "", {}
            case "name":
                self._commit()
                self._name = token.name
            case "parameter":
                self._parameters[token.name] = token.value
            case _ if text.startswith(FENCE):
                self._fences += 1
            case _ if text.startswith("</"):
                self._commit()

    def _commit(self) -> None:
        """A call whose parameters stand in tags has ended."""
        if self._name and self._parameters:
            call = TextCall(self._name, self._parameters)
            self._items += self._wanted("", (call,))
        self._name, self._parameters = "", {}

    def _end_span(self, data_end: int) -> None:
        """What comes next is something else, or data up to `data_end`: keep what the span holds, or show it."""
        self._commit()
        is_alone = bool(self.sights.tools) and self._starts_line and not self._items
        if is_alone and _CERTAIN.search(self._text[: self._at]):
            self._items.append(Sighting("broken"))
        if self._items:
            self.sightings += self._items
            self._text = self._text[self._at :]
            if self._fences % 2 and self._text:
                self.sightings.append(Sighting("broken", self._items[0].name))
                self._mode = "dropped"
            self._starts_line = True
        else:
            at = max(self._at, data_end)
            self._release(at or len(self._text) - len(self._text.lstrip("`")) or 1)
        self._items, self._at, self._fences, self._brackets = [], 0, 0, None

    def _token(self, final: bool) -> _Token:
        """What stands at the end of the span."""
        text, at = self._text, self._at
        if at >= len(text):
            return _OTHER if final else _UNCLEAR
        char = text[at]
        if at and (char.isspace() or char in ",;"):
            return _Token("wrap", at + 1)
        if char == "`":
            return self._ticks(final)
        if char == "<":
            return self._tag(final)
        if char == "[" and (mark := next((one for one in _MARKS if one.startswith(text[at : at + len(one)])), None)):
            if text.startswith(mark, at):
                return _Token("wrap", at + len(mark))
            if not final:
                return _UNCLEAR
        if char in "{[":
            return self._value(final)
        return self._word(final) if _WORD.match(char) else _OTHER

    def _ticks(self, final: bool) -> _Token:
        """A fence with its language; or a backtick around the whole answer."""
        text, at = self._text, self._at
        head = _FENCE_HEAD.match(text, at)
        end = head.end() if head else len(text) - len(text[at:].lstrip("`"))
        if end == len(text) and not final:
            return _UNCLEAR
        if head:
            return _Token("wrap", end)
        return _Token("wrap", end) if end == at + 1 and (at or not self.prose.strip()) else _OTHER

    def _tag(self, final: bool) -> _Token:
        """A tag that stands around calls, names a tool or holds a parameter."""
        text, at = self._text, self._at
        close = text.find(">", at, at + TAG_CHARS)
        if close < 0:
            begun = text[at : at + TAG_CHARS]
            may_close = len(begun) < TAG_CHARS and "\n" not in begun and re.match(r"<(?:[/|｜A-Za-z]|$)", begun)
            return _UNCLEAR if may_close and not final else _OTHER
        tag = text[at : close + 1]
        own = self.sights.tools.get(self._name, {}).get("properties", {})
        if at and (_PARAMETER_START.match(tag) or tag[1:-1] in own):
            if (found := _PARAMETER.match(text, at)) is None:
                return _OTHER if final else _UNCLEAR
            name, value = (next(filter(None, found.group(*names)), "") for names in _PARAMETER_GROUPS)
            return _Token("parameter", found.end(), name=name.strip(), value=_typed(value.strip("\n")))
        if (named := _NAMED_TAG.fullmatch(tag)) or tag[1:-1] in self.sights.tools:
            return _Token("name", close + 1, name=bare_name(named[1] if named else tag[1:-1]))
        is_wrap = _TAG.fullmatch(tag) or (at and tag[1:-1].removeprefix("/") in self.sights.tools)
        return _Token("wrap", close + 1) if is_wrap and self.sights.tools else _OTHER

    def _value(self, final: bool) -> _Token:
        """An object or list, as JSON or as Python writes it."""
        text, at = self._text, self._at
        inner = text[at + 1 : at + TAG_CHARS].lstrip(" \t\r\n{[")
        if not inner:
            return _OTHER if final or len(text) > at + TAG_CHARS else _UNCLEAR
        begins_word = bool(_WORD.match(inner))
        if inner[0] not in "\"'}" and (text[at] == "{" or not begins_word):
            return _OTHER
        if begins_word:  # a list of Python calls
            word = _WORD.match(inner)
            if not final and self._may_go_on(inner, any_name=False):
                return _UNCLEAR
            if word is None or bare_name(word[0]) not in self.sights.tools or not inner.startswith("(", word.end()):
                return _OTHER
        end = self._closing(single_quotes=inner[0] != '"')
        if (len(text) if end is None else abs(end)) - at > HELD_CHARS:
            return _Token("data", at + HELD_CHARS)
        if end is None and not final:
            return _UNCLEAR
        raw = text[at : end if end is None else abs(end)]
        if end is not None and end > 0:
            value = read_value(raw)
            items = value if isinstance(value, list) and value else [value]
            if all(isinstance(one, Mapping) and str(one.get("type")) in self.sights.kinds for one in items):
                return _Token("sightings", end, (Sighting("envelope"),))
            calls = calls_in(value, self.sights.tools) or python_calls(raw, self.sights.tools)
            if not calls and self._name and isinstance(value, Mapping):
                calls = (TextCall(self._name, value),)
            if wanted := self._wanted(raw, calls):
                return _Token("sightings", end, wanted)
            if value is not None:
                return _Token("data", end)
        return self._broken(raw, at + len(raw))

    def _broken(self, raw: str, end: int) -> _Token:
        """What looks like a call or an envelope, and can't be read."""
        if type_of(raw) in self.sights.kinds:
            return _Token("sightings", end, (Sighting("envelope"),))
        name = looks_like_call(raw)
        if name and self.sights.tools and self._counts(name) and not self.sights.is_quoted(raw, None):
            return _Token("sightings", end, (Sighting("broken", name),))
        return _Token("data", end)

    def _word(self, final: bool) -> _Token:
        """A Python call, the name of a tool before its arguments, or a label such as `Action:`."""
        text, at, tools = self._text, self._at, self.sights.tools
        if label := _LABEL.match(text, at) if tools else None:
            return _Token("wrap", label.end())
        word = _WORD.match(text, at)
        assert word is not None
        any_name = at > 0 and self.sights.unknown and bool(tools)
        if not final and self._may_go_on(text[at:], any_name=any_name):
            return _UNCLEAR
        name, calls = bare_name(word[0]), text.startswith("(", word.end())
        if name not in tools and not (calls and (any_name or name == "print")):
            return _OTHER
        if not calls:
            behind = text[word.end() :].lstrip(" \t\r\n:=")
            if not behind and not final:
                return _UNCLEAR
            return _Token("name", word.end(), name=name) if at or behind[:1] in ("{", "<", "`", "[") else _OTHER
        end = self._closing(single_quotes=True)
        if end is None or end < 0:
            broken = _Token("sightings", len(text), (Sighting("broken", name),)) if name in tools else _OTHER
            return _UNCLEAR if end is None and not final else broken
        behind = text[end:].lstrip(" \t;")
        if not behind and not final:
            return _UNCLEAR
        if behind and behind[0] not in "\n\r<`]":
            return _OTHER  # a mention in a sentence
        raw = text[at:end]
        if not is_python(raw) and name in tools and not self.sights.is_quoted(raw, None):
            return _Token("sightings", end, (Sighting("broken", name),))
        wanted = self._wanted(raw, python_calls(raw, tools, any_name=any_name))
        return _Token("sightings", end, wanted) if wanted else _OTHER

    def _may_go_on(self, text: str, *, any_name: bool) -> bool:
        """Whether more text may make the name of a tool, or a label, of a word that the text ends with."""
        if not self.sights.tools:
            return False
        if any(label.startswith(text.lower()) for label in _LABELS):
            return True
        word = _WORD.match(text)
        if word is None or word.end() < len(text):
            return False
        names = ("print", *(f"{prefix}{name}" for prefix in PREFIXES for name in self.sights.tools))
        return any_name or any(name.startswith(text) for name in names)

    def _closing(self, *, single_quotes: bool) -> int | None:
        """Where what begins at the end of the span closes, see `_Brackets.end`."""
        if self._brackets is None or self._brackets.start != self._at:
            word = _WORD.match(self._text, self._at)
            self._brackets = _Brackets(self._at, word.end() if word else self._at, single_quotes)
        return self._brackets.end(self._text, fenced=self._fences % 2 == 1)

    def _wanted(self, raw: str, calls: tuple[TextCall, ...]) -> tuple[Sighting, ...]:
        """The calls, if all count and none is a quotation."""
        if not all(self._counts(call.name) and not self.sights.is_quoted(raw, call) for call in calls):
            return ()
        return tuple(Sighting("call", call.name, call) for call in calls)

    def _counts(self, name: str) -> bool:
        """Whether what has this name may be a call."""
        if name in self.sights.tools:
            return True
        return self.sights.unknown and bool(self.sights.tools) and self._chars < ANNOUNCEMENT_CHARS


def _typed(text: str) -> Any:
    """The value of a parameter in a tag: what JSON reads it as, if that is no text; else the text."""
    value = read_value(text.strip())
    return text if value is None or isinstance(value, str) else value
