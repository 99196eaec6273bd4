"""Texts that are made to keep a parser busy, and a measure of how the work of a function grows with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

Read = Callable[[str], object]

_UNITS = {
    "attribute without end": "<a b='",
    "comments without end": "<!--",
    "declarations without end": "<!x ",
    "instructions without end": "<?x ",
    "cdata without end": "<![CDATA[",
    "open tags": "<div>",
    "closed tags": "</div>",
    "links": "<a href=x>",
    "rows of cells": "<table><tr><td>",
    "scripts without end": "<script>",
    "brackets at lines": "[\n",
    "brackets": "[",
    "braces": '{"a":',
    "objects at lines": '{"a":1,\n',
    "broken lists at lines": "- a\n\n\n[á",
    "a long list at each line": '{"k":[' + "1," * 50 + "\n",
    "quotes": '"',
    "single quotes": "'",
    "doubled quotes": '"",',
    "backslashes": "\\",
    "escapes": '\\"',
    "unicode escapes": "\\u0041",
    "spaces": " ",
    "spaces and a letter": " " * 60 + "x",
    "line feeds": "\n",
    "letters": "a",
    "words": "ab ",
    "different words": "",
    "names": "Ada Byron and ",
    "digits": "1",
    "numbers": "1.5,",
    "dots": ".",
    "sentences": "I like tea. ",
    "dashes": "-",
    "a table's rule": "|-",
    "parentheses": "(",
    "calls": "f(",
    "colons": "a:",
    "slashes": "a/",
    "addresses": "http://a.b/c?d=e&",
    "mail": "a@",
    "underscores": "a_",
    "percent": "%41",
    "ampersands": "&",
    "entities": "&#x41",
    "fences": "```\n",
    "ticks": "`",
    "headings": "# a\n",
    "quoted lines": "> a\n",
    "items": "- a\n",
    "diff": "--- a\n+++ b\n@@ -1 +1 @@\n",
    "ideographs": "我喜欢",
    "marks": "a\u0301",
    "zero width": "\u200b",
    "dates": "on monday the 3rd ",
    "thoughts": "<think>",
    "Harmony": "<|start|>",
    "text calls": "<function=a>",
    "log lines": "2026-01-01 10:00:00 ERROR a=1 b=2\n",
}


def repeat(unit: str, size: int) -> str:
    """The unit again and again, up to so many characters."""
    return (unit * (size // len(unit) + 1))[:size]


SHAPES: dict[str, Callable[[int], str]] = {
    **{name: partial(repeat, unit) for name, unit in _UNITS.items() if unit},
    "different words": lambda size: " ".join(f"w{number}" for number in range(size // 6 + 1))[:size],
    "different lines": lambda size: "\n".join(f"w{number}" for number in range(size // 6 + 1))[:size],
    "a page of comments": lambda size: "<html>" + ("<!--" * (size // 4 + 1))[:size],
    "a page of attributes": lambda size: "<html>" + ("<a b='" * (size // 6 + 1))[:size],
    "staircase": lambda size: "\n".join("1 " * number for number in range(int(size**0.5))),
}


def work_s(read: Read, text: str, *, times: int) -> float:
    """The least processor time of this thread for one call, of so many."""
    best = float("inf")
    for _ in range(times):
        begin = time.thread_time()
        read(text)
        best = min(best, time.thread_time() - begin)
    return best


def growth(
    read: Read, shape: Callable[[int], str], sizes: tuple[int, ...], *, factor: float, floor_s: float
) -> str | None:
    """What of a function's work grows by more than `factor` from one size to the next, which is four times it.

    None: nothing, or not above the floor, below which a measure says nothing.
    """
    if work_s(read, shape(sizes[-1]), times=1) <= floor_s:
        return None
    before = work_s(read, shape(sizes[0]), times=1)
    for size in sizes[1:]:
        text = shape(size)
        now = work_s(read, text, times=1)
        if now > max(floor_s, factor * before):
            before = work_s(read, shape(size // 4), times=3)
            now = work_s(read, text, times=2)
            if now > max(floor_s, factor * before):
                return f"{size:,} characters: {now * 1000:.0f} ms, a quarter of it {before * 1000:.1f} ms"
        before = now
    return None
