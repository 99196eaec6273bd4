"""What an import did, or would do, as lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.text.reprs import plural
from perdure.features.imports.common.values import ImportReport, ItemCount


def report_lines(report: ImportReport, *, done: bool = False) -> Sequence[str]:
    """Return a line for each kind of things, and for each reason why some are left out."""
    new = "imported" if done else "new"
    lines = [f"Agent {name!r}{'' if id_ else ' (is made)'}" for name, id_ in report.agents.items()]
    for kind in ("conversation", "message", "memory"):
        count: ItemCount = getattr(report, f"{kind[:-1]}ies" if kind == "memory" else f"{kind}s")
        if count.total:
            total = plural(count.total, kind, "memories") if kind == "memory" else plural(count.total, kind)
            lines.append(f"{total}: {count.new:,} {new}, {count.already:,} here already")
    if report.withdrawn:
        lines.append(f"Taken out: {plural(report.withdrawn, 'message')} of a branch that the source has left")
    if report.changed:
        lines.append(
            f"Changed: {plural(report.changed, 'text or title', 'texts and titles')} that are others at the source"
        )
    lines += [f"Left out: {count:,} {why}" for why, count in report.left_out.items()]
    return lines


def nothing_line(report: ImportReport) -> str:
    """Say why there is nothing to do."""
    if report.total or report.conversations.total:
        return "Everything is here already"
    return "There is nothing in it that can be imported"
