"""PDF pages in columns are read column by column; tables and ordinary pages as they stand."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.features.files.converters.columns import in_columns
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.pdf import pdf_document
from tests.support.office_files import drawn_pdf_of, pdf_text

Rows = Sequence[Sequence[str]]

LEFT = [
    "The quick brown fox jumps over the lazy dog and",
    "then it sleeps for a long while under the trees of",
    "an old garden that nobody has looked after for",
    "many years, where roses grow wild among stones",
    "and the wind carries the smell of the far sea to",
    "the windows of the house on the hill, which is",
    "empty now but for the cat that lives there still.",
    "   In spring the children of the village come by",
    "and look over the wall, but none of them dares to",
    "go in, for the gate is locked and the dog is near.",
]
RIGHT = [
    "In the second column we read of other matters,",
    "such as the price of wheat in the spring of that",
    "year, which rose by a third because of the long",
    "winter and the late thaw. It was the worst year",
    "in the memory of anyone who still kept accounts.",
    "Bread was dear, and many families went without",
    "it for weeks; the council met to decide what was",
    "to be done about it, and sent two members to the",
    "capital to ask for help, which came too late and",
    "was far too little for those who needed it most.",
]
HEADING = "A heading that is set over both columns of this page, so long that it goes over the gutter"


def read(drawing: str) -> list[str]:
    """The lines of a PDF of one page."""
    file = io.BytesIO(drawn_pdf_of([drawing]))
    return pdf_document("a.pdf", file, ReadLimits(), lambda done, total: None).text.rstrip("\n").split("\n")


def at_places(rows: Rows, at: Sequence[int] = (50, 300), *, lower: int = 0) -> str:
    """Rows of cells, each cell at its place; those behind the first `lower` points lower."""
    return "\n".join(
        f"BT /F1 9 Tf 1 0 0 1 {x + 2 * (len(cell) - len(cell.lstrip()))} {760 - 11 * number - bool(column) * lower} Tm"
        f" ({pdf_text(cell.strip())}) Tj ET"
        for number, row in enumerate(rows)
        for column, (x, cell) in enumerate(zip(at, row, strict=False))
    )


def in_one_go(rows: Rows) -> str:
    """Rows of two cells in one text object, by moves from cell to cell."""
    cells = (
        f"({pdf_text(left)}) Tj 250 0 Td ({pdf_text(right)}) Tj -250 -11 Td" for left, right in rows if left or right
    )
    return f"BT /F1 9 Tf 50 760 Td {' '.join(cells)} ET"


def word_by_word(rows: Rows) -> str:
    """Rows of cells, every word with its own place; narrow letters are half as wide as others."""
    drawn = []
    for number, row in enumerate(rows):
        for x, cell in zip((50, 300), row, strict=False):
            at = float(x)
            for word in cell.split(" "):
                drawn.append(f"BT /F1 9 Tf {at:.1f} {760 - 11 * number} Td ({pdf_text(word)}) Tj ET")
                at += 9 * (0.35 + sum(0.3 if letter in "ijlft.,;'" else 0.58 for letter in word))
    return "\n".join(drawn)


@pytest.mark.parametrize(
    "draw",
    [
        at_places,
        in_one_go,
        word_by_word,
        lambda rows: at_places(rows, lower=4),
        lambda rows: at_places(rows, (50, 275)),
    ],
)
def test_two_columns_are_read_one_after_the_other(draw: Callable[[Rows], str]) -> None:
    """In whatever order and with whatever operators they were drawn."""
    expected = [line.strip() for line in (*LEFT, *RIGHT)]

    assert read(draw(list(zip(LEFT, RIGHT, strict=True)))) == expected


def test_lines_over_all_columns_stay_where_they_are() -> None:
    """A heading above, one between, and columns of different lengths."""
    rows = [[HEADING], *zip(LEFT, RIGHT, strict=True), [HEADING], *zip(LEFT, RIGHT[:7], strict=False)]
    rows += [[line] for line in LEFT[7:]]

    assert read(at_places(rows)) == [line.strip() for line in (HEADING, *LEFT, *RIGHT, HEADING, *LEFT, *RIGHT[:7])]


def test_three_columns_are_read_one_after_the_other() -> None:
    """As two are."""
    lines = ["words that fill this column", "and go on in the next line of", "it until the end of the page,"]
    lines += ["so that all the columns are", "read one after the other, and", "never from left to right at all"]
    rows = [[f"{line[:-2]}{mark}" for mark in ("aa", "bb", "cc")] for line in lines]

    assert read(at_places(rows, (40, 215, 390))) == [row[column] for column in range(3) for row in rows]


QUESTIONS = [
    ("Who may use the service at any time", "Everybody who has an account may use"),
    ("of the day, and what does it cost?", "it at any time; it costs nothing."),
    ("How is an account closed for good", "Write to the address that is named"),
    ("by the person who has opened it?", "on the first page of this paper."),
    ("Where is the data of accounts kept", "In two places that are far apart."),
    ("and for how long is it kept there?", ""),
    ("Is there a limit to how much of it", "There is none, but very large files"),
    ("may be kept for one account?", "are slow to read."),
]
TABLES: Mapping[str, Rows] = {
    "a table of terms": [
        ("Bolt M8", "A bolt of steel with eight millimetres of width"),
        ("Nut M8", "A nut that fits the bolt above and none else"),
        ("Washer", "A washer for the two of them, made of zinc too"),
    ]
    * 3,
    "a table of numbers": [
        ("Anna Schmidt of Berlin", "1,200", "3,400"),
        ("Bert Meier of Hamburg", "5,600", "7,800"),
        ("Carla Vogt of Munich", "910", "1,112"),
    ]
    * 3,
    "two wide columns of numbers": [("the sum of 2019 was 1,200 of 3", "the sum of 2020 was 1,300 of 4")] * 8,
    "cells of several lines": QUESTIONS,
    "a short one": list(zip(LEFT, RIGHT, strict=True))[:4],
    "names and addresses": [("Anna Maria Schmidt", "12 Long Street, Berlin, Germany"), ("Bo Li", "Rome")] * 5,
    "a page of one column": [(f"{left} {right}",) for left, right in zip(LEFT, RIGHT, strict=True)],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_row_by_row(name: str) -> None:
    """So are pages that have one column."""
    rows = TABLES[name]
    expected = [" ".join(" ".join(row).split()) for row in rows]

    assert [" ".join(line.split()) for line in read(at_places(rows, (50, 300, 450)))] == expected


def test_a_page_of_one_column_whose_words_have_places_of_their_own_has_no_columns() -> None:
    """Words that stand below each other by chance make no gutter."""
    lines = [f"{left} {right}".replace("  ", "") for left, right in zip(LEFT, RIGHT, strict=True)] * 3

    assert read(word_by_word([(line,) for line in lines])) == lines


@given(st.lists(st.text("ab .3 ", max_size=60), max_size=12), st.lists(st.text("ab .3 ", max_size=60), max_size=12))
def test_no_letter_of_a_page_is_lost(left: Sequence[str], right: Sequence[str]) -> None:
    """Whatever stands where."""
    layout = "\n".join(f"{one:60}  {two}" for one, two in zip(left, right, strict=False))
    plain = "\n".join(f"{one}{two}" for one, two in zip(left, right, strict=False))

    assert Counter("".join(in_columns(plain, layout).split())) == Counter("".join(plain.split()))
