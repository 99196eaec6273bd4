"""Context: the exact next request of an agent by its parts, its past requests, and the difference of two."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from starlette.requests import Request

from perdure.context.request.explain import Prices
from perdure.context.request.explain import diff as compare
from perdure.context.request.overview import ContextOverview
from perdure.context.sections.assemble import canonical
from perdure.core.ids import ConversationId, StepId
from perdure.core.nodes import node_handle
from perdure.core.text.reprs import attributes
from perdure.engine.compaction.room import RequestPreview
from perdure.library.perdure import AsyncPerdure
from perdure.library.runs.steps import StepInfo, overview_of, request_of
from perdure.ui.pages.chat import context_shape
from perdure.ui.pages.home import agent_frame
from perdure.ui.render import Data, Pages, agent_of

STEPS_MAX, PLOTTED_MIN = 100, 3
GRID_CELLS, GRID_COLUMNS = 200, 40
LEAVING_CHARS = 200
NEXT = "next"

pages = Pages()


@pages.get("/agents/{agent_id}/context", "context.html")
async def context(request: Request, library: AsyncPerdure) -> Data:
    """Show the window's contents and the newest requests, or the difference of the requests `from` and `to`."""
    own, query = agent_of(request, library), request.query_params
    agent = await library.all_agents.resolve(own.id)
    named, before = query.get("conversation"), query.get("before")
    conversation = await own.find_conversation(ConversationId(named) if named else None)
    before_id = StepId(before) if before else None
    steps = await own.steps(conversation=conversation.id, limit=STEPS_MAX, before=before_id)
    preview = await own.preview(conversation.id)
    old, new = query.get("from"), query.get("to")
    difference = None
    if old and new:
        next_request = request_of(preview)
        requests = [next_request if step == NEXT else await own.request(StepId(step)) for step in (old, new)]
        found = await asyncio.to_thread(compare, *requests)
        difference = {"from": old, "to": new, "text": "\n".join(found.text), "shared_bytes": found.shared_bytes}
    leaving = library.steps.leaving_next(preview)
    amounts = {name: f"{name}_tokens" for name in ("estimated", "budget", "window", "reserve")}
    return agent_frame(agent, "Context", "context") | {
        "conversation_id": conversation.id,
        "context": context_shape(preview) | {"parts": _parts(preview, library.steps.prices_of(agent.model))},
        "grid": _grid(overview_of(preview)),
        "leaving": None
        if leaving is None
        else [attributes(one, "id", "role", at="occurred_at") | {"text": one.text[:LEAVING_CHARS]} for one in leaving],
        "raw": canonical(request_of(preview)).decode("utf-8", "replace") if query.get("raw") else None,
        "deltas": list(preview.deltas),
        "tail": preview.status,
        "nodes": [{"handle": node_handle(node.seq), "text": node.text} for node in preview.nodes],
        "steps": [step_shape(step) for step in steps],
        "plots": plots_of(steps),
        "before": steps[-1].id if len(steps) == STEPS_MAX else None,
        "difference": difference,
        "certificate": attributes(preview.certificate, "overcount", "factor", "tokens", "fits", **amounts),
        "next": NEXT,
    }


def _parts(preview: RequestPreview, prices: Prices) -> list[Data]:
    """The parts of the next request, each with its price where nothing comes from the provider's cache."""
    return [
        attributes(part, "name", "tokens")
        | {"price": prices.input_price(plain=part.tokens, cached=0, written=0) if part.tokens else None}
        for part in overview_of(preview).parts
    ]


def _grid(overview: ContextOverview) -> list[Data]:
    """The window as cells, each with the place of its part: -1 is the answer's reserve, -2 is free."""
    shares: list[tuple[int, str, int]] = [
        (place, part.name, part.tokens) for place, part in enumerate(overview.parts) if part.tokens
    ]
    shares += [(-1, "kept for the answer", overview.reserve_tokens), (-2, "free", overview.free_tokens)]
    whole = max(1, sum(tokens for _, _, tokens in shares))
    cells: list[Data] = []
    end = 0
    for place, name, tokens in shares:
        end += tokens
        count = round(GRID_CELLS * end / whole) - len(cells)
        cells += [{"part": place, "name": name}] * max(int(tokens > 0), count)
    excess = len(cells) - GRID_CELLS  # of parts that take less than a cell and are shown by one
    largest = max(shares, key=lambda share: share[2])[1]
    for _ in range(excess):
        cells.remove({"part": next(place for place, name, _ in shares if name == largest), "name": largest})
    return [cell | {"x": number % GRID_COLUMNS, "y": number // GRID_COLUMNS} for number, cell in enumerate(cells)]


def plots_of(steps: Sequence[StepInfo]) -> list[Data]:
    """Tokens, cost and time of measured model calls, oldest first; no plot of too few or free ones."""
    measured = [step for step in reversed(steps) if step.usage.input_tokens]
    if len(measured) < PLOTTED_MIN:
        return []
    x = [step.created_at.timestamp() for step in measured]
    seconds = [None if one.ended_at is None else (one.ended_at - one.created_at).total_seconds() for one in measured]
    sent = [step.usage.input_tokens for step in measured]
    cached = [step.usage.cached_input_tokens for step in measured]
    plots = [
        plot("Tokens of each request", x, {"sent": sent, "from the cache": cached}),
        plot("Seconds of each request", x, {"seconds": seconds}),
    ]
    prices = [step.price for step in measured]
    return [*plots, *([plot("Cost of each request", x, {"US dollars": prices}, "$")] if any(prices) else [])]


def plot(caption: str, x: Sequence[float], series: Mapping[str, Sequence[float | None]], unit: str = "") -> Data:
    """A plot of series over the same times: label -> values."""
    lines = [{"label": label, "values": values, "unit": unit} for label, values in series.items()]
    return {"caption": caption, "x": x, "series": lines}


def step_shape(step: StepInfo) -> Data:
    """What lists of model calls show."""
    amounts = {"cached_tokens": "usage.cached_input_tokens", "output_tokens": "usage.output_tokens"}
    return {
        **attributes(
            step, "id", "run_id", "index", "status", "model", "price", "rewritten", at="created_at", **amounts
        ),
        "input_tokens": step.usage.input_tokens or step.estimated_tokens,
        "measured": step.usage.input_tokens > 0,
        "failure": None if step.failure is None else step.failure.message,
        "seconds": None if step.ended_at is None else (step.ended_at - step.created_at).total_seconds(),
    }
