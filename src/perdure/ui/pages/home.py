"""Home: the agents, the newest runs, and the calls that wait for approval."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from starlette.requests import Request

from perdure.core.agents import DISCARDED, LISTED, Agent, AgentFilter, AgentOrder
from perdure.core.blocks import Author, BlockVersion
from perdure.core.errors import AlreadyExists
from perdure.core.ids import AgentId, RunId
from perdure.core.runs import Run, RunFilter, Usage
from perdure.core.text.reprs import attributes
from perdure.domain.agents.profile import PROFILE
from perdure.library.parts.checks import Page, outside
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Pages, after_of, agent_id_of, field_of, form_of, sections_of, sort_of

AGENTS_MAX, RUNS_MAX = 50, 10
WAITING = "waiting"
SORTS = ("name", "messages", "updated", "created")
"""By which columns agents are sorted; by default those that were used last come first."""

pages = Pages()


@pages.get("/", "home.html", sections="home", is_live=True)
async def home(request: Request, library: AsyncPerdure) -> Data:
    """The agents but hidden ones, those used last first or in the order of `sort`, the newest runs, and the calls that
    wait for approval; with `discarded` the agents that were discarded."""
    text = request.query_params.get("q", "").strip()
    after = request.query_params.get("after")
    discarded = AgentFilter(tags=(DISCARDED,), hidden=True)
    is_discarded = bool(request.query_params.get("discarded"))
    where = discarded if is_discarded else AgentFilter(text=text or None, hidden=False)
    sort = sort_of(request)
    order = sort.removeprefix("-") if sort.removeprefix("-") in SORTS else "used"
    page = Page(AGENTS_MAX, order != "used" and not sort.startswith("-"), after)
    agents = await library.all_agents.page(where, page, cast(AgentOrder, order))
    runs = await library.runs.page_of_runs(RunFilter(), Page(RUNS_MAX, ascending=False))
    names = await agent_names(library, [run.key.agent_id for run in runs])
    pending = await library.approvals.list_all()
    waiting = {call.run_id for _, call in pending}
    return {
        "title": "Home",
        "agents": [agent_shape(agent) for agent in agents],
        "after": after_of(agents, AGENTS_MAX),
        "search": text,
        "sort": sort if order != "used" else "",
        "is_discarded": is_discarded,
        "discarded": await library.all_agents.count(discarded),
        "runs": [listed_run(run, waiting) | {"agent": names[run.key.agent_id]} for run in runs],
        "pending": [
            {"agent": name, "agent_id": call.agent_id, "tool": call.name, "call_id": call.call_id}
            for name, call in pending
        ],
        "model": attributes(await library.app.decide(), "handle", "reason"),
        "models": list(library.app.models.handles()),
    }


async def agent_names(library: AsyncPerdure, agent_ids: list[AgentId]) -> dict[AgentId, str]:
    """The names of these agents."""
    return {id_: (await library.all_agents.resolve(id_)).name for id_ in dict.fromkeys(agent_ids)}


def agent_shape(agent: Agent) -> Data:
    """What lists of agents show."""
    return attributes(agent, *LISTED, messages="message_count") | {"profile": agent.settings.get(PROFILE, "")}


def agent_frame(agent: Agent, title: str, tab: str) -> Data:
    """The data that all pages of an agent have: `title` names the page, `tab` is the tab that is marked."""
    return {"title": f"{agent.name} · {title}", "agent": agent_shape(agent), "tab": tab}


def run_shape(run: Run, usage: Usage | None = None) -> Data:
    """Return a run for lists. `usage`: the tokens so far of an unfinished run, as its row has them only at its end."""
    own = ("id", "conversation_id", "status", "stop_reason", "created_at")
    return {
        **attributes(run, *own, agent_id="key.agent_id", steps="step_count"),
        **attributes(usage or run.usage, "input_tokens", "output_tokens"),
        "failure": None if run.failure is None else run.failure.message,
        "helper": run.options.helper,
        "model_reason": run.options.model_reason,
    }


def listed_run(run: Run, waiting: Collection[RunId]) -> Data:
    """Return a run as lists show it; one that stopped at calls for a person counts as waiting."""
    return run_shape(run) | ({"status": WAITING, "stop_reason": None} if run.id in waiting else {})


@pages.post("/agents", shows=home)
async def create(request: Request, library: AsyncPerdure) -> Notice:
    """Create an agent, and open its chat."""
    form = await form_of(request)
    name = field_of(form, "name").strip()
    try:
        agent = await library.create_agent(
            name,
            model=form.get("model") or None,
            profile=form.get("profile") or None,
            persona=form.get("persona") or None,
            human=form.get("human") or None,
        )
    except AlreadyExists as error:
        raise AlreadyExists(
            "agent", name, helps="choose another name, or open the one that is there or was deleted"
        ) from error
    return Notice("", location=f"/agents/{agent.id}")


@pages.post("/agents/{agent_id}/delete", shows=home)
async def delete(request: Request, library: AsyncPerdure) -> Notice:
    """Delete an agent with all that is its own."""
    agent = await library.agent(agent_id_of(request))
    await agent.delete()
    return Notice(f"Agent {agent.name!r} was deleted with its history.", location="/")


def page_author() -> Author:
    """The author of what somebody changes on a page."""
    return outside(otherwise="dashboard")


def version_shape(version: BlockVersion) -> Data:
    """A version, with who wrote it, where and when."""
    return {
        **attributes(version, "block_id", "version", "value", "diff", "agent_name", why="reason", at="created_at"),
        **attributes(version.author, "agent_id", "run_id", "message_id", "label", author="kind"),
        "sources": [str(source.source) for source in version.author.sources if not source.source.is_trusted],
    }


UNDO = "/agents/{agent_id}/memory/undo"
"""The path of what undoes a correction."""


def correction_notice(text: str, agent_id: AgentId, number: int) -> Notice:
    """What a correction did, and how it is undone, where a feature does that."""
    if not any(UNDO in section.actions for section in sections_of("memory")):
        return Notice(text)
    return Notice(text, undo=UNDO.format(agent_id=agent_id), fields={"number": str(number)})
