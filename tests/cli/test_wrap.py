"""Words of an answer that comes in pieces, on lines of a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from perdure.cli.views.terminal import LineWrapper, display_indexes

PIECES = st.lists(st.text("ab, \n我。（é", max_size=6), max_size=20)


def wrap(pieces: list[str], width: int) -> str:
    """What is on the screen at the end."""
    wrapper = LineWrapper()
    return "".join(wrapper.feed(piece, width) for piece in pieces) + wrapper.flush(width)


@pytest.mark.parametrize(
    ("pieces", "width", "screen"),
    [
        (["The quick bro", "wn fox"], 12, "The quick\nbrown fox"),
        (["exactly ", "ten ", "go"], 11, "exactly ten\ngo"),
        (["one\n", "  two ", "three"], 8, "one\n  two\nthree"),
        (["a\tb c"], 11, "a\tb c"),
        (["a\tb c"], 10, "a\tb\nc"),
        (["我喜欢", "围棋。你", "呢？"], 10, "我喜欢围\n棋。你呢？"),
        (["说（对）"], 4, "说\n（对）"),
        (["see ", "https://", "example.org/a"], 12, "see\nhttps://example.org/a"),
        (["x" * 25, "x y"], 10, "x" * 26 + " y"),
        (["🎉 done"], 6, "🎉\ndone"),
    ],
)
def test_lines_break_between_words(pieces: list[str], width: int, screen: str) -> None:
    """Also of scripts without spaces; a word that is wider than a line is the terminal's."""
    assert wrap(pieces, width) == screen


@given(PIECES, st.integers(6, 20))
def test_no_piece_makes_a_line_too_wide(pieces: list[str], width: int) -> None:
    """How the answer is cut into pieces makes no difference, and no character but spaces is lost."""
    text = "".join(pieces)
    screen = wrap(pieces, width)

    assert screen == wrap([text], width)
    assert "".join(screen.split()) == "".join(text.split())
    words = [word for word in text.split() if cell_len(word) <= width]
    if len(words) == len(text.split()):
        assert all(cell_len(line) <= width for line in screen.split("\n"))


def test_the_width_of_the_moment_counts() -> None:
    """After the window has another size, the next word breaks there."""
    wrapper = LineWrapper()
    before = wrapper.feed("one two three ", 20)
    after = wrapper.feed("four five", 16)

    assert before + after + wrapper.flush(16) == "one two three\nfour five"


def test_a_flushed_word_can_grow() -> None:
    """A wait in the middle of a word shows what is there; the rest of the word follows it."""
    wrapper = LineWrapper()
    shown = wrapper.feed("so far", 10) + wrapper.flush(10) + wrapper.feed("ther", 10) + wrapper.feed(" on", 10)

    assert shown + wrapper.flush(10) == "so farther\non"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("The quick brown fox", ["The quick ", "brown fox"]),
        ("exactly ten words", ["exactly   ", "ten words"]),
        ("ten signs. next", ["ten signs.", "next"]),
        ("a" * 12 + " b", ["a" * 10, "aa b"]),
        ("我喜欢围棋好", ["我喜欢围棋", "好"]),
        ("", []),
    ],
)
def test_a_line_that_is_typed_shows_whole_words(text: str, rows: list[str]) -> None:
    """Each row of ten cells is filled up with spaces where the next word does not fit it."""
    indexes = display_indexes(text, 10)
    shown = [" "] * (max(indexes[:-1], default=-1) + 1)
    for index, character in zip(indexes, text, strict=False):
        shown[index] = character

    assert "".join(shown) == "".join(rows)
    assert indexes == sorted(indexes) and len(indexes) == len(text) + 1
