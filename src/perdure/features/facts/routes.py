"""What agents know as facts: list, search, add, correct and forget; and what is derived from them: profiles, timelines,
communities, texts, and what may fade. These routes are not part of Letta's API.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query
from fastapi import Path as PathParam
from pydantic import Field

from perdure.core.forgetting.origins import origin_shape
from perdure.core.sources import TrustLabel
from perdure.features.facts import wire
from perdure.features.facts.service import AsyncFacts
from perdure.features.facts.values.facts import FactState
from perdure.features.facts.views import CONTEXT_TOKENS, PROFILE_TOKENS, FactConditions
from perdure.library.memory.search import BUDGET_MAX_TOKENS, period
from perdure.library.parts.checks import NUMBER_MAX, Page
from perdure.search.ranking.hits import HITS_MAX
from perdure.search.ranking.query import parse_time
from perdure.server.wire.fields import AgentIdIn, Date, EntityIdIn, FactIdIn, Filled, GraphIdIn, Items, Tags
from perdure.server.wire.http import Library, Router, pages

router = Router(tags=["facts"])

Pair = Annotated[str, Field(pattern="^[^=]+=", max_length=wire.SCOPE_MAX_CHARS)]
"""A name and a value."""

AboutEntity = Annotated[str | None, Query(description="The name or id of an entity that is subject or object.")]


async def facts_of(
    library: Library,
    agent_id: Annotated[AgentIdIn | None, Query(description="What this agent knows.")] = None,
    graph_id: Annotated[GraphIdIn | None, Query(description="What this graph holds, in place of an agent's.")] = None,
) -> AsyncFacts:
    """The facts of an agent or a graph. Raises: InvalidInput: neither is named, or both."""
    return library.facts.of(wire.owner_of(agent_id, graph_id))


Facts = Annotated[AsyncFacts, Depends(facts_of)]


async def zone_of(facts: Facts) -> str:
    """The time zone of dates without an offset. Raises: NotFound."""
    return await facts.timezone()


Zone = Annotated[str, Depends(zone_of)]


async def conditions(
    zone: Zone,
    entity: AboutEntity = None,
    relation: Annotated[Tags | None, Query(description="Such as LIVES_IN; several: any of them.")] = None,
    fact_type: Annotated[Tags | None, Query(description="Of the graph's fact types.")] = None,
    at: Annotated[Date | None, Query(description="True at this time.")] = None,
    since: Annotated[Date | None, Query(description="True then or later.")] = None,
    until: Annotated[Date | None, Query(description="True then or before; a date is the whole day.")] = None,
    as_of: Annotated[Date | None, Query(description="Believed then; a date is its end.")] = None,
    min_rating: Annotated[float, Query(ge=0, le=1)] = 0,
    state: Annotated[
        Items[FactState] | None, Query(description="Several: any of them; without it, active and faded.")
    ] = None,
    trust: Annotated[Items[TrustLabel] | None, Query(description="Who said it; several: any of them.")] = None,
    scope: Annotated[Items[Pair] | None, Query(description="Such as user_id=ann; several: all of them.")] = None,
) -> FactConditions:
    """The conditions of a list or search. Dates without an offset are in the agent's time zone."""
    pairs = [one.partition("=") for one in scope or ()]
    return FactConditions(
        entity=entity,
        relations=relation or (),
        types=fact_type or (),
        at=parse_time("at", at, timezone=zone),
        since=parse_time("since", since, timezone=zone),
        until=parse_time("until", until, timezone=zone, end=True),
        as_of=parse_time("as_of", as_of, timezone=zone, end=True),
        min_rating=min_rating,
        states=state or (),
        trust=trust,
        scope={name: value for name, _, value in pairs},
    )


Conditions = Annotated[FactConditions, Depends(conditions)]


@router.get("/v1/facts")
async def list_facts(facts: Facts, where: Conditions, page: Annotated[Page, pages("fact")]) -> list[wire.FactShape]:
    """List what an agent knows, newest first by default."""
    return [wire.FactShape.make(hit) for hit in await facts.page(page, **where)]


@router.get("/v1/facts/search")
async def search_facts(
    facts: Facts,
    query: Annotated[Filled, Query(description="What to look for.")],
    where: Conditions,
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 10,
) -> list[wire.FoundFactShape]:
    """Search facts by words, vectors and how near their entities are, best first."""
    return [wire.FoundFactShape.make(hit) for hit in await facts.search(query, limit=limit, **where)]


@router.post("/v1/facts")
async def create_fact(body: wire.FactIn, library: Library) -> wire.FactShape:
    """Add a fact that a person states."""
    values = body.values(await library.facts.of(body.owner).timezone())
    hit = await library.facts.of(body.owner).add_fact(
        body.text, subject=body.subject, relation=body.relation, object_=body.object, **values
    )
    return wire.FactShape.make(hit)


@router.get("/v1/facts/rules")
async def list_rules(facts: Facts) -> list[wire.RuleShape]:
    """List what must not be remembered."""
    return [wire.RuleShape.make(rule) for rule in await facts.rules()]


@router.post("/v1/facts/rules")
async def create_rule(body: wire.RuleIn, library: Library) -> wire.RuleShape:
    """Never remember facts with these words, about this entity, or of this relation."""
    rule = await library.facts.of(body.owner).add_rule(text=body.text, relation=body.relation, entity=body.entity)
    return wire.RuleShape.make(rule)


@router.delete("/v1/facts/rules/{number}", status_code=204)
async def delete_rule(number: Annotated[int, PathParam(ge=1, le=NUMBER_MAX)], facts: Facts) -> None:
    """Lift a rule."""
    await facts.delete_rule(number)


@router.get("/v1/facts/settings")
async def get_settings(facts: Facts) -> wire.FactSettingsShape:
    """Get the settings of a graph, and how much it holds."""
    return wire.fact_settings_shape(await facts.find_graph(), await facts.counts())


@router.patch("/v1/facts/settings")
async def update_settings(body: wire.FactSettingsIn, library: Library) -> wire.FactSettingsShape:
    """Change settings of a graph; `paused` stops extraction."""
    changes = {name: value for name, value in body.non_null().items() if name not in wire.OwnerIn.model_fields}
    facts = library.facts.of(body.owner)
    return wire.fact_settings_shape(await facts.change_settings(changes), await facts.counts())


Budget = Annotated[int, Query(ge=1, le=BUDGET_MAX_TOKENS, description="How many tokens at most.")]


@router.get("/v1/profiles")
async def get_profile(
    facts: Facts,
    user: Annotated[str, Query(description="The name of another entity whose profile it is.")] = "",
    budget_tokens: Budget = PROFILE_TOKENS,
) -> wire.ProfileShape:
    """Get what is known about the user now, by slots, the most important first."""
    return wire.ProfileShape.make(await facts.profile(budget_tokens=budget_tokens, user=user))


@router.get("/v1/facts/timeline")
async def get_timeline(
    facts: Facts,
    zone: Zone,
    entity: AboutEntity = None,
    tag: Annotated[Tags | None, Query(description="A relation or a fact type; several: any of them.")] = None,
    since: Annotated[Date | None, Query(description="Then or later.")] = None,
    until: Annotated[Date | None, Query(description="Before then; a date is the whole day.")] = None,
    order: Literal["asc", "desc"] = "asc",
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 100,
) -> list[wire.EventShape]:
    """List when facts began and ceased to be true."""
    events = await facts.timeline(
        *period(since, until, zone), limit=limit, newest_first=order == "desc", tags=tag or (), entity=entity
    )
    return [wire.EventShape.make(event) for event in events]


@router.get("/v1/facts/context")
async def get_context(
    facts: Facts,
    query: Annotated[str, Query(description="What the facts should match; without one the newest.")] = "",
    budget_tokens: Budget = CONTEXT_TOKENS,
) -> wire.FactContextShape:
    """Get what is known as one text for any program: the profile, facts for a query, and the latest events."""
    return wire.FactContextShape.make(await facts.context(query, budget_tokens=budget_tokens))


@router.get("/v1/facts/communities")
async def list_communities(
    facts: Facts,
    query: Annotated[str, Query(description="Search the summaries; without one the largest come first.")] = "",
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 10,
) -> list[wire.CommunityShape]:
    """List or search groups of entities that many facts connect."""
    return [wire.CommunityShape.make(hit) for hit in await facts.communities(query, limit=limit)]


@router.post("/v1/facts/tidy")
async def tidy(body: wire.TidyIn, library: Library) -> list[wire.TidyShape]:
    """Let unimportant facts and passages fade, and merge near-duplicates; with `dry_run` only list them."""
    return [wire.TidyShape.make(item) for item in await library.facts.of(body.owner).tidy(dry_run=body.dry_run)]


@router.post("/v1/facts/tidy/undo")
async def undo_tidy(body: wire.TidyUndoIn, library: Library) -> list[wire.MemoryShape]:
    """Bring back all that the latest pass let fade."""
    return [wire.MemoryShape.make(one) for one in await library.facts.of(body.owner).restore_last()]


@router.get("/v1/facts/{fact_id}")
async def get_fact(fact_id: FactIdIn, library: Library) -> wire.FactShape:
    """Get a fact, as its newest version says."""
    return wire.FactShape.make(await library.facts.get(fact_id))


@router.patch("/v1/facts/{fact_id}")
async def update_fact(fact_id: FactIdIn, body: wire.FactChangesIn, library: Library) -> wire.FactShape:
    """Correct a fact, as a new version."""
    changes = body.changes(await library.facts.timezone(fact_id))
    return wire.FactShape.make(await library.facts.edit(fact_id, changes))


@router.delete("/v1/facts/{fact_id}", status_code=204)
async def delete_fact(fact_id: FactIdIn, library: Library) -> None:
    """Stop believing a fact; its versions stay, and `restore` brings it back."""
    await library.facts.forget([fact_id])


@router.post("/v1/facts/{fact_id}/restore")
async def restore_fact(fact_id: FactIdIn, library: Library) -> wire.FactShape:
    """Believe a deleted fact again."""
    return wire.FactShape.make(await library.facts.restore(fact_id))


@router.get("/v1/facts/{fact_id}/history")
async def get_history(fact_id: FactIdIn, library: Library) -> wire.FactOriginShape:
    """List all versions of a fact with authors and reasons, and the messages and texts that it comes from."""
    return wire.FactOriginShape(origin_shape(await library.facts.origin(fact_id)))


@router.get("/v1/entities")
async def list_entities(facts: Facts, page: Annotated[Page, pages("entity", order="asc")]) -> list[wire.EntityShape]:
    """List the people, places and things that an agent's facts are about, oldest first by default."""
    return [wire.EntityShape.make(one) for one in await facts.page_of_entities(page)]


@router.get("/v1/entities/{entity_id}")
async def get_entity(entity_id: EntityIdIn, library: Library) -> wire.EntityShape:
    """Get an entity."""
    return wire.EntityShape.make(await library.facts.get_entity(entity_id))


@router.patch("/v1/entities/{entity_id}")
async def update_entity(entity_id: EntityIdIn, body: wire.EntityChangesIn, library: Library) -> wire.EntityShape:
    """Change the name, the type or the other names of an entity; its former name becomes one of the others."""
    return wire.EntityShape.make(await library.facts.change_entity(entity_id, **body.changes()))


@router.post("/v1/entities/{entity_id}/merge")
async def merge_entity(entity_id: EntityIdIn, body: wire.EntityMergeIn, library: Library) -> wire.EntityShape:
    """Merge an entity into another one, which gets its facts and names, and is returned."""
    return wire.EntityShape.make(await library.facts.merge_entities(entity_id, body.into))


@router.post("/v1/entities/{entity_id}/split")
async def split_entity(entity_id: EntityIdIn, library: Library) -> wire.EntityShape:
    """Take back that an entity was merged into another one."""
    return wire.EntityShape.make(await library.facts.split_entity(entity_id))
