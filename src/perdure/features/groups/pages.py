"""Groups of agents, and the transcript of one: who said what; and the companion of an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request

from perdure.core.agents import AgentFilter
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, GroupId
from perdure.core.text.reprs import attributes, plural
from perdure.features.groups.companion_service import CompanionChanges
from perdure.features.groups.feature import COMPANION_OF
from perdure.features.groups.service import AsyncGroupById, Entry, entry_id, is_deleted
from perdure.features.groups.units import GroupFields
from perdure.features.groups.values import Group, GroupFilter, GroupKind
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Pages, Section, after_of, agent_id_of, field_of, form_of, is_number

GROUPS_MAX, ENTRIES_MAX, PASSES_MAX, REASON_CHARS = 50, 100, 5, 240
AGENTS_MAX = 100
KINDS: Mapping[GroupKind, str] = {
    "round_robin": "Each speaks in turn",
    "supervisor": "All answer at once, then the leader",
    "dynamic": "The leader chooses who speaks next",
}
"""Kind of a group that people make -> what happens in it."""

COLOURS = 5
"""How many colours names have; the agents of a group take them in their order."""

pages = Pages(link="Groups")


@pages.get("/groups", "groups.html")
async def groups(request: Request, library: AsyncPerdure) -> Data:
    """The groups, newest first; with `group`, the end of its transcript, or what was said before the entry `before`."""
    query = request.query_params
    group_id = getattr(request.state, "group", query.get("group"))
    if group_id is not None:
        return await _transcript(library, GroupId(group_id), query.get("before"))
    found = await library.groups.page(
        GroupFilter(hidden=False), Page(GROUPS_MAX, ascending=False, after=query.get("after"))
    )
    names = await _names(library, *found)
    return {
        "title": "Groups",
        "group": None,
        "agents": await _choices(library),
        "kinds": KINDS,
        "groups": [_group_shape(group, names) for group in found],
        "after": after_of(found, GROUPS_MAX),
    }


async def _transcript(library: AsyncPerdure, group_id: GroupId, before: str | None) -> Data:
    """A group and a page of its transcript, oldest first. Raises: NotFound."""
    found = await library.groups.get(group_id)
    group = found.info
    entries = await found.entries(Page(ENTRIES_MAX, ascending=False, after=before))
    turn = await found.turn()
    colours = {agent_id: place % COLOURS for place, agent_id in enumerate(group.agent_ids)}
    shape = _group_shape(group, await _names(library, group))
    return {
        "title": shape["name"],
        "group": shape,
        "agents": [agent for agent in await _choices(library) if agent["id"] not in group.members],
        "working": turn is not None and before is None,
        "entries": [_entry_shape(entry, colours) for entry in reversed(entries)],
        "older": entry_id(entries[-1][0]) if len(entries) == ENTRIES_MAX else None,
    }


async def _choices(library: AsyncPerdure) -> Sequence[Data]:
    """The agents that a group may have, those used last first."""
    found = await library.all_agents.page(AgentFilter(hidden=False), Page(AGENTS_MAX, ascending=False), "used")
    return [attributes(agent, "id", "name", "description") for agent in found]


@pages.post("/groups", shows=groups)
async def create(request: Request, library: AsyncPerdure) -> Notice:
    """Create a group of the chosen agents, and open it."""
    form = await request.form()
    fields = {name: value.strip() for name, value in form.items() if isinstance(value, str) and value.strip()}
    kind = next((one for one in KINDS if one == fields.get("kind")), None)
    if kind is None:
        raise InvalidInput(f"kind is {fields.get('kind', '')!r:.40}: choose {', '.join(KINDS)}")
    options: GroupFields = {"description": fields.get("description", "")}
    if turns := _number_in(fields, "max_turns"):
        options["max_turns"] = turns
    chosen = [one for one in form.getlist("agent") if isinstance(one, str)]
    manager = fields.get("manager") if kind != "round_robin" else None
    made = await library.groups.create(kind, agents=chosen, manager=manager, **options)
    return Notice("", location=f"/groups?group={made.id}")


@pages.post("/groups/{group_id}/messages", shows=groups)
async def send(request: Request, library: AsyncPerdure) -> Notice:
    """Send a message to the group; its agents answer in the background, and the page follows them."""
    form = await form_of(request)
    await _group_of(request, library).submit(field_of(form, "text"), idempotency_key=form.get("key") or None)
    return Notice("")


@pages.post("/groups/{group_id}/members", shows=groups)
async def add_member(request: Request, library: AsyncPerdure) -> Notice:
    """Add an agent to the group, as the last one or in its former `place`."""
    form, group = await form_of(request), _group_of(request, library)
    agent = await library.agent(field_of(form, "agent"))
    found = await library.groups.get(group.id)
    place = _number_in(form, "place")
    members = [*found.info.agent_ids]
    members.insert(len(members) if place is None else place, agent.id)
    await found.update(agent_ids=members)
    undo = f"/groups/{group.id}/members/remove"
    return Notice(f"{agent.name} takes part from now on.", undo=undo, fields={"agent": agent.id})


@pages.post("/groups/{group_id}/members/remove", shows=groups)
async def remove_member(request: Request, library: AsyncPerdure) -> Notice:
    """Take an agent out of the group; what it said stays."""
    group, agent_id = _group_of(request, library), AgentId(field_of(await form_of(request), "agent"))
    found = await library.groups.get(group.id)
    members = [*found.info.agent_ids]
    if agent_id not in members:
        raise NotFound("agent of this group", agent_id, hint="it was taken out already")
    place = members.index(agent_id)
    names = await _names(library, found.info)
    await found.update(agent_ids=[member for member in members if member != agent_id])
    fields = {"agent": agent_id, "place": str(place)}
    text = f"{names[agent_id]} no longer takes part; what it said stays."
    return Notice(text, undo=f"/groups/{group.id}/members", fields=fields)


@pages.post("/groups/{group_id}/stop", shows=groups)
async def stop(request: Request, library: AsyncPerdure) -> Notice:
    """End the turns of the group; what was said stays."""
    await _group_of(request, library).cancel()
    return Notice("The group was asked to stop.")


@pages.post("/groups/{group_id}/delete", shows=groups)
async def delete(request: Request, library: AsyncPerdure) -> Notice:
    """Delete the group with its transcript; its agents stay."""
    await library.groups.delete(GroupId(request.path_params["group_id"]))
    return Notice("The group was deleted; its agents stay.", location="/groups")


def _group_of(request: Request, library: AsyncPerdure) -> AsyncGroupById:
    """The group of the path, which is not looked up; the page shows it after an action."""
    request.state.group = GroupId(request.path_params["group_id"])
    return library.groups.by_id(request.state.group)


async def _names(library: AsyncPerdure, *groups: Group) -> Mapping[AgentId, str]:
    """The names of the agents of these groups by their ids."""
    names: dict[AgentId, str] = {}
    for group in groups:
        for agent_id in group.members:
            try:
                names[agent_id] = names.get(agent_id) or (await library.all_agents.resolve(agent_id)).name
            except NotFound:  # it was deleted meanwhile
                names[agent_id] = agent_id
    return names


def _group_shape(group: Group, names: Mapping[AgentId, str]) -> Data:
    limits = {"turns": group.max_turns, "tokens": group.max_tokens, "USD": group.max_cost_usd}
    return {
        "id": group.id,
        "name": group.description
        or f"{group.kind.replace('_', ' ').capitalize()}: {', '.join(names[agent_id] for agent_id in group.agent_ids)}",
        "kind": group.kind.replace("_", " "),
        "agents": [
            {"id": agent_id, "name": names[agent_id], "colour": place % COLOURS}
            for place, agent_id in enumerate(group.agent_ids)
        ],
        "manager": None
        if group.manager_agent_id is None
        else {"id": group.manager_agent_id, "name": names[group.manager_agent_id]},
        "limits": [f"{value:,} {name}" for name, value in limits.items() if value is not None],
        "updated_at": group.updated_at,
    }


def _entry_shape(entry: Entry, colours: Mapping[AgentId, int]) -> Data:
    """An entry of a transcript as the page shows it; `kind` is that of the entry, or `deleted`."""
    item, message = entry
    return {
        **attributes(item, "run_id", "created_at", name="sender_name", agent_id="sender_id"),
        "id": entry_id(item),
        "kind": "deleted" if is_deleted(item, message) else item.kind,
        "colour": None if item.sender_id is None else colours.get(item.sender_id),
        "text": item.text if message is None else message.text,
    }


async def load_companion(request: Request, library: AsyncPerdure) -> Data:
    """The companion of an agent, None without one, with its newest passes; and whether the agent is a companion."""
    agent = await library.all_agents.resolve(agent_id_of(request))
    companion = library.agent_of(agent.id).companion
    shape: Data = {"companion": None, "is_companion": COMPANION_OF in agent.settings}
    if (info := await companion.info()) is None:
        return shape
    shape["companion"] = {
        "id": info.companion.id,
        "name": info.name,
        "kind": info.kind,
        "frequency": info.frequency,
        "turns": info.turns,
        "passes": [
            {
                "number": pass_.number,
                "at": pass_.created_at,
                "outcome": (pass_.outcome or "goes on").replace("_", " "),
                "reason": pass_.reason[:REASON_CHARS],
                "failure": pass_.failure.message[:REASON_CHARS] if pass_.failure else "",
                "run_id": pass_.run_id,
                "edits": [{"label": edit.label, "diff": edit.diff} for edit in pass_.edits],
            }
            for pass_ in await companion.passes(limit=PASSES_MAX)
        ],
    }
    return shape


async def wake(request: Request, library: AsyncPerdure) -> Notice:
    """Have the companion read what is new; the page shows the pass once it has ended."""
    begun = await library.agent_of(agent_id_of(request)).companion.begin()
    return Notice(
        "Nothing new has been said since its last pass." if begun is None else "The companion reads what is new."
    )


async def switch_on(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a companion."""
    info = await library.agent_of(agent_id_of(request)).companion.enable()
    return Notice(f"{info.name} reads what is said from now on, and tidies the blocks.")


async def switch_off(request: Request, library: AsyncPerdure) -> Notice:
    """Delete the companion with its history."""
    companion = library.agent_of(agent_id_of(request)).companion
    await companion.get()  # of none there is nothing to delete
    await companion.disable()
    return Notice("The companion is deleted; what it wrote stays.")


COMPANION_SECTION = Section(
    name="companion",
    load=load_companion,
    actions={
        "/agents/{agent_id}/memory/companion/wake": wake,
        "/agents/{agent_id}/memory/companion/on": switch_on,
        "/agents/{agent_id}/memory/companion/off": switch_off,
    },
    is_of_page=True,
)


async def load_settings(request: Request, library: AsyncPerdure) -> Data | None:
    """How the agent's companion works, and whether it could have one; None: it is a companion itself."""
    agent = await library.all_agents.resolve(agent_id_of(request))
    if COMPANION_OF in agent.settings:
        return None
    info = await library.agent_of(agent.id).companion.info()
    if info is None:
        return {"kind": ""}
    return attributes(info, "kind", "name", "frequency", "max_steps", "max_tokens", id="companion.id")


async def set_companion(request: Request, library: AsyncPerdure) -> Notice:
    """Change how the companion works; an empty limit is that of the server."""
    form, companion = await form_of(request), library.agent_of(agent_id_of(request)).companion
    before = await companion.get()
    numbers = {name: _number_in(form, name) for name in ("frequency", "max_steps", "max_tokens")}
    changes: CompanionChanges = {"max_steps": numbers["max_steps"], "max_tokens": numbers["max_tokens"]}
    if (frequency := numbers["frequency"]) is not None:
        changes["frequency"] = frequency
    info = await companion.update(**changes)
    fields = {name: str(getattr(before, name) or "") for name in numbers}
    undo = f"/agents/{info.agent_id}/settings/companion"
    return Notice(f"{info.name} wakes after every {plural(info.frequency or 0, 'turn')}.", undo=undo, fields=fields)


def _number_in(form: Mapping[str, str], name: str) -> int | None:
    """A whole number of a form; None: the field is empty. Raises: InvalidInput."""
    text = form.get(name, "").replace(",", "").strip()
    if text and not is_number(text):
        raise InvalidInput(f"{name.replace('_', ' ')} is {text!r:.40}: write a whole number, or nothing")
    return int(text) if text else None


async def give_companion(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a companion that tidies its memory, or with `kind` `reflection` one that proposes changes."""
    kind = (await form_of(request)).get("kind", "")
    agent = library.agent_of(agent_id_of(request))
    info = await agent.companion.enable(kind="reflection" if kind == "reflection" else "sleeptime")
    return Notice(f"{info.name} reads what is said from now on.", undo=f"/agents/{agent.id}/settings/companion/off")


COMPANION_SETTINGS = Section(
    name="companion_settings",
    load=load_settings,
    actions={
        "/agents/{agent_id}/settings/companion": set_companion,
        "/agents/{agent_id}/settings/companion/on": give_companion,
        "/agents/{agent_id}/settings/companion/off": switch_off,
    },
)
