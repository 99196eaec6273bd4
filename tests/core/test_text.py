"""Words for index and query."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core.text.words import MAX_CLAUSES, MAX_TOKEN_CHARS, Clause, Query, index_words, parse_query, stems
from tests.contracts.messages import WORDS
from tests.support.cases import for_each
from tests.support.strategies import any_text, effort

# What neither FTS5 nor PostgreSQL may ever see in a token: quotes, operators, separators, wildcards.
TOKEN = re.compile(r"[^\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f\ud800-\udfff]+")


def finds(text: str, query: str) -> bool:
    """Whether the query's clauses stand in what the index stores: a model of both databases."""
    words = index_words(text).split(" ")

    def stands(clause: Clause) -> bool:
        size = len(clause.tokens)
        if clause.prefix:
            return any(word.startswith(clause.tokens[0]) for word in words)
        return any(tuple(words[at : at + size]) == clause.tokens for at in range(len(words)))

    return any(map(stands, parse_query(query).clauses))


# -- words -------------------------------------------------------------------------------------------------------------


@for_each(
    [
        ("北京大学", ["北京", "京大", "大学", "学"]),
        ("学", ["学"]),
        ("用Python写的", ["用", "python", "写的", "的"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "ー"]),
        ("서울에", ["서울", "울에", "에"]),
        ("Running runs RUN", ["run", "run", "run"]),
        ("книга книги", ["книг", "книг"]),
        ("Café NAÏVE", ["cafe", "naiv"]),
        ("e-mail, a_b: c++", ["e", "mail", "a", "b", "c"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("go 🚀🧭!", ["go", "🚀", "🧭"]),
        ("Straße", ["strass"]),
        ("İSTANBUL İzmir’de", ["istanbul", "izmir", "de"]),
        ("ΕΛΛΗΝΙΚΆ Ἑλληνικά", ["ελληνικα", "ελληνικα"]),
        ("أَحْمَد مـحمّد", ["احمد", "محمد"]),
        ("שָׁלוֹם־עוֹלָם", ["שלום", "עולם"]),
        ("за́мок йод", ["замок", "йод"]),
        ("\u0301 \u0640 \u064b", []),
        ("１２３　ＡＢＣ", ["123", "abc"]),
        ("\x00\ud800 ... -- ''", []),
        ("", []),
    ]
)
def test_words_of_many_scripts(text: str, tokens: list[str]) -> None:
    """Runs without spaces give bigrams and their last character, other words their stems, symbols themselves."""
    assert stems(text) == tokens


@for_each(WORDS)
def test_a_query_finds_its_text(text: str, query: str, is_found: bool) -> None:
    """The examples that every store has to find, or not, on the index alone."""
    assert finds(text, query) == is_found


def test_the_originals_of_stemmed_words_stand_at_the_end() -> None:
    """So that an exact form is found, and neighbouring stems stay neighbours."""
    assert index_words("She was running homes, running") == "she was run home run running homes"


def test_long_words_are_known_by_their_beginning() -> None:
    """A key or encoded data is one word, cut the same way for index and query."""
    assert stems("a1" * 500) == ["a1" * (MAX_TOKEN_CHARS // 2)]
    assert finds(f"the key is {'a1' * 500}", "a1" * 500)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("red dog", [("red",), ("dog",)]),
        ('the "red dog" runs', [("red", "dog"), ("run",)]),
        ('"red dog', [("red", "dog")]),
        ('""', []),
        ("who am I", [("who",), ("am",), ("i",)]),
        ("who is Ada", [("ada",)]),
        ("Ada ada ADA", [("ada",)]),
        ("北京大学", [("北京", "京大", "大学")]),
        ("北", [("北",)]),
        ("爬虫 python", [("爬虫",), ("python",)]),
        ("", []),
    ],
)
def test_what_a_query_asks_for(text: str, clauses: list[tuple[str, ...]]) -> None:
    """Words and phrases, each once; stop words only when there is nothing else."""
    assert [clause.tokens for clause in parse_query(text).clauses] == clauses


def test_a_single_character_of_a_run_is_a_beginning() -> None:
    """Within a run it stands at the beginning of a bigram, at the end by itself."""
    assert parse_query("北").clauses == (Clause(("北",), prefix=True),)


def test_a_long_query_keeps_its_longest_clauses() -> None:
    """In their order: the long words say most."""
    words = [f"{'x' * (index + 1)}{index}" for index in range(MAX_CLAUSES + 4)]

    assert [clause.tokens[0] for clause in parse_query(" ".join(words)).clauses] == words[4:]


def test_a_loosened_query_asks_for_every_token() -> None:
    """Phrases are taken apart; a beginning stays one, and nothing is asked for twice."""
    query = Query((Clause(("a", "b")), Clause(("b",)), Clause(("学",), prefix=True)))

    assert query.loosen().clauses == (Clause(("a",)), Clause(("b",)), Clause(("学",), prefix=True))


@effort(12, 3000)
@given(any_text())
@example('" OR 1=1 -- * ^ NEAR( : { } + - \\')
@example("́e ́ 学́")
@example("İstanbul ǰ ŉ ﬃ ⑴ ㌀ ½")
def test_any_text_is_a_query_of_clean_tokens(text: str) -> None:
    """Nothing raises; no token is empty or holds white space, quotes or any operator of a database."""
    query = parse_query(text)

    assert len(query.clauses) <= MAX_CLAUSES
    for clause in (*query.clauses, *query.loosen().clauses):
        assert clause.tokens
        assert all(TOKEN.fullmatch(token) for token in clause.tokens), clause
    for word in filter(None, index_words(text).split(" ")):
        assert TOKEN.fullmatch(word), word


@effort(12, 3000)
@given(st.lists(st.one_of(any_text(), st.sampled_from(["running", "it's", "a_b", "x" * 300, ""]))).map(" ".join))
@example("The dog’s café — running, \u0301e 学 homes")
def test_the_index_holds_what_a_query_takes_apart(text: str) -> None:
    """The same tokens in the same order, whatever parts of the text are ASCII."""
    tokens = stems(text)

    assert index_words(text).split(" ")[: len(tokens)] == tokens


@effort(12, 3000)
@given(any_text())
def test_a_text_is_found_by_itself(text: str) -> None:
    """Whatever has words is found by its own words, and by them as one phrase."""
    if stems(text) and '"' not in text:
        assert finds(text, text)
        assert finds(text, f'"{text}"')
    else:
        assert '"' in text or not parse_query(text).clauses


@effort(12, 2000)
@given(any_text(), any_text())
def test_words_do_not_depend_on_what_stands_beside_them(one: str, other: str) -> None:
    """The words of two texts with a line break between them are the words of each."""
    assert stems(f"{one}\n{other}") == stems(one) + stems(other)


# -- text in a column --------------------------------------------------------------------------------------------------
