"""Taking a change of a text back after others changed it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.text.line_diff import merge_lines


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a\nL", "a\nL\nM", "a", "a\nM"),
        ("a\nL\nb", "new\na\nL\nb\nmore", "a\nb", "new\na\nb\nmore"),
        ("L", "L\nmore", "", "more"),
        ("a\nL", "a", "a", "a"),
        ("a\nB", "a\nB\nc", "a\nA", "a\nA\nc"),
        ("", "x", "", "x"),
    ],
)
def test_other_changes_stay(base: str, ours: str, theirs: str, merged: str) -> None:
    assert (merge_lines(base, ours, theirs).text, merge_lines(base, ours, theirs).is_clean) == (merged, True)


def test_two_changes_of_one_line_are_a_conflict() -> None:
    """Both forms stand between marks."""
    merge = merge_lines("a\nL\nb", "a\nL2\nb", "a\nb")

    assert not merge.is_clean
    assert "<<<<<<< now\nL2\n=======" in merge.text


lines = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@given(lines, lines, st.integers(min_value=0, max_value=6), st.integers(min_value=0, max_value=12))
@settings(max_examples=200, deadline=None)
def test_a_reverted_write_leaves_the_lines_of_others(before: list[str], others: list[str], at: int, where: int) -> None:
    """A write puts its own lines in; others put theirs in afterwards. Without the write, only its lines are gone, or
    nothing is done."""
    own = ["write 1", "write 2"]
    start = [*before[:at], *own, *before[at:]]
    marked = [f"other {number} {line}" for number, line in enumerate(others)]
    now = [*start[:where], *marked, *start[where:]]

    merge = merge_lines("\n".join(start), "\n".join(now), "\n".join(before))

    if merge.is_clean:
        assert merge.text.split("\n") == ([line for line in now if line not in own] or [""])
    else:
        assert all(line in merge.text.split("\n") for line in marked)
