"""Finding a text wherever it is stored, as it is or inside JSON of any depth, and taking it out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.text.forms import clusters, in_usual_width, lower_in_place, match_form, same_letters
from perdure.core.text.json_strings import compact_json

REDACTED = "[redacted]"
"""What stands in place of a text that was taken out."""
NO_RELATION = "REDACTED"
"""What stands in place of the relation of a fact."""
MASK = "█"
"""What stands in place of each character of it in a file, whose lines and places stay."""

CHARS_MIN, CHARS_MAX = 2, 20_000
ASCII_MIN = 3
"""The fewest characters of a text without letters of other scripts: shorter ones stand in too many words."""
FILTER_WORDS = 40
SIMILAR, SIMILAR_WORDS_MIN = 0.6, 2
"""A sentence of a summary with this share of the text's longer words says the same; of fewer words none does."""
WINDOW_WORDS, WINDOW_CHARS, WINDOWS_MAX = 3, 6, 200
"""So many words in a row, or characters of a script without spaces, are a quotation in a summary."""
FRAGMENT_CHARS_MIN = 12
CLIPPED_CHARS_MIN, CLIPPED_CHARS_MAX = 6, 200
"""A line of a summary that ends with so much of the beginning was cut off in the text; of more, words are quoted."""

# A backslash before one of these letters is an escape sequence of JSON, which must not be cut apart.
_ESCAPE_LETTERS = "nrtbfu"
_NEVER_ESCAPED = frozenset("acdeghjklmopqvwxyz0123456789")
_SPACE = r"(?:\s|\\+(?:[nrtf]|u(?:00(?:0[9a-d]|20|85|a0)|20[025][0-9af]|3000)))+"
_NO_MARK = r"(?![\u0300-\u036f]|\\+u03[0-6][0-9a-f])"
"""Behind a letter: no mark makes another letter of it."""
_DIGIT = re.compile(r"\d")
_PUNCTUATION = ".,;:!?\"'()[]{}“”„«»"
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*\s*|\s+|[.!?。！？]+")
_WORD = re.compile(r"\w{4,}")
_ONE_FORM = re.compile(r"[a-hjl-rt-z0-9]+")
"""Letters that only ASCII has as upper case, and digits; `i`, `k` and `s` are also the lower case of others."""
_ALSO_LOWER = {"k": "212a", "s": "017f"}
_DEPTH_MAX = 200
"""How deep the JSON of a record may nest, twice of what is taken in; what nests deeper is a text."""

_FIELD = re.compile(r"[a-z]+(?:_[a-z]+)*")
"""The name of a field of a record."""
_FIXED = re.compile(
    r"(?:[a-z]+_)*(?:id|ids|at|type|kind|role|roles|status|digest|trigger|awaits|by|method|state|marker|data)"
)
"""The names of fields whose values are ids, times, digests, data, or words of the format, if they look like that."""
_FIXED_VALUE = re.compile(r"[\w.:+/=-]+")
_FREE = frozenset(
    {"args", "arguments", "attributes", "embedding_config", "input", "metadata", "parameters", "properties"}
    | {"response", "scope", "state_origin", "value"}
)
"""The names of fields that hold what users and models made up, the names in it too."""
_NAME = re.compile(r"[\w./:@-]+")
"""A name of a tool, a model or a choice in settings."""
_SETTINGS_TEXTS = frozenset({"bypass_session_patterns", "guards"})
"""Settings that hold texts of users, which may be one word."""


class Redactor:
    """Finds a text in stored texts, in any letter case and form of Unicode, and with any white space between its words.

    Raises: InvalidInput: a text that is empty, too short or too long.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not (needle := text.strip().strip("\\").strip()):
            raise InvalidInput("there is nothing to look for: give the text to forget, or the id of a message")
        least = ASCII_MIN if needle.isascii() else CHARS_MIN
        if not least <= len(needle) <= CHARS_MAX:
            raise InvalidInput(
                f"the text to forget has {len(needle):,} characters: give {least} to {CHARS_MAX:,}, such as a sentence"
            )
        self.text = needle
        self._words = in_usual_width(needle)[0].split()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the text as it is, and as it stands in JSON of any depth, where letters are of the usual width."""
        first = self._words[0][0].lower()
        # Of a row of backslashes only the first begins a match, or each would be tried with all that follow.
        start = "" if first in _NEVER_ESCAPED else r"(?:(?<!\\)|(?!\\))"
        start += r"\\*" if first in _ESCAPE_LETTERS else ""
        end = _NO_MARK if self._words[-1][-1].isalpha() else ""
        return re.compile(start + _words_pattern(self._words) + end, re.IGNORECASE)

    @cached_property
    def like(self) -> str:
        """A pattern of SQL that matches the lower-cased form of every text with this one, and few others; not where
        letters are of another width."""
        plain = "".join(one if one.isascii() else " " for one in clusters(" ".join(self._words)))
        words = _ONE_FORM.findall(plain.lower())[:FILTER_WORDS]
        return f"%{'%'.join(words)}%" if words else "%"

    def finds(self, stored: str | None) -> bool:
        """Whether the text stands in this one."""
        return stored is not None and next(_spans(self.pattern, stored), None) is not None

    def redact(self, stored: str) -> str:
        """The stored text without it; what was JSON stays JSON."""
        redacted = _replace(stored, _spans(self.pattern, stored))
        if redacted != stored and (value := _parse(stored)) is not None and _parse(redacted) is None:
            return compact_json(self.redact_value(value))
        return redacted

    def redact_value(self, value: Any) -> Any:
        """A value of JSON, without the text in any of its strings."""
        return _map_texts(value, self.redact)

    def redact_record(self, stored: str) -> str:
        """The JSON of a record, without the text. What the store needs to read it stays: the names of its fields, ids,
        times and the like."""
        if (before := _parse(stored)) is None:
            return self.redact(stored)
        after = self.redact_fields(before)
        return stored if after == before else compact_json(after)

    def redact_settings(self, stored: str) -> str:
        """The JSON of settings, without the text. Names of tools, models and choices stay: a rule or a limit must not
        lose its meaning."""
        before = _parse(stored)
        if not isinstance(before, dict):
            return self.redact(stored)
        after = self.redact_choices(before)
        return stored if after == before else compact_json(after)

    def redact_choices(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings, as `redact_settings` reads them, without the text."""
        return {
            name: _map_record(value, self.redact if name in _SETTINGS_TEXTS else self._redact_sayings, name)
            for name, value in settings.items()
        }

    def _redact_sayings(self, text: str) -> str:
        """A text without this one; a single word stays."""
        return text if _NAME.fullmatch(text) else self.redact(text)

    def redact_fields(self, record: Any) -> Any:
        """A record, as `redact_record` reads it, without the text."""
        return _map_record(record, self.redact)

    def redact_parts(self, parts: str) -> str:
        """The JSON of a message's parts, without the text; a part about a compaction holds a summary. A provider's
        signature is of the old reasoning, and the compressed form of the old result, so they go."""
        before = json.loads(parts)
        after = [
            _map_record(part, self._redact_sentences if part.get("type") == "compaction" else self.redact)
            for part in before
        ]
        if after == before:
            return parts
        for old, new in zip(before, after, strict=True):
            if old != new and new.get("type") == "reasoning":
                new.pop("signature", None)
            if old != new:
                new.pop("shown_text", None)
                new.pop("whole_tokens", None)
        return compact_json(after)

    def redact_summary(self, summary: str) -> str:
        """A summary, or JSON with summaries, without the text, and without sentences that say the same."""
        if (before := _parse(summary)) is not None:
            after = _map_record(before, self._redact_sentences)
            return summary if after == before else json.dumps(after, ensure_ascii=False)
        return self._redact_sentences(summary)

    @cached_property
    def _fragments(self) -> re.Pattern[str] | None:
        """Matches what a summary may quote of the text: some words in a row, and words with digits."""
        words = self._words
        windows = [words[at : at + WINDOW_WORDS] for at in range(min(len(words), WINDOWS_MAX) - WINDOW_WORDS + 1)]
        if len(words) < WINDOW_WORDS and not self.text.isascii():  # a script without spaces
            whole = "".join(words)
            windows = [[whole[at : at + WINDOW_CHARS]] for at in range(min(len(whole), WINDOWS_MAX) - WINDOW_CHARS + 1)]
        wanted = [one for one in windows if not one[0].isascii() or len(" ".join(one)) >= FRAGMENT_CHARS_MIN]
        codes = [[code] for word in words if len(code := word.strip(_PUNCTUATION)) > 2 and _DIGIT.search(code)]
        patterns = list(map(_words_pattern, wanted + codes))
        return re.compile(f"(?=({'|'.join(patterns)}))", re.IGNORECASE) if patterns else None

    def _redact_fragments(self, text: str) -> str:
        """The text without what it quotes of the other one."""
        if self._fragments is None:
            return text
        return _replace(text, _spans(self._fragments, text, group=1))

    def _redact_clipped(self, text: str) -> str:
        """The text without beginnings of the other one at which a line was cut off."""
        whole = lower_in_place(" ".join(self._words))
        least = CLIPPED_CHARS_MIN if whole.isascii() else CLIPPED_CHARS_MIN // 2

        def cut(line: str) -> str:
            shown = line.rstrip(" .…")
            end = lower_in_place(in_usual_width(shown[-CLIPPED_CHARS_MAX:])[0])
            for chars in range(min(len(whole) - 1, len(end)), least - 1, -1):
                if end.endswith(whole[:chars]):
                    return shown[:-chars] + REDACTED + line[len(shown) :]
            return line

        return "\n".join(map(cut, text.split("\n")))

    def _redact_sentences(self, text: str) -> str:
        redacted = self._redact_clipped(self._redact_fragments(self.redact(text)))
        words = set(_WORD.findall(match_form(self.text)))
        if len(words) < SIMILAR_WORDS_MIN:
            return redacted

        def replace(match: re.Match[str]) -> str:
            sentence = match[0]
            shared = words & set(_WORD.findall(match_form(sentence)))
            end = sentence[len(sentence.rstrip()) :]
            return f"{REDACTED}{end}" if len(shared) >= SIMILAR * len(words) else sentence

        return _SENTENCE.sub(replace, redacted)

    def drop_lines(self, text: str) -> str:
        """The text without the lines in which this one stands; where it spans lines, without all of them."""
        kept, at = [], 0
        for start, end in _spans(self.pattern, text):
            if end <= at:  # in a line that is dropped already: no line is read twice
                continue
            if start >= at:
                kept.append(text[at : max(at, text.rfind("\n", at, start) + 1)])
            end = text.find("\n", end)
            at = len(text) if end < 0 else end + 1
        return ("".join(kept) + text[at:]).rstrip("\n") if kept else text

    def mask(self, texts: Sequence[str], *, between: str = "") -> list[str]:
        """Texts that follow one another, with the text masked, also where it begins in one and ends in the next.

        Their lengths and lines stay.
        """
        whole = between.join(texts)
        masked = _replace(whole, _spans(self.pattern, whole), lambda found: re.sub("[^\n]", MASK, found))
        parts, at = [], 0
        for text in texts:
            parts.append(masked[at : at + len(text)])
            at += len(text) + len(between)
        return parts

    def excerpt(self, stored: str, *, chars: int = 60) -> str:
        """The place of the text in this one, on one line; empty where it does not stand."""
        start, end = next(_spans(self.pattern, stored), (0, 0))
        if not end:
            return ""
        start, end = max(0, start - chars), min(len(stored), end + chars)
        line = " ".join(stored[start:end].split())
        return f"{'…' if start else ''}{line}{'…' if end < len(stored) else ''}"


def _spans(pattern: re.Pattern[str], stored: str, *, group: int = 0) -> Iterator[tuple[int, int]]:
    """Where a pattern matches, in letters of any width."""
    usual, place_of = in_usual_width(stored)
    for match in pattern.finditer(usual):
        yield place_of(match.start(group)), place_of(match.end(group))


def _replace(text: str, spans: Iterable[tuple[int, int]], change: Callable[[str], str] = lambda found: REDACTED) -> str:
    """The text with what stands in these places changed, once where they overlap."""
    kept, at = list[str](), -1  # up to `at` all is changed
    for start, end in spans:
        if start >= at:
            kept += [text[max(at, 0) : start], change(text[start:end])]
        at = max(at, end)
    return "".join(kept) + text[max(at, 0) :] if kept else text


def _words_pattern(words: Sequence[str]) -> str:
    """The pattern of words, in any form of Unicode, as they are or escaped in JSON."""
    return _SPACE.join(_word_pattern(word) for word in words)


def _word_pattern(word: str) -> str:
    letters, patterns = clusters(word), list[str]()
    while letters:
        letter = letters.pop(0)
        pattern = _letter_pattern(letter)
        if match_form(letter) == "s" and letters and match_form(letters[0]) == "s":
            pattern = f"(?:{pattern}{_letter_pattern(letters.pop(0))}|{_letter_pattern('ß')})"
        patterns.append(pattern)
    return "".join(patterns)


def _letter_pattern(letter: str) -> str:
    """The pattern of a letter with its marks."""
    if match_form(letter) == "i":  # with a dot or without one, whatever the case
        return r"(?:[iıİ]|\\+u013[01])(?:\u0307|\\+u0307)?"
    if letter.isascii():
        escaped = _ALSO_LOWER.get(letter.lower(), "")
        return f"(?:{letter}|\\\\+u{escaped})" if escaped else "".join(map(_char_pattern, letter))
    ways = sorted({"".join(map(_char_pattern, way)) for way in same_letters(letter)}, key=len, reverse=True)
    return f"(?:{'|'.join(ways)})"


def _char_pattern(char: str) -> str:
    """The pattern of a character as it is, or escaped in JSON."""
    if char in '"/':
        return rf"\\*{char}"
    if char == "\\":
        return r"\\+"
    if " " <= char <= "~":
        return re.escape(char)
    units = char.encode("utf-16-be", "surrogatepass")
    escaped = "".join(rf"\\+u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return f"(?:{re.escape(char)}|{escaped})"


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value of JSON with each of its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_map_texts(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): _map_texts(one, change) for name, one in value.items()}
    return value


def _map_record(value: Any, change: Callable[[str], str], field: str = "") -> Any:
    """A value of JSON in a format of the store, with each of its texts changed. `field`: where it stands."""
    if field in _FREE:
        return _map_texts(value, change)
    if isinstance(value, str):
        return value if _FIXED.fullmatch(field) and _FIXED_VALUE.fullmatch(value) else change(value)
    if isinstance(value, (list, tuple)):
        return [_map_record(one, change, field) for one in value]
    if isinstance(value, dict):
        return {
            name if _FIELD.fullmatch(name) else change(name): _map_record(one, change, name)
            for name, one in value.items()
        }
    return value


def _parse(text: str) -> Any:
    """The array or object that a text is; None: it is none, or nests so deep that it is only a text."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return parse_json(text, JsonLimits(size_bytes=4 * len(text), depth=_DEPTH_MAX, containers=len(text)))
    except ValueError:
        return None
