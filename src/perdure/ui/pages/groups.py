"""Groups of agents, and the transcript of one: who said what."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from perdure.core.errors import NotFound
from perdure.core.groups.group import Group, GroupFilter
from perdure.core.ids import AgentId, GroupId
from perdure.core.text.reprs import attributes
from perdure.library.checks import Page
from perdure.library.groups.groups import Entry, entry_id, is_deleted
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Pages, after_of

GROUPS_MAX, ENTRIES_MAX = 50, 100
COLOURS = 5
"""How many colours names have; the agents of a group take them in their order."""

pages = Pages()


@pages.get("/groups", "groups/groups.html")
async def groups(request: Request, library: AsyncPerdure) -> Data:
    """The groups, newest first; with `group`, the end of its transcript, or what was said before the entry `before`."""
    query = request.query_params
    group_id = query.get("group")
    if group_id is not None:
        return await _transcript(library, GroupId(group_id), query.get("before"))
    found = await library.groups.page(
        GroupFilter(hidden=False), Page(GROUPS_MAX, ascending=False, after=query.get("after"))
    )
    names = await _names(library, *found)
    return {
        "title": "Groups",
        "group": None,
        "groups": [_group_shape(group, names) for group in found],
        "after": after_of(found, GROUPS_MAX),
    }


async def _transcript(library: AsyncPerdure, group_id: GroupId, before: str | None) -> Data:
    """A group and a page of its transcript, oldest first. Raises: NotFound."""
    one = await library.groups.get(group_id)
    group = one.info
    entries = await one.entries(Page(ENTRIES_MAX, ascending=False, after=before))
    colours = {agent_id: place % COLOURS for place, agent_id in enumerate(group.agent_ids)}
    shape = _group_shape(group, await _names(library, group))
    return {
        "title": shape["name"],
        "group": shape,
        "entries": [_entry_shape(entry, colours) for entry in reversed(entries)],
        "older": entry_id(entries[-1][0]) if len(entries) == ENTRIES_MAX else None,
    }


async def _names(library: AsyncPerdure, *found: Group) -> Mapping[AgentId, str]:
    """The names of the agents of these groups."""
    names: dict[AgentId, str] = {}
    for group in found:
        for agent_id in (*group.agent_ids, *([group.manager_agent_id] if group.manager_agent_id else ())):
            try:
                names[agent_id] = names.get(agent_id) or (await library.all_agents.resolve(agent_id)).name
            except NotFound:  # it was deleted meanwhile
                names[agent_id] = agent_id
    return names


def _group_shape(group: Group, names: Mapping[AgentId, str]) -> Data:
    """What is shown of a group."""
    limits = {"turns": group.max_turns, "tokens": group.max_tokens, "USD": group.max_cost_usd}
    return {
        "id": group.id,
        "name": group.description
        or f"{group.kind.replace('_', ' ').capitalize()}: {', '.join(names[one] for one in group.agent_ids)}",
        "kind": group.kind.replace("_", " "),
        "agents": [
            {"id": one, "name": names[one], "colour": place % COLOURS} for place, one in enumerate(group.agent_ids)
        ],
        "manager": None
        if group.manager_agent_id is None
        else {"id": group.manager_agent_id, "name": names[group.manager_agent_id]},
        "limits": [f"{value:,} {name}" for name, value in limits.items() if value is not None],
        "updated_at": group.updated_at,
    }


def _entry_shape(entry: Entry, colours: Mapping[AgentId, int]) -> Data:
    """What is shown of an entry: `kind` is that of the entry, or `deleted`."""
    said, message = entry
    return {
        **attributes(said, "run_id", "created_at", name="sender_name", agent_id="sender_id"),
        "id": entry_id(said),
        "kind": "deleted" if is_deleted(said, message) else said.kind,
        "colour": None if said.sender_id is None else colours.get(said.sender_id),
        "text": said.text if message is None else message.text,
    }
