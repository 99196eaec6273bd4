"""Whether an answer is right: by its words, or by a model, whose own errors are measured with it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from perdure.core.text.words import stems
from perdure.features.benchmarks.sets.values import ABSTENTION, CaseQuestion
from perdure.features.benchmarks.systems import texts

WORD_JUDGES = ("exact", "f1")
WRONG_ANSWERS = 60
"""So many wrong answers are given to the judge, to see how many it takes for right ones."""
SIMILAR = 0.5
"""An answer that shares as much with the right one may be right itself, so it is no wrong answer."""
_VERDICT = re.compile(r"\b(in)?(correct|wrong)\b", re.IGNORECASE)
_ARTICLES = {"a", "an", "the"}
_NOT_SAID = re.compile(
    r"\b(?:not|never|nothing|no|isn't|wasn't|weren't|doesn't|didn't|don't|cannot|can't)\b[^.!?]{0,40}"
    r"\b(?:said|mention\w*|stated?|specif\w+|provided?|information|available|know\w*|found|find|record\w*|answer\w*"
    r"|memor\w+)\b|\bfound nothing\b|\bunknown\b|\bunanswerable\b|没有|未提",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, to be judged; `is_wrong`: the answer of another question."""

    question: CaseQuestion
    answer: str
    is_wrong: bool = False

    @property
    def text(self) -> str:
        """What a judge that is a model is sent."""
        form = texts()["prompts"]["judged"]
        return form.format(question=self.question.text, gold=self.question.answer, answer=self.answer or "(nothing)")

    @property
    def key(self) -> str:
        """Equal for equal claims, so that none is judged twice."""
        return hashlib.sha256(f"{self.prompt}\n{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]

    @property
    def prompt(self) -> str:
        """The name of the judge's prompt for it."""
        return "judge_abstention" if self.question.kind == ABSTENTION else "judge"


def says_not_said(answer: str) -> bool:
    """Return whether an answer says that there is none."""
    return not answer.strip() or _NOT_SAID.search(answer) is not None


def is_exact(question: CaseQuestion, answer: str) -> bool:
    """Return whether the right answer stands in an answer, word for word but for case, endings and articles."""
    if question.kind == ABSTENTION:
        return says_not_said(answer)
    gold, said = _words(question.answer), _words(answer)
    return bool(gold) and any(said[at : at + len(gold)] == gold for at in range(len(said) - len(gold) + 1))


def f1_of(question: CaseQuestion, answer: str) -> float:
    """Return the harmonic mean of the share of the right answer's words that are said, and of the said ones in it."""
    return float(says_not_said(answer)) if question.kind == ABSTENTION else _shared(question.answer, answer)


def verdict_of(reply: str) -> bool | None:
    """Return what a model has judged, by the last such word of its reply; None: it has not."""
    found = _VERDICT.findall(reply)
    return None if not found else bool(found[-1][0]) == (found[-1][1].lower() == "wrong")


def wrong_claims(questions: Sequence[CaseQuestion]) -> Sequence[JudgedAnswer]:
    """Return wrong but plausible answers: those of other questions of the same kind, chosen by chance, which is always
    the same."""
    chance, claims = Random(WRONG_ANSWERS), []
    answerable = [one for one in questions if one.kind != ABSTENTION]
    for question in chance.sample(answerable, len(answerable)):
        others = [one for one in answerable if one.kind == question.kind and one.text != question.text]
        for other in chance.sample(others, min(len(others), 10)):
            if _shared(question.answer, other.answer) < SIMILAR:
                claims.append(JudgedAnswer(question, other.answer, is_wrong=True))
                break
    return claims[:WRONG_ANSWERS]


def _words(text: str) -> list[str]:
    """Return the stems of a text without articles."""
    plain = re.sub(r"[^\w\s]", " ", text.replace("'s", ""))
    return [word for word in stems(plain) if word not in _ARTICLES]


def _shared(gold: str, answer: str) -> float:
    """Return the F1 of the words of two texts."""
    wanted, said = Counter(_words(gold)), Counter(_words(answer))
    both = (wanted & said).total()
    return 2 * both / (wanted.total() + said.total()) if both else 0.0
