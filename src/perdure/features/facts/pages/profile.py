"""The profile of a user: what is true of them now, by slots; each value is corrected or forgotten where it stands."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from perdure.core.agents import Agent
from perdure.core.errors import NotFound
from perdure.core.ids import FactId
from perdure.core.text.reprs import attributes
from perdure.features.facts.pages.lists import edit_fact, facts_frame, localize
from perdure.features.facts.values.facts import Profile
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Pages, agent_id_of

PROFILE_TOKENS = 4_000
SLOT_NAMES = {"basic_info": "Person"}
"""Groups of slots whose name is not for people."""

pages = Pages()


@pages.get("/agents/{agent_id}/facts/profile", "facts/profile.html", is_live=True)
async def profile(request: Request, library: AsyncPerdure) -> Data:
    """What is known about the user now, or about whom `user` names, by slots."""
    agent_id, user = agent_id_of(request), request.query_params.get("user", "").strip()
    agent = await library.all_agents.resolve(agent_id)
    found = await library.agent_of(agent_id).facts.profile(budget_tokens=PROFILE_TOKENS, user=user)
    return facts_frame(agent, "profile") | {
        "user": user,
        "name": None if found.user is None else found.user.name,
        "entity_id": None if found.user is None else found.user.id,
        "groups": _groups(found, agent),
        "left_out": found.left_out,
    }


def _groups(found: Profile, agent: Agent) -> list[Data]:
    """The slots of a profile, grouped by the part before the dot, each value with the fact that says it."""
    groups: dict[str, dict[str, list[Data]]] = {}
    for entry in found.entries:
        group, _, slot = entry.slot.partition(".")
        value = {"value": entry.value, "fact_id": None}
        if entry.fact is not None:
            value |= localize(attributes(entry.fact, "seq", "text", "valid_at", fact_id="id"), agent)
        groups.setdefault(group, {}).setdefault(slot, []).append(value)
    return [
        {
            "name": SLOT_NAMES.get(group, group.replace("_", " ")),
            "slots": [{"name": slot.replace("_", " "), "entries": values} for slot, values in slots.items()],
        }
        for group, slots in groups.items()
    ]


@pages.post("/agents/{agent_id}/facts/profile/{fact_id}", shows=profile)
async def edit_value(request: Request, library: AsyncPerdure) -> Notice:
    """Correct the sentence behind a value of the profile."""
    return replace(await edit_fact(request, library), undo=_path_of(request))


@pages.post("/agents/{agent_id}/facts/profile/{fact_id}/forget", shows=profile)
async def forget_value(request: Request, library: AsyncPerdure) -> Notice:
    """Forget the fact behind a value of the profile."""
    fact_id = FactId(request.path_params["fact_id"])
    if not (forgotten := await library.facts.delete(fact_id)):
        raise NotFound("fact", fact_id, hint="it is forgotten already")
    return Notice(f"Forgotten: {forgotten[0].text}", undo=_path_of(request, "/restore"))


@pages.post("/agents/{agent_id}/facts/profile/{fact_id}/restore", shows=profile)
async def restore_value(request: Request, library: AsyncPerdure) -> Notice:
    """Bring back a fact that was forgotten."""
    await library.facts.restore(FactId(request.path_params["fact_id"]))
    return Notice("The agent knows it again.")


def _path_of(request: Request, action: str = "") -> str:
    """The path of an action on the value, on the page that is shown."""
    path = f"/agents/{agent_id_of(request)}/facts/profile/{request.path_params['fact_id']}{action}"
    return f"{path}?{request.query_params}"
