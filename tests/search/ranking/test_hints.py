"""What is read from a query beside its words."""

from __future__ import annotations

import pytest

from perdure.search.ranking.hints import count_asked, hints_of, kind_asked, role_meant
from perdure.search.ranking.pool import ASSISTANT, NO_ROLE, USER


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("What did I say about the deadline?", USER),
        ("my favourite colour", USER),
        ("What did you suggest for dinner?", ASSISTANT),
        ("what was it you told me about Rust", ASSISTANT),
        ("What did I tell you about Rust?", USER),
        ("your recommendation for a laptop", ASSISTANT),
        ("我说过什么", USER),
        ("你推荐的书", ASSISTANT),
        ("capital of France", NO_ROLE),
        ("can you find the report", NO_ROLE),
    ],
)
def test_whose_words_are_meant(text: str, role: int) -> None:
    """The one who spoke stands before the verb."""
    assert role_meant(text) == role


@pytest.mark.parametrize("text", ["When did Ada move?", "what year was it", "how long ago was that", "什么时候搬家的"])
def test_a_question_for_a_time_is_known(text: str) -> None:
    """However it is put."""
    assert kind_asked(text) == "time"


@pytest.mark.parametrize("text", ["what did she eat when travelling", "how long is the pier", "whenever"])
def test_not_every_when_asks_for_a_time(text: str) -> None:
    """A circumstance is none."""
    assert kind_asked(text) != "time"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("I moved Last Week", True),
        ("in 2023", True),
        ("it’s been Months, café", True),
        ("上周搬家", True),
        ("x", False),
        ("at last_seen, lastly 12023", False),
    ],
)
def test_a_text_that_names_a_time_is_known(text: str, named: bool) -> None:
    """It may answer a question for one."""
    assert count_asked("time", text) == named


def test_a_time_counts_at_the_beginning_of_a_text() -> None:
    """Within its first 2,000 characters."""
    assert count_asked("time", "x" * 1_990 + " today")
    assert not count_asked("time", "x" * 2_000 + " today")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I stayed in Oslo with Émile", 2),
        ("We went. Then we slept.", 0),
        ("Oslo", 0),
        ("from A to Bergen, Cork, Derry, Essen and Fes", 4),
        ("我住在上海", 0),
    ],
)
def test_names_in_a_text_are_counted(text: str, count: int) -> None:
    """Words with a capital letter, of at least two letters, that begin no sentence; up to four."""
    assert count_asked("name", text) == count


@pytest.mark.parametrize(
    ("text", "kind"), [("Where does Ada live?", "name"), ("Who called, and when?", "time"), ("What does she like?", "")]
)
def test_what_a_query_asks_for_is_known(text: str, kind: str) -> None:
    """A time comes before a name."""
    assert kind_asked(text) == kind


def test_naming_everybody_tells_nothing() -> None:
    """Who is named counts, unless it is all there are."""
    names = ["Ada", "Ben"]

    assert hints_of("what did Ada say", names=names).speakers == (0,)
    assert hints_of("how did Ada meet Ben", names=names).speakers == ()
    assert hints_of("what did Ada say", names=["Ada"]).speakers == ()
    assert hints_of("what was said", names=[], spans=[(1.0, 2.0)]).spans == ((1.0, 2.0),)
