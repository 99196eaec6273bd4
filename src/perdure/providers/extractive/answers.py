"""Answers to questions from the lines of a block, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perdure.providers.extractive.facts import Fact
from perdure.providers.extractive.notes import note_on
from perdure.providers.extractive.patterns import DISLIKES, LIKES, REMEMBER
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import Keywords, keywords_of
from perdure.providers.extractive.sentences import Language, cut, one_line

__all__ = ["answer_from_blocks", "known_name", "related_lines"]

MAX_LINES = 12

Pattern = re.Pattern[str]


def _re(pattern: str) -> Pattern:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


_ABOUT_ALL = _re(
    r"know\s+(?:about|of)\s+me\b | remember\s+about\s+me\b | tell\s+me\s+about\s+(?:me|myself)\b | who\s+am\s+i\b"
    r"| 我是[谁誰] | 关于我[的。？?吗]*$"
    r"| (?:知道|了解|记得|说说|告诉我).{0,3}(?:关于)?我(?:的)?(?:什[么麼]|哪些|多少|情况|一切|的?事|[。？?吗]*$)"
)
# Kind of question -> the keys that answer it; the first that matches counts.
_TOPICS: tuple[tuple[Pattern, tuple[str, ...]], ...] = tuple(
    (_re(pattern), keys)
    for pattern, keys in (
        (
            r"\bmy\s+(?:full\s+|own\s+)?name\b | \bam\s+i\s+(?:called|named) | \bi(?:'m|\s+am)\s+(?:called|named)"
            r"| \bcall\s+me\b | 我(?:现在)?(?:的(?:名字|姓名)|叫|姓) | 称呼我",
            ("Name",),
        ),
        (
            r"\bi\s+come\s+from | \bam\s+i\s+from | \bi(?:'m|\s+am)\s+from | \bmy\s+origin"
            r"| 我.{0,3}(?:[来來]自|从哪|哪里人) | 我是哪",
            ("From",),
        ),
        (
            r"\bi\s+(?:currently\s+|now\s+)?live\b | \bam\s+i\s+living | \bmy\s+(?:home|residence|home\s?town)\b"
            r"| 我.{0,4}住 | 我家在哪",
            ("Lives in",),
        ),
        (
            r"\bi\s+(?:currently\s+|now\s+)?work\b | \bam\s+i\s+working | \bdo\s+i\s+do\b"
            r"| \bmy\s+(?:job|work|employer|company|profession|occupation)\b"
            r"| 我.{0,6}(?:工作|上班) | 我的(?:职业|公司) | 我是做什[么麼]",
            ("Works at", "Works as"),
        ),
        (
            r"\bold\s+am\s+i\b | \bold\s+i\s+am\b | \bmy\s+age\b | \bam\s+i\s+\d"
            r"| 我.{0,4}(?:[几幾多][岁歲大]|多少[岁歲]|\d+[岁歲]) | 我的?年[龄齡]",
            ("Age",),
        ),
        (r"\bi\s+born\b | 我.{0,5}出生", ("My birthday", "我的生日")),
        (
            r"\bi\s+(?:really\s+)?(?:hate|dislike|detest|not\s+like|don't\s+(?:like|love))\b"
            r"| \bdon't\s+i\s+(?:like|love) | \bmy\s+dislikes | 我.{0,4}(?:不太?[喜爱]|讨厌|討厭)",
            (DISLIKES, LIKES),
        ),
        (
            r"\bi\s+(?:\w+\s+)?(?:like|love|enjoy|prefer)\b | \bmy\s+(?:likes|tastes|preferences)\b"
            r"| 我.{0,4}(?:喜[欢歡爱]|[爱愛])",
            (LIKES, DISLIKES),
        ),
    )
)
_OF_ONESELF = _re(r"\b(?:my|mine|our|i)\b|我")
_ASKS_WHICH = _re(r"\W*(?:who|what|which|tell|do\s+you)\b|.*(?:什[么麼]|[谁誰]|哪)")

_SENTENCES: Mapping[str, tuple[str, str]] = {
    "Name": ("Your name is {0}.", "你叫{0}。"),
    "Lives in": ("You live in {0}.", "你住在{0}。"),
    "From": ("You are from {0}.", "你来自{0}。"),
    "Works at": ("You work at {0}.", "你在{0}工作。"),
    "Works as": ("You work as {0}.", "你的工作是{0}。"),
    "Age": ("You are {0} years old.", "你{0}岁。"),
    LIKES: ("You like {0}.", "你喜欢{0}。"),
    DISLIKES: ("You don't like {0}.", "你不喜欢{0}。"),
    REMEMBER: ("You asked me to remember: {0}.", "你让我记住：{0}。"),
}


def answer_from_blocks(question: str, blocks: Mapping[str, str], language: Language) -> str | None:
    """The answer the blocks hold, quoting their lines; None when they hold none."""
    notes = _notes(blocks)
    wanted = keywords_of(question)
    if _ABOUT_ALL.search(question) and not wanted.strong and notes:
        lines = [cut(note.line, 120) for note in notes[:MAX_LINES]]
        return say("all notes", language, "; ".join([*lines, "…"] if len(notes) > MAX_LINES else lines))
    if own := _own_noun(question, wanted, notes):
        return _in_words(own, language)
    if topical := _topical(question, notes):
        if not wanted.strong:
            # "What do I like?" wants no dislikes; "Do I like tea?" is answered by one.
            asked_for = [note for note in topical if not _is_taste(note) or note.key == _keys_for(question)[0]]
            return _in_words(asked_for, language) if asked_for else None
        if exact := [note for note in topical if wanted.shared_with(note.value) == len(set(wanted.strong))]:
            return _in_words(exact, language)
    return _from_free_lines(wanted, blocks, language)


def related_lines(question: str, blocks: Mapping[str, str]) -> list[str]:
    """The lines of the kind a question asks for, when none of them answers it."""
    return [note.line for note in _topical(question, _notes(blocks))[:MAX_LINES]]


def known_name(blocks: Mapping[str, str]) -> str | None:
    """The person's name, when it is noted."""
    return next((note.value for note in _notes(blocks) if note.key == "Name"), None)


def _notes(blocks: Mapping[str, str]) -> list[Fact]:
    return [note for line in blocks.get("human", "").split("\n") if (note := note_on(line)) is not None]


def _keys_for(question: str) -> tuple[str, ...]:
    return next((keys for pattern, keys in _TOPICS if pattern.search(question)), ())


def _topical(question: str, notes: Sequence[Fact]) -> list[Fact]:
    """The notes that answer this kind of question, the best kind first."""
    keys = _keys_for(question)
    return sorted((note for note in notes if note.key in keys), key=lambda note: keys.index(note.key))


def _is_taste(note: Fact) -> bool:
    return note.key in (LIKES, DISLIKES)


def _own_noun(question: str, wanted: Keywords, notes: Sequence[Fact]) -> list[Fact]:
    """The note on "my dog" or "my dog's name" when the question is about just that, and about nothing more of it."""
    if not wanted.strong or not _OF_ONESELF.search(question):
        return []
    named: list[Fact] = []
    for note in notes:
        key = keywords_of(note.key)
        if note.key in _SENTENCES or key.topics != wanted.topics or not wanted.kinds <= key.kinds:
            continue
        if wanted.kinds == key.kinds:
            return [note]
        if key.kinds - wanted.kinds == {"name"} and _ASKS_WHICH.match(question):
            named.append(note)
    return named[:1]


def _in_words(notes: Sequence[Fact], language: Language) -> str:
    """The notes as sentences, one for each key."""
    values: dict[str, list[str]] = {}
    for note in notes[:MAX_LINES]:
        values.setdefault(note.key, []).append(cut(note.value, 300))
    return (" " if language == "en" else "").join(_sentence(key, of_key, language) for key, of_key in values.items())


def _sentence(key: str, values: Sequence[str], language: Language) -> str:
    if key == "Age" and not values[0].isdecimal() and language == "en":
        return f"You are {values[0]}."
    if key in _SENTENCES:
        return _SENTENCES[key][0 if language == "en" else 1].format(_listed(values, language))
    if key.startswith("我"):
        return f"你{key[1:]}是{'、'.join(values)}。"
    if key.casefold().startswith("my "):
        verb = "are" if key.endswith("s") and not key.endswith(("ss", "'s", "us", "is")) else "is"
        return f"Your {key[3:]} {verb} {_listed(values, 'en')}."
    return say("notes", language, f"{key}: {_listed(values, language)}")


def _listed(values: Sequence[str], language: Language) -> str:
    if language == "zh":
        return "、".join(values)
    return ", ".join(values[:-1]) + " and " + values[-1] if len(values) > 1 else values[0]


def _from_free_lines(wanted: Keywords, blocks: Mapping[str, str], language: Language) -> str | None:
    """A line of free text, or of `Remember`, that holds every word of the question."""
    if not wanted.strong and not wanted.weak:
        return None
    words = Keywords(wanted.strong + wanted.weak, ())
    for label in sorted(blocks, key=lambda label: label != "human"):
        if label == "persona" or (label != "human" and not wanted.strong):
            continue
        for line in blocks[label].split("\n"):
            note = note_on(line) if label == "human" else None
            if note is not None and note.key != REMEMBER:
                continue
            if words.shared_with(line) == len(set(words.strong)):
                return _in_words([note], language) if note else say("notes", language, cut(one_line(line), 300))
    return None
