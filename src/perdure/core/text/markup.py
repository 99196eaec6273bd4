"""Tags of prompt sections that stand in text which is not ours; and HTML of strangers, made safe for a parser whose
time grows with the square of what has no end."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

SECTION_TAGS = frozenset(
    {
        *("memory_blocks", "description", "metadata", "value", "memory_metadata"),
        *("tool_usage_rules", "tool_rule", "available_skills", "engine_messages"),
        *("directories", "directory", "instructions", "file", "file_limits"),
        *("source", "earlier", "context_engine"),
    }
)
"""The tags that sections of a prompt are made of, besides the labels of blocks."""

# Models read a tag in any case, with spaces in it, and with characters in it that nobody sees: those that Unicode calls
# default-ignorable or format characters, and control characters that are no white space.
UNSEEN = (
    "\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891"
    "\\u08e2\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\u2800\\u3164"
    "\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffc\\U000110bd\\U000110cd\\U00013430-\\U0001343f"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
"""Ranges of characters, as a set in a pattern has them."""

_UNSEEN = re.compile(f"[{UNSEEN}]+")

# `<`, as many backslashes as were put in before, a gap, and a name with what nobody sees. No two matches overlap and
# nothing is tried twice, so the time is linear however long a gap is.
_TAG = re.compile(rf"<(\\*+)([\s/{UNSEEN}]*+)([\w./{UNSEEN}-]++)")


def escape_tags(text: str, labels: Iterable[str] = ()) -> str:
    r"""Return the text with a backslash in each tag of a section, opening or closing: `<\value>`, `<\/value>`.

    Other markup stays as it is. `unescape_tags` is the exact inverse. Linear in the text.

    Args:
        labels: tags besides `SECTION_TAGS`.
    """
    is_tag = _tag_test(frozenset(labels))
    return _TAG.sub(lambda tag: f"<\\{tag[0][1:]}" if is_tag(tag[3]) else tag[0], text) if "<" in text else text


def unescape_tags(text: str, labels: Iterable[str] = ()) -> str:
    """Return the text before `escape_tags` with the same labels."""
    is_tag = _tag_test(frozenset(labels))
    return _TAG.sub(lambda tag: f"<{tag[0][2:]}" if tag[1] and is_tag(tag[3]) else tag[0], text)


@functools.lru_cache(maxsize=64)
def _tag_test(labels: frozenset[str]) -> Callable[[str], bool]:
    """Return a function that says whether a word begins a tag of a section, or one of these labels."""
    names = frozenset(name.casefold() for name in SECTION_TAGS | labels)
    most = max(map(len, names)) + 1

    def is_tag(word: str) -> bool:
        # A name, or one that a slash ends. Labels may have slashes in them.
        word = _UNSEEN.sub("", word)[:most].casefold()
        return any(word[: slash.start()] in names for slash in re.finditer("/|$", word))

    return is_tag


_START = re.compile(r"<(?:(?P<comment>!--)|[!?]|(?P<tag>/|(?P<name>[a-z][^\s/>]*)))", re.I)
_COMMENT_END = re.compile(r"--!?>")
_TAG_END = re.compile(r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|))*+>""")
_END = re.compile(">")
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])[^>]*+>", re.I) for name in ("script", "style")}


def strip_unreadable(markup: str) -> str:
    """Return HTML without comments, declarations, scripts, style sheets, a tag without end, and a `<` inside a tag.

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
