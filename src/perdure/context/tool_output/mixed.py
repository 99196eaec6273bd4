"""Output of several parts: JSON between other lines. Each part is compressed as its own kind.

@ json-0 3
@ text 12
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from perdure.context.tool_output.constants import PART_CHARS
from perdure.context.tool_output.family import Family
from perdure.context.tool_output.json_document import JsonFamily
from perdure.context.tool_output.json_style import find_style, write_style
from perdure.context.tool_output.shorten import Room

VAIN_SHARE = 4


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines; `style`: how they are written as JSON, None: they are no JSON."""

    text: str
    style: int | None


def find_parts(text: str) -> list[Part]:
    """Part a text into its long JSON values and what stands between them."""
    decoder = json.JSONDecoder()
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    at_start = {start: number for number, start in enumerate(starts)}
    parts: list[Part] = []
    plain = number = 0
    # A value that does not end is read to the end of the text, and then again from the next line: only so much in vain.
    left = VAIN_SHARE * len(text)
    while number < len(lines):
        found = None
        if left > 0 and lines[number][:1] in ("{", "["):
            value, end = None, 0
            try:
                value, end = decoder.raw_decode(text, starts[number])
            except json.JSONDecodeError as error:
                left -= error.pos - starts[number]
            except (ValueError, RecursionError):
                left -= len(text)
            if end - starts[number] >= PART_CHARS and end + 1 in at_start:
                style = find_style(value, text[starts[number] : end])
                found = None if style is None else Part(text[starts[number] : end], style)
        if found is None:
            number += 1
            continue
        if plain < number:
            parts.append(Part("\n".join(lines[plain:number]), None))
        parts.append(found)
        number = plain = at_start[starts[number] + len(found.text) + 1]
    if plain < len(lines):
        parts.append(Part("\n".join(lines[plain:]), None))
    return parts


class MixedFamily(Family):
    """Parts of several kinds: JSON, and what is compressed as a string of JSON is."""

    name = "mixed"
    note = "the parts of the output, one after the other; @n stands for the table or text below"

    def __init__(self, json_family: JsonFamily) -> None:
        self._json = json_family

    def parse(self, text: str) -> list[Part] | None:
        parts = find_parts(text)
        return parts if len(parts) > 1 else None

    def encode(self, parsed: list[Part]) -> str | None:
        lines: list[str] = []
        for part in parsed:
            body, kind = None, "text"
            if part.style is not None and (document := self._json.parse(part.text)) is not None:
                document.keep_order = True
                body, kind = self._json.encode(document), f"json-{part.style}"
            body = self._json.write_text(part.text) if body is None else body
            lines += [f"@ {kind} {body.count(chr(10)) + 1}", body]
        return "\n".join(lines)

    def decode(self, body: str) -> str:
        lines = iter(body.split("\n"))
        out = []
        for line in lines:
            _, kind, count = line.split(" ")
            part = "\n".join([next(lines) for _ in range(int(count))])
            if kind == "text":
                out.append(self._json.read_text(part))
            else:
                out.append(write_style(self._json.decode(part), int(kind.removeprefix("json-"))))
        return "\n".join(out)

    def shorten(self, parsed: list[Part], room: Room) -> str | None:
        total = sum(len(part.text) for part in parsed) + 1
        lines: list[str] = []
        for part in parsed:
            share = room.part(len(part.text) / total)
            document = None if part.style is None else self._json.parse(part.text)
            short = None if document is None else self._json.shorten(document, share)
            lines.append(self._json.shorten_text(part.text, share) if short is None else short)
        return "\n".join(lines)
