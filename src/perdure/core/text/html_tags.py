"""HTML of strangers, made safe for a parser whose time grows with the square of what has no end."""

from __future__ import annotations

import re

_START = re.compile(r"<(?:(?P<comment>!--)|[!?]|(?P<tag>/|(?P<name>[a-z][^\s/>]*)))", re.I)
_COMMENT_END = re.compile(r"--!?>")
_TAG_END = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|))*+>""")
_END = re.compile(">")
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])[^>]*+>", re.I) for name in ("script", "style")}


def strip_unreadable(markup: str) -> str:
    """The markup without comments, declarations, scripts, style sheets, a tag without end, and a `<` inside a tag.

    `html.parser` looks for the end of each of them up to the end of the page, and does so again for the next: a million
    `<!--` took it a minute. Here each end is looked for once; what has none takes the rest of the page, as in browsers.
    """
    parts: list[str] = []
    position = 0
    while (start := _START.search(markup, position)) is not None:
        parts.append(markup[position : start.start()])
        if start["tag"]:
            end = _TAG_END.match(markup, start.end())
            name = (start["name"] or "").lower()
            if end is not None and name in _RAW_END and not end[0].endswith("/>"):
                end = _RAW_END[name].search(markup, end.end())
            elif end is not None:
                # A parser with other rules for quotes must not find another start inside the tag.
                parts.append("<" + markup[start.start() + 1 : end.end()].replace("<", "&lt;"))
        elif start["comment"]:
            # `<!-->` and `<!--->` are comments, whose end is a part of their beginning.
            end = _COMMENT_END.search(markup, start.end() - 2)
        else:
            end = _END.search(markup, start.end())
        if end is None:
            return "".join(parts)
        position = end.end()
    parts.append(markup[position:])
    return "".join(parts)
