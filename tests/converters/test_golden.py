"""Small pages, tables and files whose whole text is known: mark-up, columns, dates and characters that carry meaning."""

from __future__ import annotations

import pytest

from perdure.converters.html import html_to_markdown

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
    "a list that goes on": ("<ol start=4><li>a<li>b</ol>", "4. a\n5. b"),
    "an item with a number": ("<ol><li>a<li value=7>b<li>c</ol>", "1. a\n7. b\n8. c"),
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
        "<math><semantics><mi>x</mi><annotation encoding='application/x-tex'>\\frac{x}{2}</annotation></semantics></math>",
        "\\frac{x}{2}",
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
}


@pytest.mark.parametrize("name", PAGES)
def test_markup_that_carries_meaning_is_kept(name: str) -> None:
    """As signs in the text, or as places of cells."""
    markup, markdown = PAGES[name]

    assert html_to_markdown(markup)[0].removesuffix("\n") == markdown


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
