"""`for_each`: a test with many cases fails for each that does, and says which."""

from __future__ import annotations

import pytest

from tests.support.cases import for_each


def test_every_case_that_fails_is_told() -> None:
    """The others are tried too."""
    tried = []

    @for_each([(1, 1), (1, 2), (2, 2), (2, 3)])
    def are_equal(left: int, right: int) -> None:
        tried.append(left)
        assert left == right

    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as failed:
        are_equal()
    assert tried == [1, 1, 2, 2]
    assert [one.__notes__ for one in failed.value.exceptions] == [["the case is (1, 2)"], ["the case is (2, 3)"]]


def test_one_parameter_takes_the_case_whole() -> None:
    """Also a case that is a tuple."""
    seen = []
    for_each([(1, 2), "ab"])(lambda case: seen.append(case))()

    assert seen == [(1, 2), "ab"]
