"""What the runs on the page of runs cost, by agent and by day, as bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC

from starlette.requests import Request

from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Section

BARS_MAX = 10


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """Bars for each agent, the dearest first, and for each day, the newest first; none if nothing has a price."""
    del library
    priced = [run for run in request.state.shown_runs if run["cost"]]
    if not priced:
        return []
    agents, days = defaultdict[str, float](float), defaultdict[str, float](float)
    for run in priced:
        agents[run["agent"]] += run["cost"]
        days[run["created_at"].astimezone(UTC).date().isoformat()] += run["cost"]
    return [
        {"title": "Cost by agent", "bars": _bars(sorted(agents.items(), key=lambda one: -one[1]))},
        {"title": "Cost by day", "bars": _bars(sorted(days.items(), reverse=True))},
    ]


def _bars(values: Sequence[tuple[str, float]]) -> list[Data]:
    """The first bars, each with its width in thousandths of the widest."""
    shown = values[:BARS_MAX]
    most = max(cost for _, cost in shown)
    return [{"name": name, "cost": cost, "width": max(1_000 * cost / most, 2)} for name, cost in shown]


SECTION = Section(name="cost_bars", load=load, actions={})
