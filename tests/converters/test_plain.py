"""Text, Markdown, code, CSV and JSON: their lines stay what they were, or are said not to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.documents import Document, FileKind
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits
from perdure.features.files.converters.plain import json_in_lines, plain_document

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def read(name: str, kind: FileKind, data: bytes) -> Document:
    return plain_document(name, kind, data, ReadLimits())


def test_text_and_code_keep_their_lines() -> None:
    """So that a line number means the same in the file and here."""
    document = read("a.py", "code", b"\n\ndef f():\r\n    return 1")

    assert document.text == "\n\ndef f():\n    return 1"
    assert document.line_count == 4


def test_markdown_is_titled_by_its_first_heading() -> None:
    """Of the first degree."""
    assert read("a.md", "markdown", b"intro\n\n# The plan #\n").title == "The plan"


def test_an_empty_file_is_a_document_without_text() -> None:
    """Source trees are full of them; it is said."""
    assert read("__init__.py", "code", b"").warnings == ("the file is empty",)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("name,age\nAda,36\n", ["| name | age |", "|---|---|", "| Ada | 36 |"]),
        (
            'name;note\nAda;"a;b\nc"\n\nBob;x|y\n',
            ["| name | note |", "|---|---|", "| Ada | a;b c |", "| Bob | x\\|y |"],
        ),
        ("a\tb\n1\t2,5\n3\t4,5", ["| a | b |", "|---|---|", "| 1 | 2,5 |", "| 3 | 4,5 |"]),
        ("one\ntwo", ["| one |", "|---|", "| two |"]),
        ("a,b\n1\n1,2,3", ["| a | b |  |", "|---|---|---|", "| 1 |  |  |", "| 1 | 2 | 3 |"]),
    ],
)
def test_csv_becomes_a_table(data: str, lines: list[str]) -> None:
    """One line a row, with whatever divides the cells."""
    assert read("a.csv", "csv", data.encode()).text.splitlines() == lines


@pytest.mark.parametrize("data", [f"a,{'x' * 200_000}", "a\n" * 2_000 + "x," * 60_000])
def test_csv_that_makes_no_table_stays_as_it_is(data: str) -> None:
    """A cell beyond all measure, or one row far longer than the others; and it is said why."""
    document = read("a.csv", "csv", data.encode())

    assert document.text == data
    assert "as they were" in document.warnings[0]


def test_json_with_short_lines_keeps_them() -> None:
    """JSON lines too."""
    data = b'{"a": 1}\n{"a": [1,  2]}\n'

    assert read("a.jsonl", "json", data).text == data.decode()


@given(VALUES)
def test_json_on_one_line_is_put_on_several_without_a_change(value: object) -> None:
    """It is the same value, and the tokens are those that were there."""
    text = json.dumps(value, separators=(",", ":"))

    lines = json_in_lines(text)

    assert json.loads(lines) == value
    assert json.dumps(value, indent=2) == lines.rstrip("\n") or "[]" in text or "{}" in text


def test_long_json_is_put_on_several_lines() -> None:
    """And that is said."""
    document = read("a.json", "json", json.dumps({"list": list(range(1_000)), "text": "x" * 3_000}).encode())

    assert document.line_count == 1_005
    assert "lines of their own" in document.warnings[0]


@pytest.mark.parametrize(
    "data", ["[" * 200_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '"' + "x" * 100_000, "]" * 5_000]
)
def test_deep_and_broken_json_is_read_all_the_same(data: str) -> None:
    """Every token is there, without recursion and without indentation that is longer than the text."""
    text = read("a.json", "json", data.encode()).text

    assert "".join(text.split()) == data
    assert len(text) < 3 * len(data) + 10_000


def test_one_long_line_is_text_within_the_limit() -> None:
    """And refused beyond it, before it is decoded."""
    assert read("a.txt", "text", b"x" * 5_000_000).line_count == 1
    with pytest.raises(FileUnreadable, match="10,000,000 characters"):
        read("a.txt", "text", b"x" * 50_000_000)
