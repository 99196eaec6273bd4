"""A member of a JSON object is read alike from any pieces of its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.json_strings import StringMember, read_string

texts = st.text(st.sampled_from('ab"\\/\n\té🧭{}[],:'), max_size=8)
values = st.recursive(
    texts | st.booleans() | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["m", "n"]) | texts, inner, max_size=2),
    max_leaves=4,
)


def read_pieces(text: str, size: int) -> str | None:
    """The member `m` of a text that comes in pieces of this size."""
    member = StringMember("m")
    found = "".join([member.read(text[start : start + size]) for start in range(0, len(text), size)])
    return found if member.has_begun else None


@given(st.dictionaries(st.just("m") | texts, values, max_size=4), st.booleans(), st.integers(1, 7))
def test_any_object_is_read_as_json_reads_it(members: dict[str, Any], ascii_only: bool, size: int) -> None:
    text = json.dumps(members, ensure_ascii=ascii_only)
    expected = members.get("m") if isinstance(members.get("m"), str) else None

    assert read_string(text, "m") == read_pieces(text, size) == expected


@pytest.mark.parametrize("size", [1, 5, 99])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"m": "Hel', "Hel"),
        (r'{"m": "Hel\u00', "Hel"),
        (r'{"m": "a\ud83d', "a"),
        (r'{"m": "a\ud83dx"}', "a\ufffdx"),
        (r'{"m": "a\ud83d\u0041"}', "a\ufffdA"),
        (r'{"m": "a\udc00b"}', "a\ufffdb"),
        (r'{"m": "a\qb"}', "a"),
        ('{"m": ""', ""),
        ('{"m":', None),
        ('{"n": {"m": "inner"}, "m": 5}', None),
        ('{"m": "first", "m": "second"}', "first"),
        ('["m", "x"]', None),
        ('"m"', None),
        ("no JSON", None),
        ("", None),
    ],
)
def test_what_breaks_off_or_is_no_json(text: str, found: str | None, size: int) -> None:
    assert read_string(text, "m") == read_pieces(text, size) == found
