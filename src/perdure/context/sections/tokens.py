"""Token counts without a tokenizer: an upper and a lower estimate for a text.

Both are fitted to o200k and cl100k, the tokenizers of Qwen, DeepSeek and Mistral (byte pairs and SentencePiece), and
the one published for Claude 2. A provider's `usage` corrects the rest.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping

from perdure.core.text.tables import read_table

MESSAGE_OVERHEAD_TOKENS = 6
"""The tokens that a provider adds around each message: role, separators, and the like."""

IMAGE_TOKENS = 1_600
"""The most that Claude and GPT-4o take for a picture; the provider's count corrects the estimate for others."""

# One letter for each class of characters. In UTF-8 a character's first byte tells its script, or a few of them.
_CLASSES: Mapping[str, Iterable[int]] = {
    "n": (*range(32), 127),
    "s": b" ",
    "p": string.punctuation.encode(),
    "d": string.digits.encode(),
    "a": b"aeiouy",
    "b": b"bcdfghklmnprstvw",
    "j": b"jqxz",
    "A": b"AEIOUY",
    "B": b"BCDFGHJKLMNPQRSTVWXZ",
    "1": (0xC2,),  # signs of Latin-1
    "2": (0xC3,),  # letters of Latin-1
    "3": (0xC4, 0xC5),  # Latin, extended
    "4": (0xCE, 0xCF),  # Greek
    "5": (0xD0, 0xD1),  # Cyrillic
    "6": (0xD7,),  # Hebrew
    "7": range(0xD8, 0xDC),  # Arabic
    "8": range(0xE4, 0xEA),  # ideographs
    "9": range(0xEA, 0xEE),  # Hangul
}

# Hundredths of a token, each with its meaning.
_WEIGHTS = read_table(__file__)
_PER_BYTE = 108

_CLASS_OF = bytearray(b"." * 256)
for _name, _bytes in _CLASSES.items():
    for _byte in _bytes:
        _CLASS_OF[_byte] = ord(_name)
_TABLE, _CONTINUATIONS, _NON_ASCII = bytes(_CLASS_OF), bytes(range(0x80, 0xC0)), bytes(range(0x80, 0x100))

_WEIGHT_OF = bytes(_WEIGHTS["ascii"].get(chr(_class), 0) for _class in _TABLE)
_PAIR_WEIGHTS = [(name.encode(), weight) for name, weight in _WEIGHTS["pairs"].items()]
_LATIN_WEIGHTS = [(name.encode(), weight) for name, weight in _WEIGHTS["latin_pairs"].items()]
_SAVED_BY_CLASS = [(name.encode(), size * _PER_BYTE - weight) for name, (size, weight) in _WEIGHTS["classes"].items()]
_SAVED_BY_PREFIX = [(bytes.fromhex(prefix), 3 * _PER_BYTE - weight) for prefix, weight in _WEIGHTS["prefixes"].items()]

# Lines, rules and leaders: from the fourth on, a sign costs 0.22 tokens instead of 0.82.
_RULES = ("----", "====", "____", "****", "####", "....", "~~~~", "++++")
_RULE_RUN = re.compile("|".join(re.escape(rule) + re.escape(rule[0]) + "*" for rule in _RULES))
_SAVED_IN_A_RULE = 60

# The largest pieces that some tokenizer may keep whole. Each part of such a piece is one too, so taking the longest
# each time makes the fewest pieces. A word may keep the sign or space before it, and be a whole HTML tag (Gemma).
# Beyond ASCII all but punctuation is taken for letters. Ideographs, kana and the scripts of South-East Asia have no
# spaces between words: four, six and ten characters to a token are well above what any text comes to.
_HAN = "\u2e80-\u2fff\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3040-\u30ff"
_UNSPACED = "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff"
_SIGNS = "\u0080-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u2000-\u206f\u3000-\u3004\u3008-\u303f\uff01-\uff20"
_LETTER = r"A-Za-z\u00aa\u00b5\u00ba\u00c0-\u0dff\u10a0-\u177f\u1800-\u1fff\u2070-\u2e7f\u3100-\u33ff\ua000-\uf8ff" + (
    r"\ufb00-\uff00\uff21-\uffff\U00010000-\U0001ffff\U00040000-\U0010ffff"
)
_PIECE = re.compile(
    rf"(?:</|[^{_LETTER}{_HAN}{_KANA}{_UNSPACED}0-9\r\n])?"
    rf"(?:[{_LETTER}]{{1,104}}(?:'[A-Za-z]{{0,2}}|[1-6]?>)?|[{_HAN}]{{1,4}}|[{_KANA}]{{1,6}}|[{_UNSPACED}]{{1,10}})"
    r"| ?[0-9]{1,3}"
    rf"|[ ]?[{re.escape(string.punctuation)}{_SIGNS}\x00-\x08\x0e-\x1b\x7f]{{1,256}}[\r\n/]{{0,256}}"
    r"|\s{1,1024}|[\s\S]"
)


LARGE_CHARS, LARGE_KEPT = 100_000, 4
"""A longer text is counted once, of so many: a prefix is compiled again with the same prompt while the writer waits."""


class ScriptTokenCounter:
    """`TokenCounter` by script: what breaks words in ASCII text, and a price for each character of other scripts."""

    def __init__(self) -> None:
        self._large: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return an upper estimate: 1.2 to 1.5 times the count of the largest tokenizer's, for prose and for code.

        It never falls when text is added at either end. The estimate of two texts together is at most one token more
        than the sum of both. It is too low for rare ideographs and syllables, and random letters of some alphabets.
        """
        is_large = len(text) > LARGE_CHARS
        if is_large and (known := self._large.get(text)) is not None:
            return known
        raw = text.encode("utf-8", "surrogatepass")
        classes = raw.translate(_TABLE, _CONTINUATIONS)
        hundredths = sum(raw.translate(_WEIGHT_OF))
        hundredths += sum([classes.count(name) * weight for name, weight in _PAIR_WEIGHTS])
        if len(raw) > len(text):
            hundredths += _PER_BYTE * (len(raw) - len(raw.translate(None, _NON_ASCII)))
            hundredths += sum([classes.count(name) * weight for name, weight in _LATIN_WEIGHTS])
            hundredths -= sum([classes.count(name) * saved for name, saved in _SAVED_BY_CLASS])
            hundredths -= sum([raw.count(prefix) * saved for prefix, saved in _SAVED_BY_PREFIX])
        if classes.count(b"pppp") and any(rule in text for rule in _RULES):
            hundredths -= _SAVED_IN_A_RULE * sum([len(run) - 3 for run in _RULE_RUN.findall(text)])
        tokens = -(-hundredths // 100) or min(1, len(text))
        if is_large:
            if len(self._large) >= LARGE_KEPT:
                self._large.clear()
            self._large[text] = tokens
        return tokens

    def at_least(self, text: str) -> int:
        """Return a lower estimate: the count if each word, group of three digits and run of signs is one token."""
        return min(len(_PIECE.findall(text)), self.count(text))
