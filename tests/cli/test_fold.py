"""Tool calls, results and diffs in a line or two; texts that can't harm a terminal; where found words stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.views.view import call_line, fold, match_spans, outcome, snippet, visible
from perdure.core.messages import ToolCall, ToolResult
from perdure.core.text.line_diff import diff_lines, unified_diff

LINES = st.lists(st.sampled_from(["", "-", "+", "@@ -1 +1 @@", "Ada", "Turin", " …"]), max_size=12).map("\n".join)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"query": "围棋"}', 'search("围棋")'),
        ('{"query": "Ada", "limit": 5}', 'search("Ada", limit=5)'),
        ('{"new_string": "Oslo", "old_string": "Rome"}', 'search(new_string="Oslo", old_string="Rome")'),
        ('{"limit": 5, "query": "Ada"}', 'search(limit=5, query="Ada")'),
        ("", "search()"),
        ("{not json", "search({not json)"),
        ('{"text": "two\\nlines"}', 'search("two lines")'),
    ],
)
def test_a_call_is_one_short_line(arguments: str, line: str) -> None:
    """One leading text stands bare, the rest by name; arguments that are no JSON are shown as they are."""
    assert call_line(ToolCall("call_1", "search", arguments)) == line


def test_a_long_argument_is_folded() -> None:
    """What is long ends in an ellipsis, so that a call stays a line."""
    line = call_line(ToolCall("call_1", "insert", '{"content": "' + "word " * 1_000 + '"}'))

    assert len(line) < 80
    assert "…" in line


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ('{"message": "Showing 2 results:", "results": [1, 2]}', "success", "2 results"),
        ("[1]", "success", "1 result"),
        ('{"id": "passage-1"}', "success", "ok"),
        ("sunny,\n20 degrees", "success", "sunny, 20 degrees"),
        ("", "success", "ok"),
        ("no such block", "error", "error: no such block"),
    ],
)
def test_a_result_is_told_in_a_few_words(text: str, status: str, told: str) -> None:
    """Lists are counted, objects are fine, texts are folded, errors say why."""
    assert outcome(ToolResult("call_1", "search", text, status)) == told  # type: ignore[arg-type]


def test_the_first_line_of_an_empty_block_is_only_added() -> None:
    """An empty block counts as one empty line in a diff; nobody took that line away."""
    assert list(diff_lines(unified_diff("", "Name: Ada"))) == [("+", "Name: Ada")]
    assert list(diff_lines(unified_diff("Name: Ada", ""))) == [("-", "Name: Ada")]


def test_places_far_apart_have_a_gap_between_them() -> None:
    """Two hunks of a diff are told apart."""
    before = "\n".join("abcdefgh")
    marks = [mark for mark, _ in diff_lines(unified_diff(before, before.replace("a", "A").replace("h", "H")))]

    assert marks.count("…") == 1


@given(LINES, LINES)
def test_a_diff_shows_every_changed_line(before: str, after: str) -> None:
    """Whatever the values, the lines marked + stand in the new one and those marked - in the old one."""
    for mark, text in diff_lines(unified_diff(before, after)):
        assert mark in "+ …" or text in before.split("\n")
        assert mark in "- …" or text in after.split("\n")


@given(st.text())
def test_what_is_shown_holds_no_control_character(text: str) -> None:
    """No text can move the cursor or colour the screen; only line breaks and tabs are let through."""
    assert not [char for char in visible(text) if char not in "\n\t" and (ord(char) < 32 or 127 <= ord(char) < 160)]


def test_a_text_that_turns_its_direction_is_written_as_it_is_stored() -> None:
    """A path or a name can't be made to look like another one; words of languages that run so stay."""
    assert visible("pay \u202eobB\u2069 now") == "pay \\u202eobB\\u2069 now"
    assert visible("שלום") == "שלום"


@given(st.text(), st.integers(min_value=2, max_value=50))
def test_a_folded_text_is_one_short_line(text: str, chars: int) -> None:
    """Folding keeps to its length and to one line."""
    line = fold(text, chars)

    assert len(line) <= chars
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "query", "words"),
    [
        ("Ada lives in Turin.", "living Turin", ["lives", "Turin"]),
        ("我喜欢围棋。", "围棋", ["围棋"]),
        ("nothing of it", "Turin", []),
    ],
)
def test_found_words_are_those_the_search_goes_by(text: str, query: str, words: list[str]) -> None:
    """Other forms of a word count, as do pairs of characters in a script without spaces."""
    assert [text[start:end] for start, end in match_spans(text, query)] == words


@given(st.text(), st.text())
def test_spans_lie_in_the_text_in_order(text: str, query: str) -> None:
    """Spans neither overlap nor leave the text."""
    ends = [0, *(place for span in match_spans(text, query) for place in span), len(text)]

    assert ends == sorted(ends)


def test_a_snippet_shows_what_was_found_far_inside() -> None:
    """Of a long text the part around the first found word is shown, on one line."""
    line, spans = snippet("word\n" * 500 + "Turin" + "\nword" * 500, "Turin")

    assert "Turin" in line
    assert len(line) < 200
    assert [line[start:end] for start, end in spans] == ["Turin"]
