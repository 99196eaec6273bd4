"""Answers in Markdown as HTML, whole and while they are written: what they become, and that nothing in them runs."""

from __future__ import annotations

import os
import re

import pytest

from perdure.ui.markdown import CHARS_MAX, LiveMarkdown, markdown_html
from tests.ui.browser import tags_of, text_of
from tests.ui.payloads import PAYLOADS

SAMPLE = r"""# Pears

The *tree* wants **pruning**, ~~now~~ soon; see [a guide](https://example.org/a "t") or https://example.org/b.
Two lines.

1. Cut
   - not more
2. Open

| task | hours |
|:-:|--:|
| prune | 3 |

```python title
if a < b: pass
```

The area is \(a * r * r\), $x_1 * x_2$ costs $5 and $10, and

$$
a
- b
$$

> Never guess.

![a pear](https://example.org/pear.png) [![in a link](https://example.org/p.png)](https://example.org)
"""
FORMS = (
    *("{0}", "# {0}", "> {0}", "- {0}", "`{0}`", "**{0}**", "${0}$", "$$\n{0}\n$$", "<{0}>", "https://{0}"),
    *("```{0}\n{0}\n```", "[{0}]({0})", "![{0}](https://{0})", "[a][b]\n\n[b]: {0}", "|{0}|\n|-|\n|{0}|", "[x](<{0}>)"),
)
OWN_ATTRIBUTES = {"class", "href", "target", "title", "rel", "type", "data-copy-code", "tabindex", "start"}
OWN_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "div", "span", "button", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "h3", "h4", "h5", "h6"),
}


def check_harmless(html: str) -> None:
    """Only tags, attributes and addresses that can't run anything or load from elsewhere."""
    for tag, values in tags_of(html):
        assert tag in OWN_TAGS and set(values) <= OWN_ATTRIBUTES, (tag, values)
        assert re.match(r"(?i)https?:|mailto:", values.get("href") or "https:"), values


def streamed(*pieces: str) -> str:
    """The HTML that a page holds after these pieces of an answer, with all that it held before."""
    live, ended, shown = LiveMarkdown(), "", ""
    for piece in pieces:
        live.add(piece)
        new, shown = live.render()
        ended += new
        check_harmless(new)
        check_harmless(shown)
    return ended + shown


def test_an_answer_is_html() -> None:
    html = markdown_html(SAMPLE)

    assert "<h3>Pears</h3>" in html and "<em>tree</em>" in html and "<s>now</s>" in html and "<br>" in html
    assert '<th class="center">task</th>' in html and '<td class="right">3</td>' in html
    assert "<span>python</span>" in html and "data-copy-code" in html and "if a &lt; b: pass" in html
    for formula in (r"\(a * r * r\)", "$x_1 * x_2$", "$$ a - b $$", "costs $5 and $10"):
        assert formula in text_of(html)


def test_links_leave_and_say_so_and_pictures_are_links() -> None:
    tags = tags_of(markdown_html(SAMPLE))

    links = [values for tag, values in tags if tag == "a"]
    assert [values["href"] for values in links] == [
        *("https://example.org/a", "https://example.org/b", "https://example.org/pear.png", "https://example.org")
    ]
    for values in links:
        assert (values["target"], values["rel"], values["class"]) == ("_blank", "noopener noreferrer", "leaves")
    assert not [tag for tag, _ in tags if tag == "img"]
    assert 'href="/' not in markdown_html("[here](/data)") and "<a " not in markdown_html("[x](javascript:x)")


@pytest.mark.parametrize("size", [1, 7, 50])
def test_an_answer_in_pieces_is_the_same_html(size: int) -> None:
    pieces = [SAMPLE[place : place + size] for place in range(0, len(SAMPLE), size)]

    assert streamed(*pieces) == markdown_html(SAMPLE)


def test_a_block_that_has_ended_is_rendered_once() -> None:
    """What is rendered for each piece does not grow with the answer."""
    live, sizes = LiveMarkdown(), []
    for number in range(200):
        live.add(f"Paragraph {number}.\n\n")
        ended, goes_on = live.render()
        sizes.append(len(ended) + len(goes_on) + len(live.tail))

    assert max(sizes) < 200


def test_no_payload_runs_in_markdown() -> None:
    """Forty payloads in each place of a Markdown text."""
    for payload in PAYLOADS:
        for form in FORMS:
            check_harmless(markdown_html(form.format(payload)))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS if os.environ.get("PERDURE_FAULTS") == "full" else FORMS[:1])
def test_no_payload_runs_wherever_its_stream_is_cut(form: str) -> None:
    """Each cut in two pieces at every byte, and in pieces of a single byte."""
    for payload in PAYLOADS:
        data = form.format(payload).encode()
        cuts = {
            (data[:cut].decode(errors="ignore"), data[cut:].decode(errors="ignore")) for cut in range(len(data) + 1)
        }
        for pieces in cuts:
            streamed(*pieces)
        streamed(*(chr(byte) for byte in data))


def test_a_text_that_takes_long_to_read_is_shown_as_it_is() -> None:
    """One over the limit, and a paragraph of brackets that nothing closes."""
    assert markdown_html("*a*" * CHARS_MAX).startswith("<pre>*a*")
    assert "![" * 5_000 in markdown_html("![" * 5_000)
