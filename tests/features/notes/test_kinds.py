"""Notes as Markdown: what is written is read back, a text that a person edited is read too, and limits hold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput
from perdure.features.notes.values import (
    NOTE_CHARS,
    TITLE_CHARS,
    check_note_fields,
    check_title,
    find_kind,
    from_markdown,
    note_kinds,
    to_markdown,
)

LINES = st.sampled_from(
    [
        "# a",
        "## Cause",
        "##  Cause ",
        "## Happened",
        "\\# a",
        "\\\\## b",
        "#",
        "##",
        "### c",
        "\\",
        "",
        " ",
        "\t",
        "    x",
    ]
)
TEXTS = st.lists(LINES | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])), max_size=8).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines))
)
TITLES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=TITLE_CHARS)


@given(st.sampled_from(sorted(note_kinds())), TITLES.filter(str.strip), st.data())
def test_any_title_and_fields_are_read_back_as_they_were(name: str, title: str, data: st.DataObject) -> None:
    kind = find_kind(name)
    required, *others = kind.fields
    first = data.draw(TEXTS.filter(lambda text: bool(text.strip())))
    fields = {required: first, **{other: data.draw(TEXTS) for other in others}}
    line, kept = check_title(title), check_note_fields(kind, fields)

    assert from_markdown(kind, to_markdown(line, kept)) == (line, kept)
    assert from_markdown(kind, to_markdown(line, kept).replace("\n", "\r\n")) == (line, kept)
    for other, text in kept.items():
        assert text.split() == fields[other].split()


@given(st.sampled_from(sorted(note_kinds())), st.text() | TEXTS)
@example("error", "# a\n# b\n## Cause\n## Cause\nx\n## Nothing\ny")
def test_any_text_can_be_read_and_nothing_of_its_words_is_lost(name: str, text: str) -> None:
    kind = find_kind(name)
    title, fields = from_markdown(kind, text)
    labels = {word for field in kind.fields for word in field.capitalize().split("_")}
    seen = " ".join((title, *fields.values())).replace("\\", "")

    assert fields.keys() <= kind.fields.keys()
    for word in text.replace("\\", "").split():
        assert word in seen or word.strip("#") in ("", *labels) or word.casefold() in map(str.casefold, labels)


def test_a_note_is_markdown_that_a_person_can_read() -> None:
    kind = find_kind("decision")
    text = to_markdown("The tent", {"decision": "A rope.\n## Options\n\\# x", "trade_offs": "Its weight."})

    assert text == "# The tent\n\n## Decision\n\nA rope.\n\\## Options\n\\\\# x\n\n## Trade offs\n\nIts weight."
    assert from_markdown(kind, text)[1] == {"decision": "A rope.\n## Options\n\\# x", "trade_offs": "Its weight."}


@pytest.mark.parametrize(
    ("text", "title", "fields"),
    [
        ("# T\n\nfirst words\n\n## Cause\nwind", "T", {"happened": "first words", "cause": "wind"}),
        ("# T\n## happened\na\n## CAUSE\nb\n## Mood\nc", "T", {"happened": "a", "cause": "b\n## Mood\nc"}),
        ("only words", "", {"happened": "only words"}),
        ("# T\r\n\r\n## Happened\r\n\r\na\r\n", "T", {"happened": "a"}),
        ("# T\n## Cause\na\n## Happened\nb\n## Cause\nc", "T", {"happened": "b", "cause": "a\nc"}),
        ("# T\n\n## Happened\n\n    indented\n  code", "T", {"happened": "    indented\n  code"}),
        ("", "", {}),
    ],
)
def test_a_text_that_a_person_edited_is_read(text: str, title: str, fields: Mapping[str, str]) -> None:
    assert from_markdown(find_kind("error"), text) == (title, fields)


@pytest.mark.parametrize("title", ["", "  ", "a\nb", "a\tb", "bell\x07", "esc\x1b[31m", "a\x85b", "a\u2028b", 7, None])
def test_a_title_is_one_plain_line(title: object) -> None:
    with pytest.raises(InvalidInput, match="title is"):
        check_title(title)


def test_a_title_and_the_fields_together_have_a_limit() -> None:
    kind = find_kind("doc")
    assert check_title(f" {'x' * TITLE_CHARS} ") == "x" * TITLE_CHARS
    assert check_note_fields(kind, {"text": "x" * (NOTE_CHARS - 1), "sources": "y"})
    for big in (TITLE_CHARS + 1, 1_000_000):
        with pytest.raises(InvalidInput, match=f"title has {big:,} characters, the limit is 200"):
            check_title("x" * big)
    for fields in ({"text": "x" * NOTE_CHARS, "sources": "y"}, {"text": "x" * 1_000_000}):
        with pytest.raises(InvalidInput, match="the limit is 20,000: write several notes"):
            check_note_fields(kind, fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (None, "fields is None"),
        ("text", "fields is 'text'"),
        ({}, "field 'happened' is empty"),
        ({"cause": "x"}, "field 'happened' is empty"),
        ({"happened": "\n \n"}, "field 'happened' is empty"),
        ({"happened": "x", "Cause": "y"}, "'Cause' is not a field of a note of the kind 'error'"),
        ({"happened": "x", 3: "y"}, "3 is not a field"),
        ({"happened": 3}, "field 'happened' is 3"),
        ({"happened": "x\x00"}, r"field 'happened' has the control character '\\x00'"),
        ({"happened": "a\rb"}, r"control character '\\r'"),
    ],
)
def test_fields_are_texts_of_the_kind_and_the_first_is_there(fields: object, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        check_note_fields(find_kind("error"), fields)


@pytest.mark.parametrize("name", ["poem", "Error", "", None, 3, ["error"]])
def test_an_unknown_kind_is_refused_with_those_that_there_are(name: object) -> None:
    with pytest.raises(InvalidInput, match="give one of error, decision, plan"):
        find_kind(name)
