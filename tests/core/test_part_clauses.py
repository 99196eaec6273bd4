"""What the index is asked for a part of a text: every text that has the part, where a word begins, is found by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.words import Clause, index_words, part_clauses
from tests.support.strategies import effort, words


def holds(text: str, clause: Clause) -> bool:
    """Whether the index finds a text by a clause."""
    tail = "" if clause.prefix else " "
    return f" {' '.join(clause.tokens)}{tail}" in f" {index_words(text)} "


@effort(200, 5_000)
@given(st.lists(st.one_of(words(), st.sampled_from(["running", "Boxes", "a", "17"])), min_size=1), st.data())
def test_a_text_is_found_by_any_of_its_parts(chosen: list[str], data: st.DataObject) -> None:
    """That begins where a word begins, in scripts with spaces; its end may be in the middle of a word."""
    text = " ".join(chosen)
    begin = data.draw(st.sampled_from([len(" ".join([*chosen[:n], ""])) if n else 0 for n in range(len(chosen))]))
    end = data.draw(st.integers(begin + 1, len(text)))
    last = text[begin:end].split(" ")[-1]
    clauses = part_clauses(text[begin:end])

    assert all(holds(text, clause) for clause in clauses if clause.prefix or clause.tokens[0] != last.casefold())


def test_a_word_that_may_have_begun_before_the_part_is_left_out() -> None:
    """The others find the text."""
    assert part_clauses("orth wind blo") == (Clause(("wind",)), Clause(("blo",), prefix=True))
    assert part_clauses("ind") == (Clause(("ind",), prefix=True),)


def test_the_beginning_of_a_last_word_may_be_short() -> None:
    """The words before it find the text."""
    for text, part in (
        ("room 12", "room 1"),
        ("send an e-mail", "an e-m"),
        ("pi is 3.14159", "pi is 3.14"),
        ("l'été d'Anna", "l'été d'An"),
        ("用Python写代码 and more", "用Python写代码 an"),
    ):
        assert part_clauses(part) and all(holds(text, clause) for clause in part_clauses(part))


def test_too_many_words_begin_with_one_or_two_letters() -> None:
    """The index would read all of them: it finds the whole word."""
    assert part_clauses("to") == (Clause(("to",)),)


def test_a_part_without_words_is_not_for_the_index() -> None:
    """Its texts are looked through."""
    assert part_clauses(" %-") == ()


def test_letters_without_spaces_are_found_in_the_middle() -> None:
    """The index holds their pairs."""
    text = "我昨天离开了北新公司"
    for part in ("北新", "离开了北", "新", "司"):
        assert part_clauses(part) and all(holds(text, clause) for clause in part_clauses(part))
