"""What the program says, in English and Chinese: phrases, answers from the lines of a block, quotations; and the lines
of the block `human`: what of a text belongs there, what it ends, and the edits that bring both about.

`{}` in a phrase is filled with a person's text, never formatted again. Lines and facts of the memory graph come from
one reading (`statements`), so that they say the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from perdure.core.messages import ToolResult
from perdure.core.text.forms import lower_in_place
from perdure.core.text.json_strings import json_or
from perdure.providers.extractive.facts import DISLIKES, LIKES, REMEMBER, BlockFact, facts_in
from perdure.providers.extractive.language import (
    Keywords,
    Language,
    clean,
    cut,
    is_question,
    keywords_of,
    load_table,
    one_line,
    pattern,
    sentences_in,
)
from perdure.providers.extractive.statements import KEYS, OBJECT_SIGNS, OBJECT_WORDS, statements_in

MAX_LINE_CHARS = 700

_LINE = re.compile(r"[\s*•-]*([^:：]{1,60})[:：]\s*(.+?)\s*")

ANY_TIME = datetime(2999, 1, 1, tzinfo=UTC)
"""A time after all that a text may name, for texts of unknown time."""


@dataclass(frozen=True, slots=True)
class LineEdit:
    """A call of an edit tool: `old` is replaced by `new`, or with `old` None the line `new` is appended."""

    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class BlockNotes:
    """What a text says for the block `human`: facts that are true, and facts that are no longer true."""

    facts: tuple[BlockFact, ...]
    ended: tuple[BlockFact, ...]


def notes_of(text: str, *, now: datetime = ANY_TIME, before: str = "") -> BlockNotes:
    """Return the facts that a text states about its writer, in order; of two for one slot the later one. `now` is when
    it was written: what it says of the future is no fact yet. `before`: what the same person said before it, which the
    text may correct."""
    plain = facts_in(text)
    held: dict[tuple[str, str], BlockFact] = {}
    ended: dict[BlockFact, None] = {}
    for statement in statements_in(text, now=now, before=before):
        key = KEYS.get(statement.relation)
        if key is None or statement.subject:
            continue
        # A taste is more than its object: "tea with milk".
        tastes = [fact for fact in plain if key in (LIKES, DISLIKES) and fact.key == key]
        fact = BlockFact(key, statement.object.removesuffix(" years old").removesuffix("岁"))
        fact = next(
            (taste for taste in tastes if taste.value.startswith(statement.object) and taste.slot not in held), fact
        )
        if statement.old and key in (LIKES, DISLIKES):
            ended[old := BlockFact(key, statement.old)] = None
            held.pop(old.slot, None)
        if statement.mode == "is":
            ended.pop(fact, None)
            held.pop(fact.slot, None)
            held[fact.slot] = fact
        else:
            ended[fact] = None
            if (now_held := held.get(fact.slot)) and now_held.is_ended_by(fact):
                del held[fact.slot]
    facts: dict[BlockFact, None] = {}
    for fact in plain:
        is_long = len(fact.value) > OBJECT_SIGNS or len(fact.value.split()) > OBJECT_WORDS
        if fact.key not in KEYS.values() or (is_long and fact.key in (LIKES, DISLIKES)):
            facts[fact] = None
        elif fact.slot in held:
            facts[held[fact.slot]] = None
    return BlockNotes(tuple(facts | dict.fromkeys(held.values())), tuple(ended))


def parse_note(line: str) -> BlockFact | None:
    """Return the fact that a line of a block holds; None: it is free text, worded by a person, and has to stay."""
    if len(line) > MAX_LINE_CHARS or (match := _LINE.fullmatch(line)) is None:
        return None
    key, value = match[1].strip(), match[2]
    return BlockFact(key, value) if key == REMEMBER or len(sentences_in(value)) < 2 else None


def holds(value: str, fact: BlockFact) -> bool:
    """Return whether a block's value has this fact as a line, letter case aside."""
    lines = (note.line if (note := parse_note(line)) else line for line in value.split("\n"))
    return fact.line.casefold() in map(str.casefold, lines)


def plan_edits(value: str, facts: Sequence[BlockFact], ended: Sequence[BlockFact] = ()) -> tuple[list[LineEdit], str]:
    """Return the edits for one answer, in order, and the value of the block after them. Lines of ended facts are
    removed. Edit tools refuse a text that the value has twice. Then the whole value is replaced, in an answer of its
    own: if an edit before it were refused, the value would not be found."""
    edits: list[LineEdit] = []
    for fact in ended:
        lines = value.split("\n")
        for line in [line for line in lines if (note := parse_note(line)) and note.is_ended_by(fact)]:
            old = f"\n{line}" if line != lines[0] else f"{line}\n" if len(lines) > 1 else line
            if value.count(old) == 1:
                edits.append(LineEdit(old, ""))
                value = value.replace(old, "")
    for fact in facts:
        if holds(value, fact):
            continue
        lines = value.split("\n") if value else []
        notes = enumerate(map(parse_note, lines))
        place = next((place for place, note in notes if note and note.slot == fact.slot), None)
        if place is None:
            edits.append(LineEdit(None, fact.line))
            value = "\n".join([*lines, fact.line])
            continue
        corrected = "\n".join([*lines[:place], fact.line, *lines[place + 1 :]])
        if value.count(lines[place]) == 1:
            edits.append(LineEdit(lines[place], fact.line))
        elif edits:
            continue  # the next answer makes it
        else:
            return [LineEdit(value, corrected)], corrected
        value = corrected
    return edits, value


MAX_LINES = 12
TASTES = frozenset({"like", "dislike"})
MAX_QUOTES = 3
MAX_QUOTE_CHARS = 300
MAX_READ_CHARS = 20_000

SOURCES = ("user", "assistant", "archive")
"""What a search finds: messages of these roles, or passages of an archive."""

_TABLE = load_table("phrases")
_PHRASES: Final[Mapping[str, Sequence[str]]] = _TABLE["phrases"]
_SENTENCES: Final[Mapping[str, Sequence[str]]] = _TABLE["of_keys"]
_ABOUT_ALL = pattern(
    r"know\s+about\s+me\b | remember\s+about\s+me\b | who\s+am\s+i\b | 我是[谁誰] | (?:知道|记得).{0,3}关于?我"
)
_PLURAL = re.compile("[^su']s$")
_PAST = pattern(
    r"\b(?:before|earlier|previous(?:ly)?|former(?:ly)?|prior\s+to|in\s+the\s+past|used?\s+to)\b"
    r"| 以前|之前|[从從]前|原[来來先]|[过過]去|曾[经經]|先前|此前"
)
"""What makes a question one about an earlier time."""
_OTHERS = pattern(r"\b(?:she|he|they|her|his|their)\b | [他她]")
FORMER = {key: keywords_of(key).kinds for key in ("Lives in", "Works at", "Works as")}
"""Key of a note whose earlier values are found -> the kinds of fact that it holds."""
_ASKS_WHICH = pattern(r"\W*(?:who|what|which|tell)\b|.*(?:什[么麼]|[谁誰]|哪)")


def say(phrase: str, language: Language, *values: object) -> str:
    """Return the phrase of this name in a language, with the values filled in."""
    return _PHRASES[phrase][0 if language == "en" else 1].format(*values)


def answer_from_blocks(question: str, blocks: Mapping[str, str], language: Language) -> str | None:
    """Return the answer that the blocks, label -> value, hold, as their lines; None: they hold none."""
    notes, keywords = notes_in(blocks), keywords_of(question)
    if _ABOUT_ALL.search(question) and not keywords.topics and notes:
        return say("all notes", language, "; ".join(cut(note.line, 120) for note in notes[:MAX_LINES]))
    if answers := [note for note in notes if _answers(note, question, keywords)]:
        return _in_words(answers, language)
    return _from_free_lines(keywords, blocks, language)


def notes_in(blocks: Mapping[str, str]) -> list[BlockFact]:
    """Return the facts that the block `human` holds; `blocks` is label -> value."""
    return [note for line in blocks.get("human", "").split("\n") if (note := parse_note(line)) is not None]


def _answers(note: BlockFact, question: str, keywords: Keywords) -> bool:
    """Return whether a note tells what a question, with these keywords, asks for, and it asks for nothing more."""
    key = keywords_of(note.key)
    if not keywords.topics:  # "What do I like?"
        return not key.topics and not keywords.kinds.isdisjoint(key.kinds)
    if keywords.topics == key.topics:  # "What is my dog called?"
        missing = key.kinds - keywords.kinds
        return keywords.kinds <= key.kinds and (
            not missing or (missing == {"name"} and bool(_ASKS_WHICH.match(question)))
        )
    kinds = TASTES if note.key in (LIKES, DISLIKES) else key.kinds  # "Do I like tea?" may be answered by a dislike
    return not keywords.kinds.isdisjoint(kinds) and keywords.are_all_in(note.value)


def past_keywords(question: str) -> Keywords | None:
    """Return what a question asks for besides an earlier time; None: it asks for no home or work of then."""
    if not _PAST.search(question) or _OTHERS.search(question):
        return None
    keywords = keywords_of(_PAST.sub(" ", question).replace("搬到", " "))
    return keywords if any(map(keywords.kinds.intersection, FORMER.values())) else None


def answer_from_past(
    question: str, said: Iterable[str], blocks: Mapping[str, str], language: Language, *, now: datetime = ANY_TIME
) -> str | None:
    """Return the answer to a question about an earlier time that texts of its writer hold, given oldest first; None:
    they hold none, or it asks for something else."""
    if (keywords := past_keywords(question)) is None:
        return None
    current = {(note.key, note.value.casefold()) for note in notes_in(blocks)}
    values, before = {key: list[str]() for key in FORMER}, ""
    for text in said:
        for one in statements_in(text, now=now, before=before):
            if one.subject or one.word or not one.object or (key := KEYS.get(one.relation)) not in values:
                continue
            known = values[key]
            if one.old and known and known[-1] == one.old:
                known.pop()  # it was never so
            if one.mode == "is" and known[-1:] != [one.object]:
                known.append(one.object)
            elif one.mode in ("was", "ends") and one.object not in known:
                known.insert(0, one.object)
        before = text
    found: list[BlockFact] = []
    for key, of_key in values.items():
        if keywords.kinds.isdisjoint(FORMER[key]):
            continue
        if keywords.topics:  # "before Turin"
            last = max((place for place, value in enumerate(of_key) if keywords.shared_with(value)), default=0)
            of_key, current = [value for value in of_key[:last] if value != of_key[last]], set()
        found += [BlockFact(key, value) for value in dict.fromkeys(of_key) if (key, value.casefold()) not in current]
    return _in_words(found, language, past=True) or None


def _in_words(notes: Sequence[BlockFact], language: Language, *, past: bool = False) -> str:
    """Return notes as sentences, one for each key; `past`: of an earlier time."""
    values: dict[str, list[str]] = {}
    for note in notes[:MAX_LINES]:
        values.setdefault(note.key, []).append(cut(note.value, 300))
    sentences = (_sentence(key, texts, language, past=past) for key, texts in values.items())
    return (" " if language == "en" else "").join(sentences)


def _sentence(key: str, values: Sequence[str], language: Language, *, past: bool) -> str:
    """Return a sentence that says the values of a key of notes, such as `Name` or `My dog`."""
    listed = "、".join(values) if language == "zh" else " and ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    if key in _SENTENCES:
        return _SENTENCES[key][(0 if language == "en" else 1) + 2 * past].format(listed)
    if key.startswith("我"):
        return f"你{key[1:]}是{listed}。"
    if key.casefold().startswith("my "):
        return f"Your {key[3:]} {'are' if _PLURAL.search(key) else 'is'} {listed}."
    return say("notes", language, f"{key}: {listed}")


def _from_free_lines(keywords: Keywords, blocks: Mapping[str, str], language: Language) -> str | None:
    """Return a line of free text, or of `Remember`, that holds every topic of the question; None: there is none."""
    for label in sorted(blocks, key=lambda label: label != "human"):
        for line in blocks[label].split("\n") if keywords.topics and label != "persona" else ():
            note = parse_note(line) if label == "human" else None
            if (note is None or note.key == REMEMBER) and keywords.are_all_in(line):
                return _in_words([note], language) if note else say("notes", language, cut(one_line(line), 300))
    return None


@dataclass(frozen=True, slots=True)
class FoundText:
    """A search result from one of `SOURCES`; `date` is YYYY-MM-DD, or empty."""

    source: str
    date: str
    content: str


def read_hits(result: ToolResult) -> list[FoundText]:
    """Return the texts in a result of `conversation_search` or `archival_memory_search`; none if it can't be read."""
    answer = json_or(result.text, None)
    rows = answer.get("results") if isinstance(answer, dict) else answer
    hits: list[FoundText] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(content := row.get("content"), str):
            source = "archive" if result.name == "archival_memory_search" else row.get("role", "user")
            if source in SOURCES:
                hits.append(FoundText(source, clean(str(row.get("timestamp", ""))[:10]), clean(content)))
    return hits


def best_quotes(
    hits: Iterable[FoundText], keywords: Keywords, language: Language, *, exclude: Collection[str] = ()
) -> list[str]:
    """Return the texts that share most words with a question, as quotations; no questions, and none of `exclude`."""
    unwanted = set(map(one_line, exclude))
    scored: dict[str, tuple[int, str]] = {}
    for hit in hits:
        excerpt = "" if one_line(hit.content) in unwanted else _excerpt(hit.content, keywords)
        if excerpt:
            scored.setdefault(excerpt, (keywords.shared_with(excerpt), say(hit.source, language, hit.date, excerpt)))
    best = max((score for score, _ in scored.values()), default=0)
    return [quote for score, quote in scored.values() if score == best][:MAX_QUOTES]


def _excerpt(content: str, keywords: Keywords) -> str:
    """Return the statement of a text that shares most words with a question, and what follows while there is room."""
    sentences = sentences_in(content[:MAX_READ_CHARS], limit_chars=MAX_READ_CHARS)
    statements = [one_line(sentence.text) for sentence in sentences if not is_question(sentence)]
    scores = [keywords.shared_with(statement) for statement in statements]
    if not any(scores):
        return ""
    best = scores.index(max(scores))
    folded = lower_in_place(statements[best])
    first = min((place for word in keywords.words if (place := folded.find(lower_in_place(word))) >= 0), default=0)
    start = max(0, first - MAX_QUOTE_CHARS // 3) if len(folded) > MAX_QUOTE_CHARS else 0
    return cut(" ".join([statements[best][start:], *statements[best + 1 :]]), MAX_QUOTE_CHARS)
