"""Answers to questions from the lines of a block, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perdure.providers.extractive.facts import DISLIKES, LIKES, REMEMBER, Fact
from perdure.providers.extractive.notes import note_on
from perdure.providers.extractive.phrases import say
from perdure.providers.extractive.questions import Keywords, keywords_of
from perdure.providers.extractive.sentences import Language, cut, one_line

MAX_LINES = 12
TASTES = frozenset({"like", "dislike"})


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


_ABOUT_ALL = _re(
    r"know\s+about\s+me\b | remember\s+about\s+me\b | who\s+am\s+i\b | 我是[谁誰] | (?:知道|记得).{0,3}关于?我"
)
_PLURAL = re.compile("[^su']s$")
_ASKS_WHICH = _re(r"\W*(?:who|what|which|tell)\b|.*(?:什[么麼]|[谁誰]|哪)")

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
    notes, wanted = notes_in(blocks), keywords_of(question)
    if _ABOUT_ALL.search(question) and not wanted.strong and notes:
        return say("all notes", language, "; ".join(cut(note.line, 120) for note in notes[:MAX_LINES]))
    if found := [note for note in notes if _is_answered_by(question, wanted, note)]:
        return _in_words(found, language)
    return _from_free_lines(wanted, blocks, language)


def notes_in(blocks: Mapping[str, str]) -> list[Fact]:
    """The facts that the block `human` holds."""
    return [note for line in blocks.get("human", "").split("\n") if (note := note_on(line)) is not None]


def _is_answered_by(question: str, wanted: Keywords, note: Fact) -> bool:
    """Whether the note tells what the question asks for, and the question asks for nothing more."""
    key = keywords_of(note.key)
    if not wanted.strong:  # "What do I like?"
        return not key.strong and not wanted.kinds.isdisjoint(key.kinds)
    if wanted.topics == key.topics:  # "What is my dog called?"
        missing = key.kinds - wanted.kinds
        return wanted.kinds <= key.kinds and (
            not missing or (missing == {"name"} and bool(_ASKS_WHICH.match(question)))
        )
    kinds = TASTES if note.key in (LIKES, DISLIKES) else key.kinds  # "Do I like tea?" may be answered by a dislike
    return not wanted.kinds.isdisjoint(kinds) and wanted.are_all_in(note.value)


def _in_words(notes: Sequence[Fact], language: Language) -> str:
    """The notes as sentences, one for each key."""
    values: dict[str, list[str]] = {}
    for note in notes[:MAX_LINES]:
        values.setdefault(note.key, []).append(cut(note.value, 300))
    return (" " if language == "en" else "").join(_sentence(key, of_key, language) for key, of_key in values.items())


def _sentence(key: str, values: Sequence[str], language: Language) -> str:
    listed = "、".join(values) if language == "zh" else " and ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    if key in _SENTENCES:
        return _SENTENCES[key][0 if language == "en" else 1].format(listed)
    if key.startswith("我"):
        return f"你{key[1:]}是{listed}。"
    if key.casefold().startswith("my "):
        return f"Your {key[3:]} {'are' if _PLURAL.search(key) else 'is'} {listed}."
    return say("notes", language, f"{key}: {listed}")


def _from_free_lines(wanted: Keywords, blocks: Mapping[str, str], language: Language) -> str | None:
    """A line of free text, or of `Remember`, that holds every strong word of the question."""
    for label in sorted(blocks, key=lambda label: label != "human"):
        for line in blocks[label].split("\n") if wanted.strong and label != "persona" else ():
            note = note_on(line) if label == "human" else None
            if (note is None or note.key == REMEMBER) and wanted.are_all_in(line):
                return _in_words([note], language) if note else say("notes", language, cut(one_line(line), 300))
    return None
