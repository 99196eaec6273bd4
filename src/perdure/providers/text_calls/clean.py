"""Take apart what a model's template adds to its answer: thoughts in tags, and marks of where turns begin and end.

What follows the end of the turn is dropped: small models go on talking to themselves. In code, and if the person's own
message has them, such marks are a part of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from perdure.providers.text_calls.forms import FENCE

_THOUGHTS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}
_THOUGHTS |= {"[THINK]": "[/THINK]"}
_END = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<eos>"),
    *("<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "<|im_start|>", "<|start_header_id|>", "<start_of_turn>"),
    *("[INST]", "[/INST]"),
)
_MARKS = (*_THOUGHTS, *_THOUGHTS.values(), *_END)
_HEAD = re.compile(
    r"(<s>(?=\s)|<bos>|<\|begin_of_text\|>|<\|im_start\|>|<start_of_turn>|<\|start_header_id\|>)\s*"
    r"(?:assistant|model)?(?:<\|end_header_id\|>)?\s*"
)
HEAD_CHARS = 60
"""So much of an answer that begins like a mark is waited for."""

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
    _trims: bool = False  # white space at the beginning of what comes next
    _marks: tuple[str, ...] = field(init=False)

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
            at, mark = self._next(final)
            if not at and not mark:
                return
            before, behind = self._text[:at], self._text[at + len(mark) :]
            if before:
                self._text = self._text[at:]
                yield from self._take(before)
            elif mark in _END and not self._closing and not behind.strip() and not final:
                return  # in code it ends the turn only if nothing follows
            else:
                self._text = behind
                yield from self._mark(mark, is_last=not behind.strip())

    def _begin(self, final: bool) -> bool:
        """Take away the marks before an answer; whether enough of it has come."""
        text = self._text.lstrip()
        if text[:1] in ("", "<") and len(text) < HEAD_CHARS and not final:
            return False
        while (head := _HEAD.match(text)) and head[1] not in self.kept:
            self._text = text = text[head.end() :]
            self._trims = True
        self._begun = True
        return True

    def _next(self, final: bool) -> tuple[int, str]:
        """Where the next mark stands, and the mark; without a mark, how much of the text is none."""
        text = self._text
        marks = (self._closing,) if self._closing else self._marks
        if found := [(at, mark) for mark in marks if (at := text.find(mark)) >= 0]:
            return min(found)
        at = max(text.rfind("<"), text.rfind("["))
        is_begun = at >= 0 and not final and any(mark.startswith(text[at:]) for mark in marks)
        return at if is_begun else len(text), ""

    def _take(self, text: str) -> Iterator[Piece]:
        """The pieces of a text without marks."""
        if self._closing:
            self._thoughts.append(text)
            yield "reasoning", text
            return
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if text:
            self._said.append(text)
            yield "text", text

    def _mark(self, mark: str, *, is_last: bool) -> Iterator[Piece]:
        """What a mark does."""
        said = "".join(self._said)
        line = said.rpartition("\n")[2]
        is_code = said.count(FENCE) % 2 == 1 or line.replace(FENCE, "").count("`") % 2 == 1
        is_text = (is_code and not is_last) or (mark == "</s>" and "<s>" in said)
        if self._closing:
            self._closing, self._trims = "", True
        elif mark in _END and not is_text:
            self._ended = True
        elif mark in _THOUGHTS and not is_code and not line.strip():
            self._closing = _THOUGHTS[mark]
            if self._thoughts:
                self._thoughts.append("\n")
                yield "reasoning", "\n"
        elif mark in _THOUGHTS.values() and not is_code:
            if said.strip():
                self._thoughts.append(said)
                yield "stray", said
            self._said, self._trims = [], True
        else:
            yield from self._take(mark)
