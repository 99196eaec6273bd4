"""Words that are related to a query's words, and their list."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from perdure.core.text.words import STOP_WORDS, parse_query, stems
from perdure.search.ranking.related import FIRST_PERSON, related_degrees, related_query, related_words
from tests.support.library import open_sync


def _degrees(query: str, *texts: str) -> list[list[float]]:
    """Return the degrees of a query's related words in texts, a list for each clause."""
    rows: list[list[float]] = related_degrees(related_words(parse_query(query)), texts).tolist()
    return rows


@pytest.mark.parametrize(
    ("query", "text"), [("dogs", "Two PUPPIES!"), ("hiking", "that trail"), ("injured", "a wound")]
)
def test_a_related_word_is_found_however_it_is_written(query: str, text: str) -> None:
    """Forms of the query's word and of the related one count alike, whole words only."""
    [[own, related, other]] = _degrees(query, query, text, "nothing ofthetrailpuppieswound")
    assert (own, other) == (0, 0)
    assert 1 <= related <= 9


def test_the_most_related_word_of_a_text_counts_for_each_word_of_the_query() -> None:
    """Of several related words the best counts; texts without any count nothing, and so do those that are empty."""
    [[puppy, animal, both, empty]] = _degrees("dog", "a puppy", "a collar", "a collar, a puppy", "")
    assert puppy == both > animal > empty == 0
    dog, hike = _degrees("dog hike", "puppy trail", "trail")
    assert (dog[0] > 0, dog[1], hike[0] > 0, hike[1] > 0) == (True, 0, True, True)


@pytest.mark.parametrize("query", ['"red dog"', "上海", "zyzzyva", "🚀", "E4711", "john"])
def test_what_is_no_english_word_has_no_related_words(query: str) -> None:
    """Phrases, other scripts, unknown words and names of people have none."""
    assert not any(related_words(parse_query(query)))
    assert not related_query(parse_query(query)).clauses


def test_a_text_is_read_at_its_beginning_and_ends_where_it_ends() -> None:
    """Related words far inside a long text do not count; zero bytes and lone surrogates take nothing apart."""
    found = _degrees("dog", "x" * 2_000 + " puppy", "\0 \0", "é\udc80 puppy", "puppy")[0]
    assert found == [0, 0, found[3], found[3]]
    assert related_degrees([FIRST_PERSON], ["It's mine.", "Yours, Ian"]).tolist() == [[1, 0]]
    assert related_degrees([FIRST_PERSON], []).shape == (1, 0)


def test_the_list_is_whole() -> None:
    """Each line has a stem, its words, and up to 12 stems that have lines themselves; none is a stop word."""
    text = files("perdure.search.ranking").joinpath("related_words.txt").read_text("ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    listed = {line.split(" ", 1)[0] for line in lines}
    assert len(listed) == len(lines) > 8_000
    assert not listed & STOP_WORDS
    for line in lines:
        stem, rest = line.split(" ", 1)
        words, _, related = rest.partition(":")
        assert words
        assert {tuple(stems(word)) for word in words.split()} == {(stem,)}
        assert len(related.split()) <= 12
        assert stem not in {one[:-1] for one in related.split()} <= listed
        assert all(one[-1] in "123456789" for one in related.split())


def test_a_search_without_vectors_prefers_related_words(tmp_path: Path) -> None:
    """Of two messages with a word of the query, one with a related word comes first; alone, it is no hit."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("walker")
        said = ["We walked a puppy.", "The train leaves at nine.", "We walked a mile.", "It rains in Torino."]
        agent.import_messages([("user", None, text, datetime(2026, 5, 5, tzinfo=UTC)) for text in said])

        hits = agent.search("walk the dog", explain=True)
        assert [hit.message.text for hit in hits[:2]] == [said[0], said[2]]
        assert hits[0].why is not None
        assert hits[0].why.parts["related_words"] > 0
        assert agent.search("kitten") == []
