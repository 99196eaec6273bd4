"""Lines of a search (`path:line:text`), grouped by file."""

from __future__ import annotations

import re
from typing import Any

from perdure.context.tool_output.constants import SURE_SHARE
from perdure.context.tool_output.shorten import Room

_HIT = re.compile(r"(?P<path>[^\s:]+):(?P<rest>\d+[:-].*)")


class SearchFamily:
    name = "search"
    note = "the lines below `= path` are of that file"
    repeats = True
    sure_share = SURE_SHARE

    def parse(self, text: str) -> Any | None:
        lines = text.split("\n")
        hits = [_HIT.fullmatch(line) for line in lines]
        found = sum(hit is not None for hit in hits)
        if found < 5 or found < 0.6 * len(lines) or any(line.startswith("= ") for line in lines):
            return None
        return lines, hits

    def encode(self, parsed: Any) -> str | None:
        out, path = [], None
        for line, hit in zip(*parsed, strict=True):
            if hit is None:
                if path is not None:
                    out.append("= ")
                path = None
                out.append(line)
                continue
            if hit["path"] != path:
                path = hit["path"]
                out.append(f"= {path}")
            out.append(hit["rest"])
        return "\n".join(out)

    def decode(self, body: str) -> Any:
        out, path = [], ""
        for line in body.split("\n"):
            if line.startswith("= "):
                path = line[2:]
            else:
                out.append(f"{path}:{line}" if path else line)
        return "\n".join(out)

    def equals(self, text: str, parsed: Any, decoded: Any) -> bool:
        return bool(text == decoded)

    def shorten(self, parsed: Any, room: Room) -> str | None:
        return None
