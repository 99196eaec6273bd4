"""Runs: the list, and one run with its steps, its messages, and a replay."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from perdure.core.agents import AgentFilter
from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ids import AgentId, RunId
from perdure.core.messages import Message, ToolResult
from perdure.core.runs import FAILED_REASONS, Run, RunFilter, RunStatus, StopReason
from perdure.core.text.reprs import attributes
from perdure.domain.conversations.spans import RunSpan
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.runs.steps import RunUse
from perdure.server.wire.errors import error_answer
from perdure.server.wire.http import library_of, wants_page
from perdure.ui.pages.chat_items import message_items
from perdure.ui.pages.context import plot, step_shape
from perdure.ui.pages.home import WAITING, agent_names, listed_run, run_shape
from perdure.ui.render import HEADERS, JSON, Data, Notice, Pages, error_page, form_of, in_order, sort_of

RUNS_MAX, STEPS_MAX, MESSAGES_MAX, PLOTTED_MIN = 50, 200, 500, 3
WINDOW = 200
"""How many of the newest runs the filters, plots and percentiles are made from."""
CHOICES_MAX = 8
ONE = Page(1, ascending=False)
STATUSES: Sequence[RunStatus] = ("queued", "running", "completed", "failed", "cancelled")
FILTERS = ("status", "agent", "model", "error", "day")
COLUMNS = {
    **{"started": "created_at", "agent": "agent", "status": "status", "model": "models", "took": "seconds"},
    **{"steps": "steps", "in": "input_tokens", "out": "output_tokens", "cost": "cost"},
}
"""The columns by which runs are sorted -> their fields."""

pages = Pages()


@pages.get("/runs", "runs.html", sections="runs", is_live=True)
async def runs(request: Request, library: AsyncPerdure) -> Data:
    """The newest runs that meet the filters: `status`, `agent`, `model`, `error` (a stop reason) and `day`; how long
    they took, and what they used. With `sort` those of the window in the order of a column."""
    query = request.query_params
    used = {name: query[name] for name in FILTERS if query.get(name, "").strip()}
    agent = await library.all_agents.resolve(used["agent"]) if "agent" in used else None
    where = _filter_of(used, None if agent is None else agent.id)
    found = await library.runs.page_of_runs(where, Page(WINDOW, ascending=False, after=query.get("after")))
    newest = found
    if used or "after" in query:
        newest = await library.runs.page_of_runs(RunFilter(), Page(WINDOW, ascending=False))
    uses = await library.steps.uses_of_runs([*{run.id: run for run in (*newest, *found)}.values()])
    costs = {run_id: use.cost for run_id, use in uses.items()}
    names = await agent_names(library, [run.key.agent_id for run in (*found, *newest)])
    waiting = {call.run_id for _, call in await library.approvals.list_all()}
    shapes = [_row(run, waiting, uses) | {"agent": names[run.key.agent_id]} for run in found]
    agents = [] if found or used else await library.all_agents.page(AgentFilter(hidden=False), ONE, "used")
    request.state.shown_runs = shapes  # for sections of features
    sort = sort_of(request)
    is_sorted = sort.removeprefix("-") in COLUMNS
    kept, shown = used | ({"sort": sort} if is_sorted else {}), WINDOW if is_sorted else RUNS_MAX
    has_more = len(found) == WINDOW if is_sorted else len(found) > RUNS_MAX
    return {
        "title": "Runs",
        "agent": None if agent is None else {"id": agent.id, "name": agent.name},
        "used": used,
        "filters": _choices(kept, newest, names, uses),
        "newest": attributes(agents[0], "id", "name") if agents else None,
        "runs": in_order(shapes[:shown], request, COLUMNS),
        "is_sorted": is_sorted,
        "keep": urlencode(used),
        "after": urlencode(kept | {"after": found[shown - 1].id}) if has_more else None,
        "plots": _plots(found[:shown], costs),
        "latency": _latency(found),
        "cost": _cost_shape(found[:shown], costs),
    }


def _filter_of(used: Mapping[str, str], agent_id: AgentId | None) -> RunFilter:
    """The filter that the page's fields say. Raises: InvalidInput: a wrong one."""
    status, error, day = used.get("status", ""), used.get("error"), used.get("day")
    if status and status != WAITING and status not in STATUSES:
        raise InvalidInput(f"status is {status!r:.40}: choose one of {WAITING}, {', '.join(STATUSES)}")
    if error and error not in get_args(StopReason):
        raise InvalidInput(f"error is {error!r:.40}: choose one of {', '.join(sorted(FAILED_REASONS))}")
    try:
        since = datetime.combine(date.fromisoformat(day), time(), UTC) if day else None
        until = since and since + timedelta(days=1)
    except (ValueError, OverflowError) as problem:
        raise InvalidInput(f"day is {day!r:.40}: write one such as 2026-11-29") from problem
    return RunFilter(
        agent_ids=() if agent_id is None else (agent_id,),
        statuses=tuple(one for one in STATUSES if one == status),
        waiting=status == WAITING,
        model=used.get("model"),
        stop_reason=cast(StopReason, error) if error else None,
        since=since,
        until=until,
    )


def _row(run: Run, waiting: Collection[RunId], uses: Mapping[RunId, RunUse]) -> Data:
    """A run as the list shows it, with what it cost and how long it took."""
    use = uses.get(run.id)
    own = {"cost": None if use is None else use.cost, "models": [] if use is None else use.models}
    return listed_run(run, waiting) | own | {"seconds": _seconds(run)}


def _seconds(run: Run) -> float | None:
    """How long a run took, from its acceptance to its end; None: it goes on."""
    return None if run.ended_at is None else (run.ended_at - run.created_at).total_seconds()


def _choices(
    used: Mapping[str, str], newest: Sequence[Run], names: Mapping[AgentId, str], uses: Mapping[RunId, RunUse]
) -> list[Data]:
    """The filters with what can be chosen of each, those of the newest runs that occur most first, as links."""
    failed = [str(run.stop_reason) for run in newest if run.stop_reason in FAILED_REASONS]
    found: Mapping[str, Counter[str]] = {
        "agent": Counter(run.key.agent_id for run in newest),
        "model": Counter(model for run in newest for model in uses[run.id].models),
        "error": Counter(failed),
        "day": Counter(run.created_at.astimezone(UTC).date().isoformat() for run in newest),
    }
    labels: Mapping[str, str] = {str(one): name for one, name in names.items()}
    filters = []
    for name in FILTERS:
        values = [WAITING, *STATUSES] if name == "status" else [one for one, _ in found[name].most_common(CHOICES_MAX)]
        if name == "day":
            values = sorted(values, reverse=True)
        values += [used[name]] if name in used and used[name] not in values else []
        rest = {other: value for other, value in used.items() if other != name}
        choices = [
            {
                "label": labels.get(value, value.replace("_", " ") if name == "error" else value),
                "query": urlencode({**rest, name: value}),
                "is_chosen": used.get(name) == value,
            }
            for value in values
        ]
        filters.append({"name": name, "any": urlencode(rest), "choices": choices})
    return filters


def _latency(found: Sequence[Run]) -> Data | None:
    """How many seconds half of the runs took at most, and nineteen of twenty; None: too few have ended."""
    times = sorted(seconds for run in found if (seconds := _seconds(run)) is not None)
    if len(times) < PLOTTED_MIN:
        return None
    p50, p95 = (times[min(len(times) - 1, math.ceil(share * len(times)) - 1)] for share in (0.5, 0.95))
    return {"p50": p50, "p95": p95, "longest": times[-1], "runs": len(times)}


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

    results: dict[str, str] = {}

    def show(_: Run, message: Message) -> list[tuple[str, Data]]:
        """Return the items of a message, and note where its results stand."""
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                results[part.call_id] = f"{message.id}-{place}"
        return [(message.id, item) for item in message_items(message)]

    page = Page(MESSAGES_MAX, ascending=True)
    items = await library.runs.messages_of_run(run_id, page, show, id_of=lambda shown: shown[0])
    return {
        "title": "Run",
        "run": run_shape(run, usage) | {"agent": names[agent_id], "ended": run.ended},
        "spans": _waterfall(spans, results),
        "steps": [step_shape(step) for step in reversed(steps)],
        "items": [item for _, item in items],
        "models": list(library.app.models.handles()),
        "replay": getattr(request.state, "replay", None),
    }


def _waterfall(found: Sequence[RunSpan], results: Mapping[str, str]) -> list[Data]:
    """Return the spans of the run, its model calls and tools, each with position and width in thousandths of the whole,
    and the address of its details. `results`: id of a tool call -> that of its result on the page."""
    if not found:
        return []
    start = min(span.started_at for span in found)
    end = max(span.ended_at or span.started_at for span in found)
    whole = max((end - start).total_seconds(), 1e-6)
    rows = []
    for span in found:
        known, kind, href = span.attributes, "run", ""
        ended_at, name = span.ended_at, "whole run"
        if span.name == "agent_step" and "model" in known:
            kind, name, href = "model", known["model"], f"?step={known['step_id']}#step"
            ended_at = known["answered_at"] or span.ended_at
        elif span.parent_id is not None:
            kind, name, href = "tool", span.name, f"#{results.get(known.get('tool_call_id', ''), 'messages')}"
        seconds = None if ended_at is None else (ended_at - span.started_at).total_seconds()
        left = (span.started_at - start).total_seconds() / whole * 1_000
        width = 1_000 - left if seconds is None else seconds / whole * 1_000
        row = {"name": name, "kind": kind, "href": href, "seconds": seconds, "failed": span.failed}
        rows.append(row | {"left": left, "width": max(width, 3), "reason": known.get("model_reason", "")})
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
        return error_page(error, request) if wants_page(request) else error_answer(error)
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{shape["id"]}.json"'}
    text = json.dumps(shape, ensure_ascii=False, indent=2)
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=JSON)


pages.add("/runs/{run_id}/export", export)
