"""Facts: what an agent knows as sentences, with the times at which they were true and where they come from; and views
over them: the profile of a user, when facts began and ended, and whom and what they are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.facts.values import KNOWN_STATES, Entity, Fact, FactRule, Graph
from perdure.core.facts.views import CommunityHit, FactEvent, Profile
from perdure.core.ids import AgentId, EntityId, is_id
from perdure.core.passages import PassageFilter
from perdure.core.text.reprs import attributes
from perdure.domain.facts.settings import load_agent_facts, load_graph_settings
from perdure.library.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.facts.conditions import FactConditions
from perdure.search.hits import FactHit, Why
from perdure.search.query import parse_time
from perdure.ui.pages.home import agent_shape
from perdure.ui.render import Data, Pages, after_of, agent_id_of

FACTS_MAX, ABOUT_MAX = 50, 8
TEXT_CHARS = 300
"""Of a passage that has faded."""
SHOWN_SCORE = 0.005
"""Smaller parts of a score are shown as zero."""
STATES: Mapping[str, str] = {
    "": "All",
    "current": "True now",
    "past": "Past",
    "proposed": "Proposed",
    "archived": "Faded",
}
"""Which facts are shown -> its name on the page; without one, all that are believed."""
FILTERS = ("q", "state", "entity", "relation", "at", "as_of")
SIGNALS: Mapping[str, str] = {
    "words": "its words",
    "neighbour_words": "the words beside it",
    "session": "the words of its conversation",
    "dense": "its meaning",
    "neighbour_dense": "the meaning of what stands beside it",
    "late": "its meaning, word by word",
    "distance": "whom it is about",
    "time": "the time in your search",
    "ended": "it is no longer true",
    "recency": "how new it is",
    "length": "its length",
    "use": "how often it was used",
}
"""A part of a score -> what it stands for."""

pages = Pages()


@pages.get("/agents/{agent_id}/facts", "facts/list.html")
async def facts(request: Request, library: AsyncPerdure) -> Data:
    """A page of the facts that meet the conditions, newest first, or with `q` the best that a search finds."""
    services, agent_id, query = library.services, agent_id_of(request), request.query_params
    agent = await services.agents.resolve(agent_id)
    graph = await services.facts.find_graph(agent_id)
    now, search, problem = library.app.ports.clock.now(), query.get("q", "").strip(), None
    hits, about = list[FactHit](), query.get("entity", "").strip()
    try:
        where = _conditions(query, now)
        if is_id("entity", about):
            about = (await services.facts.get_entity(EntityId(about))).name
        if search:
            hits = list(await services.facts.search(agent_id, search, limit=FACTS_MAX, explain=True, conditions=where))
        else:
            page = Page(FACTS_MAX, ascending=False, after=query.get("after"))
            hits = list(await services.facts.page(agent_id, page, conditions=where))
    except (InvalidInput, NotFound) as error:
        problem = str(error)
    used = {name: query[name] for name in FILTERS if query.get(name, "").strip()}
    last = hits[-1].fact.id if len(hits) == FACTS_MAX and not search else None
    return facts_frame(agent, "list") | {
        "facts": [fact_shape(hit, now) for hit in hits],
        "problem": problem,
        "filters": {name: used.get(name, "") for name in FILTERS},
        "states": [
            {"name": name, "label": label, "query": urlencode({**used, "state": name})}
            for name, label in STATES.items()
        ],
        "entity": about,
        "about": _about(hits),
        "more": None if last is None else urlencode({**used, "after": last}),
        "capture": _capture_shape(agent, graph, library.app.settings.facts),
        "passages": await _faded_passages(library, agent_id) if query.get("state") == "archived" else [],
        "rules": [rule_shape(rule) for rule in await services.facts.list_rules(agent_id)],
    }


async def _faded_passages(library: AsyncPerdure, agent_id: AgentId) -> list[Data]:
    """The newest passages of the agent that have faded or are archived."""
    where, page = PassageFilter(states=("faded", "archived")), Page(FACTS_MAX, ascending=False)
    found = await library.services.passages.list_of_agent(agent_id, page, where=where)
    return [{"id": one.id, "text": one.text[:TEXT_CHARS], "state": one.state, "at": one.occurred_at} for one in found]


def facts_frame(agent: Agent, view: str) -> Data:
    """What the pages of facts have in common; `view` is the one that is shown."""
    return {"title": f"{agent.name} · Facts", "agent": agent_shape(agent), "tab": "facts", "view": view}


def _conditions(query: QueryParams, now: datetime) -> FactConditions:
    """The conditions that the page's filters say. Raises: InvalidInput."""
    state = query.get("state", "")
    if state not in STATES:
        raise InvalidInput(f"state is {state!r:.40}: choose one of {', '.join(filter(None, STATES))}")
    relation = as_relation(query.get("relation", ""))
    where = FactConditions(
        entity=query.get("entity", "").strip() or None,
        relations=(relation,) if relation else (),
        at=parse_time(query.get("at")),
        as_of=parse_time(query.get("as_of"), end=True),
        states=KNOWN_STATES,
    )
    if state == "current" and where["at"] is None:
        where["at"] = where["as_of"] or now
    elif state == "past":
        where["ended_at"] = where["as_of"] or now
    elif state in ("proposed", "archived"):
        where["states"] = ("proposed",) if state == "proposed" else ("archived",)
    return where


def as_relation(text: str) -> str:
    """A relation as a person writes it, in the form that facts have: "lives in" is LIVES_IN."""
    return "_".join(text.upper().split())


def fact_shape(hit: FactHit, now: datetime) -> Data:
    """A fact with its entities, its times, and why a search found it."""
    own = ("id", "text", "relation", "type", "rating", "valid_at", "invalid_at", "created_at", "expired_at", "trust")
    ends = {"subject": "subject.name", "subject_id": "subject.id", "object": "object.name", "object_id": "object.id"}
    return {
        **attributes(hit.fact, *own),
        **attributes(hit, **ends),
        "state": _state(hit.fact, now),
        "author": hit.fact.origin.get("type", "extraction"),
        "score": None if hit.why is None else hit.score,
        "why": [] if hit.why is None else _reasons(hit.why),
    }


def _state(fact: Fact, now: datetime) -> str:
    """What a fact is now, in a word."""
    if fact.expired_at is not None:
        return "replaced"
    if fact.state not in KNOWN_STATES:
        return fact.state
    if fact.is_true_at(now):
        return "current"
    return "past" if fact.invalid_at is not None and fact.invalid_at <= now else "future"


def _reasons(why: Why) -> list[Data]:
    """The parts of a score in words, the largest first."""
    parts = sorted(why.parts.items(), key=lambda part: -abs(part[1]))
    return [
        {"name": SIGNALS.get(name, name.replace("_", " ")), "score": score}
        for name, score in parts
        if abs(score) >= SHOWN_SCORE
    ]


def _about(hits: list[FactHit]) -> list[Data]:
    """Whom the facts of the page are about, those of most facts first."""
    counts: dict[str, int] = {}
    entities: dict[str, Entity] = {}
    for hit in hits:
        counts[hit.subject.id] = counts.get(hit.subject.id, 0) + 1
        entities[hit.subject.id] = hit.subject
    most = sorted(counts, key=lambda one: -counts[one])[:ABOUT_MAX]
    return [{"id": one, "name": entities[one].name} for one in most]


def _capture_shape(agent: Agent, graph: Graph | None, extractor: str) -> Data:
    """Whether facts are captured from what is said, and by what."""
    settings = load_agent_facts(agent.settings)
    paused = load_graph_settings({} if graph is None else graph.settings).paused
    by = extractor if settings.extractor == "default" else settings.extractor
    return {"mode": settings.capture, "paused": paused, "extractor": by}


def rule_shape(rule: FactRule) -> Data:
    """What must not be remembered."""
    shape = {"number": rule.seq, "text": rule.text, "relation": rule.relation, "entity": rule.entity_name or None}
    return shape | {"at": rule.created_at}


PROFILE_TOKENS = 4_000
EVENTS_MAX, ENTITIES_MAX, COMMUNITIES_MAX, MEMBERS_MAX = 100, 50, 10, 12
SLOT_NAMES = {"basic_info": "Person"}
"""Groups of slots whose name is not for people."""


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
