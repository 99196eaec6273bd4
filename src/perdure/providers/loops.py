"""Answers that repeat themselves: small models write the same words again and again until something stops them."""

from __future__ import annotations

import re

LOOP_BYTES, LOOP_TIMES = 800, 5
"""The end of an answer is a loop if it repeats a text at least so often, and is at least so long."""

READ_BYTES, CODE_BYTES = 4_000, 20_000
"""The least bytes of a loop in what a person reads, who may want a line fifty times; and in a code fence of that."""

UNIT_BYTES = 1_500
"""The longest text whose repetition is looked for."""

LOOK_CHARS = 200
"""After so many new characters an answer is looked at again."""

_TAIL_CHARS = CODE_BYTES + UNIT_BYTES
_FENCE = "```"
_NEEDLE_BYTES = 40
_SENTENCE_END = re.compile(r"[.!?…。！？]*")
_NUMBER = re.compile(r"(?m)^[ \t]*\d+(?=[.):] )")


def loop_start(text: str, loop_bytes: int = LOOP_BYTES) -> int | None:
    """Return the index at which a text begins to repeat itself to its end; None: it does not. Repetitions shorter than
    `loop_bytes` (UTF-8) don't count; the numbers of a list don't make its items different."""
    data = _NUMBER.sub(lambda number: "#" * len(number[0]), text).encode("utf-8", "surrogatepass")
    if len(data) < loop_bytes:
        return None
    needle, found = data[-_NEEDLE_BYTES:], len(data) - _NEEDLE_BYTES
    while (found := data.rfind(needle, 0, found + _NEEDLE_BYTES - 1)) >= 0:
        unit = len(data) - _NEEDLE_BYTES - found
        if unit > UNIT_BYTES:
            return None
        start = len(data) - max(loop_bytes, LOOP_TIMES * unit)
        if start >= 0 and data[start + unit :] == data[start : len(data) - unit]:
            while start > 0 and data[start - 1] == data[start - 1 + unit]:
                start -= 1
            cut = len(data[: start + unit].decode("utf-8", "ignore"))
            end = _SENTENCE_END.match(text, cut)
            return cut if end is None else end.end()
    return None


class LoopWatch:
    """Looks for loops in an answer as it comes, in each kind of pieces. `is_read`: by a person, then longer ones."""

    def __init__(self, *, is_read: bool = False) -> None:
        self._is_read = is_read
        self._tails: dict[str, str] = {}
        self._new: dict[str, int] = {}
        self._in_code: dict[str, bool] = {}

    def sees_loop(self, kind: str, text: str) -> bool:
        """Take in a piece of a kind, such as "reasoning"; return whether what came of that kind ends in a loop."""
        self._tails[kind] = (self._tails.get(kind, "") + text)[-_TAIL_CHARS:]
        self._new[kind] = self._new.get(kind, 0) + len(text)
        if self._new[kind] < LOOK_CHARS:
            return False
        fences = self._tails[kind][-self._new[kind] - len(_FENCE) + 1 :].count(_FENCE)
        in_code = self._in_code[kind] = self._in_code.get(kind, False) ^ (fences % 2 == 1)
        self._new[kind] = 0
        is_read = self._is_read and kind != "reasoning"
        loop_bytes = LOOP_BYTES if not is_read else CODE_BYTES if in_code else READ_BYTES
        return loop_start(self._tails[kind], loop_bytes) is not None
