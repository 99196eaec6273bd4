"""Words: one versioned function for index and query, on both databases.

Scripts written without spaces (Chinese, Japanese, Korean, Thai, ...) run as overlapping bigrams plus the last
character; other words are case-folded and Snowball-stemmed, and the originals of stemmed words are kept at the end, so
that an exact form is found too while neighbouring stems stay neighbours. Emoji and other symbols are words of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator

import Stemmer

# A change of what `index_words` returns needs a migration that builds the index of old stores again.

MAX_CLAUSES = 16
MAX_PHRASE_TOKENS = 24
MAX_QUERY_CHARS = 4_000  # of a longer query the beginning counts
MAX_TOKEN_CHARS = 64  # of longer ones (encoded data, keys) the beginning is a word
MAX_STEMS = 20_000

SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
"""The inside of a character class: letters of scripts without spaces between words, and Hangul."""
_MARK_RANGES = (
    "\u0300-\u036f"  # accents, stress, the dot of a Turkish capital
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Arabic vowels, hamza
)
"""The inside of a character class: marks that words are compared without."""
# Indic vowel signs are marks too, which \w leaves out: without the range Hindi would fall apart at every vowel.
_WORDS = (
    f"(?P<run>[{SPACELESS}]+)"
    f"|(?P<word>(?:(?![{SPACELESS}_])[\\w{_MARK_RANGES}\u0900-\u0dff])+)"
    "|(?P<symbol>[\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff\U0001f000-\U0001faff])"
)
# What _WORDS finds in ASCII stands between spaces after this, in lower case.
ASCII_LOWER = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))
_ACCENTED = re.compile("[\u00c0-\u024f\u1e00-\u1eff\u0370-\u03ff\u1f00-\u1fff\u0622-\u0626]")  # Latin, Greek, Arabic
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_MARKS = re.compile(f"[{_MARK_RANGES}]+")
_WHOLE_WORDS = re.compile(f"[\\w{_MARK_RANGES}]+")

# Words that say nothing of what is looked for; left out of queries, never out of the index. `s`, `re`, `ve`, `ll` are
# what an apostrophe leaves. With the pronouns and these: +1.3 R@10 on LoCoMo (see memory.ranking.weights).
_STOP_TEXT = (
    "a about am an and any are as at be been being but by can could did do does for from had has have he her hers"
    " him his how i if in into is it its just ll me my no not of on or our re s she should so such tell than that"
    " the their them then there these they this to us ve was we were what when where which who whom whose why will"
    " with would you your"
)
STOP_WORDS = frozenset(_STOP_TEXT.split())


@functools.lru_cache(maxsize=MAX_STEMS)
def english_stem(word: str) -> str:
    """Return the Snowball stem of a word in lower case."""
    return str(Stemmer.Stemmer("english", 0).stemWord(word))  # one stemmer is not safe in two threads


@functools.lru_cache(maxsize=MAX_STEMS)
def _russian_stem(word: str) -> str:
    return str(Stemmer.Stemmer("russian", 0).stemWord(word))


@dataclass(frozen=True, slots=True)
class Clause:
    """Tokens that must be adjacent in a text, or with `either` any one of them; `prefix`: the last may be cut short."""

    tokens: tuple[str, ...]
    prefix: bool = False
    either: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: a text matches if any clause does. Without clauses it matches nothing."""

    clauses: tuple[Clause, ...]

    def loosen(self) -> Query:
        """Return the query with each phrase taken apart into single tokens, for when the phrases find nothing."""
        single = dict.fromkeys(
            Clause((token,), clause.prefix and len(clause.tokens) == 1)
            for clause in self.clauses
            for token in clause.tokens
        )
        return Query(tuple(single)[: MAX_CLAUSES * 2])


def stems(text: str) -> list[str]:
    """Return the tokens of `text` in order: stems, bigrams and last characters of spaceless runs, symbols."""
    return [token for kind, tokens in _tokens(text) for token in (tokens[:1] if kind == "word" else tokens)]


def index_words(text: str) -> str:
    """Return what the index stores for `text`: tokens in order, then the originals of stemmed words, spaces between."""
    if text.isascii():
        stem_list, changed = _ascii_words(text)
        return " ".join((*stem_list, *dict.fromkeys(changed)))
    tokens: list[str] = []
    originals: list[str] = []
    # Most texts have a dash, a quotation mark or some words of other letters among words that take a fifth of the time.
    for ascii_only, group in itertools.groupby(text.split(" "), str.isascii):
        part = " ".join(group)
        if ascii_only:
            stem_list, changed = _ascii_words(part)
            tokens += stem_list
            originals += changed
            continue
        for kind, part_tokens in _tokens(part):
            if kind != "word":
                tokens.extend(part_tokens)
                continue
            stem, original = part_tokens
            tokens.append(stem)
            if original != stem:
                originals.append(original)
    return " ".join((*tokens, *dict.fromkeys(originals)))


def _ascii_words(text: str) -> tuple[list[str], list[str]]:
    """Return (the stems of an ASCII text in order, those of its words that differ from their stems)."""
    words = text.encode().translate(ASCII_LOWER).decode().split()
    if len(text) > MAX_TOKEN_CHARS and max(map(len, words), default=0) > MAX_TOKEN_CHARS:
        words = [word[:MAX_TOKEN_CHARS] for word in words]
    stem_list = list(map(english_stem, words))
    return stem_list, [word for word, stem in zip(words, stem_list, strict=True) if word != stem]


def fold(text: str) -> str:
    """Return `text` in the form in which words are compared: case and width folded, without accents and vowel signs."""
    if text.isascii():
        return text.lower()
    result = unicodedata.normalize("NFKC", text).casefold()
    if _ACCENTED.search(result):
        return _WHOLE_WORDS.sub(lambda word: _without_marks(word[0]), result)
    return _MARKS.sub("", result)


def parse_query(text: str) -> Query:
    """Return the query for a user's words. The only syntax is double quotes around a phrase, so nothing is an error.

    Stop words are left out unless there is nothing else; of more than 16 clauses the longest stay, of a phrase the
    first 24 tokens, of the text the first 4,000 characters.
    """
    return _parse(text[:MAX_QUERY_CHARS])


@functools.lru_cache(maxsize=16)
def _parse(text: str) -> Query:
    """Return the query for a text of bounded length; cached, as a search of many agents asks for it for each one."""
    clauses: dict[Clause, None] = {}
    weak: dict[Clause, None] = {}
    for index, piece in enumerate(text.split('"')):
        if index % 2 and (phrase := tuple(stems(piece))):
            clauses[Clause(phrase[:MAX_PHRASE_TOKENS])] = None
            continue
        for kind, tokens in _tokens(piece):
            if kind == "run":
                clauses[_run_clause(tokens)] = None
            elif kind == "word" and tokens[1] in STOP_WORDS:
                weak[Clause((tokens[0],))] = None
            else:
                clauses[Clause((tokens[0],))] = None
    selected = list(clauses or weak)
    if len(selected) > MAX_CLAUSES:
        longest = set(sorted(selected, key=lambda clause: -sum(map(len, clause.tokens)))[:MAX_CLAUSES])
        selected = [clause for clause in selected if clause in longest]
    return Query(tuple(selected))


def part_clauses(text: str) -> tuple[Clause, ...]:
    """Return clauses that match every text which contains `text` from the beginning of a word on; empty: no words.

    The last word may go on behind the part, so it is looked for as a prefix of at least three letters: too many words
    begin with fewer. If it is shorter, or if the first word may have begun before the part, others have to do.
    """
    found = list(_tokens(text[:MAX_QUERY_CHARS]))
    clauses: dict[Clause, None] = {}
    for place, (kind, tokens) in enumerate(found):
        may_go_on = kind == "word" and place == len(found) - 1
        if kind == "run":
            clauses[_run_clause(tokens)] = None
        elif may_go_on and len(tokens[1]) > 2:
            clauses[Clause((tokens[1],), prefix=True)] = None
        elif kind == "symbol" or (place and not may_go_on):
            clauses[Clause((tokens[0],))] = None
    if found and not clauses:
        clauses[Clause((found[0][1][0],))] = None
    return tuple(clauses)[-MAX_CLAUSES:]


def _run_clause(tokens: Sequence[str]) -> Clause:
    """Return the clause for a run of letters without spaces, from its tokens: bigrams and the last character."""
    bigrams = tuple(tokens[:-1][:MAX_PHRASE_TOKENS])
    return Clause(bigrams) if bigrams else Clause((tokens[-1],), prefix=True)


@functools.cache
def _words() -> re.Pattern[str]:
    """Return the pattern of words. It is compiled at its first use, as its ranges take longer than this module."""
    return re.compile(_WORDS)


def _tokens(text: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield (kind, tokens): a word is (stem, original), a run its bigrams and last character, a symbol itself."""
    if text.isascii():
        for word in text.encode().translate(ASCII_LOWER).decode().split():
            word = word[:MAX_TOKEN_CHARS]
            yield "word", (english_stem(word), word)
        return
    normal = unicodedata.normalize("NFKC", text).casefold()
    for match in _words().finditer(normal):
        kind, text = match.lastgroup or "word", match.group()
        if kind == "run":
            yield kind, [*(text[start : start + 2] for start in range(len(text) - 1)), text[-1]]
        elif kind == "symbol":
            yield kind, (text,)
        elif word := (text if text.isascii() else _without_marks(text))[:MAX_TOKEN_CHARS]:
            stem = _russian_stem(word) if _CYRILLIC.match(word) else english_stem(word)
            yield kind, (stem, word)


def _without_marks(word: str) -> str:
    """Return a word without accents, points and vowel signs, so that `cafe` finds `café`. In Cyrillic and others a mark
    that makes another letter stays."""
    if _ACCENTED.search(word):
        word = unicodedata.normalize("NFD", word)
    return unicodedata.normalize("NFC", _MARKS.sub("", word))


@dataclass(frozen=True, slots=True)
class Matches:
    """The candidates of a full-text search in one scope.

    Args:
        seqs: their sequence numbers, those first that hold the rarest words of the query, then the newest.
        frequency: for each clause of the query, how many rows of the scope hold it; an estimate where there are very
            many.
    """

    seqs: Sequence[int] = ()
    frequency: Sequence[int] = ()


class Postings(dict[tuple[tuple[Clause, ...], int], "NDArray[Any]"]):
    """A cache of matching rows for one state of a search's scope and one filter: (clauses that a row must match, rows
    asked for) -> the numbers of the newest such rows."""
