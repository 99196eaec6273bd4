"""The pages and what stands in them: fenced blocks, headings, links. Only the Markdown that these pages use."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
CHINESE_PAGES = tuple(page for page in PAGES if page.name.endswith(".zh.md"))
RUN_PAGES = tuple(page for page in PAGES if page not in CHINESE_PAGES)
"""Whose blocks are run. A Chinese page has those of the English one, which `test_pages` checks to the letter."""

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.+?)\s*$", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block: `info` is the text after the backticks, `line` the number of its first line of content."""

    page: Path
    line: int
    info: str
    text: str
    output: str | None
    """The `text` block that follows with nothing but blank lines between: what this block prints."""


def page_name(page: Path) -> str:
    """The page as a test id."""
    return page.relative_to(ROOT).as_posix()


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(source))
    blocks = []
    for index, match in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        printed = after is not None and after[1] == "text" and not source[match.end() : after.start()].strip()
        blocks.append(
            Fence(
                page=page,
                line=source.count("\n", 0, match.start(2)) + 1,
                info=match[1].strip(),
                text=match[2],
                output=after[2] if printed and after is not None else None,
            )
        )
    return blocks


def headings(page: Path) -> list[tuple[int, str]]:
    """(level, text) of each heading outside of fenced blocks."""
    return [(len(match[1]), match[2]) for match in _HEADING.finditer(_prose(page))]


def anchors(page: Path) -> set[str]:
    """The fragments that lead to a heading of the page, as the usual renderers make them."""
    return {_slug(text) for _, text in headings(page)}


def links(page: Path) -> list[str]:
    """The targets of links and pictures outside of fenced blocks."""
    return [match[1] or match[2] for match in _LINK.finditer(_prose(page))]


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _slug(heading: str) -> str:
    text = unicodedata.normalize("NFC", heading.replace("`", "")).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
