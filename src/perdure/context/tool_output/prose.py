"""Source code, diffs and Markdown: read as text, so shortened only when they are very long."""

from __future__ import annotations

import re

from perdure.context.tool_output.family import Family

_DIFF = re.compile(r"(?m)^(?:diff --git |--- \S|@@ -\d+)")
_CODE = re.compile(
    r"(?m)^[^\S\n]*(?:def |class |async def |import |from \S+ import |function |export |const |func |fn |pub |package "
    r"|#include |public |private |struct |impl |type \w+ |interface |module )"
)


class ProseFamily(Family):
    name = "outline"
    repeats = False

    def parse(self, text: str) -> str | None:
        lines = text.count("\n") + 1
        is_code = len(_CODE.findall(text)) * 12 >= lines
        is_prose = is_code or len(_DIFF.findall(text)) >= 3 or text.count("\n#") + text.startswith("#") >= 3
        return text if lines >= 20 and is_prose else None
