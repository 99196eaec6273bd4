"""Tell calls, envelopes, thoughts and marks of turns from prose while an answer streams.

What can be none of them is shown at once. From the first that may be a call on, the text is held back until that is
clear; behind one, until the answer ends. What follows the end of the turn is dropped: small models go on talking to
themselves. Nothing is looked for in code: in a fence of something else, and between backticks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perdure.core.messages import ToolCall
from perdure.core.models import ModelDelta
from perdure.core.specs import bare_name
from perdure.providers.text_calls.request import (
    FENCE,
    RequestFacts,
    call_of,
    calls_in,
    closing_bracket,
    looks_like_call,
    python_calls,
    read_value,
)

_THOUGHTS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}
_THOUGHTS |= {"[THINK]": "[/THINK]"}
_THOUGHTS |= {f"{start}<|channel|>analysis<|message|>": "<|end|>" for start in ("", "<|start|>assistant")}
_HEADERS = {"<|start|>": "<|message|>", "<|channel|>": "<|message|>"}
_CALL_HEADER = re.compile(r"<\|(?:start|channel)\|>(?:(?!<\|mess).)*?\bto=([\w.-]+)(?:(?!<\|mess).)*<\|message\|>")
"""How Harmony, the format of gpt-oss, begins messages, and calls."""
_BEGIN = _HEADERS | {"<|im_start|>": "\n", "<start_of_turn>": "\n", "<|start_header_id|>": "<|end_header_id|>"}
"""What begins a turn -> what ends the name of who speaks."""
_END = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<eos>"),
    *("<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "[INST]", "[/INST]", *_BEGIN),
)
_MARKS = (*_THOUGHTS, *_THOUGHTS.values(), *_END)
_MARK_STARTS = frozenset(mark[0] for mark in _MARKS)
_BEHIND_END = re.compile(
    r"[ \t]*(?:\n|\Z|<[|｜]|</?s>|<(?:start|end)_of|<eos>|\[/?INST\]|(?:user|assistant|system|model)\b)"
)
"""What stands behind the end of a turn; elsewhere its mark is a word of a sentence."""
_LOOK_CHARS = 14
_HEADER_CHARS = 400

_PIECE_CHARS, _VAIN_SHARE = 4_096, 32
"""A long text is read in such pieces; what is read in vain, again and again, is so many times the answer at most: then
plain text is what remains."""

ANNOUNCEMENT_CHARS = 300
"""Behind more prose than this, what calls an unknown tool is an example of something, not an attempt."""

_BEFORE_NAMES = ("functions.", "default_api.", "print(")
_LABELS = ("action:", "action input:", "tool:", "tool call:", "tool input:", "function call:", "input:", "arguments:")

_ONLY_AROUND_CALLS = re.compile(
    r"</?(?:tool_?calls?|function_?calls?|tool_code)>|\[/?TOOL_CALLS?\]|```tool_code"
    r"|<\|/?(?:python_tag|call|tool\w*)\|?>|<｜/?tool▁[^｜<>]*｜>",
    re.IGNORECASE,
)
_AROUND = re.compile(
    rf"{_ONLY_AROUND_CALLS.pattern}|</?(?:tools?|calls?)>|</?(?:function|invoke)\b[^>\n]{{0,200}}>|<｜(?!end▁of)[^｜<>]*｜>"
    rf"|\[(?:ARGS|CALL_ID)\]|(?:{'|'.join(_LABELS)}|function(?=<))|`{{3,}}(?:[\w+-]*(?=[\s{{\[<`]|$))?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[\s,;]+|`(?!`)")
_NAMED_TAG = re.compile(r"<(?:function|invoke|tool_call)(?:=|\s+name=)[\"']?([\w./:-]+)[\"']?\s*>")
_ARGUMENT = re.compile(
    r"\s*(?:<parameter(?:=|\s+name=)[\"']?(?P<name>[\w-]+)[\"']?\s*>(?P<value>.*?)</parameter>"
    r"|<arg_key>(?P<key>(?:(?!</arg_key>).)*+)</arg_key>\s*<arg_value>(?P<item>.*?)</arg_value>)",
    re.DOTALL,
)
_WORD = re.compile(r"(?P<list>\[\s*)?(?P<name>[A-Za-z_][\w./-]*(?::\d+)?)")
_VALUE = re.compile(r"[{\[][\s{\[]{0,200}+(?=[\"'}]|\Z)")
_BEGUN = re.compile(
    r"<(?:[/|｜a-z][^>\n]{0,98})?\Z|<(?:parameter|arg_key)|\[/?[A-Z_]{0,10}\Z|`{1,2}\Z|`{3,}[\w+-]*\Z",
    re.DOTALL | re.IGNORECASE,
)
"""What more text may make a tag, a mark or a fence."""
_SUSPECT = re.compile(r"[`{\[<]|(?<=\n)[ \t]*[A-Za-z_(]")
_SUSPECT_AT_LINE = re.compile(rf"{_SUSPECT.pattern}|\A[ \t]*[A-Za-z_(]")
_DATE_NOTE = re.compile(r"\s*\([A-Z][a-z]+day, \d{4}-\d\d-\d\d\)\s*")
"""How the engine begins the first message of a day."""
_TYPE = re.compile(r"""\{+\s*["']type["']\s*:\s*["'](\w+)["']""")


@dataclass(frozen=True, slots=True)
class ScanMatch:
    """A call or an envelope in an answer; a `broken` call can't be read, or stands in other code."""

    kind: Literal["call", "broken", "envelope"]
    call: ToolCall = field(default_factory=lambda: call_of("", ""))


class _IncompleteText(Exception):
    """What a text holds depends on what follows."""


@dataclass(slots=True)
class _Span:
    """Reads the calls and engine envelopes at the beginning of a text, with everything around them. Each reading method
    moves `at` past what it read, and returns whether it read anything.

    Args:
        any_name: whether a call of an unknown tool counts.
        final: whether the text is all of the answer.
    """

    facts: RequestFacts
    text: str
    any_name: bool
    final: bool
    found: list[ScanMatch] = field(default_factory=list)
    at: int = 0
    """How far it goes; if nothing was found, so much is prose."""
    code: str = ""
    """The mark that ends the code which it opens."""
    read_chars: int = 0
    """How many characters it looked through."""
    _name: str = ""  # of the call whose arguments come next

    def read(self, *, starts_line: bool, is_first: bool) -> None:
        """Read calls and engine envelopes up to the first other text, and record what was found. `starts_line`: the
        text begins a line; `is_first`: no words come before it. Raises: _IncompleteText: it depends on the text that
        follows."""
        goes_on = True
        while goes_on and self.at < len(self.text):
            self._wait_if(bool(_BEGUN.match(self.text, self.at)))
            is_value = bool(_VALUE.match(self.text, self.at))
            goes_on = self._around(is_first) or (self._value() if is_value else self._word())
        self._wait_if(goes_on)
        rest = self.text[self.at :]
        if self.found and self.code == FENCE and rest and not rest.startswith(_END):
            self.at += rest.find(FENCE) + len(FENCE) if FENCE in rest else len(rest)
            self.found.append(ScanMatch("broken", self.found[0].call))
        is_alone = starts_line and not self.found and self.facts.seeks
        if is_alone and _ONLY_AROUND_CALLS.search(self.text[: self.at]):
            self.found.append(ScanMatch("broken"))

    def _wait_if(self, is_unclear: bool) -> None:
        """Ask for more text, if something is unclear and nothing was found yet."""
        if is_unclear and not self.final and not self.found:
            raise _IncompleteText

    def _around(self, is_first: bool) -> bool:
        """Read a tag, mark, label, fence or separator around calls; with `is_first` also where the text begins."""
        if self.facts.seeks and (named := _NAMED_TAG.match(self.text, self.at)):
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
        """Read the arguments in tags that stand from `end` on, behind the name of a tool; always True, as a reader."""
        arguments = {}
        while argument := self._argument(end):
            key, value = argument["name"] or argument["key"], argument["value"] or argument["item"] or ""
            read = read_value(value.strip())
            arguments[key.strip()] = value.strip("\n") if read is None or isinstance(read, str) else read
            end = argument.end()
        self.at, self._name = end, name
        if arguments:
            self._keep("", [call_of(name, arguments)])
        return True

    def _argument(self, at: int) -> re.Match[str] | None:
        """An argument in tags at this place."""
        argument = _ARGUMENT.match(self.text, at)
        self.read_chars += (argument.end() if argument else len(self.text)) - at
        return argument

    def _closing(self) -> tuple[int, bool]:
        """As `closing_bracket` from `at` on, with its work counted in `read_chars`."""
        end, is_closed = closing_bracket(self.text, self.at)
        self.read_chars += end - self.at
        return end, is_closed

    def _value(self) -> bool:
        """Read an object or a list, as JSON or as Python writes it; False: it is no call and no envelope."""
        text, tools = self.text, self.facts.sought
        if not self.facts.seeks and not self.facts.kinds:
            return False
        end, is_closed = self._closing()
        self._wait_if(not is_closed)
        raw = text[self.at : end]
        value = read_value(raw) if is_closed else None
        calls = calls_in(value, tools) if self.facts.seeks else ()
        if not calls and self._name and isinstance(value, Mapping):
            calls = (call_of(self._name, value),)
        kind = _TYPE.match(raw)
        items = value if isinstance(value, list) and value else [value or {"type": kind and kind[1]}]
        is_envelope = all(isinstance(item, Mapping) and str(item.get("type")) in self.facts.kinds for item in items)
        if is_envelope:
            self.found.append(ScanMatch("envelope"))
        is_found = is_envelope or self._keep(raw, calls, looks_like_call(raw) if value is None else "")
        if is_found or not self.found:
            self.at = end  # data is no part of what was found
        return is_found

    def _word(self) -> bool:
        """Read a Python call, a list of them, or a tool's name before its arguments; return whether there was one."""
        text, tools = self.text, self.facts.sought
        word = _WORD.match(text, self.at)
        if word is None or not self.facts.seeks:
            return False
        any_name = (self.at > 0 or not tools) and self.any_name and not word["list"]
        self._wait_if(self._may_be_name(word.start("name")) or (any_name and word.end() == len(text)))
        name = bare_name(word["name"])
        if not text.startswith("(", word.end()):
            is_marked = any_name and bool(_ONLY_AROUND_CALLS.search(text[: self.at]))
            behind = text[word.end() :].lstrip()[:1] if is_marked else ""
            self._wait_if(is_marked and not behind)
            is_name = name in tools or (is_marked and behind in {"{", "[", "<", "`"})
            return not word["list"] and is_name and self._named(name, word.end())
        is_name = name in tools or name == "print" or (any_name and (self.at > 0 or "_" in name))
        if self.facts.wants_code or not is_name:
            return False
        end, is_closed = self._closing()
        behind = text[end:].lstrip(" \t;")
        self._wait_if(not is_closed or not behind)
        if is_closed and behind and not word["list"] and behind[0] not in "\n\r<`]":
            return False  # a mention in a sentence
        raw = text[self.at : end]
        calls = python_calls(raw, tools, any_name=any_name)
        is_found = self._keep(raw, calls or (), name if calls is None and name in tools else "")
        self.at = end if is_found else self.at
        return is_found

    def _may_be_name(self, at: int) -> bool:
        """Whether more text may make a label, or the name of a tool, of the text from this place on."""
        begun = bare_name(self.text[at : at + _HEADER_CHARS]).lower()
        return any(name.lower().startswith(begun) for name in (*_BEFORE_NAMES, *_LABELS, *self.facts.sought))

    def _keep(self, raw: str, calls: Sequence[ToolCall], broken: str = "") -> bool:
        """Add calls, or a `broken` one of this name, to `found`, unless one does not count or `raw` is a quotation."""
        names = [call.name for call in calls] or [broken]
        counts = all(name and (self.any_name or name in self.facts.sought) for name in names)
        if not counts or self.facts.is_quoted(raw, *calls):
            return False
        self.found += [ScanMatch("call", call) for call in calls] or [ScanMatch("broken", call_of(broken, ""))]
        self._name = ""
        return True


def _model_marks(said: str) -> tuple[str, ...]:
    """Return the marks that no person wrote in the request, nor their counterpart, such as `</think>`."""
    pairs = _THOUGHTS | {end: begin for begin, end in _THOUGHTS.items()}
    return tuple(mark for mark in _MARKS if mark not in said and pairs.get(mark, mark) not in said)


@dataclass(slots=True)
class Scanner:
    """Takes the pieces of an answer, and returns what of them is shown."""

    facts: RequestFacts
    sightings: list[ScanMatch] = field(default_factory=list)
    """The calls and envelopes, when all has come."""
    _thoughts: list[str] = field(default_factory=list)
    _shown: list[str] = field(default_factory=list)  # prose before the first call or envelope
    _rest: list[str] = field(default_factory=list)  # prose behind it
    _prose_chars: int = 0
    _has_words: bool = False  # whether that is more than white space
    _all_chars: int = 0  # of the answer
    _vain_chars: int = 0  # that were looked through for nothing
    _text: str = ""  # not decided yet
    _next_look: int = 0  # how long it has to be for another look
    _closing: str = ""  # the mark that ends the code, the thoughts or the name of who speaks
    _starts_line: bool = True
    _trims: bool = False  # white space at the beginning of what comes next
    _ended: bool = False  # the turn
    _marks: tuple[str, ...] = field(init=False)
    _starts: set[str] = field(init=False)  # the characters that they begin with

    def __post_init__(self) -> None:
        said = self.facts.person
        marks = _MARKS if "<" not in said and "[" not in said else _model_marks(said)
        self._marks = (*marks, *[head for head in self.facts.heads if head not in said])
        self._starts = {*_MARK_STARTS, *[head[0] for head in self.facts.heads]}

    @property
    def shown(self) -> str:
        """The prose before the calls and envelopes."""
        return "".join(self._shown)

    @property
    def thoughts(self) -> str:
        """What stood between marks of thoughts."""
        return "".join(self._thoughts)

    @property
    def prose(self) -> str:
        """All that is no call, envelope or thought."""
        return "".join((*self._shown, *self._rest))

    def read(self, piece: str = "", *, final: bool = False) -> list[ModelDelta]:
        """Take a piece of the answer, and return the deltas that can be shown now. `final`: it is the last piece."""
        starts = range(0, max(1, len(piece)), _PIECE_CHARS)
        pieces: list[ModelDelta] = []
        for start in starts:
            is_last = start == starts[-1]
            pieces += self._read(piece[start : start + _PIECE_CHARS], final=final and is_last)
        return pieces

    def _read(self, piece: str, *, final: bool) -> list[ModelDelta]:
        """As `read`, for a piece short enough to be read at once."""
        pieces: list[ModelDelta] = []
        self._text += "" if self._ended else piece
        self._all_chars += len(piece)
        while self._text and (final or len(self._text) >= self._next_look):
            if chars := self._clear_chars(final):
                pieces += self._release(chars)
                continue
            self._vain_chars += len(self._text) // 64  # is copied
            if self._vain_chars > _VAIN_SHARE * max(self._all_chars, _PIECE_CHARS):
                pieces += self._release(len(self._text))
                continue
            # Thoughts at the very beginning are some, whatever the person asks about.
            marks = self._marks if self._has_words else (*_THOUGHTS, *self._marks)
            marks = marks if self._text[0] in self._starts else ()  # as most words
            is_begun = any(mark != self._text and mark.startswith(self._text) for mark in marks)
            is_begun |= self._text[:1] == "(" and len(self._text) < _LOOK_CHARS * 2 and ")" not in self._text
            is_begun |= self._text.startswith(tuple(_HEADERS)) and "<|message|>" not in self._text
            if self._closing or (is_begun and not final):
                break
            if not self._has_words and (note := _DATE_NOTE.match(self._text)):
                self._text, self._trims = self._text[note.end() :], True
                continue
            if header := _CALL_HEADER.match(self._text, 0, _HEADER_CHARS):
                self._text = f"<function={header[1]}>{self._text[header.end() :]}"
                continue
            if mark := next((mark for mark in marks if self._text.startswith(mark)), ""):
                behind = self._text[len(mark) :]
                if mark in _END and not final and len(behind) < _LOOK_CHARS and "\n" not in behind:
                    break
                pieces += self._mark(mark)
                continue
            any_name = self.facts.any_name and self._prose_chars < ANNOUNCEMENT_CHARS
            span = _Span(self.facts, self._text, any_name, final)
            try:
                span.read(starts_line=self._starts_line, is_first=not self._has_words)
            except _IncompleteText:
                self._next_look = len(self._text) * 5 // 4  # a look at a long text takes time
                break
            if not span.found:
                self._vain_chars += max(0, span.read_chars - span.at)
                code = span.code or ("`" if not span.at and self._text[0] == "`" else "")
                pieces += self._release(span.at or 1)
                self._closing = code
            elif final:
                self.sightings += span.found
                self._text, self._starts_line = self._text[span.at :], True
            else:
                self._next_look = sys.maxsize  # no more is shown before the end
        return pieces

    def _clear_chars(self, final: bool) -> int:
        """How many characters at the beginning are sure to be what they are now: prose, code or thoughts."""
        text, mark = self._text, self._closing
        if not mark:
            suspect = (_SUSPECT_AT_LINE if self._starts_line else _SUSPECT).search(text)
            return len(text) if suspect is None else suspect.end() - 1
        head, found, _ = text.partition(mark)
        ends = [len(head) + len(mark)] if found else []
        ends += [head.find("\n") + 1] if mark == "`" and "\n" in head else []
        begun = 0 if final else max(size for size in range(len(mark)) if text.endswith(mark[:size]))
        return min(ends, default=len(text) - begun)

    def _release(self, chars: int) -> list[ModelDelta]:
        """Move so many characters from the undecided text to prose, code or thoughts; the deltas shown for them."""
        text, self._text, self._next_look = self._text[:chars], self._text[chars:], 0
        mark, is_closed = self._closing, text.endswith(("`", "\n") if self._closing == "`" else self._closing)
        self._closing = "" if is_closed else mark
        if mark in _THOUGHTS.values() or mark in _BEGIN.values():
            self._trims = self._starts_line = True
            text = text.removesuffix(mark) if mark not in _BEGIN.values() else ""
            self._thoughts.append(text)
            return [ModelDelta("reasoning", text)] if text else []
        line = text.rpartition("\n")[2]
        self._starts_line = not line.strip() and (self._starts_line or "\n" in text)
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        self._prose_chars += len(text)
        self._has_words = self._has_words or bool(text.strip())
        (self._rest if self.sightings else self._shown).append(text)
        if self.sightings:
            return []
        return [ModelDelta("text", text)] if text else []

    def _mark(self, mark: str) -> list[ModelDelta]:
        """Handle a mark at the start of the undecided text; return the deltas if it is an ordinary word."""
        is_begin = mark in _BEGIN and not self._has_words
        is_word = mark in _END and not is_begin and not _BEHIND_END.match(self._text, len(mark))
        if mark in self.facts.heads and not self._has_words:
            self.sightings.append(ScanMatch("envelope"))
            self._text, self._starts_line = self._text[len(mark) :], False
            return []
        is_word |= mark in self.facts.heads or (mark == "</s>" and "<s>" in self.prose)
        if is_word or (mark in _THOUGHTS and not self._starts_line):
            return self._release(len(mark))
        self._text = self._text[len(mark) :]
        if is_begin:
            self._closing = _BEGIN[mark]
        elif mark in _END:
            self._text, self._ended = "", True
        elif mark in _THOUGHTS:
            self._closing = _THOUGHTS[mark]
        else:  # all before it was thoughts that had not been opened
            self._thoughts += [*self._shown, *self._rest]
            self._shown, self._rest, self.sightings = [], [], []
            self._prose_chars, self._has_words = 0, False
            self._trims = self._starts_line = True
        return []
