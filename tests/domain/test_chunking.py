"""Documents in chunks: the laws for every text, and what each kind of structure keeps together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core.documents import Chunk, Document, FileKind
from perdure.core.errors import InvalidInput
from perdure.search.chunking import ChunkSizes, chunks

SMALL = ChunkSizes(target=60, most=100)

# Lines that mean something to one of the outlines, so that random texts are full of structure.
LINES = st.one_of(
    st.sampled_from(
        [
            *("", "   ", "# One", "## Two", "### Three ###", "Title", "===", "---", "- item", "  - inner", "1. first"),
            *("```", "~~~", "| a | b |", "|---|---|", "| 1 | 2 |", "a | b", "> quoted", "{", "}", "[", "],", '"k": {'),
            *('  "k": [', "    1,", "def f():", "    return 1", "class A:", "@wraps", "# note", "A sentence. Another!"),
            *("你好。我在北京。", "東京へ行きます、明日。", "x" * 99, "x" * 100, "y" * 101, "word " * 60, "汉" * 250),
            *("e\u0301" * 80, " " * 130 + "z", "a" + " " * 250 + "b", "    # note", "} else {", "end"),
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=150),
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    lines = draw(st.lists(LINES, max_size=40))
    kind = draw(st.sampled_from(get_args(FileKind)))
    starts = draw(st.sets(st.integers(2, max(2, len(lines))), max_size=4)) if kind == "pdf" else set()
    return Document(
        name="a.py" if kind == "code" else "a",
        kind=kind,
        text="\n".join(lines) + draw(st.sampled_from(["", "\n"])),
        page_starts=(1, *sorted(starts)) if kind == "pdf" else (),
    )


def document(text: str, kind: FileKind = "markdown", name: str = "a") -> Document:
    return Document(name=name, kind=kind, text=text)


def split(text: str, kind: FileKind = "markdown", name: str = "a", sizes: ChunkSizes = SMALL) -> Sequence[Chunk]:
    return chunks(document(text, kind, name), sizes=sizes)


def test_a_document_without_text_has_no_chunks() -> None:
    """Neither has one of blank lines."""
    assert split("") == []
    assert split(" \n\n\t\n", "text") == []


@given(documents())
@example(document("a\n\n" + "x" * 250 + "\n\nb", "text"))
def test_each_line_is_in_one_chunk_in_order(made: Document) -> None:
    """Without white space, the chunks one after the other are the text; the same again for the same document."""
    found = chunks(made, sizes=SMALL)

    assert "".join("".join(chunk.text for chunk in found).split()) == "".join(made.text.split())
    assert chunks(made, sizes=SMALL) == found


@given(documents())
def test_no_chunk_is_too_long(made: Document) -> None:
    """With the table head it needs, and none is blank."""
    for chunk in chunks(made, sizes=SMALL):
        assert len(chunk.text) + (len(chunk.header) + 1 if chunk.header else 0) <= SMALL.most
        assert chunk.text.strip()


@given(documents())
def test_a_chunk_stands_in_its_lines(made: Document) -> None:
    """Whole lines from the first to the last, or a piece of one line; each begins where the one before ended."""
    lines = made.text.split("\n")
    before = 0

    for chunk in chunks(made, sizes=SMALL):
        there = "\n".join(lines[chunk.first_line - 1 : chunk.last_line])
        assert chunk.text == there or (chunk.first_line == chunk.last_line and chunk.text in there)
        assert chunk.first_line > before or (chunk.first_line == before and chunk.text != there)
        before = chunk.last_line


@given(documents())
def test_a_chunk_is_on_one_page(made: Document) -> None:
    """The page of its first line is the page of its last."""
    for chunk in chunks(made, sizes=SMALL):
        if made.pages:
            assert chunk.page is not None
            ends = (*made.page_starts[1:], made.line_count + 2)
            assert made.page_starts[chunk.page - 1] <= chunk.first_line <= chunk.last_line < ends[chunk.page - 1]
        else:
            assert chunk.page is None


def test_sections_are_cut_at_their_headings_and_know_what_they_stand_under() -> None:
    """The heading that a chunk begins with is in its text; those above it are beside it."""
    text = f"# Guide\n\n{'intro ' * 8}\n\n## Install\n\n{'steps ' * 8}\n\n{'more ' * 9}\n\n# End\n\n{'bye ' * 9}"

    found = split(text)

    assert [chunk.text.split()[:2] for chunk in found] == [
        ["#", "Guide"],
        ["##", "Install"],
        ["more"] * 2,
        ["#", "End"],
    ]
    assert [chunk.headings for chunk in found] == [(), ("Guide",), ("Guide", "Install"), ()]
    assert found[2].text_in_context.startswith("Guide > Install\nmore")


def test_an_underlined_heading_is_one() -> None:
    """And a line of dashes below a paragraph of several lines is not."""
    found = split(
        f"Big\n===\n\n{'a ' * 25}\n\nSmall\n-----\n\n{'b ' * 25}\n\n{'c ' * 10}\n{'c ' * 15}\n---\n{'d ' * 30}"
    )

    assert [chunk.headings for chunk in found] == [(), ("Big",), ("Big", "Small"), ("Big", "Small")]
    assert found[1].text.startswith("Small\n-----")


def test_a_heading_is_not_left_alone() -> None:
    """It stays with what follows, even where another cut would be nearer to the target."""
    found = split(f"{'a ' * 12}\n\n## Head\n\n{'b ' * 26}")

    assert [chunk.text[0] for chunk in found] == ["a", "#"]


def test_a_hash_inside_a_fence_is_no_heading() -> None:
    """Nor are dashes in the settings at the top of a page."""
    found = split(f"---\ntitle: x\n---\n# A\n```sh\n# comment {'x' * 40}\n```\n\n{'after ' * 10}")

    assert found[-1].headings == ("A",)


def test_the_rows_of_a_table_carry_its_head() -> None:
    """Each chunk that begins inside the table; the rows themselves stand once."""
    rows = [f"| {i} | value {i} |" for i in range(12)]

    found = split("\n".join(["before", "", "| n | v |", "|---|---|", *rows, "", "after"]))

    assert len(found) > 3
    assert {chunk.header for chunk in found[1:-1]} == {"| n | v |\n|---|---|"}
    assert (found[-1].text, found[-1].header) == ("after", "")
    assert [chunk.text.count("| n | v |") for chunk in found] == [1] + [0] * (len(found) - 1)


def test_a_head_that_is_longer_than_its_rows_is_not_repeated() -> None:
    """It would leave no room for them."""
    found = split("\n".join([f"| {'n' * 40} | v |", "|---|---|", *(f"| {i} | value |" for i in range(12))]))

    assert {chunk.header for chunk in found} == {""}


PYTHON = '''"""What the tests cut."""

import os

LIMIT = 3
# What it is for.
# More of it.
@cache
def first(a):
    x = """

def not_a_definition():
    """
    return x


class Box:
    def put(self):
        return [
            1,

            2,
        ]

    # Takes out.
    def take(self):
        return 2
'''


def test_python_is_cut_at_its_definitions() -> None:
    """With decorators and comments; strings are not taken for code; methods are known by their class."""
    found = split(PYTHON, "code", "a.py", ChunkSizes(target=120, most=160))

    assert [chunk.text.split("\n")[0].strip() for chunk in found] == [
        '"""What the tests cut."""',
        "# What it is for.",
        "class Box:",
        "# Takes out.",
    ]
    assert found[3].headings == ("Box",)


def test_python_that_does_not_parse_is_cut_like_other_code() -> None:
    """At lines that are not indented, after blank ones."""
    text = f"def a(:\n    return 1  # {'a' * 13}\n\n    more({'a' * 17})\n\ndef b():\n    return 2  # {'b' * 10}\n"

    assert [chunk.first_line for chunk in split(text, "code", "a.py", ChunkSizes(target=90, most=95))] == [1, 6]


def test_code_in_other_languages_is_cut_between_functions() -> None:
    """Also where no blank line stands between them; a closing brace stays with what it closes."""
    body = "    call(one, two, three);\n\n    call(four);\n"
    text = "".join(f"// Says {name}.\nfunc {name}() {{\n{body}}}\n" for name in ("a", "b", "c"))

    found = split(text, "code", "a.go", ChunkSizes(target=90, most=120))

    assert [chunk.text.split("\n")[0] for chunk in found] == ["// Says a.", "// Says b.", "// Says c."]


def test_json_is_cut_at_its_top_level_members() -> None:
    """And knows the keys it stands under."""
    text = json.dumps({"one": {"a": "x" * 30}, "two": {"b": ["y" * 40, "z" * 40]}, "three": 3}, indent=2)

    found = split(text, "json")

    assert [chunk.text.split("\n")[0].strip(' {:"') for chunk in found][:2] == ["", "two"]
    assert found[1].headings == ()
    assert ("two", "b") in {chunk.headings for chunk in found}


def test_plain_text_is_cut_at_paragraphs_then_sentences() -> None:
    """Lines that end a sentence before lines that don't."""
    paragraph = "One two three four and five.\nSix seven eight nine ten\neleven twelve thirteen fourteen.\nfifteen\n"

    found = split(f"{paragraph}\n{paragraph}", "text", sizes=ChunkSizes(target=75, most=80))

    assert [chunk.first_line for chunk in found] == [1, 2, 6, 7]


def test_text_without_spaces_is_cut_at_its_sentences() -> None:
    """Chinese and Japanese, in one line longer than a chunk; else at commas, else anywhere."""
    chinese = "今天天气很好，我们去公园散步吧。" * 20

    found = split(chinese, "text")

    assert all(chunk.text.endswith("。") and chunk.first_line == 1 for chunk in found)
    assert all(chunk.text.endswith("，") for chunk in split("今天天气很好，" * 40, "text"))
    assert [len(chunk.text) for chunk in split("天" * 150, "text")] == [60, 90]


def test_a_character_is_not_cut_from_its_accent() -> None:
    """Nor an emoji from what joins it to the next."""
    found = split("e\u0301" * 29 + "n" + "e\u0301" * 60, "text")

    assert not any(chunk.text.startswith("\u0301") for chunk in found)


def test_a_page_begins_a_chunk() -> None:
    """However short the page before was, so that a chunk's page is true."""
    made = Document(name="a.pdf", kind="pdf", text="one\n\ntwo\nthree\n", page_starts=(1, 3))

    assert [(chunk.text, chunk.page) for chunk in chunks(made)] == [("one", 1), ("two\nthree", 2)]


@pytest.mark.parametrize(("target", "most"), [(39, 100), (101, 100), (-5, -5)])
def test_sizes_that_can_not_be_are_refused(target: int, most: int) -> None:
    """With the numbers."""
    with pytest.raises(InvalidInput, match=f"{target} to {most}"):
        ChunkSizes(target=target, most=most)


@pytest.mark.parametrize("kind", get_args(FileKind))
def test_a_long_document_takes_linear_steps(kind: FileKind) -> None:
    """Chunks of a text repeated are as many times more, whatever it is made of: nothing is looked at from afar."""
    part = "# H\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" + "x" * 30 + "\n" + "{\n" * 3 + "word. " * 500 + "\n"

    once, often = (len(split(part * times, kind, sizes=ChunkSizes())) for times in (10, 100))

    assert often == pytest.approx(once * 10, rel=0.2)
