"""HTML as Markdown."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.markup import strip_unreadable
from perdure.features.files.converters.html import html_to_markdown


@pytest.mark.parametrize(
    ("markup", "markdown"),
    [
        ("<h1>Big <em>one</em></h1><h3>Small</h3>text", "# Big one\n\n### Small\n\ntext"),
        ("<p>one\n  two<br>three</p><p>four", "one two\nthree\n\nfour"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul><ol><li>d</ol>", "- a\n- b\n  - c\n1. d"),
        ("<ul><li><p>a</p><p>b</p></li></ul><p>c", "- a\n  b\n\nc"),
        ("<p><a href='https://a.org/x y'>link</a> and <code>code</code>", "[link](https://a.org/x%20y) and `code`"),
        ("<a href='javascript:alert(1)'>x</a> <a href='data:text/html,x'>y</a> <a href='#z'>z</a>", "x y z"),
        ("<pre><code class='language-py'>if a:\n    b &lt; c\n</code></pre>", "```py\nif a:\n    b < c\n```"),
        ("<blockquote><p>said</p></blockquote>", "> said"),
        ("<table><tr><th>A<th>B|<tr><td>1<td><p>2</p><p>3</p></table>", "| A | B\\| |\n|---|---|\n| 1 | 2 3 |"),
        ("<table><tr><td><h1>T</h1><p>a</p><table><tr><td>1<td>2</table></table>", "# T\n\na\n\n| 1 | 2 |\n|---|---|"),
        ("<p># no heading", "\\# no heading"),
        ("<img src='x' alt='A cat'><hr>", "[image: A cat]\n\n---"),
        ("a &amp; b &nbsp;&euro;&#0;", "a & b €\ufffd"),
        (
            "<nav>menu</nav><script>x()</script><style>y</style><p hidden>z</p><p style='display: none'>z</p><p>text",
            "text",
        ),
        ("<nav>a page whose menu never ends", "a page whose menu never ends"),
        ("no tags < at all", "no tags < at all"),
        ("", ""),
    ],
)
def test_a_page_becomes_markdown(markup: str, markdown: str) -> None:
    """What carries meaning stays, what is for looks or programs goes."""
    assert html_to_markdown(markup)[0].removesuffix("\n") == markdown


def test_the_main_part_is_taken_where_it_is_marked() -> None:
    """If it is a good part of the page; a mark around nothing is not believed."""
    assert html_to_markdown(f"<p>before<main><p>{'text ' * 60}</main><p>after")[0].startswith("text text")
    assert html_to_markdown("<p>before<main></main><p>after")[0] == "before\n\nafter\n"


def test_a_page_has_a_title() -> None:
    """Its own, else its first heading."""
    assert html_to_markdown("<head><title> A \n page </title><body><h1>Head</h1>")[1] == "A page"
    assert html_to_markdown("<h1>Head</h1><h1>Other</h1>")[1] == "Head"


TAGS = ["a href=x", "/a", "table", "/table", "tr", "td", "p", "/p", "ul", "li", "/ul", "pre", "/pre", "h1", "/h1", "br"]
TAGS += ["code", "/code", "nav", "/nav", "main", "/main", "blockquote", "/blockquote", "!--", "a", "script", "/script"]


@given(st.lists(st.sampled_from(TAGS).map("<{}>".format) | st.sampled_from([*"<>&x|#` ", "--"]), max_size=40))
def test_any_tags_in_any_order_are_read(tags: list[str]) -> None:
    """Nothing is raised, and no character is there that was not."""
    text, _ = html_to_markdown(" ".join(tags))

    assert "\x1e" not in text


@given(st.lists(st.sampled_from([*"<>ab/='\" ", "<p ", "<!--", "-->", "<script>", "</script>"]), max_size=30))
def test_no_tag_holds_the_beginning_of_another_one(parts: list[str]) -> None:
    """Whatever a parser takes for a quote: where a tag begins, it also ends, before the next."""
    tags = re.split("<(?=[a-z/])", strip_unreadable("".join(["<p title='<b>'>", *parts])))

    assert all(">" in tag for tag in tags[1:])


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a<!-- <p>no --!>b<!-->c<!--->d<!-- x", "abcd\n"),
        ("<p>a<![CDATA[no]]>b<![if !IE]>c<!x>d<?php no ?>e", "abcde\n"),
        ("<script>'<!--'</script><p>a<STYLE a>b</style\n>c<script src=x />d<script>e</scripts>f", "acd\n"),
        ("<p title='<!--' data-x=\"<script>\">a<b data-y='>'>b</b>", "ab\n"),
        ("<p>1 < 2 <3 & 4 <- 5", "1 < 2 <3 & 4 <- 5\n"),
        ("<p>a<img alt='x<y>z'>b</p", "a[image: x<y>z]b\n"),
        ("<p>a<b", "a\n"),
    ],
)
def test_what_holds_no_text_is_passed_over_once(markup: str, text: str) -> None:
    """Comments, declarations, scripts, and a tag that has no end, which takes the rest with it."""
    assert html_to_markdown(markup)[0] == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        *("<!--", "<!-- x>", "<![CDATA[", "<![CDATA[ x", "<?", "<? ", "</", "</ ", "<a ", "<!x", "<a <", "<a b='"),
        *("<td>", "<a>x", "<table><td>", "<tr><td>x", "<script>", '<a b=">', "<title>", "<ul><li>", '<a =">'),
    ],
)
@pytest.mark.parametrize("end", ["", "x>", "</a>" * 3_000])
def test_eight_times_the_page_takes_eight_times_the_time(part: str, end: str) -> None:
    """Whatever it is full of: none has a way to make the parser look at the same text again and again."""

    def seconds(times: int) -> float:
        markup = part * times + end
        began = time.thread_time()
        html_to_markdown(markup)
        return time.thread_time() - began

    seconds(100)
    assert seconds(4_000) < 30 * max(seconds(500), 0.002)


def test_a_table_with_one_wide_row_is_no_table() -> None:
    """Filled up to its width it would be a thousand times the page."""
    text, _ = html_to_markdown("<table><tr>" + "<td>wide" * 3_000 + "<tr><td>narrow" * 3_000 + "</table>")

    assert len(text) < 100_000
    assert "wide wide" in text and "narrow" in text
