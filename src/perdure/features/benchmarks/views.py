"""The result of a run as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from perdure.cli.views.context import cost
from perdure.cli.views.view import new_table, plural


def result_view(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the title, the figures of each system or search, and how far the judge can be trusted."""
    data = result["data"]
    yield Text(f"{result['title']}: {plural(data['questions'], 'question')} of {data['file']}", style="bold")
    if "search" in result:
        yield from map(_search_view, result["search"])
        return
    numbers = ("questions", "score", "95 %", "exact", "F1")
    table = new_table("system", "kind", *numbers, right=numbers)
    for system in result["systems"]:
        for kind, one in system["kinds"].items():
            shares = [_percent(one["score"]), f"{_percent(one['low'])}-{_percent(one['high'])}"]
            words = [_percent(one["exact"]), _percent(one["f1"])]
            table.add_row(system["name"], kind, f"{one['questions']:,}", *shares, *words)
    yield table
    columns = ("answers", "failed", "tokens an answer", "price", "of a right one", "median s")
    table = new_table("system", *columns, right=columns)
    for system in result["systems"]:
        time = f"{system['latency_s']['median']:.2f}" if system["latency_s"] else "–"
        counts = [f"{system['answers']:,}", f"{system['failed']:,}", f"{system['tokens_per_answer']:,.0f}"]
        table.add_row(system["name"], *counts, cost(system["price"]), cost(system["price_per_right"]), time)
    yield table
    if "facts" in result:
        took = result["facts"]
        calls = f"{plural(took['requests'], 'request')}, {took['tokens']:,} tokens, {cost(took['price'])}"
        yield Text(f"Perdure read {plural(took['facts'], 'fact')} from the histories: {calls}.", style="dim")
    judging = result["judging"]
    if judging["wrong_answers"]:
        share = f"{_percent(judging['error_rate'])} % of {plural(judging['wrong_answers'], 'wrong answer')}"
        refused = f"{_percent(judging['refused_rate'])} % of {plural(judging['right_answers'], 'right one')}"
        yield Text(f"The judge {result['judge']} took {share} for right, and {refused} for wrong.", style="dim")


def _search_view(found: Mapping[str, Any]) -> RenderableType:
    """Return what one search found."""
    columns = [name for name in found["kinds"]["all"] if name != "questions"]
    table = new_table(f"found by {found['name']}", "questions", *columns, right=("questions", *columns))
    for kind, one in found["kinds"].items():
        table.add_row(kind, f"{one['questions']:,}", *(_percent(one.get(name)) for name in columns))
    return table


def _percent(share: float | None) -> str:
    """Return a share in percent."""
    return "–" if share is None else f"{100 * share:.1f}"
