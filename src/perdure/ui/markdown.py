"""Markdown of answers as HTML that can do nothing but be read: whole, or block by block while it is being written."""

from __future__ import annotations

import functools
import re
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure.core.text.json_strings import encodable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

CHARS_MAX, PARAGRAPH_CHARS_MAX = 100_000, 5_000
"""A longer text, or paragraph, is shown as it is: the time for brackets that nothing closes grows with its square."""
CACHED_CHARS = 20_000
"""Longer texts are made again each time."""
SCHEMES = frozenset({"http", "https", "mailto"})
FORMULA_LINES_MAX = 40
GOES_ON = "goes_on"
"""In a text that is being written, a formula may still be without its end."""
HEADING_SHIFT = 2
"""The page has headings of the first two levels itself."""

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "div", "span", "button", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "h3", "h4", "h5", "h6"),
}
_CLASSES = {
    "a": {"leaves"},
    "button": {"quiet"},
    "code": {"math"},
    "div": {"code", "code-head", "scroll"},
    "pre": {"math"},
    "td": {"center", "right"},
    "th": {"center", "right"},
}
_ATTRIBUTES = {
    "a": {"href", "target", "title"},
    "button": {"type", "data-copy-code"},
    "div": {"tabindex"},
    "ol": {"start"},
    "pre": {"tabindex"},
}


def markdown_html(text: str) -> str:
    """The HTML of a Markdown text: links open outside and say so, pictures are links, formulas stay text."""
    return _cached(text) if len(text) <= CACHED_CHARS else _render(text)


@functools.lru_cache(maxsize=512)
def _cached(text: str) -> str:
    """Return the HTML of a Markdown text, remembered for texts that are shown often."""
    return _render(text)


def _render(text: str) -> str:
    """As `markdown_html`."""
    if len(text) > CHARS_MAX:
        return f"<pre>{escape(text)}</pre>"
    return _clean(_parser().render(text))


class LiveMarkdown:
    """A Markdown text that is still being written; only its last block can still change."""

    def __init__(self) -> None:
        self._env: MutableMapping[str, Any] = {GOES_ON: True}
        self.tail = ""

    def add(self, text: str) -> None:
        """Add a piece at the end."""
        self.tail += text

    def render(self) -> tuple[str, str]:
        """Return (HTML of the blocks finished since the last call, HTML of the unfinished block)."""
        if len(self.tail) > CHARS_MAX:
            return "", f"<pre>{escape(self.tail)}</pre>"
        parser, lines = _parser(), self.tail.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        tokens = parser.parse("\n".join(lines), self._env)
        last = max((place for place, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0), default=0)
        if not last or (begins := tokens[last].map) is None:
            return "", _clean(parser.renderer.render(tokens, parser.options, self._env))
        # Where a piece ends between "\r" and "\n", the next one brings an empty line at most.
        self.tail = "\n".join(lines[begins[0] :])
        ended, goes_on = (
            _clean(parser.renderer.render(part, parser.options, self._env)) for part in (tokens[:last], tokens[last:])
        )
        return ended, goes_on


@functools.cache
def _parser() -> MarkdownIt:
    """The parser: HTML in a text stays text, and a line stays a line."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    made.inline.ruler.before("escape", "math", _inline_math)
    made.block.ruler.before("fence", "math", _block_math, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    made.core.ruler.before("inline", "long", _leave_long)
    made.core.ruler.push("addresses", _link_addresses)
    for name, rule in _RULES.items():
        made.add_render_rule(name, rule)
    return made


def _clean(html: str) -> str:
    """HTML without anything that this module does not make itself."""
    import nh3

    return nh3.clean(
        encodable(html),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes=set(SCHEMES),
        url_relative="deny",
        link_rel="noopener noreferrer",
    )


_END = {"code": "", "pre": "\n"}
_MATH = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$"}


def _inline_math(state: StateInline, silent: bool) -> bool:
    r"""Take a formula in `\(…\)`, `\[…\]`, `$$…$$` or `$…$` as it is. An amount of dollars is none."""
    opening = next((one for one in _MATH if state.src.startswith(one, state.pos)), None)
    if opening is None:
        return False
    begin = state.pos + len(opening)
    end = state.src.find(_MATH[opening], begin, state.posMax)
    inner = state.src[begin:end] if end > begin else ""
    after = state.src[end + 1 : end + 2]
    if not inner.strip() or (
        opening == "$" and (inner != inner.strip() or "\n" in inner or after.isdigit() or inner[0].isdigit())
    ):
        return False
    if not silent:
        state.push("math", "code", 0).content = f"{opening}{inner}{_MATH[opening]}"
    state.pos = end + len(_MATH[opening])
    return True


def _block_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    r"""Parse a block of math from a line with `$$` or `\[` to the line that closes it, unchanged."""
    first = state.getLines(start, start + 1, state.blkIndent, False).strip()
    closing = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closing is None or state.is_code_block(start):
        return False
    for line in range(start, min(end, start + FORMULA_LINES_MAX)):
        text = state.getLines(line, line + 1, state.blkIndent, False).strip()
        if text.endswith(closing) and (line > start or len(text) > len(closing) * 2):
            break
    else:
        if not state.env.get(GOES_ON) or end - start >= FORMULA_LINES_MAX:
            return False
    if not silent:
        token = state.push("math_block", "pre", 0)
        token.content = state.getLines(start, line + 1, state.blkIndent, False)
        token.map = [start, line + 1]
        state.line = line + 1
    return True


def _leave_long(state: StateCore) -> None:
    """Take very long paragraphs as they are."""
    from markdown_it.token import Token

    for block in state.tokens:
        if block.type == "inline" and len(block.content) > PARAGRAPH_CHARS_MAX:
            block.children, block.content = [Token("text", "", 0, content=block.content)], ""


_ADDRESS = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]*_]")


def _link_addresses(state: StateCore) -> None:
    """Make links of addresses that stand in a text as they are."""
    from markdown_it.token import Token

    for block in state.tokens:
        depth, children = 0, list[Token]()
        for token in block.children or ():
            depth += token.nesting if token.type in ("link_open", "link_close") else 0
            end = 0
            for found in _ADDRESS.finditer(token.content) if token.type == "text" and not depth else ():
                children.append(Token("text", "", 0, content=token.content[end : found.start()]))
                children.append(Token("link_open", "a", 1, attrs={"href": found[0]}))
                children.append(Token("text", "", 0, content=found[0]))
                children.append(Token("link_close", "a", -1))
                end = found.end()
            children.append(replace(token, content=token.content[end:]) if end else token)
        block.children = children if block.children is not None else None


def _code(_: RendererHTML, tokens: Sequence[Token], place: int, *__: Any) -> str:
    """A block of code with its language and a button that copies it."""
    token = tokens[place]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    head = f'<span>{escape(language)}</span><button type="button" class="quiet" data-copy-code="">Copy</button>'
    code = f'<pre tabindex="0"><code>{escape(token.content)}</code></pre>'
    return f'<div class="code"><div class="code-head">{head}</div>{code}</div>\n'


def _math(_: RendererHTML, tokens: Sequence[Token], place: int, *__: Any) -> str:
    """A formula as its text."""
    token = tokens[place]
    return f'<{token.tag} class="math">{escape(token.content)}</{token.tag}>{_END[token.tag]}'


def _link(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    """The beginning of a link that leaves the dashboard; one that leads nowhere outside has no address."""
    address = str(tokens[place].attrGet("href") or "")
    return _anchor(address) or "<a>"


def _anchor(address: str) -> str:
    """The beginning of a link to an address outside; empty for another one."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    if parts.scheme.lower() not in SCHEMES:
        return ""
    title = f"Opens {parts.hostname or parts.path} in a new tab"
    return f'<a href="{escape(address)}" class="leaves" target="_blank" title="{escape(title)}">'


def _image(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    """A picture as a link to it: nothing is loaded from elsewhere. In a link it is its description."""
    token = tokens[place]
    address = str(token.attrGet("src") or "")
    name = escape(renderer.renderInlineAsText(token.children or [], options, env) or "picture")
    depth = sum({"link_open": 1, "link_close": -1}.get(one.type, 0) for one in tokens[:place])
    begin = "" if depth else _anchor(address)
    return f"{begin}{name}</a>" if begin else name


def _heading(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    """The beginning or end of a heading, below those of the page."""
    token = tokens[place]
    level = min(int(token.tag[1]) + HEADING_SHIFT, 6)
    return f"</h{level}>\n" if token.nesting < 0 else f"<h{level}>"


def _cell(renderer: RendererHTML, tokens: Sequence[Token], place: int, *_: Any) -> str:
    """The beginning of a cell; its alignment is a class, because the policy of the pages allows no styles."""
    token = tokens[place]
    side = str(token.attrGet("style") or "").removeprefix("text-align:")
    return f'<{token.tag} class="{escape(side)}">' if side in ("center", "right") else f"<{token.tag}>"


def _table(_: RendererHTML, tokens: Sequence[Token], place: int, *__: Any) -> str:
    """The beginning or end of a table, which scrolls by itself if it is wide."""
    return "</table></div>\n" if tokens[place].nesting < 0 else '<div class="scroll" tabindex="0"><table>\n'


_RULES: dict[str, Any] = {
    **dict.fromkeys(("fence", "code_block"), _code),
    **dict.fromkeys(("math", "math_block"), _math),
    **dict.fromkeys(("heading_open", "heading_close"), _heading),
    **dict.fromkeys(("th_open", "td_open"), _cell),
    **dict.fromkeys(("table_open", "table_close"), _table),
    "link_open": _link,
    "image": _image,
}
