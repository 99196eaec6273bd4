"""What two people changed at once: of a text what both began with, what each of them wrote, and a merge of the two; of
a form's fields those that somebody else changed since the form was filled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import Conflict
from perdure.core.text.json_strings import json_object
from perdure.core.text.line_diff import merge_lines, unified_diff

MARKS = ("yours", "saved meanwhile")
"""What the marks in a merged text call the two forms of a line that both have changed."""
TEXTS = frozenset({"value", "text", "description", "system", "long", "lines", "json"})
"""Fields, and kinds of fields, that hold a text of several lines. Of all others one value is chosen."""
WAS = "was"
"""The field of a form with what it was filled with, as JSON."""


class FormConflict(Conflict):
    """Somebody else has saved the fields that a form changes. `choice`: data of `_conflict.html`; its `fields` come
    from `three_ways`, `hidden` is what else the form sends; `keeps_more`: it changes further fields."""

    def __init__(
        self,
        what: Sequence[str],
        fields: Sequence[Mapping[str, Any]],
        hidden: Mapping[str, str],
        *,
        who: str = "Somebody else saved this",
        keeps_more: bool = False,
    ) -> None:
        named = f"{' and '.join(what)} {'was' if len(what) == 1 else 'were'}"
        named = named[:1].upper() + named[1:]
        super().__init__(f"{named} changed while you were writing: choose what to keep.")
        title = f"{named} changed while you were writing"
        self.choice = {"title": title, "who": who, "fields": fields, "hidden": hidden, "keeps_more": keeps_more}


def three_ways(name: str, label: str, *, base: str, theirs: str, mine: str) -> dict[str, Any]:
    """Return a field for `_conflict.html`: both texts, their differences from `base`, and for a text of several lines
    the merged one, with whether the merge had no conflict."""
    merged = merge_lines(base, mine, theirs, names=MARKS)
    return {
        **{"name": name, "label": label, "is_text": not TEXTS.isdisjoint((name, name.partition(":")[0]))},
        **{"base": base, "theirs": theirs, "mine": mine, "merged": merged.text, "is_clean": merged.is_clean},
        **{"their_diff": unified_diff(base, theirs), "my_diff": unified_diff(base, mine)},
    }


NO_LABELS: Mapping[str, str] = {}


def changed_fields(form: Mapping[str, str], now: Mapping[str, str], labels: Mapping[str, str] = NO_LABELS) -> set[str]:
    """Return the fields of `now` (the current values) that the sender of a form has changed; all, if the form has no
    `was`. `labels`: field -> its name for people. Raises: FormConflict: somebody else changed some of them too."""
    was = json_object(form.get(WAS, "{}")) or {}
    changed = [name for name in now if name in form and form[name] != was.get(name)]
    lost = [name for name in changed if was.get(name) is not None and now[name] not in (was[name], form[name])]
    if lost:
        called = [labels.get(name, name) for name in lost]
        fields = [
            three_ways(name, label, base=str(was[name]), theirs=now[name], mine=form[name])
            for name, label in zip(lost, called, strict=True)
        ]
        hidden = {name: text for name, text in form.items() if name not in lost}
        hidden[WAS] = json.dumps({**was, **{name: now[name] for name in lost}})
        raise FormConflict(called, fields, hidden, keeps_more=len(changed) > len(lost))
    return set(changed)
