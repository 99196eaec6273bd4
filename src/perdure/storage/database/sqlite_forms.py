"""Statements, runs of numbers and rows of the full-text index in the form that SQLite takes."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RUN_BITS = 12

_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


@functools.lru_cache(maxsize=1024)
def positional(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The statement with `?1`, `?2`, ... for its names, and a function that returns their values in order.

    `sqlite3` looks each name up at every execution, and releases the interpreter lock each time.
    """
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    statement = _PARAMETER.sub(lambda match: f"?{names.index(match[1]) + 1}", sql)
    match names:
        case []:
            return statement, lambda params: ()
        case [name]:
            return statement, lambda params: (params[name],)
        case _:
            return statement, operator.itemgetter(*names)


def pack_runs(numbers: Sequence[int]) -> list[int]:
    """Runs of consecutive numbers: each as its first number and, in the lowest `RUN_BITS`, how many follow it."""
    runs: list[int] = []
    last = most = -2
    for number in sorted(set(numbers)):
        if number == last + 1 and number < most:
            runs[-1] += 1
        else:
            runs.append(number << RUN_BITS)
            most = number + (1 << RUN_BITS)
        last = number
    return runs


def word_rows(number: int, rows: Sequence[tuple[int, str, str]]) -> list[dict[str, Any]]:
    """The parameters of rows (sequence number, labels, words) of the full-text index."""
    return [
        {"rowid": number << 32 | seq, "scope": f"s{number} {label}".rstrip(), "words": words}
        for seq, label, words in rows
    ]


def column_lengths(sizes: bytes) -> list[int]:
    """Decode FTS5's column `sz`: integers of seven bits per byte, highest first, all but the last with the top bit."""
    lengths, number = [], 0
    for byte in sizes:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            lengths.append(number)
            number = 0
    return lengths
