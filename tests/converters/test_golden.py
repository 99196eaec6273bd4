"""Small pages, tables and files whose whole text is known: mark-up, columns and dates that carry meaning."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest

from perdure.features.files.converters.docx import docx_document
from perdure.features.files.converters.html import html_to_markdown
from perdure.features.files.converters.limits import ReadLimits
from perdure.features.files.converters.tables import csv_to_markdown
from perdure.features.files.converters.xlsx import xlsx_document
from tests.support.cases import for_each
from tests.support.office_files import docx_of, xlsx_of

PAGES = {
    "a power": ("<p>10<sup>6</sup> cells, 5·10<sup>-3</sup> mol", "10^6 cells, 5·10^-3 mol"),
    "a longer power": ("x<sup>n+1</sup>y, x<sup>n</sup>y", "x^(n+1)y, x^(n)y"),
    "a power that a digit follows": ("a<sub>1</sub>0 and CO<sub>2</sub>, x<sub>ij</sub>", "a_(1)0 and CO_2, x_(ij)"),
    "an ordinal": ("the 1<sup>st</sup> of May", "the 1st of May"),
    "a note in brackets": ("text<sup>[1]</sup>", "text[1]"),
    "a note within a power": ("10<sup><a href='#n2'>2</a></sup>", "10[2]"),
    "a note around a power": ("10<a href='#n2'><sup>2</sup></a>", "10[2]"),
    "an unclosed power": ("<p>10<sup>6<p>next", "10^6\n\nnext"),
    "a power by its style": ("m<span style='vertical-align: super'>2</span>", "m^2"),
    "struck out": ("<s>$100</s> $80 <del>Bob</del> <strike>x</strike>", "~~$100~~ $80 ~~Bob~~ ~~x~~"),
    "struck out by its style": ("<span style='text-decoration:line-through'>5 kg</span> 6 kg", "~~5 kg~~ 6 kg"),
    "paragraphs struck out": ("<del><p>one</p><p>two</p></del><p>three", "~~one~~\n\n~~two~~\n\nthree"),
    "struck-out code": ("<pre>a <s>b</s></pre>", "```\na ~~b~~\n```"),
    "a list that goes on": ("<ol start=4><li>a<li>b</ol>", "4. a\n5. b"),
    "an item with a number": ("<ol><li>a<li value=7>b<li>c</ol>", "1. a\n7. b\n8. c"),
    "struck out by its class": (
        "<style>p{x:1} .old, i.b {text-decoration: line-through}</style><p class='n old'>5",
        "~~5~~",
    ),
    "raised by its class": ("<style>.up{vertical-align:super}</style><p>10<span class=up>6</span>", "10^6"),
    "a class that strikes out": ("<p><span class='line-through'>5</span> 6", "~~5~~ 6"),
    "a class of others": (
        "<style>.old .in {text-decoration:line-through} .x{color:red}</style><p class='old x'>5",
        "5",
    ),
    "letters": ("<ol type=a start=26><li>a<li>b</ol>", "z. a\naa. b"),
    "capital letters": ("<ol type=A><li>a<li value=4>b</ol>", "A. a\nD. b"),
    "roman numerals": ("<ol type=i start=3><li>a<li>b<ol type=I><li>c</ol></ol>", "iii. a\niv. b\n  I. c"),
    "letters by style": ("<ol style='list-style: inside lower-alpha'><li>a</ol>", "a. a"),
    "an item of another form": ("<ol><li>a<li type=a>b</ol>", "1. a\nb. b"),
    "a list with signs by type": ("<ol type=disc><li>a<li>b</ol>", "- a\n- b"),
    "a list with signs by style": ("<ol style='list-style:square outside'><li>a</ol>", "- a"),
    "the last style of a list": (
        "<ol style='list-style-type:lower-roman; list-style: url(lower-greek.png) upper-alpha !important'><li>a</ol>",
        "A. a",
    ),
    "a list whose numbers are not shown": ("<ol style='list-style-type:none'><li>a<li>b</ol>", "- a\n- b"),
    "a zero among letters": ("<ol type=a start=0><li>a<li>b</ol>", "0. a\na. b"),
    "letters that count down": ("<ol type=a reversed><li>a<li>b<li>c</ol>", "c. a\nb. b\na. c"),
    "letters in a cell": ("<table><tr><td>a<td><ol type=i><li>x<li>y</ol></table>", "| a | i. x ii. y |\n|---|---|"),
    "a list that counts down": ("<ol reversed><li>a<li>b<ul><li>x</ul><li>c</ol>", "3. a\n2. b\n  - x\n1. c"),
    "one that counts down from ten": ("<ol reversed start=10><li>a<li>b</ol>", "10. a\n9. b"),
    "numbers in a cell": ("<table><tr><td>a<td><ol start=3><li>x<li>y</ol></table>", "| a | 3. x 4. y |\n|---|---|"),
    "a reading": ("<ruby>漢<rt>かん</rt></ruby>", "漢(かん)"),
    "readings with brackets": (
        "<ruby>東<rp>(</rp><rt>とう</rt><rp>)</rp>京<rt>きょう</ruby>駅",
        "東(とう)京(きょう)駅",
    ),
    "a formula with a text": ("<math alttext='E=mc^2'><mi>E</mi></math>", "E=mc^2"),
    "a formula with TeX": (
        "<math><semantics><mi>x</mi><annotation encoding='application/x-tex'>x_2</annotation></semantics></math>",
        "x_2",
    ),
    "a fraction": ("is <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> now", "is (1)/(2) now"),
    "powers and roots": (
        "<math><msup><mi>x</mi><mn>10</mn></msup><mo>=</mo><msqrt><mi>y</mi></msqrt><mo>+</mo>"
        "<mroot><mi>z</mi><mn>3</mn></mroot></math>",
        "x^10=√(y)+(z)^(1/3)",
    ),
    "a sum": (
        "<math><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover></math>",
        "∑_(i=1)^n",
    ),
    "a cell over two rows": (
        "<table><tr><th>N<th>Y<th>P<tr><td rowspan=2>Basic<td>2023<td>10<tr><td>2024<td>12</table>",
        "| N | Y | P |\n|---|---|---|\n| Basic | 2023 | 10 |\n| Basic | 2024 | 12 |",
    ),
    "cells over rows on both sides": (
        "<table><tr><td rowspan=3>A<td>1<td rowspan=2>B<tr><td>2<tr><td>3<td>C</table>",
        "| A | 1 | B |\n|---|---|---|\n| A | 2 | B |\n| A | 3 | C |",
    ),
    "a cell over two columns": (
        "<table><tr><th>k<th colspan=2>v<th>n<tr><td>1<td>2<td>3<td>4</table>",
        "| k | v |  | n |\n|---|---|---|---|\n| 1 | 2 | 3 | 4 |",
    ),
    "a cell over rows and columns": (
        "<table><tr><td rowspan=2 colspan=2>Q<td>1<tr><td>2<tr><td>u<td>v<td>w</table>",
        "| Q |  | 1 |\n|---|---|---|\n| Q |  | 2 |\n| u | v | w |",
    ),
    "two rows of heads": (
        "<table><tr><th rowspan=2>Region<th colspan=2>Sales<th rowspan=2>Sum<tr><th>Q1<th>Q2<tr><td>EU<td>1<td>2<td>3"
        "<tr><td rowspan=2>US<td colspan=2>n/a<td>0<tr><td>4<td>5<td>9</table>",
        "| Region | Sales |  | Sum |\n|---|---|---|---|\n| Region | Q1 | Q2 | Sum |\n| EU | 1 | 2 | 3 |"
        "\n| US | n/a |  | 0 |\n| US | 4 | 5 | 9 |",
    ),
    "a cell down to the end of its group of rows": (
        "<table><thead><tr><th>A<th>B<tbody><tr><td rowspan=0>k<td>1<tr><td>2<tfoot><tr><td>sum<td>3</table>",
        "| A | B |\n|---|---|\n| k | 1 |\n| k | 2 |\n| sum | 3 |",
    ),
    "cells of a group without rows of its own": (
        "<table><tbody><td>a<td>b<tbody><td>c<td>d</table>",
        "| a | b |\n|---|---|\n| c | d |",
    ),
    "lists in lists": (
        "<ol><li>one<ul><li>a<ol start=3><li>x<li>y</ol></ul><li>two</ol>",
        "1. one\n  - a\n    3. x\n    4. y\n2. two",
    ),
    "a list that counts down past a number": ("<ol start=5 reversed><li>a<li value=9>b<li>c</ol>", "5. a\n9. b\n8. c"),
    "things to do": ("<ul><li><input type=checkbox checked> a<li><input type=checkbox> b</ul>", "- [x] a\n- [ ] b"),
    "words of others": ("<q>To be</q>, he said", '"To be", he said'),
    "struck out by the style of any element": ("<b style='text-decoration: line-through red'>5</b> 6", "~~5~~ 6"),
    "what takes the place of what is struck out": (
        "<del>5</del> <ins>6</ins> <del><del>7</del></del>",
        "~~5~~ 6 ~~7~~",
    ),
    "struck-out cells": ("<table><tr><td><s>5</s><td>6<tr><td>7<td>8</table>", "| ~~5~~ | 6 |\n|---|---|\n| 7 | 8 |"),
    "signs of chemistry": ("Ca<sup>2+</sup>, SO<sub>4</sub><sup>2-</sup>, <sup>14</sup>C", "Ca^(2+), SO_4^(2-), ^14C"),
    "a power of a power": ("2<sup>2<sup>n</sup></sup>", "2^(2^n)"),
    "a formula in a namespace": (
        "is <m:math xmlns:m='http://www.w3.org/1998/Math/MathML'><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>"
        " now",
        "is (1)/(2) now",
    ),
    "a matrix": (
        "<math><mtable><mtr><mtd>1</mtd><mtd>0</mtd></mtr><mtr><mtd>0</mtd><mtd>1</mtd></mtr></mtable></math>",
        "[1, 0; 0, 1]",
    ),
    "a power in a link": ("<a href='/p'>10<sup>6</sup> <sub>ij</sub></a>", "[10^6 _(ij)](/p)"),
    "a power that is struck out": ("<s>10<sup>6</sup></s>, 5", "~~10^6~~, 5"),
    "a fraction in running text": (
        "1<sup>1</sup>/<sub>2</sub> cups, <sup>3</sup>&frasl;<sub>4</sub> l, x<sup>2</sup>/<sub>3</sub>",
        "1 1/2 cups, 3/4 l, x^2/_3",
    ),
    "paragraphs that are struck out by their style": (
        "<p style='text-decoration: line-through'>a <s>b</s><p>c"
        "<div style='text-decoration:line-through'>d<div>e</div>f"
        "</div>g<h2 style='text-decoration-line: line-through'>h</h2><pre>a <kbd>b</kbd></pre>",
        "~~a b~~\n\nc\n\n~~d~~\n\n~~e~~\n\n~~f~~\n\ng\n\n## ~~h~~\n\n```\na b\n```",
    ),
    "cells and rows that are struck out by their style": (
        "<table><tr><th>a<th>b<tr><td style='text-decoration:line-through'>5<td>6"
        "<tr style='text-decoration:line-through'><td>7<td>8<tr><td>9<td>0</table>",
        "| a | b |\n|---|---|\n| ~~5~~ | 6 |\n| ~~7~~ | ~~8~~ |\n| 9 | 0 |",
    ),
    "items that are struck out by their style": (
        "<ul><li style='text-decoration:line-through'>milk<ul><li>fresh</ul><li>bread</ul>"
        "<ul><li style='text-decoration:line-through'>x</ul>y<ul style='text-decoration:line-through'><li>z<li>w</ul>v",
        "- ~~milk~~\n  - ~~fresh~~\n- bread\n- ~~x~~\n\ny\n\n- ~~z~~\n- ~~w~~\n\nv",
    ),
    "a button in a sentence": ("<p>Press <button>Save</button> to keep<p><button>Share</button>", "Press Save to keep"),
    "one of several": ("<input type=radio> no <input type=radio checked> yes", "[ ] no [x] yes"),
    "operators that are not shown": (
        "<math><mn>2</mn><mo>&#x2062;</mo><mn>3</mn><mo>&#x2062;</mo><mi>x</mi><mo>+</mo><mi>sin</mi><mo>&#x2061;</mo>"
        "<mi>x</mi><mo>+</mo><mi>f</mi><mo>&#x2061;</mo><mo>(</mo><mi>y</mi><mo>)</mo></math>",
        "2·3x+sin x+f(y)",
    ),
    "scripts on both sides": (
        "<math><mmultiscripts><mi>C</mi><mn>6</mn><none/><mprescripts/><none/><mn>14</mn></mmultiscripts></math>",
        "^14 C_6",
    ),
    "a sum of what": (
        "<math><munderover><mo>∑</mo><mn>1</mn><mi>n</mi></munderover><msup><mi>i</mi><mn>2</mn></msup><mi>j</mi></math>",
        "∑_1^n i^2 j",
    ),
}


@for_each(PAGES)
def test_markup_that_carries_meaning_is_kept(name: str) -> None:
    """As signs in the text, or as places of cells."""
    markup, markdown = PAGES[name]

    assert html_to_markdown(markup)[0].removesuffix("\n") == markdown


@pytest.mark.slow
@pytest.mark.parametrize(
    "markup",
    [
        f"<table><tr>{'<td colspan=1000 rowspan=65534>x' * 200}{'<tr><td>y' * 2_000}</table>",
        f"<table><tr>{'<td rowspan=60000>' + 'w' * 150}{'<td>a' * 40}{'<tr><td>b' * 3_000}</table>",
        f"{'<s>a<p>' * 5_000}",
        f"<math>{'<mrow>' * 20_000}x",
    ],
)
def test_hostile_spans_and_depths_are_bounded(markup: str) -> None:
    """The text is not many times as long as the page."""
    assert len(html_to_markdown(markup)[0]) < 30 * len(markup)


TABLES = {
    "a delimiter that is named": ("sep=;\na;b\n1;2\n", ["a|b", "1|2"]),
    "one that is named in quotes": ('"sep=|"\na|b,c\n1|2,5\n', ["a|b,c", "1|2,5"]),
    "decimal commas without a head": ("Anna;1,5\nUdo;2,5\n", ["Anna|1,5", "Udo|2,5"]),
    "decimal commas and a comma in a name": (
        "Müller, Anna;1,5\nMeier, Udo;2,5\n",
        ["Müller, Anna|1,5", "Meier, Udo|2,5"],
    ),
    "decimal commas only": ("1,5;2,5;3,5\n4,5;5,5;6,5\n", ["1,5|2,5|3,5", "4,5|5,5|6,5"]),
    "thousands with points": ("a;1.234,56\nb;-2,5\n", ["a|1.234,56", "b|-2,5"]),
    "decimal commas between tabs": ("1,5\t2,5\n3,5\t4,5\n", ["1,5|2,5", "3,5|4,5"]),
    "a delimiter that is named by its letter": ("sep=\\t\na\tb\n1\t2\n", ["a|b", "1|2"]),
    "decimal commas with units": ("a;1,5 %\nb;2,5 €\n", ["a|1,5 %", "b|2,5 €"]),
    "decimal commas in quotes": ('"a";"-1,5"\n"b";"2,25"\n', ["a|-1,5", "b|2,25"]),
    "commas in all names": (
        "Meier, Udo;Berlin, Mitte\nLi, Bo;Rome, Centro\n",
        ["Meier, Udo|Berlin, Mitte", "Li, Bo|Rome, Centro"],
    ),
    "ends of lines as spreadsheets escape them": ('a;b\nx_x000D_y;"z_x000D_\nw"\n', ["a|b", "x y|z w"]),
    "commas as delimiters": ("x;y,1,2\nz;w,3,4\n", ["x;y|1|2", "z;w|3|4"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_divided_where_its_author_did(name: str) -> None:
    """By the delimiter that its first line names, or that is not the decimal comma."""
    text, rows = TABLES[name]
    lines = [f"| {row.replace('|', ' | ')} |" for row in rows]

    assert csv_to_markdown(text)[0].splitlines() == [lines[0], f"|{'---|' * (rows[0].count('|') + 1)}", *lines[1:]]


STYLES = r"""<styleSheet><numFmts>
<numFmt numFmtId="164" formatCode="[h]:mm"/><numFmt numFmtId="165" formatCode="[mm]:ss"/>
<numFmt numFmtId="166" formatCode="00000"/>
<numFmt numFmtId="167" formatCode="0.0\ %"/></numFmts><fonts><font/><font><strike/></font></fonts>
<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="46"/><xf numFmtId="164"/><xf numFmtId="165"/>
<xf numFmtId="20"/><xf numFmtId="166"/><xf numFmtId="14" fontId="1"/>
<xf numFmtId="9"/><xf numFmtId="10"/><xf numFmtId="167"/></cellXfs></styleSheet>"""


@for_each(
    [
        (2, "1.5", "36:00"),
        (3, "7.09375", "170:15"),
        (3, "0.25", "6:00"),
        (3, "-0.5", "-12:00"),
        (4, "0.0010532407", "0:01:31"),
        (5, "0.75", "18:00:00"),
        (1, "1", "1900-01-01"),
        (1, "59", "1900-02-28"),
        (1, "61", "1900-03-01"),
        (1, "45000", "2023-03-15"),
        (6, "1234", "01234"),
        (7, "45000", "~~2023-03-15~~"),
        (8, "0.15", "15%"),
        (9, "0.07", "7%"),
        (10, "0.1525", "15.25%"),
        (0, "1234567890123456", "1234567890123456"),
        (0, "-9007199254740993", "-9007199254740993"),
        (0, "1E+20", "1e+20"),
    ]
)
def test_a_number_is_the_date_or_duration_that_its_style_shows(style: int, value: str, shown: str) -> None:
    """Durations of more than a day, and the days before the leap day that 1900 did not have."""
    rows = f'<sheetData><row><c s="{style}"><v>{value}</v></c></row></sheetData>'
    file = io.BytesIO(xlsx_of({"S": rows}, extra={"xl/styles.xml": STYLES.encode()}))

    assert f"| {shown} |" in xlsx_document("a.xlsx", file, ReadLimits(), lambda done, total: None).text


def test_a_workbook_keeps_powers_and_struck_out_text() -> None:
    """In shared strings and in the cells; without readings of characters."""
    runs = (
        '<r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>6</t></r><r><rPr><strike/></rPr><t>no</t></r>'
        '<r><rPr><strike val="0"/></rPr><t> 1</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>st</t></r>'
        "<rPh><t>reading</t></rPh>"
    )
    sheet = f'<sheetData><row><c t="s"><v>0</v></c><c t="inlineStr"><is>{runs}</is></c></row></sheetData>'
    file = io.BytesIO(xlsx_of({"S": sheet}, extra={"xl/sharedStrings.xml": f"<sst><si>{runs}</si></sst>".encode()}))

    assert "| 10^6~~no~~ 1st | 10^6~~no~~ 1st |" in xlsx_document("a.xlsx", file, ReadLimits(), lambda *_: None).text


@pytest.mark.parametrize(("day", "shown"), [("0", "1904-01-01"), ("1", "1904-01-02"), ("42538", "2020-06-18")])
def test_days_of_a_workbook_that_counts_from_1904(day: str, shown: str) -> None:
    """As programs on Macs wrote them."""
    names = "http://schemas.openxmlformats.org"
    book = (
        f'<workbook xmlns="{names}/spreadsheetml/2006/main" xmlns:r="{names}/officeDocument/2006/relationships">'
        '<workbookPr date1904="1"/><sheets><sheet name="S" sheetId="1" r:id="rId1"/></sheets></workbook>'
    )
    extra = {"xl/styles.xml": STYLES.encode(), "xl/workbook.xml": book.encode()}
    file = io.BytesIO(xlsx_of({"S": f'<sheetData><row><c s="1"><v>{day}</v></c></row></sheetData>'}, extra=extra))

    assert f"| {shown} |" in xlsx_document("a.xlsx", file, ReadLimits(), lambda *_: None).text


def test_merged_cells_of_a_workbook_stand_in_each_row() -> None:
    """And characters that XML can't hold are read as what they are."""
    rows = (
        '<sheetData><row r="1"><c r="A1" t="str"><v>Basic</v></c><c r="B1" t="str"><v>a_x000D_\nb _x005F_x</v></c>'
        "</row>"
        '<row r="2"><c r="A2"/><c r="B2"><v>12</v></c></row><row r="4"><c r="B4"><v>13</v></c></row></sheetData>'
        '<mergeCells><mergeCell ref="A1:A3"/></mergeCells>'
    )
    text = xlsx_document("a.xlsx", io.BytesIO(xlsx_of({"S": rows})), ReadLimits(), lambda done, total: None).text

    assert text == "## S\n\n| Basic | a b _x |\n|---|---|\n| Basic | 12 |\n|  | 13 |\n"


def test_a_docx_keeps_powers_struck_out_text_and_merged_cells() -> None:
    """As a page does."""
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    cell = "<w:tc><w:tcPr>{}</w:tcPr><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
    body = (
        '<w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r>'
        "<w:r><w:rPr><w:strike/></w:rPr><w:t>no</w:t></w:r></w:p><w:tbl>"
        f"<w:tr>{cell.format('<w:vMerge w:val=&restart&/>', 'A')}{cell.format('', '1')}</w:tr>"
        f"<w:tr>{cell.format('<w:vMerge/>', '')}{cell.format('', '2')}</w:tr></w:tbl>"
    ).replace("&", '"')
    document = f"<w:document {word}><w:body>{body}</w:body></w:document>".encode()
    file = io.BytesIO(docx_of(["x"], extra={"word/document.xml": document}))

    assert docx_document("a.docx", file, ReadLimits()).text == "10^6~~no~~\n\n| A | 1 |\n|---|---|\n| A | 2 |\n"


def t(text: str) -> str:
    """A run of an equation."""
    return f"<m:r><m:t>{text}</m:t></m:r>"


def e(*texts: str, tag: str = "e") -> str:
    """Arguments of an element of an equation."""
    return "".join(f"<m:{tag}>{text}</m:{tag}>" for text in texts)


FRACTION = f"<m:f>{e(t('a+b'), tag='num')}{e(t('2'), tag='den')}</m:f>"
EQUATIONS = {
    "a fraction": (FRACTION, "(a+b)/(2)"),
    "a power": (f"<m:sSup>{e(t('x'))}{e(t('2'), tag='sup')}</m:sSup>{t('y')}", "x^2 y"),
    "a longer power": (f"<m:sSup>{e(t('e'))}{e(t('-kt'), tag='sup')}</m:sSup>", "e^(-kt)"),
    "an index": (f"<m:sSub>{e(t('a'))}{e(t('ij'), tag='sub')}</m:sSub>", "a_(ij)"),
    "both": (f"<m:sSubSup>{e(t('x'))}{e(t('1'), tag='sub')}{e(t('2'), tag='sup')}</m:sSubSup>", "x_1^2"),
    "before it": (f"<m:sPre>{e(t('6'), tag='sub')}{e(t('14'), tag='sup')}{e(t('C'))}</m:sPre>", "_6^14 C"),
    "a square root": (f'<m:rad><m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/>{e(t("x"))}</m:rad>', "√(x)"),
    "a cube root": (f"<m:rad>{e(t('3'), tag='deg')}{e(t('x'))}</m:rad>", "(x)^(1/3)"),
    "a sum": (
        f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{e(t("i=1"), tag="sub")}{e(t("n"), tag="sup")}{e(t("i"))}'
        "</m:nary>",
        "∑_(i=1)^n i",
    ),
    "an integral": (f"<m:nary>{e(t('0'), tag='sub')}<m:sup/>{e(t('xdx'))}</m:nary>", "∫_0 xdx"),
    "a matrix": (
        f"<m:d><m:dPr><m:begChr m:val=''/><m:endChr m:val=''/></m:dPr><m:e><m:m><m:mr>{e(t('1'), t('0'))}</m:mr>"
        f"<m:mr>{e(t('0'), t('1'))}</m:mr></m:m></m:e></m:d>",
        "[1, 0; 0, 1]",
    ),
    "brackets": (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=")"/></m:dPr>{e(t("0,1"))}</m:d>', "[0,1)"),
    "a function": (f"<m:func>{e(t('sin'), tag='fName')}{e(t('x'))}</m:func>", "sin x"),
    "a limit": (
        f"<m:func><m:fName><m:limLow>{e(t('lim'))}{e(t('x→0'), tag='lim')}</m:limLow></m:fName>{e(t('x'))}</m:func>",
        "(lim)_(x→0) x",
    ),
    "an accent": (f'<m:acc><m:accPr><m:chr m:val="\u20d7"/></m:accPr>{e(t("v"))}</m:acc>', "v\u20d7"),
    "a fraction in a root": (f"<m:rad><m:deg/>{e(FRACTION)}</m:rad>", "√((a+b)/(2))"),
    "lines": (f"<m:eqArr>{e(t('x=1'), t('y=2'))}</m:eqArr>", "[x=1; y=2]"),
}


def docx_with(equation: str, runs: str = "", extra: Mapping[str, bytes] | None = None) -> io.BytesIO:
    """A DOCX of one paragraph with an equation, and runs in place of all else."""
    names = "http://schemas.openxmlformats.org"
    before, after = (f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in ("is ", " now"))
    document = (
        f'<w:document xmlns:w="{names}/wordprocessingml/2006/main" xmlns:m="{names}/officeDocument/2006/math">'
        f"<w:body><w:p>{runs or f'{before}<m:oMath>{equation}</m:oMath>{after}'}</w:p></w:body></w:document>"
    ).encode()
    return io.BytesIO(docx_of(["x"], extra={"word/document.xml": document, **(extra or {})}))


@pytest.mark.parametrize("name", EQUATIONS)
def test_an_equation_of_a_docx_is_a_line_of_text(name: str) -> None:
    """In its place among the words, as the formula of a page is."""
    equation, line = EQUATIONS[name]
    document = docx_document("a.docx", docx_with(equation), ReadLimits())

    assert (document.text, document.warnings) == (f"is {line} now\n", ())


def test_a_docx_says_what_of_an_equation_it_does_not_know() -> None:
    """Its text stays, but what it meant may be lost."""
    document = docx_document("a.docx", docx_with(f"<m:spiral>{e(t('x'))}</m:spiral>"), ReadLimits())

    assert document.text == "is x now\n"
    assert document.warnings == ("parts of its equations may be missing: spiral",)


def test_equations_on_lines_of_their_own_are_kept() -> None:
    """Several of them, one behind the other."""
    document = docx_document(
        "a.docx",
        docx_with(
            f"</m:oMath><m:oMathPara><m:oMath>{t('a=1')}</m:oMath><m:oMath>{t('b=2')}</m:oMath></m:oMathPara><m:oMath>"
        ),
        ReadLimits(),
    )

    assert document.text == "is a=1 b=2 now\n"


def run(text: str, properties: str = "") -> str:
    """A run of a DOCX."""
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


RUNS = {
    "changes": (
        f"{run('costs ')}<w:del><w:r><w:delText>100</w:delText></w:r></w:del><w:ins>{run('80')}</w:ins>",
        "costs 80",
    ),
    "what was moved": (f"<w:moveFrom>{run('old')}</w:moveFrom><w:moveTo>{run('new')}</w:moveTo>", "new"),
    "struck out with two lines": (run("no", "<w:dstrike/>") + run(" yes"), "~~no~~ yes"),
    "a power by its height": (run("10") + run("6", '<w:position w:val="6"/>'), "10^6"),
    "an index by its height": (run("a") + run("1", '<w:position w:val="-4"/>'), "a_1"),
    "a reading": (
        f"<w:r><w:ruby><w:rt>{run('かん')}</w:rt><w:rubyBase>{run('漢')}</w:rubyBase></w:ruby></w:r>",
        "漢(かん)",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_marks_mean_in_a_docx_is_kept(name: str) -> None:
    """As it is in a page; of changes what holds after them."""
    runs, line = RUNS[name]

    assert docx_document("a.docx", docx_with("", runs), ReadLimits()).text == f"{line}\n"


def test_a_docx_says_which_parts_are_left_out() -> None:
    """Headers, footers and comments stand beside the text; blank ones say nothing."""
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    parts = {f"word/header{n}.xml": f"<w:hdr {word}><w:p>{run('draft')}</w:p></w:hdr>".encode() for n in (1, 2)}
    parts["word/footer1.xml"] = f"<w:ftr {word}><w:p/></w:ftr>".encode()

    document = docx_document("a.docx", docx_with("", run("text"), parts), ReadLimits())
    assert (document.text, document.warnings) == ("text\n", ("its headers were left out",))
