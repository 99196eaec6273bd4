"""Views over facts: the profile of a user, when facts began and ended, and whom and what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from starlette.requests import Request

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.facts.values import Entity
from perdure.core.facts.views import CommunityHit, FactEvent, Profile
from perdure.core.text.reprs import attributes
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.facts.conditions import FactConditions
from perdure.search.query.times import parse_time
from perdure.ui.pages.facts import facts_frame
from perdure.ui.render import Data, Pages, after_of, agent_id_of

PROFILE_TOKENS = 4_000
EVENTS_MAX, ENTITIES_MAX, COMMUNITIES_MAX, MEMBERS_MAX = 100, 50, 10, 12
SLOT_NAMES = {"basic_info": "Person"}
"""Groups of slots whose name is not for people."""

pages = Pages()


@pages.get("/agents/{agent_id}/facts/profile", "facts/profile.html")
async def profile(request: Request, library: AsyncPerdure) -> Data:
    """What is known about the user now, or about whom `user` names, by slots."""
    services, agent_id, user = library.services, agent_id_of(request), request.query_params.get("user", "").strip()
    agent = await services.agents.resolve(agent_id)
    found = await services.fact_views.profile(agent_id, budget_tokens=PROFILE_TOKENS, user=user)
    return facts_frame(agent, "profile") | {
        "user": user,
        "name": None if found.user is None else found.user.name,
        "entity_id": None if found.user is None else found.user.id,
        "groups": _groups(found),
        "left_out": found.left_out,
    }


def _groups(found: Profile) -> list[Data]:
    """The slots of a profile by their first part, each value with the fact that says it."""
    groups: dict[str, dict[str, list[Data]]] = {}
    for entry in found.entries:
        group, _, slot = entry.slot.partition(".")
        value = {"value": entry.value, "fact_id": None}
        if entry.fact is not None:
            value |= attributes(entry.fact, "text", "valid_at", fact_id="id")
        groups.setdefault(group, {}).setdefault(slot, []).append(value)
    return [
        {
            "name": SLOT_NAMES.get(group, group.replace("_", " ")),
            "slots": [{"name": slot.replace("_", " "), "entries": values} for slot, values in slots.items()],
        }
        for group, slots in groups.items()
    ]


@pages.get("/agents/{agent_id}/facts/timeline", "facts/timeline.html")
async def timeline(request: Request, library: AsyncPerdure) -> Data:
    """When facts began and ceased to be true, newest first, from `since` until `until`, about `entity` or all."""
    services, agent_id, query = library.services, agent_id_of(request), request.query_params
    agent = await services.agents.resolve(agent_id)
    entity, problem = query.get("entity", "").strip(), None
    events: Sequence[FactEvent] = ()
    try:
        events = await services.fact_views.timeline(
            agent_id,
            parse_time(query.get("since")),
            parse_time(query.get("until"), end=True),
            limit=EVENTS_MAX + 1,
            newest_first=True,
            conditions=FactConditions(entity=entity or None),
        )
    except (InvalidInput, NotFound) as error:
        problem = str(error)
    older = None
    if len(events) > EVENTS_MAX:
        # The next page begins with all events of one moment, so that none of them is left out between the two.
        last = events[-1].at
        events = [event for event in events if event.at != last] or events
        older = last + timedelta(microseconds=events[-1].at != last)
    return facts_frame(agent, "timeline") | {
        "events": [attributes(one, "at", "kind", "tags", fact_id="fact.id", text="fact.text") for one in events],
        "filters": {name: query.get(name, "") for name in ("since", "until", "entity")},
        "problem": problem,
        "older": None if older is None else older.isoformat(),
    }


@pages.get("/agents/{agent_id}/facts/entities", "facts/entities.html")
async def entities(request: Request, library: AsyncPerdure) -> Data:
    """Communities, the largest or those that `q` finds, and the people, places and things that facts are about."""
    services, agent_id, query = library.services, agent_id_of(request), request.query_params
    agent = await services.agents.resolve(agent_id)
    search = query.get("q", "").strip()
    communities = await services.fact_views.communities(agent_id, search, limit=COMMUNITIES_MAX)
    page = Page(ENTITIES_MAX, ascending=False, after=query.get("after"))
    found = await services.facts.entities(agent_id, page)
    return facts_frame(agent, "entities") | {
        "search": search,
        "communities": [_community_shape(one) for one in communities],
        "entities": [_entity_shape(one) for one in found],
        "after": after_of(found, ENTITIES_MAX),
    }


def _community_shape(hit: CommunityHit) -> Data:
    """A community with its best known entities."""
    members = [attributes(one, "id", "name") for one in hit.members[:MEMBERS_MAX]]
    return attributes(hit.community, "name", "summary", "size", due="summary_due") | {"members": members}


def _entity_shape(entity: Entity) -> Data:
    """An entity with its other names."""
    aliases = [alias for alias in entity.aliases if alias != entity.name]
    return attributes(entity, "id", "name", "type", "summary", facts="fact_count") | {"aliases": aliases}
