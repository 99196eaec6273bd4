"""Whether an answer is right: by its words, or by a model, whose own errors are measured with it."""

from __future__ import annotations

import hashlib
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from random import Random
from statistics import fmean

from perdure.core.text.words import STOP_WORDS, stems
from perdure.features.benchmarks.sets.values import ABSTENTION, CaseQuestion
from perdure.features.benchmarks.systems import texts

WORD_JUDGES = ("exact", "f1")
KNOWN_ANSWERS = 60
"""So many wrong and so many right answers are given to the judge, to see how far it can be trusted."""
SIMILAR = 0.5
"""An answer that shares as much with the right one may be right itself, so it is no wrong answer."""
SAME_QUESTION = 0.4
"""A question that shares more of its words and pairs of words with another, and has no other number, may ask for the
same."""
WRONG_OF_ONE, SHORT_WORDS = 5, 8
"""So many wrong answers a question has at most; an answer of so few words that repeats the question says little."""
_SPOKEN = "It was this, as they said when they talked about it: {gold}"
"""A right answer, as a model may say it."""
_NUMBERS = {"one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8"}
_VERDICT = re.compile(r"\b(not\s+)?(in)?(correct|wrong)\b", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(yes|no)\b", re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”")
_ARTICLES = {"a", "an", "the", "and"}
_NOT_SAID = re.compile(
    r"(?:\b(?:not|never|nothing|no(?!,)|cannot|nobody)\b|n't\b)[^.!?]{0,40}"
    r"\b(?:said|say|mention\w*|stated?|specif\w+|provided?|discuss\w*|talk\w*|come up|information|record\w*|memor\w+)\b"
    r"|\b(?:I|we) (?:do not|don't|cannot|can't|could not|couldn't) (?:know|tell|answer)\b"
    r"|(?:\bnot|n't|\bcannot)(?: be)? (?:find|found|answered|known|know)"
    r"(?: (?:any\w*|that|this|it|out|an? answer))?(?:[.,;!]|$)"
    r"|\bfound nothing\b|\bno (?:answer|evidence)\b|\bunknown\b|\bunanswerable\b|没有|未提",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, to be judged; `is_right`: whether it is known to be right or wrong."""

    question: CaseQuestion
    answer: str
    is_right: bool | None = None

    @property
    def text(self) -> str:
        """The text that a judging model is sent."""
        form = texts()["prompts"]["judged"]
        return form.format(question=self.question.text, gold=self.question.answer, answer=self.answer or "(nothing)")

    @property
    def key(self) -> str:
        """Equal for equal claims, so that none is judged twice."""
        return hashlib.sha256(f"{self.question.prompt}\n{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]


def admits_no_answer(answer: str) -> bool:
    """Return whether an answer says that the history does not tell; an empty answer does not."""
    return _NOT_SAID.search(answer.replace("’", "'").strip()) is not None


def is_exact(question: CaseQuestion, answer: str) -> bool:
    """Return whether an answer contains the right one (each part, if that is a list) word for word, but for case,
    punctuation, endings and articles."""
    if question.kind == ABSTENTION:
        return admits_no_answer(answer)
    said, parts = _words(answer), [words for part in _parts(question, question.answer) if (words := _words(part))]
    return bool(parts) and all(
        any(said[at : at + len(gold)] == gold for at in range(len(said) - len(gold) + 1)) for gold in parts
    )


def f1_of(question: CaseQuestion, answer: str) -> float:
    """Return the F1 of an answer's words against the right answer's, as LoCoMo's own evaluation computes it; for a
    list, the mean over its parts, each with the nearest part of the answer."""
    if question.kind == ABSTENTION:
        return float(admits_no_answer(answer))
    parts = _parts(question, answer)
    return fmean(max(_word_f1(gold, part) for part in parts) for gold in _parts(question, question.answer))


def verdict_of(reply: str) -> bool | None:
    """Return a model's verdict: its first word, else the last in capitals, else the only one; None: there is none."""
    text = _THOUGHT.sub("", reply).strip(" \t\n*_#`\"'")
    found = [(bool(one[1]) ^ bool(one[2]) ^ (one[3].lower() == "correct"), one) for one in _VERDICT.finditer(text)]
    loud = [verdict for verdict, one in found if one[3].isupper()]
    if found and not found[0][1].start() and found[0][1][3].isupper() >= bool(loud):
        return found[0][0]
    if loud or len({verdict for verdict, _ in found}) == 1:
        return (loud or [verdict for verdict, _ in found])[-1]
    said = None if found else _YES_OR_NO.match(text)
    return None if said is None else said[1].lower() == "yes"


def known_claims(questions: Sequence[CaseQuestion]) -> Sequence[JudgedAnswer]:
    """Return answers that are known to be wrong or right, chosen by chance, which is always the same.

    A wrong one is plausible: what the data names as such, or the right answer of a question that is much like this one.
    Right ones are said in a sentence. Preferences are left out, as no answer to one is surely right or wrong.
    """
    chance = Random(KNOWN_ANSWERS)
    asked = [question for question in questions if question.prompt != "judge_preference"]
    chosen = chance.sample(asked, len(asked))
    terms = {one.id: _terms(one.text) for one in chosen}
    wrong_of = cache(lambda at: _wrong_answers(chosen[at], chosen, terms))
    places = ((number, at) for number in range(WRONG_OF_ONE) for at in range(len(chosen)))
    wrong = (
        JudgedAnswer(chosen[at], wrong_of(at)[number], False) for number, at in places if number < len(wrong_of(at))
    )
    right = [
        JudgedAnswer(one, "That was not said." if one.kind == ABSTENTION else _SPOKEN.format(gold=one.answer), True)
        for one in chosen[:KNOWN_ANSWERS]
    ]
    return [*islice(wrong, KNOWN_ANSWERS), *right]


def _wrong_answers(
    question: CaseQuestion, others: Sequence[CaseQuestion], terms: Mapping[str, Set[str]]
) -> Sequence[str]:
    """Return wrong answers to a question, the most plausible one first. `terms`: those of each question by its id."""
    if question.wrong:
        return [question.wrong]
    if (polar := _polar(question.answer)) and question.kind != ABSTENTION:
        return ["No" if polar == "yes" else "Yes"]
    asks, found = terms[question.id], []
    for other in others:
        if other.kind == ABSTENTION or question.kind not in (other.kind, ABSTENTION) or _polar(other.answer):
            continue
        both, alone = asks & terms[other.id], asks ^ terms[other.id]
        like = len(both) / len(both | alone)
        is_same = like > SAME_QUESTION and not any(char.isdecimal() for term in alone for char in term)
        if not is_same and _differ(question, other):
            found.append((like + (question.text.split()[:1] == other.text.split()[:1]), other.answer))
    return list(dict.fromkeys(text for _, text in sorted(found, key=lambda one: -one[0])))[:WRONG_OF_ONE]


def _terms(text: str) -> Set[str]:
    """Return the words of a question and its pairs of words."""
    words = _words(text)
    return {*words, *map(" ".join, pairwise(words))}


def _polar(answer: str) -> str:
    """Return `yes` or `no` of an answer that begins so, also as `likely no`; empty: it is another one."""
    return next((word for word in _words(answer)[:2] if word in ("yes", "no")), "")


def _differ(question: CaseQuestion, other: CaseQuestion) -> bool:
    """Return whether the right answer of another question surely says something else: neither answer stands in the
    other, they share numbers at most beside words of the question, and a short one says more than the question."""
    gold, said = ({_NUMBERS.get(word, word) for word in _words(one.answer)} for one in (question, other))
    asks, both = {*_words(question.text)} - STOP_WORDS, gold & said
    shared = {word for word in both - STOP_WORDS - asks if not word.isdecimal()}
    repeats = len(said) <= SHORT_WORDS and any(not word.isdecimal() for word in said & asks)
    is_wrong = both not in (gold, said) and not shared and not repeats
    return is_wrong and _word_f1(question.answer, other.answer) < SIMILAR


def _parts(question: CaseQuestion, text: str) -> Sequence[str]:
    """Return the parts of an answer: split at commas if the right answer is a list, else the whole."""
    return text.split(",") if question.several else [text]


def _words(text: str) -> list[str]:
    """Return the stems of a text without punctuation and articles."""
    return [word for word in stems(text.translate(_PUNCTUATION)) if word not in _ARTICLES]


def _word_f1(gold: str, answer: str) -> float:
    """Return the F1 of the words of two texts."""
    wanted, said = Counter(_words(gold)), Counter(_words(answer))
    both = (wanted & said).total()
    return 2 * both / (wanted.total() + said.total()) if both else 0.0
