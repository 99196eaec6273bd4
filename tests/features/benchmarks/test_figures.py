"""Judges without a model, wrong answers for judges, and intervals."""

from __future__ import annotations

from calendar import month_name
from typing import Any

import pytest

from perdure.features.benchmarks.figures import bootstrap, share_of, wilson
from perdure.features.benchmarks.judging import admits_no_answer, f1_of, is_exact, known_claims, verdict_of
from perdure.features.benchmarks.retrieval import recall_of
from perdure.features.benchmarks.sets.values import ABSTENTION, CaseQuestion


def asks(answer: str, kind: str = "single-hop", text: str = "What?", **more: Any) -> CaseQuestion:
    """A question with this answer."""
    return CaseQuestion(id=text, kind=kind, text=text, answer=answer, **more)


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
    ("gold", "answer", "expected"),
    [
        ("cats and dogs", "a cat, the dogs", 1),  # "and" is no word there
        ("1,000 euros", "1000 euro", 1),
        ("self-care", "selfcare", 1),
        ("self-care", "self care", 0),
        ("Caroline's home", "caroline’s home.", 1),
        ("10:30", "1030", 1),
    ],
)
def test_f1_takes_words_as_locomos_evaluation_does(gold: str, answer: str, expected: float) -> None:
    """Commas and other punctuation leave nothing behind, not even a space."""
    assert f1_of(asks(gold), answer) == expected


def test_of_a_list_each_part_counts_by_itself() -> None:
    """In any order, as LoCoMo has it for its multi-hop questions; other answers are compared as a whole."""
    gold = asks("pottery, the red tandem, camping", several=True)

    assert f1_of(gold, "camping, pottery, red tandem") == 1 and is_exact(gold, "Camping, a red tandem and pottery.")
    assert f1_of(gold, "pottery, a car") == pytest.approx(1 / 3) and not is_exact(gold, "pottery and camping")
    assert f1_of(asks("May, June"), "June, May") == 1 and not is_exact(asks("May, June"), "June, May")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It was not said.", True),
        ("I don't know.", True),
        ("You have not mentioned a boat.", True),
        ("There is no information about that.", True),
        ('I looked for "boat" and found nothing.', True),
        ("The conversations do not say it.", True),
        ("That did not come up.", True),
        ("She didn’t say.", True),
        ("", False),
        (" ", False),
        ("Her boat is called Freya.", False),
        ("She doesn't know how to swim.", False),
        ("He never answered her letter.", False),
        ("No, she sold the bicycle.", False),
        ("He said it on 3 May.", False),
    ],
)
def test_an_answer_that_says_that_there_is_none(answer: str, *, expected: bool) -> None:
    assert admits_no_answer(answer) is expected
    assert is_exact(asks("", ABSTENTION), answer) is expected and f1_of(asks("", ABSTENTION), answer) == expected


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("CORRECT", True),
        ("wrong.", False),
        ("Incorrect", False),
        ("It names the wrong day, but means the same: CORRECT", True),
        ("Hm.", None),
        ("", None),
        ("WRONG. The correct answer is Paris.", False),
        ("**WRONG**\n\nThe CORRECT answer is Paris.", False),
        ("CORRECT, nothing is wrong with it", True),
        ("The answer is not correct.", False),
        ("Correct would be Paris, so it is WRONG", False),
        ("The wrong day, but the correct month.", None),
        ("<think>It seems CORRECT.</think>WRONG", False),
        ("Yes.", True),
        ("no", False),
    ],
)
def test_a_judge_is_understood(reply: str, verdict: bool | None) -> None:
    """By its first word or the one in capitals; what says both, or neither, is no verdict."""
    assert verdict_of(reply) is verdict


def test_wrong_answers_are_plausible_and_not_right_by_chance() -> None:
    """Sixty, always the same ones: the trap of the data, the opposite, or the answer of a question much like it."""
    people = [f"P{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(50)]
    questions = [asks(f"word{at} thing{at}", text=f"Where did {one} go in spring?") for at, one in enumerate(people)]
    questions += [
        asks(f"{at} {month_name[at % 12 + 1]} 1999", text=f"When did {one} leave?") for at, one in enumerate(people)
    ]
    questions += [asks("It was not said.", ABSTENTION, "What did Ada sell?", wrong="a boat", prompt="judge_abstention")]

    claims = known_claims(questions)
    wrong = [one for one in claims if one.is_right is False]

    assert len(wrong) == 60 and claims == known_claims(questions)
    assert all(f1_of(one.question, one.answer) < 0.5 for one in wrong)
    times = [one for one in wrong if one.question.text.startswith("When")]
    assert times and all("1999" in one.answer for one in times)
    assert ("a boat" in [one.answer for one in known_claims(questions[-1:])]) and len(known_claims(questions[-1:])) == 2


@pytest.mark.parametrize(
    ("gold", "other"),
    [
        ("same", "same"),
        ("7 May 2023", "May 2023"),
        ("pottery, camping, painting", "painting and a walk"),
        ("3", "three"),
        ("with her aunt", "her aunt"),
    ],
)
def test_what_may_be_right_is_no_wrong_answer(gold: str, other: str) -> None:
    claims = known_claims([asks(gold, text="What of Ada?"), asks(other, text="What was there with Ben and Eve?")])

    assert [one for one in claims if one.is_right is False] == []


def test_the_answer_of_nearly_the_same_question_is_no_wrong_answer() -> None:
    """Of another day it is."""
    same = [asks("sunset", text="What did Ada paint last week?"), asks("palms", text="What did Ada paint that week?")]
    days = [asks("sunset", text="What did Ada do on 3 May?"), asks("palms", text="What did Ada do on 4 May?")]

    assert [one for one in known_claims(same) if one.is_right is False] == []
    assert len([one for one in known_claims(days) if one.is_right is False]) == 2


def test_few_questions_have_several_wrong_answers_and_all_right_ones() -> None:
    """A question of yes or no has its opposite; preferences have neither."""
    questions = [asks(f"word{at}", text=f"What about thing{at} there?") for at in range(12)]
    questions += [asks("Likely yes", "open-domain", "Would she go?"), asks("x", prompt="judge_preference", text="Any?")]

    claims = known_claims(questions)

    assert sum(one.is_right is False for one in claims) == 60 and sum(one.is_right is True for one in claims) == 13
    assert "No" in [one.answer for one in claims] and all(one.question.answer != "x" for one in claims)
    assert all(is_exact(one.question, one.answer) for one in claims if one.is_right)


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
