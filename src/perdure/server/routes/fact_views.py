"""What is derived from facts: profiles, timelines, communities, texts, and what may fade. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from perdure.library.services.facts.views import CONTEXT_TOKENS, PROFILE_TOKENS
from perdure.library.services.search import BUDGET_MAX_TOKENS
from perdure.search.hits import HITS_MAX
from perdure.search.query.times import parse_time
from perdure.server.http import Library, json_answer
from perdure.server.routes.facts import AboutEntity, Whose
from perdure.server.wire.answers.fact_views import (
    TidyIn,
    TidyUndoIn,
    community_shape,
    context_shape,
    event_shape,
    memory_shape,
    profile_shape,
    tidy_shape,
)
from perdure.server.wire.fields import Date, Tags

router = APIRouter(tags=["facts"])

Budget = Annotated[int, Query(ge=1, le=BUDGET_MAX_TOKENS, description="The most tokens.")]


@router.get("/v1/profiles")
async def get_profile(
    owner: Whose,
    library: Library,
    user: Annotated[str, Query(description="The name of another entity whose profile it is.")] = "",
    budget_tokens: Budget = PROFILE_TOKENS,
) -> Response:
    """Get what is known about the user now, by slots, the most important first."""
    profile = await library.services.fact_views.profile(owner, budget_tokens=budget_tokens, user=user)
    return json_answer(profile_shape(profile))


@router.get("/v1/facts/timeline")
async def get_timeline(
    owner: Whose,
    library: Library,
    entity: AboutEntity = None,
    tag: Annotated[Tags | None, Query(description="A relation or a fact type; several: any of them.")] = None,
    since: Annotated[Date | None, Query(description="Then or later.")] = None,
    until: Annotated[Date | None, Query(description="Before then; a date is the whole day.")] = None,
    order: Literal["asc", "desc"] = "asc",
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 100,
) -> Response:
    """List when facts began and ceased to be true."""
    events = await library.services.fact_views.timeline(
        owner,
        parse_time(since),
        parse_time(until, end=True),
        limit=limit,
        newest_first=order == "desc",
        tags=tag or (),
        conditions={"entity": entity},
    )
    return json_answer([event_shape(event) for event in events])


@router.get("/v1/facts/context")
async def get_context(
    owner: Whose,
    library: Library,
    query: Annotated[str, Query(description="What the facts should match; without one the newest.")] = "",
    budget_tokens: Budget = CONTEXT_TOKENS,
) -> Response:
    """Get what is known as one text for any program: the profile, facts for a query, and the latest events."""
    return json_answer(
        context_shape(await library.services.fact_views.context(owner, query, budget_tokens=budget_tokens))
    )


@router.get("/v1/facts/communities")
async def list_communities(
    owner: Whose,
    library: Library,
    query: Annotated[str, Query(description="Search the summaries; without one the largest come first.")] = "",
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 10,
) -> Response:
    """List or search groups of entities that many facts connect."""
    return json_answer(
        [community_shape(hit) for hit in await library.services.fact_views.communities(owner, query, limit=limit)]
    )


@router.post("/v1/facts/tidy")
async def tidy(body: TidyIn, library: Library) -> Response:
    """Let facts and an agent's passages fade that matter little, and near-duplicates become one; `dry_run` only lists
    them."""
    items = await library.services.fact_views.tidy(body.owner, dry_run=body.dry_run)
    return json_answer([tidy_shape(item) for item in items])


@router.post("/v1/facts/tidy/undo")
async def undo_tidy(body: TidyUndoIn, library: Library) -> Response:
    """Bring back all that the latest pass let fade."""
    return json_answer([memory_shape(one) for one in await library.services.fact_views.restore_last(body.owner)])
