"""Take apart what a model's template adds to its answer: thoughts in tags, and marks of where turns begin and end.

What follows the end of the turn is dropped: small models go on talking to themselves. In code, and if the person's own
message has them, such marks are a part of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from perdure.providers.text_calls.scan import FENCE

_THOUGHTS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}
_THOUGHTS |= {"[THINK]": "[/THINK]"}
_BEGIN = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|begin_of_text|>", "<s> ", "<s>\n", "<bos>")
_END = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<eos>"),
    *("<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "<|im_start|>", "<|start_header_id|>", "<start_of_turn>"),
    *("[INST]", "[/INST]"),
)
_MARKS = tuple(dict.fromkeys((*_THOUGHTS, *_THOUGHTS.values(), *_BEGIN, *_END)))
_ROLE = re.compile(r"\s*(?:assistant|model)?(?:<\|end_header_id\|>)?\s*")
_ROLE_CHARS = 40

Piece = tuple[Literal["text", "reasoning", "stray"], str]
"""A piece of the text or of the thoughts; `stray`: all text before it was thoughts that had not been opened."""


@dataclass(slots=True)
class Cleaner:
    """Takes the pieces of an answer and returns text and thoughts.

    Args:
        kept: the person's message.
    """

    kept: str = ""
    _text: str = ""  # not decided yet
    _said: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _closing: str = ""  # the mark that ends the thoughts
    _begun: bool = False
    _ended: bool = False
    _edge: str = ""  # marks in code, which count if nothing follows
    _trims: bool = False  # white space at the beginning of what comes next
    _marks: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self._marks = tuple(mark for mark in _MARKS if mark not in self.kept)

    @property
    def thoughts(self) -> str:
        """All thoughts so far."""
        return "".join(self._thoughts)

    def read(self, piece: str = "", *, final: bool = False) -> Iterator[Piece]:
        """The pieces that this one makes clear. `final`: nothing follows."""
        self._text += piece
        while self._text and not self._ended:
            if not self._begun and not self._begin(final):
                return
            marks = (self._closing,) if self._closing else self._marks
            at, mark = self._next(marks, final)
            if at:
                before, self._text = self._text[:at], self._text[at:]
                yield from self._take(before)
            elif mark:
                self._text = self._text[len(mark) :]
                yield from self._mark(mark)
            else:
                break

    def _begin(self, final: bool) -> bool:
        """Take the marks before an answer away; whether it has begun."""
        text = self._text.lstrip()
        mark = next((mark for mark in _BEGIN if mark in self._marks and text.startswith(mark)), None)
        if mark is None:
            self._begun = final or (bool(text) and not any(mark.startswith(text) for mark in _BEGIN))
            return self._begun
        behind = text[len(mark) :]
        if len(behind) < _ROLE_CHARS and "\n" not in behind and not final:
            return False
        role = _ROLE.match(behind)
        self._text, self._trims = behind[role.end() if role else 0 :], True
        return bool(self._text)

    def _next(self, marks: tuple[str, ...], final: bool) -> tuple[int, str]:
        """How much stands before the next mark, and the mark if it stands first. (0, ""): more text is needed."""
        text = self._text
        at = 0
        while (at := min((place for place in (text.find("<", at), text.find("[", at)) if place >= 0), default=-1)) >= 0:
            if mark := next((mark for mark in marks if text.startswith(mark, at)), ""):
                return at, "" if at else mark
            if not final and any(mark.startswith(text[at:]) for mark in marks):
                return at, ""
            at += 1
        return len(text), ""

    def _take(self, text: str) -> Iterator[Piece]:
        """The pieces of a text without marks."""
        if self._closing:
            self._thoughts.append(text)
            yield "reasoning", text
            return
        if self._edge and not text.strip():
            self._edge += text
            return
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        text, self._edge = self._edge + text, ""
        if text:
            self._said.append(text)
            yield "text", text

    def _mark(self, mark: str) -> Iterator[Piece]:
        """What a mark does."""
        said = "".join(self._said)
        line = said.rpartition("\n")[2]
        is_code = said.count(FENCE) % 2 == 1 or line.replace(FENCE, "").count("`") % 2 == 1
        if self._closing:
            self._closing, self._trims = "", True
        elif is_code or (mark == "</s>" and "<s>" in said):
            if mark in _END:
                self._edge += mark
            else:
                yield from self._take(mark)
        elif mark in _THOUGHTS and not line.strip():
            self._closing = _THOUGHTS[mark]
            if self._thoughts:
                yield from self._take("\n")
        elif mark in _THOUGHTS.values():
            if said.strip():
                self._thoughts.append(said)
                yield "stray", said
            self._said, self._trims = [], True
        elif mark in _END:
            self._ended = True
        else:
            yield from self._take(mark)


def without_marks(text: str) -> str:
    """The text of a whole answer, without thoughts and marks."""
    cleaner, said = Cleaner(), ""
    for kind, piece in (*cleaner.read(text), *cleaner.read(final=True)):
        said = "" if kind == "stray" else said + piece if kind == "text" else said
    return said
