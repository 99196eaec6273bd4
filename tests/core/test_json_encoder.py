"""The encoder that is built once gives what `json.dumps` gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.json_strings import compact_json, spaced_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(VALUES)
def test_it_gives_what_the_standard_library_gives(value: Any) -> None:
    assert compact_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert spaced_json(value) == json.dumps(value, ensure_ascii=False)


def test_its_errors_are_those_of_the_standard_library() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular reference"):
        compact_json(circle)
    with pytest.raises(TypeError, match="not JSON serializable"):
        compact_json({"when": object()})
    with pytest.raises(TypeError, match="keys must be"):
        compact_json({(1, 2): 3})
    assert compact_json([1]) == "[1]"
