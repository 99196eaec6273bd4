"""The public functions: `compress`, `decode` and `expand`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.context.tool_output.constants import EXPAND_TOKENS
from perdure.context.tool_output.csv_text import CsvFamily
from perdure.context.tool_output.family import Family
from perdure.context.tool_output.html import HtmlFamily
from perdure.context.tool_output.json_document import JsonFamily
from perdure.context.tool_output.lines import LinesFamily
from perdure.context.tool_output.lookup import look_up
from perdure.context.tool_output.mixed import MixedFamily
from perdure.context.tool_output.pipeline import DEFAULT_HANDLE, Compressed, Level, compress_text, decode_text
from perdure.context.tool_output.prose import ProseFamily
from perdure.context.tool_output.search_results import NdjsonFamily, SearchFamily
from perdure.context.tool_output.shorten import Room

# What stands inside another text: no JSON, so that nothing nests without end.
_INNER: tuple[Family, ...] = (NdjsonFamily(), CsvFamily(), SearchFamily(), HtmlFamily(), ProseFamily(), LinesFamily())


def _write_inner(text: str) -> str:
    return compress_text(text, _INNER, level="lossless").text


def _read_inner(text: str) -> str:
    return str(decode_text(text, _INNER))


def _shorten_inner(text: str, room: Room) -> str:
    return compress_text(text, _INNER, budget=room.tokens, handle=room.handle, count=room.count).text


_JSON = JsonFamily(_write_inner, _read_inner, _shorten_inner)
_FAMILIES: tuple[Family, ...] = (
    _JSON,
    _INNER[0],
    MixedFamily(_JSON),
    *_INNER[1:],
)


def compress(
    text: str,
    *,
    level: Level = "full",
    budget: int | None = None,
    handle: str = DEFAULT_HANDLE,
    count: Callable[[str], int] | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Compressed:
    """Return the text in fewer tokens, or as it is; the same text always gives the same bytes.

    Args:
        level: `lossless` keeps everything: `decode` gives it back. `full` also leaves out what is typical, if the
            lossless form is over its budget, and says so in a line with the handle. `off` changes nothing.
        budget: the tokens above which `full` leaves something out; None: a share of the text's own.
        handle: what the line about the omission names as the original.
        count: an estimate of tokens; None: the one for an unknown model.
        is_over: whether the time for it is over: then the best form that was found is returned.
    """
    return compress_text(text, _FAMILIES, level=level, budget=budget, handle=handle, count=count, is_over=is_over)


def decode(text: str) -> Any:
    """Return what a text of level `lossless` was made from: the same text, or the value of a JSON document.

    Raises: ValueError: something was left out of it.
    """
    return decode_text(text, _FAMILIES)


def expand(
    original: Compressed | str,
    *,
    grep: str | None = None,
    lines: str | None = None,
    rows: str | None = None,
    path: str | None = None,
    where: str | None = None,
    query: str | None = None,
    max_tokens: int = EXPAND_TOKENS,
    count: Callable[[str], int] | None = None,
) -> str:
    """Return a part of the original, as much as `max_tokens` allows, and how many pieces there are.

    Args:
        grep: a regular expression; the lines, rows or values that match.
        lines: `120..180`, from 1.
        rows: `3..5`, from 1, of the list at `path`, or of the largest one.
        path: `items[3].status`, in a JSON document.
        where: `status=Pending and restarts>3`; the rows for which all of it holds. `~` means contains.
        query: words; what has the rarest of them comes first.
        count: an estimate of tokens; None: the one for an unknown model.

    Raises: ToolError: an argument can't be used, or there is no such part.
    """
    return look_up(
        original if isinstance(original, str) else original.original,
        grep=grep,
        lines=lines,
        rows=rows,
        path=path,
        where=where,
        query=query,
        max_tokens=max_tokens,
        count=count,
    )
