"""Runs: the list, and one run with its steps, its messages, and a replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import PerdureError
from perdure.core.ids import RunId
from perdure.core.messages import Message
from perdure.core.runs import Run, RunFilter, RunStatus
from perdure.domain.conversations.spans import RunSpan
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.errors import error_answer
from perdure.server.wire.http import library_of
from perdure.ui.pages.chat_items import message_items
from perdure.ui.pages.context import plot, step_shape
from perdure.ui.pages.home import agent_names, run_shape
from perdure.ui.render import HEADERS, JSON, Data, Notice, Pages, after_of, form_of

RUNS_MAX, STEPS_MAX, MESSAGES_MAX, PLOTTED_MIN = 50, 200, 500, 3
STATUSES: Sequence[RunStatus] = ("queued", "running", "completed", "failed", "cancelled")

pages = Pages()


@pages.get("/runs", "runs.html")
async def runs(request: Request, library: AsyncPerdure) -> Data:
    """The newest runs, of one agent or of all, in any status or one."""
    query = request.query_params
    named, status = query.get("agent"), query.get("status", "")
    agent = await library.all_agents.resolve(named) if named else None
    where = RunFilter(
        agent_ids=() if agent is None else (agent.id,), statuses=tuple(one for one in STATUSES if one == status)
    )
    found = await library.runs.page_of_runs(where, Page(RUNS_MAX, ascending=False, after=query.get("after")))
    names = await agent_names(library, [run.key.agent_id for run in found])
    costs = await library.steps.costs_of_runs(found)
    return {
        "title": "Runs",
        "agent": None if agent is None else {"id": agent.id, "name": agent.name},
        "status": status,
        "statuses": list(STATUSES),
        "runs": [run_shape(run) | {"agent": names[run.key.agent_id], "cost": costs[run.id]} for run in found],
        "after": after_of(found, RUNS_MAX),
        "plots": _plots(found, costs),
        "cost": _cost_shape(found, costs),
    }


def _plots(found: Sequence[Run], costs: Mapping[RunId, float | None]) -> list[Data]:
    """Tokens and cost of runs over time, oldest first; too few of them make no plot, nor do runs without a price."""
    ordered = [run for run in reversed(found) if run.usage.input_tokens]
    if len(ordered) < PLOTTED_MIN:
        return []
    x = [run.created_at.timestamp() for run in ordered]
    values = {
        "sent": [run.usage.input_tokens for run in ordered],
        "from the cache": [run.usage.cached_input_tokens for run in ordered],
        "answered": [run.usage.output_tokens for run in ordered],
    }
    dollars = [costs[run.id] for run in ordered]
    cost = [plot("Cost of each run", x, {"US dollars": dollars}, "$")] if any(dollars) else []
    return [plot("Tokens of each run", x, values), *cost]


def _cost_shape(found: Sequence[Run], costs: Mapping[RunId, float | None]) -> Data:
    """What runs cost together, and how many of those that used tokens have no known price."""
    measured = [costs[run.id] for run in found if run.usage.input_tokens or run.usage.output_tokens]
    known = [cost for cost in measured if cost is not None]
    return {"sum": sum(known) if known else None, "known": len(known), "unknown": len(measured) - len(known)}


@pages.get("/runs/{run_id}", "run.html", sections="run")
async def run(request: Request, library: AsyncPerdure) -> Data:
    """One run: a waterfall of its steps and tools, its messages."""
    run_id = RunId(request.path_params["run_id"])
    run, spans = await library.runs.spans_of_run(run_id)
    agent_id = run.key.agent_id
    steps = await library.agent_of(agent_id).steps(run_id=run_id, limit=STEPS_MAX)
    usage = await library.runs.usage_of_run(run_id)
    names = await agent_names(library, [agent_id])

    def show(_: Run, message: Message) -> list[tuple[str, Data]]:
        return [(message.id, item) for item in message_items(message)]

    page = Page(MESSAGES_MAX, ascending=True)
    items = await library.runs.messages_of_run(run_id, page, show, id_of=lambda shown: shown[0])
    return {
        "title": "Run",
        "run": run_shape(run, usage) | {"agent": names[agent_id], "ended": run.ended},
        "spans": _waterfall(spans),
        "steps": [step_shape(step) for step in reversed(steps)],
        "items": [item for _, item in items],
        "models": list(library.app.models.handles()),
        "replay": getattr(request.state, "replay", None),
    }


def _waterfall(found: Sequence[RunSpan]) -> list[Data]:
    """Each span with its place and width in thousandths of the whole."""
    if not found:
        return []
    start = min(span.started_at for span in found)
    end = max(span.ended_at or span.started_at for span in found)
    whole = max((end - start).total_seconds(), 1e-6)
    rows = []
    for span in found:
        seconds = None if span.ended_at is None else (span.ended_at - span.started_at).total_seconds()
        left = (span.started_at - start).total_seconds() / whole * 1_000
        width = 1_000 - left if seconds is None else seconds / whole * 1_000
        row = {"name": span.name, "seconds": seconds, "failed": span.failed, "left": left, "width": max(width, 3)}
        row["reason"] = span.attributes.get("model_reason", "")
        rows.append(row | {"is_part": span.parent_id is not None})
    return rows


@pages.post("/runs/{run_id}/cancel", shows=run)
async def cancel(request: Request, library: AsyncPerdure) -> Notice:
    """Ask the run to stop."""
    await library.runs.cancel(RunId(request.path_params["run_id"]))
    return Notice("The run was asked to stop.")


@pages.post("/runs/{run_id}/replay", shows=run)
async def replay(request: Request, library: AsyncPerdure) -> Notice:
    """Send the requests of the run again, and show old and new answers."""
    run_id, form = RunId(request.path_params["run_id"]), await form_of(request)
    model, system = form.get("model") or None, form.get("system", "")
    found = await library.runs.replay(run_id, model=model, system=system if system.strip() else None)
    request.state.replay = found.as_shape() | {"system": system}
    return Notice("")


@pages.post("/runs/{run_id}/fork", shows=run)
async def fork(request: Request, library: AsyncPerdure) -> Notice:
    """Open a new conversation with a copy of what was said up to the end of the run."""
    run_id = RunId(request.path_params["run_id"])
    found = await library.runs.run(run_id)
    page = Page(1, ascending=False)
    last = await library.runs.messages_of_run(run_id, page, lambda _, message: [message.id], id_of=lambda shown: shown)
    made = await library.agent_of(found.key.agent_id).fork_state(found.conversation_id, upto=last[0] if last else None)
    return Notice("", location=f"/agents/{found.key.agent_id}?conversation={made.conversation.id}")


async def export(request: Request) -> Response:
    """The run as a JSON file."""
    library = library_of(request)
    run_id = RunId(request.path_params["run_id"])
    try:
        shape = await library.runs.export_run(run_id)
    except PerdureError as error:
        return error_answer(error)
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{shape["id"]}.json"'}
    return Response(json.dumps(shape, ensure_ascii=False, indent=2), headers=headers, media_type=JSON)


pages.add("/runs/{run_id}/export", export)
