"""A plan as lines for people, with the differences of texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from perdure.core.text.line_diff import unified_diff
from perdure.core.text.reprs import plural
from perdure.features.manifests.values import KINDS, Change, FieldChange, Plan, is_member

_SIGNS = {"create": "+", "change": "~", "restore": "+", "remove": "-"}
_DONE = {"create": "made", "change": "changed", "restore": "restored", "remove": "removed"}
VALUE_CHARS = 200
DIFF_LINES = 60


def plan_lines(plan: Plan) -> Sequence[str]:
    """Return a line for each thing that changes, each with its fields."""
    lines = [line for change in plan.changes for line in _change_lines(change)]
    lines += [f"  {KINDS[kind]} {name!r} is in the files no more; --prune removes it" for kind, name in plan.left]
    waits = "has to be read before agents get its tools: `apply` does that"
    return lines + [f"  MCP server {name!r} {waits}" for name in plan.waiting]


def summary_line(plan: Plan, *, done: bool) -> str:
    """Return how many things change, or have changed."""
    things = plural(plan.total, "thing")
    counts = [f"{plan.count(action)} {word}" for action, word in _DONE.items() if plan.count(action)]  # type: ignore[arg-type]
    if not counts:
        return f"Nothing to change: {things} {'is' if plan.total == 1 else 'are'} as the files say."
    return f"{', '.join(counts)}, of {things}." if done else f"Plan: {', '.join(counts)}."


def plan_shape(plan: Plan) -> dict[str, Any]:
    """Return a plan for programs."""
    return asdict(plan) | {"digest": plan.digest}


def _change_lines(change: Change) -> Iterator[str]:
    """Yield the lines about one thing."""
    note = f" ({change.note})" if change.note else ""
    yield f"{_SIGNS[change.action]} {KINDS[change.kind]} {change.name!r} is {_DONE[change.action]}{note}"
    for field in change.fields:
        yield from _field_lines(field, is_new=change.action == "create")


def _field_lines(change: FieldChange, *, is_new: bool) -> Iterator[str]:
    """Yield the lines about one field."""
    drift = " [changed here since the last apply]" if change.drifted else ""
    before, after = change.before, change.after
    if is_member(change.path):
        yield f"    {'-' if after is None else '+'} {change.path}{drift}"
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        yield f"    {change.path}:{drift}"
        lines = unified_diff(before, after).split("\n")
        yield from (f"      {line}" for line in lines[:DIFF_LINES])
        if len(lines) > DIFF_LINES:
            yield f"      … {len(lines) - DIFF_LINES:,} more lines"
    elif is_new:
        yield f"    {change.path}: {_one_line(after)}"
    else:
        yield f"    {change.path}: {_one_line(before)} → {_one_line(after)}{drift}"


def _one_line(value: Any) -> str:
    """Return a value on one line, shortened if it is long."""
    text = "none" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}… ({len(text):,} characters)"
