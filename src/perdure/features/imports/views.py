"""What an import did, or would do, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.core.text.reprs import plural
from perdure.features.imports.common.values import ImportReport, ItemCount
from perdure.features.imports.letta.values import LettaReport


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


NAMES_SHOWN = 20
_ONE = {"identities": "identity"}


def server_lines(report: LettaReport, *, done: bool = False) -> Sequence[str]:
    """Return a line for each kind of things, for what is left out and why, and for what a person has to do."""
    lines = [f"Server {report.server}"]
    for kind, count in report.counts.items():
        if count.total:
            new = "imported" if done else "new"
            name = kind if count.total > 1 else _ONE.get(kind, kind[:-1])
            lines.append(f"{count.total:,} {name}: {count.new:,} {new}, {count.already:,} here already")
    several = [name for name, count in Counter(name for name, _ in report.agents).items() if count > 1]
    lines += [f"Several agents are called {name!r}: name them by their ids" for name in several]
    lines += [f"Left out: {count:,} {why}" for why, count in report.left_out.items()]
    lines += _names("Not copied, to be set anew", report.secrets)
    lines += _names("Disabled until you have read their code (`perdure tool review`)", report.to_review)
    return lines


def _names(what: str, names: Sequence[str]) -> Sequence[str]:
    """Return a line with the first names and the number of the rest; empty without names."""
    if not names:
        return []
    more = f", and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return [f"{what}: {', '.join(names[:NAMES_SHOWN])}{more}"]
