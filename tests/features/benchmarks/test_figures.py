"""Judges without a model, wrong answers for judges, and intervals."""

from __future__ import annotations

import pytest

from perdure.features.benchmarks.figures import bootstrap, share_of, wilson
from perdure.features.benchmarks.judging import f1_of, is_exact, says_not_said, verdict_of, wrong_claims
from perdure.features.benchmarks.retrieval import recall_of
from perdure.features.benchmarks.sets.values import ABSTENTION, CaseQuestion


def asks(answer: str, kind: str = "single-hop", text: str = "What?") -> CaseQuestion:
    """A question with this answer."""
    return CaseQuestion(id=text, kind=kind, text=text, answer=answer)


def test_an_exact_answer_stands_in_the_answer_as_words() -> None:
    """Case, articles and endings do not count; a part of a word does not do."""
    assert is_exact(asks("the red tandem"), "You ride a Red tandem, with your brother.")
    assert is_exact(asks("8"), "There were 8 pupils.") and not is_exact(asks("8"), "There were 18 pupils.")
    assert not is_exact(asks("red tandem"), "a tandem that is red") and not is_exact(asks("red"), "")
    assert is_exact(asks("八只茶壶"), "你有八只茶壶。")


def test_f1_is_that_of_the_words() -> None:
    assert f1_of(asks("red tandem"), "the red tandem") == 1
    assert f1_of(asks("red tandem"), "a green tandem") == pytest.approx(0.5)
    assert f1_of(asks("red tandem"), "a horse") == f1_of(asks("red tandem"), "") == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It was not said.", True),
        ("I don't know.", True),
        ("You have not mentioned a boat.", True),
        ("There is no information about that.", True),
        ('I looked for "boat" and found nothing.', True),
        ("", True),
        ("Her boat is called Freya.", False),
        ("No, she sold the bicycle.", False),
        ("He said it on 3 May.", False),
    ],
)
def test_an_answer_that_says_that_there_is_none(answer: str, *, expected: bool) -> None:
    assert says_not_said(answer) is expected
    assert is_exact(asks("", ABSTENTION), answer) is expected and f1_of(asks("", ABSTENTION), answer) == expected


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("CORRECT", True),
        ("wrong.", False),
        ("Incorrect", False),
        ("It names the wrong day, but means the same: CORRECT", True),
        ("Hm.", None),
    ],
)
def test_the_last_word_of_a_judge_counts(reply: str, verdict: bool | None) -> None:
    assert verdict_of(reply) is verdict


def test_wrong_answers_are_of_the_same_kind_and_not_right_by_chance() -> None:
    """Sixty at most, always the same, none for questions without an answer."""
    answers = [f"word{number} thing{number}" for number in range(100)]
    questions = [asks(answer, ("a", "b")[at % 2], f"Q{at}?") for at, answer in enumerate(answers)]
    questions += [asks("none", ABSTENTION, "X?"), asks("word1 thing1", "b", "Y?")]

    claims = wrong_claims(questions)

    kinds = {one.answer: one.kind for one in questions}
    assert len(claims) == 60 and claims == wrong_claims(questions)
    assert all(one.is_wrong and kinds[one.answer] == one.question.kind != ABSTENTION for one in claims)
    assert all(f1_of(one.question, one.answer) < 0.5 for one in claims)
    assert wrong_claims([asks("same", text="A?"), asks("same", text="B?")]) == []


def test_intervals_hold_the_share() -> None:
    """Wilson's are known; those by bootstrap are narrower with more values."""
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-3)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-3)
    few, many = bootstrap([0.1, 0.9] * 10), bootstrap([0.1, 0.9] * 200)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert share_of([[1.0, 1.0], [0.0, 0.0]])["score"] == 0.5
    two_seeds = share_of([[1.0, 0.0]] * 40)
    assert (two_seeds["score"], two_seeds["low"], two_seeds["high"]) == (0.5, 0.5, 0.5)


def test_recall_is_of_the_evidence_and_any_of_the_questions() -> None:
    rows = [
        {"turns": [1, 7], "turn_count": 4, "sessions": [2], "session_count": 1},
        {"turns": [], "turn_count": 1, "sessions": [], "session_count": 0},
    ]

    found = recall_of(rows)

    assert (found["turn R@5"], found["turn any@5"], found["turn R@10"]) == (0.125, 0.5, 0.25)
    assert found["session R@5"] == 1 and recall_of([]) == {}
