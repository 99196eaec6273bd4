"""Regular expressions from models: compiled within limits, searched under a deadline.

The only unit of work that reads a clock, because a pattern may run for ever. The clock decides only where an answer
stops, and the answer says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.core.errors import ToolError
from perdure.core.text.forms import name_form

SEARCH_S = 0.5  # of one call, all its rows together: the store's one writer waits meanwhile
PATTERN_CHARS = 500
REPEATS_MAX = 10_000  # `a{1000000000}` is unrolled when compiled: gigabytes

_LEAST_COUNT = re.compile(r"(?s)(?P<group>^|.)\{\s*(?P<least>\d+)\s*(?:,\s*\d*\s*)?\}", re.ASCII)
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d+|&|P>)")  # its stack grows by hundreds of megabytes before the time is up
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x", re.ASCII)  # digits of a count may then stand apart


class PatternSlow(Exception):
    """The search took longer than `SEARCH_S`, the time of one call."""


@dataclass(frozen=True, slots=True)
class Match:
    """The first match in a line, from 1; `start` and `end` count the line's characters, from 0."""

    line: int
    start: int
    end: int


class Pattern:
    """A regular expression, and the time that one tool call may spend on it. Letters match however their marks are
    written: the indexes of matches are those in the `name_form` of a text.

    Raises: ToolError: the pattern is invalid or too large.
    """

    def __init__(self, pattern: str) -> None:
        _check_pattern(pattern)
        import regex  # takes 20 ms, only for calls with a pattern

        try:
            self._pattern = regex.compile(name_form(pattern), regex.IGNORECASE | regex.MULTILINE)
        except regex.error as error:
            where = "" if error.pos is None else f" at character {error.pos + 1}"
            raise ToolError(
                f"the pattern is not a regular expression: {error.msg}{where}."
                " To find such characters as they are, put a backslash before each of ( ) [ ] { } . * + ? | ^ $ \\"
            ) from error
        except (RecursionError, OverflowError, MemoryError, ValueError, KeyError, IndexError) as error:
            raise ToolError(f"the pattern can't be used ({type(error).__name__}): use a simpler one") from error
        self._until: float | None = None

    @property
    def over(self) -> bool:
        """Whether the time of the call, `SEARCH_S` seconds from its first search on, is up."""
        return self._seconds_left() <= 0

    def _seconds_left(self) -> float:
        """Return the seconds left, counted from the first search."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + SEARCH_S
        return self._until - now

    def matches(self, text: str, *, first_line: int = 1) -> Iterator[Match]:
        """Yield the first match of each line; `first_line`: the number of the first line. Raises: PatternSlow."""
        at, line, line_at, text = 0, first_line, 0, name_form(text)
        while (place := self._find(text, at)) is not None:
            start, end = place
            line += text.count("\n", line_at, start)
            line_at = text.rfind("\n", 0, start) + 1
            line_end = text.find("\n", start)
            stop = len(text) if line_end < 0 else line_end
            yield Match(line, start - line_at, min(end, stop) - line_at)
            if line_end < 0:
                return
            at = line_end + 1

    def has(self, text: str) -> bool:
        """Return whether the text has a match. Raises: PatternSlow."""
        return self._find(name_form(text), 0) is not None

    def _find(self, text: str, at: int) -> tuple[int, int] | None:
        """Return start and end of the first match from offset `at` on. Raises: PatternSlow, ToolError."""
        timeout = self._seconds_left()
        if timeout <= 0:
            raise PatternSlow
        try:
            match = self._pattern.search(text, at, timeout=timeout, concurrent=True)
        except TimeoutError as error:
            raise PatternSlow from error
        except (RecursionError, MemoryError) as error:
            raise ToolError("the pattern needs too much memory: use a simpler one") from error
        return None if match is None else (match.start(), match.end())


def _check_pattern(pattern: str) -> None:
    """Check the size of a pattern. Raises: ToolError."""
    if not pattern:
        raise ToolError("the pattern is empty: give a regular expression, such as a word")
    if len(pattern) > PATTERN_CHARS:
        raise ToolError(f"the pattern has {len(pattern):,} characters, the limit is {PATTERN_CHARS}: use a shorter one")
    if _RECURSION.search(pattern) or _VERBOSE.search(pattern):
        raise ToolError("patterns with recursion, (?R), (?1) or (?&name), or with (?x) can't be used: write it out")
    # An upper bound without parsing: counts after a group may stand one within the other, those after a character not.
    product, single = 1, len(pattern)
    for count in _LEAST_COUNT.finditer(pattern):
        least = int(count["least"])
        if count["group"] == ")":
            product *= max(1, least)
        else:
            single += least
    if product * single > REPEATS_MAX:
        raise ToolError("the pattern repeats too often, as a{100000} does: use smaller counts, or * and +")
