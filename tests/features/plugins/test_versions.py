"""Versions of plug-ins, and ranges of them."""

from __future__ import annotations

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.plugins.versions import is_in_range
from tests.support.cases import for_each


@for_each(
    [
        ("^1.2", "1.2 1.2.0 1.9.9 v1.3", "1.1 2.0.0 2 0.9 1.2.0-beta"),
        ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
        ("~1", "1.0 1.9", "2.0"),
        ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0", "0.1", "1.0"),
        (">=1.2 <2", "1.2 1.99", "2.0 1.1.9"),
        (">= 1.0.0, <1.5", "1.2", "1.5"),
        (">1.2.3", "1.2.4", "1.2.3"),
        ("<=1.2.3", "1.2.3 1.0", "1.2.4"),
        ("<=1.2", "1.2.5 1.0", "1.3.0"),
        (">1.2", "1.3.0 2", "1.2.0 1.2.5"),
        ("1.2.3 - 2.0", "1.2.3 1.9 2.0.5", "1.2.2 2.1"),
        ("1 - 2 || 4", "1.0 2.9 4.1", "0.9 3.0 5"),
        ("1.x", "1.0.0 1.5", "2.0 0.1"),
        ("1.2", "1.2.9", "1.3"),
        ("1.2.3", "1.2.3 1.2.3+build", "1.2.4 1.2.2"),
        ("=1.2.3 || ^3", "1.2.3 3.4", "2.0"),
        ("^1.2.3-beta", "1.2.3-beta 1.2.3 1.9", "1.2.2 1.2.3-alpha"),
        ("=1.2.3-beta", "1.2.3-beta", "1.2.3 1.2.3-gamma"),
        ("*", "0 1 newest", ""),
        ("", "newest 1", ""),
        (">=0", "1", "newest"),
    ]
)
def test_a_range_has_the_versions_that_npm_has(versions: str, inside: str, outside: str) -> None:
    """A version that can't be read is only in those that have all."""
    assert [one for one in inside.split() if not is_in_range(one, versions)] == []
    assert [one for one in outside.split() if is_in_range(one, versions)] == []


@pytest.mark.parametrize("versions", ["latest", "^", "a.b", ">", "1.2.3.4", "^1.2 foo", "1 ||| 2"])
def test_a_range_that_cannot_be_read_is_refused(versions: str) -> None:
    """It would mean something else."""
    with pytest.raises(InvalidInput, match="not a range of versions"):
        is_in_range("1", versions)
