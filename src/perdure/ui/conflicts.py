"""What two people changed at once: of a text what both began with, what each of them wrote, and a merge of the two; of
a form's field whether somebody else changed it since the form was filled."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perdure.core.errors import Conflict
from perdure.core.text.line_diff import merge_lines, unified_diff
from perdure.ui.render import Data

MARKS = ("yours", "saved meanwhile")
"""What the marks in a merged text call the two forms of a line that both have changed."""


def three_ways(base: str, theirs: str, mine: str, *, version: int) -> Data:
    """The data of `_conflict.html`: both texts as differences from `base`, and the merged text with whether every place
    of it is certain. `version` is that of `theirs`, against which the next save goes."""
    merged = merge_lines(base, mine, theirs, names=MARKS)
    return {
        "base": base,
        "theirs": unified_diff(base, theirs),
        "mine": unified_diff(base, mine),
        "mine_text": mine,
        "merged": merged.text,
        "is_clean": merged.is_clean,
        "version": version,
    }


WAS = "was"
"""The field of a form with what it was filled with, as JSON."""


def changed_fields(form: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """The fields of a form that whoever sent it has changed, of those in `now`, which has what they would be filled
    with now; all, if the form has no `was`. Raises: Conflict: somebody else changed one of them too."""
    try:
        was = json.loads(form.get(WAS, "{}"))
    except ValueError:
        was = {}
    found = set[str]()
    for name in form.keys() & now.keys():
        before = was.get(name) if isinstance(was, Mapping) else None
        if form[name] == before:
            continue
        if before is not None and now[name] not in (before, form[name]):
            shown = f"to {now[name]!r:.200}" if now[name] else "to nothing"
            raise Conflict(
                f"{name.rpartition(':')[2]} was changed in the meantime, {shown}: reload the page, and change it again"
            )
        found.add(name)
    return found
