"""Take apart what a model's template adds to its answer: thoughts in tags, and marks of where turns begin and end.

What follows the end of the turn is dropped: small models go on talking to themselves. In code, and if the person's own
message has them, such marks are a part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from perdure.providers.text_calls.forms import FENCE

_THOUGHTS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}
_THOUGHTS |= {"[THINK]": "[/THINK]"}
_BEGIN = {"<|im_start|>": "\n", "<start_of_turn>": "\n", "<|start_header_id|>": "<|end_header_id|>"}
"""What begins a turn -> what ends the name of who speaks."""
_END = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>", "<eos>"),
    *("<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "[INST]", "[/INST]", *_BEGIN),
)
_MARKS = (*_THOUGHTS, *_THOUGHTS.values(), *_END)

Piece = tuple[Literal["text", "reasoning", "stray"], str]
"""A piece of the text or of the thoughts; `stray`: all text before it was thoughts that had not been opened."""


@dataclass(slots=True)
class Cleaner:
    """Takes the pieces of an answer and returns text and thoughts.

    Args:
        kept: the person's message.
    """

    kept: str = ""
    thoughts: str = ""
    """All thoughts so far."""
    _text: str = ""  # not decided yet
    _said: str = ""
    _closing: str = ""  # the mark that ends the thoughts, or the name of who speaks
    _ended: bool = False
    _trims: bool = False  # white space at the beginning of what comes next
    _marks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._marks = tuple(mark for mark in _MARKS if mark not in self.kept)

    def read(self, piece: str = "", *, final: bool = False) -> Iterator[Piece]:
        """The pieces that this one makes clear. `final`: nothing follows."""
        self._text += piece
        while self._text and not self._ended:
            at, mark = self._next(final)
            before, behind = self._text[:at], self._text[at + len(mark) :]
            is_last = mark in _END and not self._closing and not behind.strip()
            if before:
                self._text = self._text[at:]
                yield from self._take(before)
            elif not mark or (is_last and not final):
                return  # in code a mark ends the turn only if nothing follows
            else:
                self._text = behind
                yield from self._mark(mark, is_last=is_last)

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
        if self._closing in _BEGIN.values():
            return
        if self._closing:
            self.thoughts += text
            yield "reasoning", text
            return
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if text:
            self._said += text
            yield "text", text

    def _mark(self, mark: str, *, is_last: bool) -> Iterator[Piece]:
        """What a mark does."""
        line = self._said.rpartition("\n")[2]
        is_code = self._said.count(FENCE) % 2 == 1 or line.replace(FENCE, "").count("`") % 2 == 1
        if self._closing:
            self._closing, self._trims = "", True
        elif (is_code and not is_last) or (mark == "</s>" and "<s>" in self._said):
            yield from self._take(mark)
        elif mark in _BEGIN and not self._said.strip():
            self._closing = _BEGIN[mark]
        elif mark in _END:
            self._ended = True
        elif mark in _THOUGHTS and not line.strip():
            self._closing = _THOUGHTS[mark]
        elif mark in _THOUGHTS.values():
            if self._said.strip():
                self.thoughts += self._said
                yield "stray", self._said
            self._said, self._trims = "", True
        else:
            yield from self._take(mark)
