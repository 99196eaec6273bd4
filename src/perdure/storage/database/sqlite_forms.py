"""How statements, runs of numbers and rows of the full-text index are written for SQLite, and read again."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["RUN_BITS", "column_lengths", "numbered", "runs_of", "word_rows"]

RUN_BITS = 12

_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


@functools.lru_cache(maxsize=1024)
def numbered(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The statement with `?1` for the first `:name` and so on, and what takes its values out of the parameters.

    `sqlite3` asks SQLite for each name anew at every execution and lets go of the interpreter lock each time.
    """
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    statement = _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", sql)
    match names:
        case []:
            return statement, lambda params: ()
        case [name]:
            return statement, lambda params: (params[name],)
        case _:
            return statement, operator.itemgetter(*names)


def runs_of(numbers: Sequence[int]) -> list[int]:
    """Runs of numbers that follow each other, each as its first one and, in the last `RUN_BITS`, how many follow it."""
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
    """The numbers in a `sz` of FTS5: seven bits in each byte, the first one highest, all but the last marked."""
    found, number = [], 0
    for byte in sizes:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(number)
            number = 0
    return found
