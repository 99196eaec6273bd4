"""The public functions `compress` and `decode`; and the kinds of text without a module of their own."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.features.compression.constants import BUDGET_FLOOR, PART_CHARS
from perdure.features.compression.html import HtmlFamily
from perdure.features.compression.json_document import STYLES, JsonFamily, find_style
from perdure.features.compression.lines import LinesFamily
from perdure.features.compression.pipeline import DEFAULT_HANDLE, Level, compress_text, decode_text
from perdure.features.compression.search_results import CsvFamily, NdjsonFamily, SearchFamily
from perdure.features.compression.shorten import Compressed, Family, TokenRoom

VAIN_SHARE = 4
"""How many times its length of a text is parsed in vain, where JSON values begin and do not end."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class StyledPart:
    """Some lines of a text. `style` is the number of their JSON style, see `STYLES`; None: they are not JSON."""

    text: str
    style: int | None


def find_parts(text: str) -> list[StyledPart]:
    """Split a text into its long JSON values, each of whole lines, and the lines between them, in order."""
    lines = text.split("\n")
    starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
    at_start = {start: number for number, start in enumerate(starts)}
    parts: list[StyledPart] = []
    plain = number = 0
    # A value that does not end is read to the end of the text, and then again from the next line.
    vain_left = VAIN_SHARE * len(text)
    while number < len(lines):
        found = None
        if vain_left > 0 and lines[number][:1] in ("{", "["):
            value, end, vain = _read_value(text, starts[number])
            vain_left -= vain
            if end - starts[number] >= PART_CHARS and end + 1 in at_start:
                style = find_style(value, text[starts[number] : end])
                found = None if style is None else StyledPart(text[starts[number] : end], style)
        if found is None:
            number += 1
            continue
        if plain < number:
            parts.append(StyledPart("\n".join(lines[plain:number]), None))
        parts.append(found)
        number = plain = at_start[starts[number] + len(found.text) + 1]
    if plain < len(lines):
        parts.append(StyledPart("\n".join(lines[plain:]), None))
    return parts


def _read_value(text: str, start: int) -> tuple[Any, int, int]:
    """Return the JSON value that starts here, its end (0: there is none), and how many characters were read in vain."""
    chars = PART_CHARS
    while True:
        # Up to the end of a line, where no string goes on: an error counts all lines of what is read.
        stop = text.find("\n", start + chars)
        part = text[start:] if stop < 0 else text[start:stop]
        try:
            value, size = _DECODER.raw_decode(part)
            return value, start + size, 0
        except json.JSONDecodeError as error:
            if stop < 0 or error.pos < len(part.rstrip()):
                return None, 0, error.pos
        except (ValueError, RecursionError):
            return None, 0, len(text)
        chars *= 4


@dataclass(frozen=True, slots=True)
class MixedFamily(Family):
    """A text of several parts: JSON values, and other lines, which are compressed as a long string of JSON is."""

    json_family: JsonFamily
    name = "mixed"
    note = "the parts of the output, one after the other; @n stands for the table or text below"

    def parse(self, text: str) -> list[StyledPart] | None:
        """Return the parts of a text; None: there is only one."""
        parts = find_parts(text)
        return parts if len(parts) > 1 else None

    def encode(self, parsed: list[StyledPart]) -> str:
        """Return each part without loss, after a line with its kind and how many lines follow."""
        lines: list[str] = []
        for part in parsed:
            body, kind = None, "text"
            if part.style is not None and (document := self.json_family.parse(part.text)) is not None:
                document.keep_order = True
                body, kind = self.json_family.encode(document), f"json-{part.style}"
            body = self.json_family.write_text(part.text) if body is None else body
            lines += [f"@ {kind} {body.count(chr(10)) + 1}", body]
        return "\n".join(lines)

    def decode(self, body: str) -> str:
        """Return the text of the parts that `encode` wrote."""
        lines = iter(body.split("\n"))
        out = []
        for line in lines:
            _, kind, count = line.split(" ")
            part = "\n".join([next(lines) for _ in range(int(count))])
            if kind == "text":
                out.append(self.json_family.read_text(part))
            else:
                out.append(json.dumps(self.json_family.decode(part), **STYLES[int(kind.removeprefix("json-"))]))
        return "\n".join(out)

    def shorten(self, parsed: list[StyledPart], room: TokenRoom) -> str | None:
        """Return the parts, each shortened to its share of the room; None: a share is too small for a form."""
        total = sum(len(part.text) for part in parsed) + 1
        lines: list[str] = []
        for part in parsed:
            share = room.part(len(part.text) / total)
            if share.tokens < BUDGET_FLOOR and room.count(part.text) > share.tokens:
                return None
            document = None if part.style is None else self.json_family.parse(part.text)
            short = None if document is None else self.json_family.shorten(document, share)
            lines.append(self.json_family.shorten_text(part.text, share) if short is None else short)
        return "\n".join(lines)


_DIFF = re.compile(r"(?m)^(?:diff --git |--- \S|@@ -\d+)")
_CODE = re.compile(
    r"(?m)^[^\S\n]*(?:def |class |async def |import |from \S+ import |function |export |const |func |fn |pub |package "
    r"|#include |public |private |struct |impl |type \w+ |interface |module )"
)


class ProseFamily(Family):
    """Source, diffs and Markdown: they have no lossless form, and are shortened by their outline."""

    name = "outline"
    repeats = False

    def parse(self, text: str) -> str | None:
        """Return the text if it has at least 20 lines and is source code, a diff or Markdown; else None."""
        lines = text.count("\n") + 1
        is_code = len(_CODE.findall(text)) * 12 >= lines
        is_prose = is_code or len(_DIFF.findall(text)) >= 3 or text.count("\n#") + text.startswith("#") >= 3
        return text if lines >= 20 and is_prose else None


# The kinds of texts inside other texts: JSON is not one, so that nothing nests without end.
_INNER: tuple[Family, ...] = (NdjsonFamily(), CsvFamily(), SearchFamily(), HtmlFamily(), ProseFamily(), LinesFamily())


_JSON = JsonFamily(
    write_text=lambda text: compress_text(text, _INNER, level="lossless").text,
    read_text=lambda text: str(decode_text(text, _INNER)),
    shorten_text=lambda text, room: (
        compress_text(text, _INNER, budget=room.tokens, handle=room.handle, count=room.count).text
    ),
)
_FAMILIES: tuple[Family, ...] = (_JSON, _INNER[0], MixedFamily(_JSON), *_INNER[1:])


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
        count: estimates the tokens of a text; None: as for an unknown model.
        is_over: returns whether the time is over: then the best form that was found so far is returned.
    """
    return compress_text(text, _FAMILIES, level=level, budget=budget, handle=handle, count=count, is_over=is_over)


def decode(text: str) -> Any:
    """Return what a text of level `lossless` was made from: the same text, or the value of a JSON document.

    Raises: ValueError: something was left out of it.
    """
    return decode_text(text, _FAMILIES)
