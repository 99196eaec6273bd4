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
    """Finds and takes out one text, the needle, in stored texts, whatever its letter case, form of Unicode and white
    space between words. Raises: InvalidInput: the needle is empty, too short or too long."""

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
        """Matches the needle, plain or escaped in JSON of any depth, in a text whose letters have the usual width."""
        first = self._words[0][0].lower()
        # Of a row of backslashes only the first begins a match, or each would be tried with all that follow.
        start = "" if first in _NEVER_ESCAPED else r"(?:(?<!\\)|(?!\\))"
        start += r"\\*" if first in _ESCAPE_LETTERS else ""
        end = _NO_MARK if self._words[-1][-1].isalpha() else ""
        return re.compile(start + _words_pattern(self._words) + end, re.IGNORECASE)

    @cached_property
    def like(self) -> str:
        """The pattern for SQL's LIKE that preselects texts with the needle, in lower case: it finds each such text and
        few others, but not letters of another width."""
        plain = "".join(cluster if cluster.isascii() else " " for cluster in clusters(" ".join(self._words)))
        words = _ONE_FORM.findall(plain.lower())[:FILTER_WORDS]
        return f"%{'%'.join(words)}%" if words else "%"

    def finds(self, stored: str | None) -> bool:
        """Return whether the needle is in `stored`."""
        return stored is not None and next(_spans(self.pattern, stored), None) is not None

    def redact(self, stored: str) -> str:
        """Return `stored` with `REDACTED` in place of each needle; what was JSON stays JSON."""
        redacted = _replace(stored, _spans(self.pattern, stored))
        if redacted != stored and (value := _parse(stored)) is not None and _parse(redacted) is None:
            return compact_json(self.redact_value(value))
        return redacted

    def redact_value(self, value: Any) -> Any:
        """Return a value of JSON, with each of its strings redacted."""
        return _map_texts(value, self.redact)

    def redact_record(self, stored: str) -> str:
        """Return `stored`, the JSON of a record, redacted. Names of fields, ids, times and the like stay."""
        if (before := _parse(stored)) is None:
            return self.redact(stored)
        after = self.redact_fields(before)
        return stored if after == before else compact_json(after)

    def redact_settings(self, stored: str) -> str:
        """Return `stored`, the JSON of settings, redacted. Names of tools, models and choices stay: rules need them."""
        before = _parse(stored)
        if not isinstance(before, dict):
            return self.redact(stored)
        after = self.redact_choices(before)
        return stored if after == before else compact_json(after)

    def redact_choices(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings redacted as `redact_settings` does, as a new object."""
        return {
            name: _map_record(value, self.redact if name in _SETTINGS_TEXTS else self._redact_sayings, name)
            for name, value in settings.items()
        }

    def _redact_sayings(self, text: str) -> str:
        """Return `text` redacted, unless it is a single word, which may be a name that settings need."""
        return text if _NAME.fullmatch(text) else self.redact(text)

    def redact_fields(self, record: Any) -> Any:
        """Return `record`, a value of JSON, redacted as `redact_record` does."""
        return _map_record(record, self.redact)

    def redact_parts(self, parts: str) -> str:
        """Return `parts`, the JSON of a message's parts, redacted; a part about a compaction holds a summary. Changed
        parts lose a provider's signature and the compressed form, which are made of the old text."""
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
        """Return a summary, or JSON with summaries, redacted, and without sentences that say the same as the needle."""
        if (before := _parse(summary)) is not None:
            after = _map_record(before, self._redact_sentences)
            return summary if after == before else json.dumps(after, ensure_ascii=False)
        return self._redact_sentences(summary)

    @cached_property
    def _fragments(self) -> re.Pattern[str] | None:
        """Matches what a summary may quote of the needle: some words in a row, and words with digits; None: nothing."""
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
        """Return `text`, a summary, without its quotations of the needle."""
        if self._fragments is None:
            return text
        return _replace(text, _spans(self._fragments, text, group=1))

    def _redact_clipped(self, text: str) -> str:
        """Return `text`, a summary, without beginnings of the needle at the ends of lines that were cut."""
        whole = lower_in_place(" ".join(self._words))
        least = CLIPPED_CHARS_MIN if whole.isascii() else CLIPPED_CHARS_MIN // 2

        def cut(line: str) -> str:
            """Return the line with `REDACTED` in place of the longest beginning of the needle at its end."""
            shown = line.rstrip(" .…")
            end = lower_in_place(in_usual_width(shown[-CLIPPED_CHARS_MAX:])[0])
            for chars in range(min(len(whole) - 1, len(end)), least - 1, -1):
                if end.endswith(whole[:chars]):
                    return shown[:-chars] + REDACTED + line[len(shown) :]
            return line

        return "\n".join(map(cut, text.split("\n")))

    def _redact_sentences(self, text: str) -> str:
        """Return `text`, a summary, without the needle, its parts, and sentences that share most of its words."""
        redacted = self._redact_clipped(self._redact_fragments(self.redact(text)))
        words = set(_WORD.findall(match_form(self.text)))
        if len(words) < SIMILAR_WORDS_MIN:
            return redacted

        def replace(match: re.Match[str]) -> str:
            """The sentence, or `REDACTED` if it has enough of the needle's words."""
            sentence = match[0]
            shared = words & set(_WORD.findall(match_form(sentence)))
            end = sentence[len(sentence.rstrip()) :]
            return f"{REDACTED}{end}" if len(shared) >= SIMILAR * len(words) else sentence

        return _SENTENCE.sub(replace, redacted)

    def drop_lines(self, text: str) -> str:
        """Return `text` without the lines that hold the needle or a part of it."""
        kept, place = [], 0
        for start, end in _spans(self.pattern, text):
            if end <= place:  # in a line that is dropped already: no line is read twice
                continue
            if start >= place:
                kept.append(text[place : max(place, text.rfind("\n", place, start) + 1)])
            end = text.find("\n", end)
            place = len(text) if end < 0 else end + 1
        return ("".join(kept) + text[place:]).rstrip("\n") if kept else text

    def mask(self, texts: Sequence[str], *, between: str = "") -> list[str]:
        """Return `texts`, parts of one text joined by `between`, with `MASK` for each character of the needle, also
        where it continues from one part into the next. Lengths and lines stay."""
        whole = between.join(texts)
        masked = _replace(whole, _spans(self.pattern, whole), lambda found: re.sub("[^\n]", MASK, found))
        parts, place = [], 0
        for text in texts:
            parts.append(masked[place : place + len(text)])
            place += len(text) + len(between)
        return parts

    def excerpt(self, stored: str, *, chars: int = 60) -> str:
        """Return the needle with `chars` characters of `stored` on each side, on one line; empty: not found."""
        start, end = next(_spans(self.pattern, stored), (0, 0))
        if not end:
            return ""
        start, end = max(0, start - chars), min(len(stored), end + chars)
        line = " ".join(stored[start:end].split())
        return f"{'…' if start else ''}{line}{'…' if end < len(stored) else ''}"


def _spans(pattern: re.Pattern[str], stored: str, *, group: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of each match of `group` of the pattern in `stored`, whose letters may have any width."""
    usual, place_of = in_usual_width(stored)
    for match in pattern.finditer(usual):
        yield place_of(match.start(group)), place_of(match.end(group))


def _replace(text: str, spans: Iterable[tuple[int, int]], change: Callable[[str], str] = lambda found: REDACTED) -> str:
    """Return `text` with the part in each (start, end) of `spans`, ascending, replaced by what `change` makes of it.

    Spans that overlap are changed once.
    """
    kept, at = list[str](), -1  # up to `at` all is changed
    for start, end in spans:
        if start >= at:
            kept += [text[max(at, 0) : start], change(text[start:end])]
        at = max(at, end)
    return "".join(kept) + text[max(at, 0) :] if kept else text


def _words_pattern(words: Sequence[str]) -> str:
    """Return the regular expression of words with white space between them, plain or escaped in JSON."""
    return _SPACE.join(_word_pattern(word) for word in words)


def _word_pattern(word: str) -> str:
    """Return the regular expression of a word in any form of Unicode; `ss` also matches `ß`."""
    letters, patterns = clusters(word), list[str]()
    while letters:
        letter = letters.pop(0)
        pattern = _letter_pattern(letter)
        if match_form(letter) == "s" and letters and match_form(letters[0]) == "s":
            pattern = f"(?:{pattern}{_letter_pattern(letters.pop(0))}|{_letter_pattern('ß')})"
        patterns.append(pattern)
    return "".join(patterns)


def _letter_pattern(letter: str) -> str:
    """Return the regular expression of a letter with its marks, in any form of Unicode."""
    if match_form(letter) == "i":  # with a dot or without one, whatever the case
        return r"(?:[iıİ]|\\+u013[01])(?:\u0307|\\+u0307)?"
    if letter.isascii():
        escaped = _ALSO_LOWER.get(letter.lower(), "")
        return f"(?:{letter}|\\\\+u{escaped})" if escaped else "".join(map(_char_pattern, letter))
    ways = sorted({"".join(map(_char_pattern, way)) for way in same_letters(letter)}, key=len, reverse=True)
    return f"(?:{'|'.join(ways)})"


def _char_pattern(char: str) -> str:
    """Return the regular expression of a character, plain or escaped in JSON of any depth."""
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
    """Return a value of JSON with `change` applied to each of its strings, names of members too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_map_texts(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): _map_texts(one, change) for name, one in value.items()}
    return value


def _map_record(value: Any, change: Callable[[str], str], field: str = "") -> Any:
    """Return a value of JSON in a format of the store, with `change` applied to each of its texts.

    Names of fields, ids, times and words of the format stay. `field`: the name of the field that holds the value.
    """
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
    """Return the array or object that `text` is as JSON; None: it is neither, or nests too deep to be a record."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return parse_json(text, JsonLimits(size_bytes=4 * len(text), depth=_DEPTH_MAX, containers=len(text)))
    except ValueError:
        return None
