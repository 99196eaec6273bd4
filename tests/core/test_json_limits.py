"""What a JSON text from outside may hold, found without parsing it."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.json_limits import JsonLimits, check_json, parse_json

LIMITS = JsonLimits(size_bytes=10_000_000)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"[[1],[2]]", 2),
        (b'{"a[[[":{"b\\"[[":[1]}}', 3),
        (b'["[[[[', 1),
        (b'["a\\', 1),
        (b"]]][[", 0),
        (b'"' + b'\\"' * 50_000, 0),
        (b'["[",[' * 9 + b'"[ ",' * 50_000 + b'["[",[' * 9, 36),
        (b'["\\\\",[["\\\\\\"["]]]', 3),
    ],
)
def test_depth_is_that_of_brackets_outside_strings(text: bytes, depth: int) -> None:
    """Also of a text that is not JSON."""
    check_json(text, JsonLimits(size_bytes=1_000_000, depth=max(1, depth)))
    if depth:
        with pytest.raises(DataTooLarge, match=f"deeper than {depth - 1} levels"):
            check_json(text, JsonLimits(size_bytes=1_000_000, depth=depth - 1))


VALUES = st.recursive(
    st.text(alphabet='[]{}",\\a'),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text('"[,\\'), of, max_size=3),
)


@given(VALUES, st.floats(0, 1))
def test_containers_are_counted_as_a_parser_counts_them(value: object, cut: float) -> None:
    """Whatever stands in strings, and wherever the text is cut."""
    whole = json.dumps(value)
    text = whole[: round(len(whole) * cut)]
    count = len(re.findall(r"[\[{]", re.sub(r'"(?:[^"\\]|\\.)*("|\\?$)', "", text)))

    check_json(text.encode(), JsonLimits(size_bytes=10_000, containers=count))

    if count:
        with pytest.raises(DataTooLarge, match=r"arrays and objects|deeper"):
            check_json(text.encode(), JsonLimits(size_bytes=10_000, containers=count - 1))


@given(VALUES)
def test_values_are_counted_by_the_commas_between_them(value: object) -> None:
    """Those in strings are none."""
    text = json.dumps(value)
    count = re.sub(r'"(?:[^"\\]|\\.)*"', "", text).count(",")

    check_json(text.encode(), JsonLimits(size_bytes=10_000, values=count))

    if count:
        with pytest.raises(DataTooLarge, match=f"more than {count - 1} values"):
            check_json(text.encode(), JsonLimits(size_bytes=10_000, values=count - 1))


@pytest.mark.parametrize(
    "text", [b'[{"":[]}' + b',{"":[]}' * 1_100_000 + b"]", b'["",' * 2_000_000, b'"["[' * 1_200_000, b"[" * 9_000_000]
)
def test_a_refused_text_costs_little_more_than_itself(text: bytes) -> None:
    """Nine megabytes of brackets would be more than two gigabytes of objects."""
    tracemalloc.start()
    try:
        with pytest.raises(DataTooLarge, match="200,000 arrays"):
            parse_json(text, LIMITS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 5 * len(text)


def test_what_keeps_the_limits_is_parsed() -> None:
    """Bytes with or without a mark, and text with what UTF-8 can't hold."""
    assert parse_json(b'\xef\xbb\xbf{"a":[1]}', LIMITS) == {"a": [1]}
    assert parse_json('["\ud800"]', LIMITS) == ["\ud800"]
    for text in (b'{"a":', b"\xff", "nothing"):
        with pytest.raises(ValueError):
            parse_json(text, LIMITS)
    for encoding in ("utf-16", "utf-32"):
        with pytest.raises(DataTooLarge, match="UTF-8"):
            parse_json('{"a":1}'.encode(encoding), LIMITS)
    with pytest.raises(DataTooLarge, match="larger than 3 bytes"):
        parse_json("[12]", JsonLimits(size_bytes=3))
