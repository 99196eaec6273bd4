"""The state that open pages show, by which they hear of what changed since they were made."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from perdure.core.errors import NotFound, StoreError
from perdure.core.features import Point
from perdure.core.ids import AgentId, is_id
from perdure.core.runs import RunFilter
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.answers import version_of

RUNS_MAX = 10


@dataclass(frozen=True, slots=True)
class State:
    """What open pages show: the versions of the newest runs (status, stop reason), of which `run` is the newest, and of
    what is in an agent's memory: blocks, archives, and what features have.

    `mark` is the store's mark from before they were read. While it stays, nothing else needs to be read again.
    """

    run: str | None = None
    runs: str = ""
    memory: str = ""
    mark: str = field(default="", compare=False)

    @property
    def version(self) -> str:
        """A text that other states don't have."""
        return f"{self.runs}.{self.memory}"


PAGE_CHANGES: Point[[AsyncPerdure, AgentId], Awaitable[Sequence[tuple[str, int]]]] = Point("page_changes")
"""Ids and versions of what features have in an agent's memory: pages that show it are loaded anew as they change."""


async def feed_of(request: Request, library: AsyncPerdure) -> Mapping[str, str]:
    """Return the `address` of a page's event stream, and `since`, the state that the page shows."""
    named = request.path_params.get("agent_id") or request.query_params.get("agent", "")
    agent_id = AgentId(named) if is_id("agent", named) else None
    address = "/events" if agent_id is None else f"/events?agent={agent_id}"
    return {"address": address, "since": (await load_state(library, agent_id)).version}


async def load_state(library: AsyncPerdure, agent_id: AgentId | None) -> State:
    """The state now, by reads that are short at any size of the store; empty if it can't be read."""
    where, memory = RunFilter(agent_ids=() if agent_id is None else (agent_id,)), list[tuple[str, int]]()
    try:
        mark = await library.upkeep.mark()
        runs = await library.runs.page_of_runs(where, Page(RUNS_MAX, ascending=False))
        if agent_id is not None:
            agent = library.agent_of(agent_id)
            memory += [(block.id, block.version) for block in await agent.blocks.list()]
            memory += [(archive.id, archive.info.version) for archive in await agent.archives.list()]
            memory += [one for some in PAGE_CHANGES(library, agent_id) for one in await some]
    except (NotFound, StoreError):
        return State()  # read again with the next look
    shown = [(run.id, run.status, run.stop_reason) for run in runs]
    of_runs, of_memory = (version_of(json.dumps(one).encode()) for one in (shown, memory))
    return State(runs[0].id if runs else None, of_runs, of_memory, mark)
