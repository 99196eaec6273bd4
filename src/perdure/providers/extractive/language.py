"""Sentences, questions and keywords of a text, in English and Chinese.

What is quoted is invisible to the patterns. A sentence keeps positions: its `masked` is as long as its `text`, so what
a pattern matches in the one is read from the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from perdure.core.text.tables import read_table

Language = Literal["en", "zh"]

MAX_ANALYSED_CHARS = 4_000


def load_table(name: str) -> dict[str, Any]:
    """The data of a file beside this one."""
    return read_table(__file__, f"{name}.toml")


def fill_pattern(form: str, parts: Mapping[str, str]) -> str:
    """A pattern with its parts in place of their names."""
    for name, part in parts.items():
        form = form.replace(name, part)
    return form


class Patterns(dict[str, re.Pattern[str]]):
    """The patterns of a section of `patterns.toml`, with its parts, and these. Each is compiled at its first use."""

    def __init__(self, section: str, **parts: str) -> None:
        self._forms = {
            name: fill_pattern(form, {**_TABLE["parts"], **parts, "HAN": CJK}) for name, form in _TABLE[section].items()
        }

    def __missing__(self, name: str) -> re.Pattern[str]:
        return self.setdefault(name, re.compile(self._forms[name]))


_TABLE = load_table("patterns")
KIN: Final[Mapping[str, str]] = load_table("kin")
"""Word for a relative or somebody else -> the relation of that person to the speaker, without `_OF`."""
CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_FORM = Patterns("language")
_CJK = re.compile(f"[{CJK}]")
_LATIN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]+(?:'[A-Za-z]+)*")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "\u00a0": " ", "\u3000": " "})
_SPACES = re.compile(r"[^\S\n]+")
_ACTING = ("act", "pretend", "role", "play", "扮演", "假装", "模仿")
_LINE_ENDS = re.compile(r"(?: ?\n)+ ?")


def pattern(text: str) -> re.Pattern[str]:
    """A pattern that ignores case, and white space in its own text."""
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


# Words that name a kind of fact are weak: they are looked for only when a question has no other word.
_STOP_EN, _WEAK_EN = (frozenset[str](_TABLE["words"][name].split()) for name in ("stop_en", "weak_en"))
_WORD = re.compile(rf"(?:(?![{CJK}])[^\W_])+(?:[-'.@/_](?:(?![{CJK}])[^\W_])+)*")
_CJK_RUN = re.compile(f"[{CJK}]+")
_SAME = {word: same for same, words in _TABLE["same"].items() for word in words.split()}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its end mark. `masked` has the same length; quoted text in it is private-use characters."""

    text: str
    masked: str

    def cut(self, start: int, end: int | None = None) -> Sentence:
        """The part between two positions."""
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
    masked = _FORM["quoted"].sub(lambda quoted: "\ue000" * len(quoted[0]), plain)
    # Most texts have none of the signs and words that `works_on` needs.
    may_work_on = any(map(masked.__contains__, ":：\n")) or any(map(masked.lower().__contains__, _ACTING))
    if may_work_on and (request := _FORM["works_on"].search(masked)):
        masked = masked[: request.end()] + re.sub(r"[^\s]", "\ue000", masked[request.end() :])
    whole = Sentence(plain, masked)
    ends = [0, *(end.end() for end in _FORM["end"].finditer(whole.masked)), len(plain)]
    sentences = (whole.cut(start, end) for start, end in itertools.pairwise(ends))
    return [sentence for sentence in sentences if sentence.text.strip()]


@dataclass(frozen=True, slots=True)
class Keywords:
    """The words to look for.

    Args:
        words: as written: what a text is about, or, if it is about nothing, the kinds of fact that it wants.
        topics: what it is about, comparable.
        kinds: the kinds of fact that it wants ("name", "live"), which half of all statements share, comparable.
    """

    words: tuple[str, ...]
    topics: frozenset[str]
    kinds: frozenset[str]

    @property
    def query(self) -> str:
        """The query to search with."""
        return " ".join(self.words)

    def are_all_in(self, text: str) -> bool:
        """Whether the text has each of `words`."""
        return self.shared_with(text) == len(self.words)

    def shared_with(self, text: str) -> int:
        """How many of `words` are in `text`; a Chinese run counts when half of its pairs are."""
        folded = text.casefold()
        stems = set(map(stem, _words(folded)))
        return sum(_is_in(word, folded, stems) for word in self.words)


def is_question(sentence: Sentence) -> bool:
    """Whether somebody asks, or asks to be told, rather than tells."""
    masked = sentence.masked.strip()
    if _FORM["asks_to_note"].match(masked):
        return False
    if _FORM["ends_asking"].search(masked) or _FORM["asks_zh"].search(masked):
        return True
    return not masked.endswith("!") and _FORM["asks_en"].match(masked) is not None


def asks(text: str) -> bool:
    """Whether the last sentence of a text is a question, so that what comes next answers it."""
    return any(map(is_question, sentences_in(text[-MAX_ANALYSED_CHARS:])[-1:]))


def keywords_of(text: str) -> Keywords:
    """The content words of a text in either language, without what only makes it a question."""
    strong: list[str] = []
    weak: list[str] = []
    for word in _words(text):
        if stem(word) in _WEAK_EN:
            weak.append(word)
        elif word.casefold() not in _STOP_EN and (len(word) > 1 or word.isdigit()):
            strong.append(word)
    for run in _CJK_RUN.findall(text):
        for piece in _FORM["stop_zh"].sub(" ", run).split():
            weak.extend(_FORM["weak_zh"].findall(piece))
            rests = _FORM["weak_zh"].sub(" ", piece).split()
            strong.extend(filter(None, (_FORM["edge_zh"].sub("", rest) for rest in rests)))
    return Keywords(tuple(dict.fromkeys(strong or weak)), frozenset(map(stem, strong)), frozenset(map(stem, weak)))


def stem(word: str) -> str:
    """A comparable form: folded, spelled one way, without the commonest endings."""
    word = _SAME.get(word.casefold(), word.casefold())
    if not word.isascii() or word in _WEAK_EN:
        return word
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word.removesuffix(ending) + rest
            break
    # "like", "liked" and "liking" meet without their e.
    return word if word in _WEAK_EN else word + "e" if word + "e" in _WEAK_EN else word.removesuffix("e")


def _words(text: str) -> list[str]:
    """The words of other scripts than Chinese, without a possessive ending."""
    return [word.removesuffix("'s") for word in _WORD.findall(text)]


def _is_in(word: str, folded: str, stems: set[str]) -> bool:
    """Whether a casefolded text with these stems has the word."""
    if not _CJK_RUN.fullmatch(word):
        return stem(word) in stems
    pairs = [word[place : place + 2] for place in range(len(word) - 1)]
    return word in folded or sum(pair in folded for pair in pairs) * 2 >= len(pairs) > 0
