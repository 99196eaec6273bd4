"""Text into sentences, with what is quoted made invisible to the patterns.

A sentence keeps positions: its `masked` is as long as its `text`, so what a pattern matches in the one is read from the
other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Language", "Sentence", "clean", "cut", "language_of", "one_line", "sentences_in"]

Language = Literal["en", "zh"]

MAX_ANALYSED_CHARS = 4_000

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_CJK = re.compile(f"[{CJK}]")
_LATIN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]+(?:'[A-Za-z]+)*")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "＇": "'", "\u00a0": " ", "\u3000": " "})
_SPACES = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r"(?: ?\n)+ ?")

# Openers can't stand inside their own quotation: that keeps a row of lone openers linear.
_QUOTED = re.compile(
    r"```.*?```|^[ \t]*>[^\n]*$"
    r'|"[^"\n]*"|“[^“”\n]*”|«[^«»\n]*»|「[^「」\n]*」|『[^『』\n]*』'
    r"|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL | re.MULTILINE,
)

# A question mark before an ASCII letter is a web address, not an end; a point ends only before space or Chinese.
_END = re.compile(rf"[。！？；\n]+|[!?]+[.!?。！？]*(?![A-Za-z0-9=&_/])|[.…]+(?=\s|$|[{CJK}])|;(?=\s|$)")
_TITLE = re.compile(r"\b(?:mr|mrs|ms|dr|st|prof|vs|e\.g|i\.e)$", re.IGNORECASE)
_ABBREVIATED = re.compile(r"\b(?:[JjSs]r|[Ii]nc|[Ll]td|[A-Z])$")
_FRESH_START = re.compile(r"\s+(?:I|My|We|He|She|It|They|You|The|What|Where|When|Who|How|Why|Do|Please|Call)\b")

# "My name is Ada, what is yours?" holds a statement and a question.
_TAG_QUESTION = re.compile(
    r",\s*(?:and\s+|but\s+|so\s+)?(?=(?:what|where|who|whose|which|when|why|how|do\s+you|can\s+you|could\s+you)\b)",
    re.IGNORECASE,
)
_OPENS_QUESTION = re.compile(
    r"\W*(?:what|where|who|whose|which|when|why|how|if|do|does|did|is|are|can|could)\b", re.IGNORECASE
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
    text = text[:MAX_ANALYSED_CHARS].translate(_STRAIGHT)
    if (first := _CJK.search(text)) is None:
        return "en"
    characters, words = len(_CJK.findall(text)), len(_LATIN.findall(text))
    if characters != words:
        return "zh" if characters > words else "en"
    return "en" if _LATIN.search(text, 0, first.start()) else "zh"


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
    found: list[Sentence] = []
    start = 0
    for end in _END.finditer(whole.masked):
        if end[0] == "." and _goes_on(whole.masked, end):
            continue
        found.extend(_parts_of(whole.cut(start, end.end())))
        start = end.end()
    found.extend(_parts_of(whole.cut(start)))
    return [sentence for sentence in found if sentence.text.strip()]


def _goes_on(text: str, point: re.Match[str]) -> bool:
    """Whether this point ends a title, an abbreviation or an initial and not the sentence."""
    before = text[max(0, point.start() - 12) : point.start()]
    if _TITLE.search(before):
        return True
    return _ABBREVIATED.search(before) is not None and _FRESH_START.match(text, point.end()) is None


def _parts_of(sentence: Sentence) -> list[Sentence]:
    if not sentence.masked.rstrip().endswith("?") or _OPENS_QUESTION.match(sentence.masked):
        return [sentence]
    tag = _TAG_QUESTION.search(sentence.masked)
    return [sentence.cut(0, tag.start()), sentence.cut(tag.end())] if tag else [sentence]
