"""Numbers of lists and headings as Word shows them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

import pytest

from perdure.features.files.converters.docx import docx_document
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.numbering import number_text
from tests.support.cases import for_each
from tests.support.hostile import growth
from tests.support.office_files import docx_of

NAMES = "http://schemas.openxmlformats.org"
WORD = f'xmlns:w="{NAMES}/wordprocessingml/2006/main"'
RELATED = f"{NAMES}/officeDocument/2006/relationships"
RELATIONS = f'<Relationships xmlns="{NAMES}/package/2006/relationships">' + "".join(
    f'<Relationship Id="{name}" Type="{RELATED}/{name}" Target="{name}.xml"/>' for name in ("styles", "numbering")
)


def level(at: int = 0, text: str | None = None, form: str = "decimal", start: int = 1, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>{more}'
        f"<w:lvlText w:val={quoteattr(f'%{at + 1}.' if text is None else text)}/></w:lvl>"
    )


def lists(*levels: str, more: str = "", of_more: str = "") -> str:
    """List 1 has these levels, and list 2 has them with changes of its own."""
    return (
        f'<w:abstractNum w:abstractNumId="7">{"".join(levels)}</w:abstractNum>{more}'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
        f'<w:num w:numId="2"><w:abstractNumId w:val="7"/>{of_more}</w:num>'
    )


def p(text: str, number: int | str = 1, at: int | None = 0, style: str = "", more: str = "") -> str:
    numbers = (f'<w:ilvl w:val="{at}"/>' if at is not None else "") + f'<w:numId w:val="{number}"/>'
    of_style = f'<w:pStyle w:val="{style}"/>' if style else ""
    numbered = f"<w:numPr>{numbers}</w:numPr>" if number != "" else ""
    return f"<w:p><w:pPr>{of_style}{numbered}{more}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def text_of(numbering: str, body: str, styles: str = "") -> str:
    parts: Mapping[str, str] = {
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        "word/numbering.xml": f"<w:numbering {WORD}>{numbering}</w:numbering>",
        "word/_rels/document.xml.rels": f"{RELATIONS}</Relationships>",
        **({"word/styles.xml": f"<w:styles {WORD}>{styles}</w:styles>"} if styles else {}),
    }
    data = docx_of(["x"], extra={name: part.encode() for name, part in parts.items()})
    return docx_document("a.docx", io.BytesIO(data), ReadLimits()).text.rstrip("\n")


PLAIN = p("between", "")
RESTART = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="{}"/></w:lvlOverride>'
OUTLINE = (level(0), level(1, "%1.%2"), level(2, "(%3)", "lowerRoman"))
STYLE = (
    '<w:style w:type="paragraph" w:styleId="{}"><w:name w:val="{}"/>'
    '<w:pPr><w:numPr>{}<w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
)
STYLE_ON = '<w:style w:type="paragraph" w:styleId="{0}"><w:name w:val="{0}"/><w:basedOn w:val="{1}"/></w:style>'
DOCUMENTS = {
    "one that starts at 4": (lists(level(start=4)), p("a") + p("b"), "4. a\n5. b"),
    "one that starts at 0": (lists(level(start=0)), p("a") + p("b"), "0. a\n1. b"),
    "one that goes on after a paragraph": (lists(level()), p("a") + PLAIN + p("b"), "1. a\n\nbetween\n\n2. b"),
    "letters": (lists(level(form="lowerLetter", text="%1)")), p("a") + p("b"), "a) a\nb) b"),
    "capital letters after Z": (
        lists(level(form="upperLetter", start=26)),
        p("a") + p("b") + p("c"),
        "Z. a\nAA. b\nBB. c",
    ),
    "roman numerals": (lists(level(form="upperRoman", text="%1", start=3)), p("a") + p("b"), "III a\nIV b"),
    "Chinese": (
        lists(level(form="chineseCountingThousand", text="第%1条", start=10)),
        p("a") + p("b"),
        "第十条 a\n第十一条 b",
    ),
    "leading zeros": (lists(level(form="decimalZero", start=9)), p("a") + p("b"), "09. a\n10. b"),
    "text around it": (lists(level(text='Art. "%1" & <%1>:')), p("a"), 'Art. "1" & <1>: a'),
    "levels": (
        lists(*OUTLINE),
        p("a") + p("b", at=1) + p("c", at=1) + p("d", at=2) + p("e", at=2) + p("f", at=1) + p("g") + p("h", at=1),
        "1. a\n  1.1 b\n  1.2 c\n    (i) d\n    (ii) e\n  1.3 f\n2. g\n  2.1 h",
    ),
    "a level below none": (lists(*OUTLINE), p("a", at=1) + p("b"), "  1.1 a\n1. b"),
    "a level that never begins anew": (
        lists(level(0), level(1, more='<w:lvlRestart w:val="0"/>')),
        p("a") + p("b", at=1) + p("c") + p("d", at=1),
        "1. a\n  1. b\n2. c\n  2. d",
    ),
    "digits of a legal outline": (
        lists(level(form="upperRoman"), level(1, "%1.%2", more="<w:isLgl/>")),
        p("a") + p("b", at=1),
        "I. a\n  1.1 b",
    ),
    "a second list that goes on": (lists(level()), p("a") + p("b", 2), "1. a\n2. b"),
    "a second list that begins anew": (
        lists(level(), of_more=RESTART.format(1)),
        p("a") + p("b", 2) + p("c", 2),
        "1. a\n1. b\n2. c",
    ),
    "a second list that begins at 7": (
        lists(level(), of_more=RESTART.format(7)),
        p("a") + p("b", 2) + PLAIN + p("c", 2),
        "1. a\n7. b\n\nbetween\n\n8. c",
    ),
    "a second list with a level of its own": (
        lists(level(), of_more=f'<w:lvlOverride w:ilvl="0">{level(0, "<%1>", "lowerLetter", 5)}</w:lvlOverride>'),
        p("a", 2),
        "<e> a",
    ),
    "signs": (lists(level(form="bullet", text="o")), p("a") + p("b"), "- a\n- b"),
    "no number": (lists(level(form="none", text="")), p("a"), "- a"),
    "a paragraph that was taken out": (
        lists(level()),
        p("a") + p("", more="<w:rPr><w:del/></w:rPr>") + p("b"),
        "1. a\n2. b",
    ),
    "cells": (
        lists(level(form="lowerLetter")),
        f"<w:tbl><w:tr><w:tc>{p('x') + p('y')}</w:tc><w:tc>{p('z')}</w:tc></w:tr></w:tbl>",
        "| a. x b. y | c. z |\n|---|---|",
    ),
    "an unknown list": (lists(level()), p("a", 9), "a"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_docx_has_the_numbers_that_word_shows(name: str) -> None:
    numbering, body, text = DOCUMENTS[name]

    assert text_of(numbering, body) == text


def test_headings_have_the_numbers_of_their_style() -> None:
    styles = STYLE.format("Heading1", "heading 1", "") + STYLE.format("Heading2", "heading 2", '<w:ilvl w:val="1"/>')
    body = "".join(p(text, "", style=f"Heading{at}") for text, at in (("A", 1), ("B", 2), ("C", 2), ("D", 1), ("E", 2)))

    text = text_of(lists(*OUTLINE), body + p("F", 0, style="Heading1"), styles)

    assert text == "# 1. A\n\n## 1.1 B\n\n## 1.2 C\n\n# 2. D\n\n## 2.1 E\n\n# F"


def test_a_style_gives_its_list_to_those_that_are_based_on_it() -> None:
    styles = STYLE.format("List", "List Number", "") + (
        '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="List"/></w:style>'
    )

    assert text_of(lists(level(start=2)), p("a", "", style="List") + p("b", "", style="Mine"), styles) == "2. a\n3. b"


def test_a_list_may_be_defined_by_a_style() -> None:
    linked = '<w:abstractNum w:abstractNumId="8"><w:numStyleLink w:val="Outline"/></w:abstractNum>'
    styles = (
        '<w:style w:type="numbering" w:styleId="Outline"><w:name w:val="Outline"/>'
        '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    )
    numbering = (
        lists(level(form="upperLetter"), more=linked) + '<w:num w:numId="3"><w:abstractNumId w:val="8"/></w:num>'
    )

    assert text_of(numbering, p("a", 3) + p("b", 3), styles) == "A. a\nB. b"


@for_each(
    [
        *(
            (1, "a", "a"),
            (26, "a", "z"),
            (27, "a", "aa"),
            (28, "A", "AB"),
            (703, "a", "aaa"),
            (0, "a", "0"),
            (-2, "i", "-2"),
        ),
        *((4, "i", "iv"), (1994, "I", "MCMXCIV"), (4_000, "I", "4000"), (28, "lowerLetter", "bb"), (3, "decimal", "3")),
        *((10, "chineseCounting", "十"), (20, "japaneseCounting", "二十"), (99, "chineseCounting", "九十九")),
        *((3, "decimalEnclosedCircle", "③"), (7, "upper-roman", "VII"), (7, "anything", "7")),
    ]
)
def test_a_number_has_the_form_of_its_list(number: int, form: str, text: str) -> None:
    assert number_text(number, form) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["styles", "levels"])
def test_a_hostile_document_takes_time_in_proportion_to_its_parts(kind: str) -> None:
    """Each paragraph has a style that rests on all the others, or a level of its own."""

    def read(text: str) -> object:
        count = range(len(text))
        if kind == "levels":
            return text_of(lists(*map(level, count)), "".join(p("a", at=at) for at in count))
        rests = "".join(STYLE_ON.format(f"S{at}", f"S{at + 1}") for at in count)
        return text_of(lists(level()), "".join(p("a", "", style="S0") for _ in count), rests)

    assert growth(read, lambda size: "x" * size, (100, 400), factor=7, floor_s=0.1) is None
