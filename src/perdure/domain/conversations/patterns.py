"""Regular expressions that a model wrote: compiled within limits, searched under a deadline.

The only place that looks at a clock inside a unit of work: a pattern may take for ever, and nothing but time tells.
What the clock decides is only where an answer stops, and it says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.core.errors import ToolError

__all__ = ["Match", "PatternSlow", "Search"]

SEARCH_S = 0.5  # of one call, all its rows together: the store's one writer waits meanwhile
PATTERN_CHARS = 500
REPEATS_MAX = 10_000  # `a{1000000000}` is unrolled when compiled: gigabytes

_LEAST_COUNT = re.compile(r"(?s)(?P<group>^|.)\{\s*(?P<least>\d+)\s*(?:,\s*\d*\s*)?\}", re.ASCII)
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d+|&|P>)")  # its stack grows by hundreds of megabytes before the time is up
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x", re.ASCII)  # digits of a count may then stand apart


class PatternSlow(Exception):
    """The time of the call is up."""


@dataclass(frozen=True, slots=True)
class Match:
    """The first match in a line, from 1; `start` and `end` count the line's characters, from 0."""

    line: int
    start: int
    end: int


class Search:
    """A pattern, and the time that a call may spend on it. Raises: ToolError: it is none, or too large."""

    def __init__(self, pattern: str) -> None:
        _check(pattern)
        import regex  # 20 ms, for whoever gives a pattern

        try:
            self._pattern = regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
        except regex.error as error:
            where = "" if error.pos is None else f" at character {error.pos + 1}"
            raise ToolError(
                f"the pattern is no regular expression: {error.msg}{where}."
                " To find such characters as they are, put a backslash before each of ( ) [ ] { } . * + ? | ^ $ \\"
            ) from error
        except (RecursionError, OverflowError, MemoryError, ValueError, KeyError, IndexError) as error:
            raise ToolError(f"the pattern can't be used ({type(error).__name__}): use a simpler one") from error
        self._until: float | None = None

    @property
    def over(self) -> bool:
        return self._left() <= 0

    def _left(self) -> float:
        """Seconds; counted from the first search, not from the reading before it."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + SEARCH_S
        return self._until - now

    def matches(self, text: str, *, first_line: int = 1) -> Iterator[Match]:
        """One match for each line that has one, in order. Raises: PatternSlow."""
        at, line, line_at = 0, first_line, 0
        while (found := self._find(text, at)) is not None:
            start, end = found
            line += text.count("\n", line_at, start)
            line_at = text.rfind("\n", 0, start) + 1
            line_end = text.find("\n", start)
            stop = len(text) if line_end < 0 else line_end
            yield Match(line, start - line_at, min(end, stop) - line_at)
            if line_end < 0:
                return
            at = line_end + 1

    def has(self, text: str) -> bool:
        """Raises: PatternSlow."""
        return self._find(text, 0) is not None

    def _find(self, text: str, at: int) -> tuple[int, int] | None:
        left = self._left()
        if left <= 0:
            raise PatternSlow
        try:
            found = self._pattern.search(text, at, timeout=left, concurrent=True)
        except TimeoutError as error:
            raise PatternSlow from error
        except (RecursionError, MemoryError) as error:
            raise ToolError("the pattern needs too much memory: use a simpler one") from error
        return None if found is None else (found.start(), found.end())


def _check(pattern: str) -> None:
    if not pattern:
        raise ToolError("the pattern is empty: give a regular expression, such as a word")
    if len(pattern) > PATTERN_CHARS:
        raise ToolError(f"the pattern has {len(pattern):,} characters, the limit is {PATTERN_CHARS}: use a shorter one")
    if _RECURSION.search(pattern) or _VERBOSE.search(pattern):
        raise ToolError("patterns with recursion, (?R), (?1) or (?&name), or with (?x) can't be used: write it out")
    # An upper bound without parsing: counts after a group may stand one within the other, those after a character not.
    nested, single = 1, len(pattern)
    for found in _LEAST_COUNT.finditer(pattern):
        least = int(found["least"])
        if found["group"] == ")":
            nested *= max(1, least)
        else:
            single += least
    if nested * single > REPEATS_MAX:
        raise ToolError("the pattern repeats too often, as a{100000} does: use smaller counts, or * and +")
