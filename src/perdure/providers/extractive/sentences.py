"""Text into sentences, with what is quoted made invisible to the patterns.

A sentence keeps positions: its `masked` is as long as its `text`, so what a pattern matches in the one is read from the
other.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]

MAX_ANALYSED_CHARS = 4_000

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_CJK = re.compile(f"[{CJK}]")
_LATIN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]+(?:'[A-Za-z]+)*")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "\u00a0": " ", "\u3000": " "})
_SPACES = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r"(?: ?\n)+ ?")

# Openers can't stand inside their own quotation: that keeps a row of lone openers linear.
_QUOTED = re.compile(r'^[ \t]*>[^\n]*$|"[^"\n]*"|“[^“”\n]*”|「[^「」\n]*」|' r"(?<!\w)'[^'\n]*'(?!\w)", re.MULTILINE)
# A point ends a sentence only before space or Chinese, and not after a title or an initial.
_END = re.compile(
    rf"[。！？；\n]+|[!?]+(?![A-Za-z0-9=&_/])|(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])\.+(?=\s|$|[{CJK}])"
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its end mark. `masked` has the same length; quoted text in it is private-use characters."""

    text: str
    masked: str

    def cut(self, start: int, end: int | None = None) -> Sentence:
        return Sentence(self.text[start:end], self.masked[start:end])


def clean(text: str) -> str:
    """`text` without what stores and wires refuse: NUL and lone surrogates become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def language_of(text: str) -> Language:
    """Chinese if the text has more Chinese characters than Latin words; at a tie, what it begins with."""
    text = text[:MAX_ANALYSED_CHARS].translate(_STRAIGHT).lstrip()
    begins = _CJK.match(text) is not None
    return "zh" if len(_CJK.findall(text)) + begins > len(_LATIN.findall(text)) else "en"


def one_line(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())


def cut(text: str, limit_chars: int) -> str:
    """`text`, or its beginning and an ellipsis."""
    return text if len(text) <= limit_chars else f"{text[: limit_chars - 1].rstrip()}…"


def sentences_in(text: str, *, limit_chars: int = MAX_ANALYSED_CHARS) -> list[Sentence]:
    """The sentences of the first `limit_chars` characters, in order, none empty.

    Apostrophes come out straight and runs of white space as one character, or patterns would take their square.
    """
    plain = _LINE_ENDS.sub("\n", _SPACES.sub(" ", text[:limit_chars].translate(_STRAIGHT)))
    whole = Sentence(plain, _QUOTED.sub(lambda quoted: "\ue000" * len(quoted[0]), plain))
    ends = [0, *(end.end() for end in _END.finditer(whole.masked)), len(plain)]
    found = (whole.cut(start, end) for start, end in itertools.pairwise(ends))
    return [sentence for sentence in found if sentence.text.strip()]
