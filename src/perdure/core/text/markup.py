"""Tags of prompt sections that stand in text which is not ours."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

__all__ = ["SECTION_TAGS", "escape_tags", "unescape_tags"]

SECTION_TAGS = frozenset(
    {
        *("memory_blocks", "description", "metadata", "value", "memory_metadata"),
        *("tool_usage_rules", "tool_rule", "available_skills", "engine_messages"),
        *("directories", "directory", "instructions", "file", "file_limits"),
        *("source", "earlier"),
    }
)
"""The tags that sections of a prompt are made of, besides the labels of blocks."""

# Models read a tag in any case, with spaces in it, and with characters in it that nobody sees.
_UNSEEN = "[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*+"
_GAP = "[\\s/\u00ad\u200b-\u200f\u2060-\u2064\ufeff]{0,40}+"


def escape_tags(text: str, labels: Iterable[str] = ()) -> str:
    r"""The text with a backslash in each tag of a section, opening or closing: `<\value>`, `<\/value>`.

    Other markup stays as it is. `unescape_tags` is the exact inverse. Linear in the text.

    Args:
        labels: tags besides `SECTION_TAGS`.
    """
    return _tags(frozenset(labels)).sub(r"<\\\1", text) if "<" in text else text


def unescape_tags(text: str, labels: Iterable[str] = ()) -> str:
    """The text that `escape_tags` made this of."""
    return _tags(frozenset(labels)).sub(_without_one, text) if "<\\" in text else text


def _without_one(match: re.Match[str]) -> str:
    return f"<{match[1][1:]}"


@functools.lru_cache(maxsize=64)
def _tags(labels: frozenset[str]) -> re.Pattern[str]:
    """The beginning of a tag: `<`, and as many backslashes as were put in before."""
    names = (_UNSEEN.join(map(re.escape, name)) for name in sorted(SECTION_TAGS | labels))
    return re.compile(rf"<(\\*+)(?={_GAP}(?:{'|'.join(names)})(?![\w.-]))", re.IGNORECASE)
