"""Edits of JSON with comments: the value is as expected, and all other text stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput
from perdure.features.connect.jsonc import JsonText, remove_value, set_value

EXAMPLES = max(100, settings.default.max_examples if settings.default else 0)
ENTRY = {"command": "/usr/bin/perdure", "args": ["mcp", "--project", "."]}
NAMES = st.sampled_from(["mcpServers", "perdure", "other", "", "a b", "ü", 'q"', "//", "/*"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.sampled_from(["", "// no", "{", "[,]", "*/", "\\", "ü\n"])
)
SPACES = st.sampled_from(
    ["", " ", "\n", "\r\n", "\t", " // a, b: {\n", "/* x, } */", "/* two\r\nlines, ] */", "//\r\n"]
)


@st.composite
def jsonc_texts(draw: Any, depth: int = 3) -> str:
    """A value in JSON with comments, spaces of all kinds and trailing commas."""
    kind = draw(st.sampled_from("sol")) if depth else "s"
    if kind == "s":
        return json.dumps(draw(SCALARS), ensure_ascii=draw(st.booleans()))
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        part = draw(jsonc_texts(depth=depth - 1))
        if kind == "o":
            part = json.dumps(draw(NAMES)) + draw(SPACES) + ":" + draw(SPACES) + part
        parts.append(draw(SPACES) + part + draw(SPACES))
    inside = ",".join(parts) + ("," + draw(SPACES) if parts and draw(st.booleans()) else "")
    return f"{{{inside or draw(SPACES)}}}" if kind == "o" else f"[{inside or draw(SPACES)}]"


documents = st.builds("".join, st.tuples(st.sampled_from(["", "\ufeff"]), SPACES, jsonc_texts(), SPACES))
paths = st.lists(NAMES, min_size=1, max_size=3)


def merged(document: Any, path: list[str], value: Any) -> Any:
    """The document with a value at a path; None: something on the way is not an object."""
    if not path:
        return value
    if not isinstance(document, dict):
        return None
    inner = merged(document.get(path[0], {}), path[1:], value)
    return None if inner is None else {**document, path[0]: inner}


def is_contained(part: str, whole: str) -> bool:
    """Whether the signs of `part`, without spaces, stand in `whole` in this order."""
    signs = iter(whole)
    return all(sign in signs for sign in part if not sign.isspace())


@settings(max_examples=EXAMPLES)
@given(documents, paths)
def test_a_set_value_stands_there_and_all_other_text_too(text: str, path: list[str]) -> None:
    """Whatever comments, commas and line ends are around; where an object is missing on the way, nothing happens."""
    before = JsonText(text).root.value
    expected = merged(before, path, ENTRY)
    if expected is None:
        with pytest.raises(InvalidInput):
            set_value(text, path, ENTRY)
        return
    after = set_value(text, path, ENTRY)

    assert JsonText(after).root.value == expected
    if expected is not None and remove_value(text, path) == text:  # it is new: nothing of the text goes
        assert is_contained(text, after)


@settings(max_examples=EXAMPLES)
@given(documents, paths)
def test_a_value_that_is_set_and_removed_leaves_the_document(text: str, path: list[str]) -> None:
    """As it was, but for objects that were made on the way."""
    before = JsonText(text).root.value
    if merged(before, path, ENTRY) is None:
        return
    after = remove_value(set_value(text, path, ENTRY), path)
    inner = merged(before, path[:-1], {})
    expected = before if inner is None else JsonText(remove_value(text, path)).root.value
    found = JsonText(after).root.value
    for name in path[:-1]:
        if name not in expected:
            found.pop(name)
            break
        expected, found = expected[name], found[name]

    assert found == expected


@settings(max_examples=EXAMPLES)
@given(documents, paths)
def test_removing_keeps_every_other_member(text: str, path: list[str]) -> None:
    """And a second removal changes nothing."""
    after = remove_value(text, path)
    expected = JsonText(text).root.value
    inner = expected
    for name in path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(path[-1], None)

    assert JsonText(after).root.value == expected
    assert remove_value(after, path) == after


@given(documents)
def test_an_item_is_appended_once_and_removed(text: str) -> None:
    """To a list that others share; an earlier form of it is replaced."""
    before = JsonText(text).root.value
    path = ["hooks", "Stop"]
    if merged(before, path, ENTRY) is None:
        return
    once = set_value(text, path, {"command": "old perdure hook"}, ".*perdure hook")
    twice = set_value(once, path, {"command": "new perdure hook"}, ".*perdure hook")

    assert JsonText(twice).root.value["hooks"]["Stop"] == [{"command": "new perdure hook"}]
    assert JsonText(remove_value(twice, path, ".*perdure hook")).root.value["hooks"]["Stop"] == []


@given(st.text(alphabet='{}[]":,/* \n\\u0019aeE.-truefalsn\ufeff', max_size=40))
def test_any_text_is_read_as_json_reads_it_or_refused(text: str) -> None:
    """What is JSON is read as such, and nothing raises anything else."""
    try:
        expected = json.loads(text)
    except ValueError:
        expected = ...
    try:
        found = JsonText(text).root.value
    except InvalidInput:
        found = ...
    assert expected is ... or found == expected or text.startswith("\ufeff")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n\t"a": 1, // one, two\n}', '{\n\t"a": 1, // one, two\n\t"b": 2,\n}'),
        ('{\r\n    "a": 1\r\n}\r\n', '{\r\n    "a": 1,\r\n    "b": 2\r\n}\r\n'),
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ("", '{\n  "b": 2\n}\n'),
        ("\ufeff{\n}\n", '\ufeff{\n  "b": 2\n}\n'),
        ('{"b": /* was */ 1}', '{"b": /* was */ 2}'),
    ],
)
def test_a_new_member_looks_as_its_neighbours(text: str, expected: str) -> None:
    """Tabs, CRLF, one line, an empty file, a byte order mark, a comment."""
    assert set_value(text, ["b"], 2) == expected


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"a" 1}', '{"a": 01}', "{'a': 1}", '{"a": 1} x', '{"a": "\n"}', "[" * 5_000, '{"a": truest}']
)
def test_what_is_no_json_is_refused_with_its_line(text: str) -> None:
    """A half-written file, single quotes, and nesting without end."""
    with pytest.raises(InvalidInput, match="line 1 can't be read as JSON"):
        set_value(text, ["b"], 2)


def test_equal_values_leave_the_text() -> None:
    """However it is written."""
    text = '{"a":{"b":[1,2] /* kept */}}'

    assert set_value(text, ["a"], {"b": [1, 2]}) == text
    assert set_value(text, ["a", "b"], [True, 2]) != text


def test_a_comma_in_a_comment_is_no_comma() -> None:
    """The comma that goes with the last member is the one before it, not one of the comment between."""
    text = '{\n  "a": 1, // x, y\n  "b": 2\n}'

    assert remove_value(text, ["b"]) == '{\n  "a": 1 // x, y\n}'


def test_an_item_that_a_person_extended_is_theirs() -> None:
    """A second hook in our group, or a text that only names ours: connecting adds another item, undo leaves these."""
    mark = "perdure hook stop"
    own: dict[str, Any] = {"hooks": [{"command": "perdure hook stop"}]}
    shared = {"hooks": [{"command": "perdure hook stop"}, {"command": "make lint"}]}
    named = {"hooks": [{"command": "echo 'perdure hook stop ran' >> log"}]}
    before = json.dumps({"Stop": [shared, named]}, indent=2)

    after = set_value(before, ["Stop"], own, mark)

    assert json.loads(after) == {"Stop": [shared, named, own]}
    assert set_value(after, ["Stop"], own, mark) == after
    assert remove_value(after, ["Stop"], mark) == before
